"""Who computes a transform: MKL by its DFTI where it is the chosen library, else SciPy, else NumPy.

SciPy and NumPy both bring pocketfft. The invariant tiers are kept by construction: one thread, and
under `batch-invariant` one signal at a time, so that nothing is shared with its neighbours. MKL
promises the same bits at all only under its `cbwr`, and serves other tiers not at all.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_long, c_void_p
from functools import lru_cache
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backendcfg import _native, native
from backendcfg.dispatch.providers import INVARIANT
from backendcfg.errors import InvalidArgumentError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import devices
from backendcfg.ops.arrays import check_finite, give
from backendcfg.ops.explanation import Answer, Question, Reason, element_of, of_explain
from backendcfg.ops.fft.arguments import DEVICE, check_element, check_real
from backendcfg.ops.fft.plans import MAX_SIZE, plan_cache
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.ops.fft.arguments import Request


# The numbers of mkl_dfti.h.
_FORWARD_SCALE, _BACKWARD_SCALE, _NUMBER_OF_TRANSFORMS = 4, 5, 7
_CONJUGATE_EVEN_STORAGE, _PLACEMENT = 10, 11
_INPUT_STRIDES, _OUTPUT_STRIDES, _INPUT_DISTANCE, _OUTPUT_DISTANCE = 12, 13, 14, 15
_COMPLEX, _REAL, _COMPLEX_COMPLEX, _NOT_INPLACE = 32, 33, 39, 44

MOST_DIMENSIONS = 7


class UnservedError(Exception):
    """MKL cannot compute it; the text says why."""


class Plan:
    """A descriptor, destroyed with the last reference to it. Threads may share it."""

    made = 0
    destroyed = 0

    def __init__(self, library: ctypes.CDLL, handle: c_void_p) -> None:
        self._library = library
        self._handle = handle
        Plan.made += 1

    def compute(self, source: NDArray[Any], target: NDArray[Any], *, forward: bool) -> None:
        """Transform; without the interpreter's lock."""
        function = (
            self._library.DftiComputeForward if forward else self._library.DftiComputeBackward
        )
        _check(self._library, function(self._handle, source.ctypes.data, target.ctypes.data))

    def __del__(self) -> None:
        if self._handle:
            self._library.DftiFreeDescriptor(byref(self._handle))
            Plan.destroyed += 1


def compute(request: Request, flags: FlagsInForce) -> NDArray[Any]:
    """The result of a request.

    Raises:
        UnservedError: it has too many dimensions, or MKL refused.
    """
    if len(request.axes) > MOST_DIMENSIONS:
        raise UnservedError(f"it has no transforms of {len(request.axes)} dimensions")
    library = _library()
    most, scale = int(flags[MAX_SIZE]), _scale(request)
    part = _Part(request.kind, resized(request), request.axes, request.sizes, scale)
    if part.kind == "irfft" and len(part.axes) > 1:
        # Its own, of several dimensions, would trust that the input is Hermitian in all of them.
        first = _Part("ifft", part.array, part.axes[:-1], part.sizes[:-1], 1.0)
        array = _run(library, most, first)
        part = part._replace(array=array, axes=part.axes[-1:], sizes=part.sizes[-1:])
    return _run(library, most, part)


class _Part(NamedTuple):
    """One call of MKL; as in `Request`, with what the result is multiplied by."""

    kind: str
    array: NDArray[Any]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    scale: float


class _Layout(NamedTuple):
    """Everything that a plan depends on; strides and distances in elements.

    Attributes:
        path: of the library.
        threads: that it may use: it divides the work when the plan is made.
        kind: as in `Request`.
        single: whether it computes in float32.
        sizes: of the signal.
        transforms: how many signals, `distance` apart in the input, dense in the output.
        strides: of the input.
        scale: of the result.
    """

    path: str
    threads: int
    kind: str
    single: bool
    sizes: tuple[int, ...]
    transforms: int
    strides: tuple[int, ...]
    distance: int
    scale: float


