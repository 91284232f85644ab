"""Who computes a transform: MKL where it is the chosen library, else SciPy, else NumPy.

SciPy and NumPy both bring pocketfft. The invariant tiers are kept by construction: one thread, and
under `batch-invariant` one signal at a time, so that nothing is shared with its neighbours. MKL
promises the same bits at all only under its `cbwr`, and serves other tiers not at all.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native
from backendcfg.dispatch.providers import INVARIANT
from backendcfg.errors import InvalidArgumentError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import devices
from backendcfg.ops.arrays import check_finite, give
from backendcfg.ops.explanation import Answer, Question, Reason, element_of, of_explain
from backendcfg.ops.fft import mkl
from backendcfg.ops.fft.arguments import DEVICE, check_element, check_real
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.ops.fft.arguments import Request

FLAGS = ("blas.library", "blas.mkl.cbwr", "determinism.tier", "threads.count")
"""The flags that the choice looks at."""

WORTH_THREADS = 1 << 16
"""Numbers from which on other threads gain more than it costs to wake them."""


def transform(request: Request, *, conjugate: bool = False) -> Any:
    """The result as the input came.

    Args:
        request: what to compute.
        conjugate: whether to give the conjugate of the result.
    """
    if request.came.framework == DEVICE:
        return devices.gpu().transform(request, conjugate=conjugate)
    flags = FlagsInForce()
    if request.conjugates:
        request = request._replace(array=np.conj(request.array))
    result = _compute(request, flags)
    if conjugate:
        np.conjugate(result, out=result)
    check_finite(result, f"fft.{request.operation}", flags)
    return give(result, request.came)


def _compute(request: Request, flags: FlagsInForce) -> NDArray[Any]:
    shape, dtype = request.shape, request.dtype
    array: NDArray[Any] = request.array
    if not request.axes:
        return array.copy()
    if 0 in shape:
        real = array.real.dtype
        return np.zeros(
            shape, real if request.kind == "irfft" else np.result_type(real, np.complex64)
        )
    why_not = mkl_unmet(flags)
    if not why_not:
        try:
            result = mkl.compute(request, flags)
        except mkl.UnservedError as error:
            why_not = f"MKL: {error}"
        else:
            served(
                f"fft.{request.operation}",
                "mkl",
                "it is the chosen library",
                shape,
                dtype,
            )
            return result
    scipy = has_scipy()
    if flags.tier == "batch-invariant":
        result = _one_by_one(request, shape, flags, scipy=scipy)
    else:
        result = _pocketfft(request, request.array, flags, scipy=scipy)
    served(f"fft.{request.operation}", "scipy" if scipy else "numpy", why_not, shape, dtype)
    return result


def mkl_unmet(flags: FlagsInForce) -> str:
    """Why MKL does not serve, or ""."""
    chosen = mkl.first_opened(_native.snapshot()).name
    if chosen != "mkl":
        return f"the chosen library is {chosen}, which has no transforms"
    tier = flags.tier
    if tier == "none" or (tier == "run-to-run" and flags["blas.mkl.cbwr"] != "off"):
        return ""
    return f"the tier is {tier}, which MKL does not promise"


@lru_cache(maxsize=1)
def has_scipy() -> bool:
    """Whether SciPy is installed."""
    return find_spec("scipy") is not None


def _pocketfft(
    request: Request, array: NDArray[Any], flags: FlagsInForce, *, scipy: bool
) -> NDArray[Any]:
    if not scipy:
        return _of_library(np.fft, request, array, norm=request.norm)
    workers = _workers(array, flags)
    return _of_library(_scipy_fft(), request, array, norm=request.norm, workers=workers)


def _of_library(
    library: Any, request: Request, array: NDArray[Any], **keywords: Any
) -> NDArray[Any]:
    if len(request.axes) == 1:  # less to check, for them
        function = getattr(library, request.kind)
        return np.asarray(function(array, request.sizes[0], request.axes[0], **keywords))
    function = getattr(library, f"{request.kind}n")
    return np.asarray(function(array, request.sizes, request.axes, **keywords))


@lru_cache(maxsize=1)
def _scipy_fft() -> Any:
    import scipy.fft

    return scipy.fft


def _workers(array: NDArray[Any], flags: FlagsInForce) -> int | None:
    """None leaves it to SciPy, which takes one, or what `scipy.fft.set_workers` says."""
    if array.size < WORTH_THREADS or flags.tier in INVARIANT:
        return 1
    return flags.threads or None


def _one_by_one(
    request: Request, shape: tuple[int, ...], flags: FlagsInForce, *, scipy: bool
) -> NDArray[Any]:
    """Each signal of the batch by a call of its own."""
    others = [axis for axis in range(len(shape)) if axis not in request.axes]
    result: NDArray[Any] | None = None
    for place in product(*(range(shape[axis]) for axis in others)):
        index: list[Any] = [slice(None)] * len(shape)
        for axis, at in zip(others, place, strict=True):
            index[axis] = slice(at, at + 1)
        part = _pocketfft(
            request, np.ascontiguousarray(request.array[tuple(index)]), flags, scipy=scipy
        )
        if result is None:
            result = np.empty(shape, part.dtype)
        result[tuple(index)] = part
    assert result is not None  # noqa: S101 - the shape has no 0
    return result


TRANSFORMS = (
    *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"),
    *("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"),
)


def explain(question: Question) -> Answer:
    """`shapes` is one shape; `device` where it would be."""
    shape = question.shapes_of(1)[0]
    operation, name = question.operation.removeprefix("fft."), element_of(question.dtype)
    try:
        check_element(operation, name)
        check_real(operation, name)
    except InvalidArgumentError as error:
        raise of_explain(error, f"{question.operation}: ") from None
    if (place := devices.place_of(question.option("device", "cpu"))) is not None:
        answer: Answer = devices.gpu().explain_transform(question.operation, shape, place)
        return answer
    flags = FlagsInForce()
    why_not_mkl = mkl_unmet(flags)
    who = "scipy" if has_scipy() else "numpy"
    reasons = [Reason("scipy", "", "it is not installed")] if who == "numpy" else []
    because = "the first that can"
    if why_not_mkl:
        reasons.insert(0, Reason("mkl", "", why_not_mkl))
    else:
        reasons = [*reasons, Reason(who, "", "behind `mkl`")]
        who, because = "mkl", "it is the chosen library"
    if who == "scipy":
        reasons.append(Reason("numpy", "", "behind `scipy`"))
    what = f"{question.operation} of {shape}"
    return Answer(question.operation, what, shape, who, "", because, tuple(reasons), FLAGS)