def _run(library: ctypes.CDLL, most: int, part: _Part) -> NDArray[Any]:
    kind, sizes, count = part.kind, part.sizes, len(part.axes)
    ends = range(-count, 0)
    source = np.moveaxis(part.array, part.axes, ends)
    if (distance := _distance(source, count)) is None:
        source = np.ascontiguousarray(source)
        distance = _distance(source, count) or 1
    batch = source.shape[:-count]
    single = source.dtype in (np.float32, np.complex64)
    complex_type, real_type = (np.complex64, np.float32) if single else (np.complex128, np.float64)
    target = np.empty(
        (*batch, *_result(kind, sizes)), real_type if kind == "irfft" else complex_type
    )
    layout = _Layout(
        library._name,
        library.MKL_Get_Max_Threads(),
        kind,
        single,
        sizes,
        math.prod(batch),
        tuple(step // source.itemsize for step in source.strides[-count:]),
        distance,
        part.scale,
    )
    plan = plan_cache["cpu"].get(layout, lambda: _plan(library, layout), most)
    plan.compute(source, target, forward=kind in ("fft", "rfft"))
    return np.moveaxis(target, ends, part.axes)


def _result(kind: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a transformed signal."""
    return (*sizes[:-1], sizes[-1] // 2 + 1 if kind == "rfft" else sizes[-1])


def _plan(library: ctypes.CDLL, layout: _Layout) -> Plan:
    kind, sizes = layout.kind, layout.sizes
    handle, domain = c_void_p(), _COMPLEX if kind in ("fft", "ifft") else _REAL
    rank = len(sizes)
    create = library[
        f"DftiCreateDescriptor_{'s' if layout.single else 'd'}_{'1d' if rank == 1 else 'md'}"
    ]
    create.restype = c_long
    lengths = [c_long(sizes[0])] if rank == 1 else [c_long(rank), (c_long * rank)(*sizes)]
    _check(library, create(byref(handle), c_int(domain), *lengths))
    plan = Plan(library, handle)
    shape = _result(kind, sizes)
    settings: list[tuple[int, Any]] = [
        (_PLACEMENT, c_int(_NOT_INPLACE)),
        (_NUMBER_OF_TRANSFORMS, c_long(layout.transforms)),
        (_INPUT_STRIDES, (c_long * (rank + 1))(0, *layout.strides)),
        (_OUTPUT_STRIDES, (c_long * (rank + 1))(0, *_dense(shape))),
        (_INPUT_DISTANCE, c_long(layout.distance)),
        (_OUTPUT_DISTANCE, c_long(math.prod(shape))),
        (_FORWARD_SCALE if kind in ("fft", "rfft") else _BACKWARD_SCALE, c_double(layout.scale)),
    ]
    if domain == _REAL:
        settings.append((_CONJUGATE_EVEN_STORAGE, c_int(_COMPLEX_COMPLEX)))
    for name, value in settings:
        _check(library, library.DftiSetValue(handle, c_int(name), value))
    _check(library, library.DftiCommitDescriptor(handle))
    return plan


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps)


def _distance(array: NDArray[Any], count: int) -> int | None:
    """Elements from one signal to the next; None where the signals are not equally far apart."""
    size = array.itemsize
    if not array.flags.aligned or any(step % size or step <= 0 for step in array.strides[-count:]):
        return None
    distance, reach = 0, 0
    for length, step in zip(
        array.shape[-count - 1 :: -1], array.strides[-count - 1 :: -1], strict=True
    ):
        if length == 1:
            continue
        if step <= 0 or step % size or (reach and step != reach):
            return None
        distance = distance or step
        reach = step * length
    return distance // size or 1


def resized(request: Request) -> NDArray[Any]:
    """The input, cropped or padded with zeros to what the transform reads."""
    array: NDArray[Any] = request.array
    shape = list(array.shape)
    for axis, size in zip(request.axes, request.sizes, strict=True):
        shape[axis] = size
    if request.kind == "irfft":
        shape[request.axes[-1]] = request.sizes[-1] // 2 + 1
    kept = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape, strict=True))
    if all(a >= b for a, b in zip(array.shape, shape, strict=True)):
        return array[kept]
    padded = np.zeros(shape, array.dtype)
    padded[kept] = array[kept]
    return padded


def _scale(request: Request) -> float:
    count = math.prod(request.sizes)
    if request.norm == "ortho":
        return float(count**-0.5)
    return 1.0 / count if (request.norm == "forward") == (request.kind in ("fft", "rfft")) else 1.0


def _library() -> ctypes.CDLL:
    return _declared(first_opened(_native.snapshot()).path)


@lru_cache(maxsize=256)
def first_opened(snapshot: int) -> native.Opened:
    """The provider that a snapshot prefers; snapshots are for the life of the process."""
    return native.describe(native.ordered(snapshot, "dgemm")[0])


@lru_cache(maxsize=8)
def _declared(path: str) -> ctypes.CDLL:
    """MKL, which dispatch has opened, with the prototypes of what is not variadic.

    Raises:
        UnservedError: it has no transforms.
    """
    library = ctypes.CDLL(path)
    try:
        for name in ("DftiComputeForward", "DftiComputeBackward"):
            function = getattr(library, name)  # by index would be another object
            function.restype, function.argtypes = c_long, [c_void_p, c_void_p, c_void_p]
        library.DftiFreeDescriptor.argtypes = [POINTER(c_void_p)]
        library.DftiCommitDescriptor.restype = c_long
        library.DftiCommitDescriptor.argtypes = [c_void_p]
        library.DftiSetValue.restype = c_long
        library.DftiErrorMessage.restype = c_char_p
        library.DftiErrorMessage.argtypes = [c_long]
        library.MKL_Get_Max_Threads.restype = c_int
    except AttributeError as error:
        raise UnservedError(f"{path} has no transforms: {error}") from None
    return library


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        text = library.DftiErrorMessage(status) or b""
        raise UnservedError(text.decode(errors="replace") or f"status {status}")


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
            result = compute(request, flags)
        except UnservedError as error:
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
    chosen = first_opened(_native.snapshot()).name
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
