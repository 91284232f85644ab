"""Fourier transforms of arrays on CUDA devices by cuFFT, on the arrays' stream.

cuFFT reads and writes arrays where they lie if its data layout can describe them. The array's own
library copies the others, and what is padded, cropped, widened or conjugated first; it scales the
result too. Plans of calls are cached by all that they follow from.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.cache import ProfileCache
from backendcfg.errors import MissingLibraryError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.gpu import messages, own_library
from backendcfg.gpu.arrays import Arguments, DeviceView
from backendcfg.gpu.fft import plans
from backendcfg.gpu.fft.plans import CufftPlan
from backendcfg.gpu.libraries.calling import Fault
from backendcfg.gpu.libraries.opening import sole_library
from backendcfg.ops.arrays import ArrayView
from backendcfg.ops.devices import place_named
from backendcfg.ops.explanation import Answer, Reason
from backendcfg.ops.fft.arguments import DEVICE, FLOATING, WHOLE, refuse_element
from backendcfg.ops.fft.plans import MAX_SIZE, plan_cache
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Hashable

    from backendcfg.gpu.fft.plans import Pass
    from backendcfg.gpu.libraries.calling import OpenLibrary
    from backendcfg.ops.fft.arguments import Request


BECAUSE = "it transforms on NVIDIA's devices"
"""Why cuFFT serves, for `stats` and `explain`."""


class _Common(NamedTuple):
    """What does not depend on how the array lies.

    Attributes:
        library: cuFFT.
        driver: of the device.
        element: of the result.
        scale: of the result.
        max_size: of the plan cache.
        is_checked: whether a result that is not finite is refused.
    """

    library: OpenLibrary
    driver: int
    element: str
    scale: float
    max_size: int
    is_checked: bool


class TransformPlan(NamedTuple):
    """How calls are made whose arrays and arguments are alike.

    Attributes:
        common: see there.
        passes: the plans of cuFFT to run; none where nothing is transformed.
        source: shape and element of the copy that is read; None where the input itself is read.
        order: of the input's dimensions in that copy; () for the input's own.
        result: the shape that is written.
        back: the order of the dimensions of `result` that the caller sees; () for its own.
    """

    common: _Common
    passes: tuple[Pass, ...]
    source: tuple[tuple[int, ...], str] | None
    order: tuple[int, ...]
    result: tuple[int, ...]
    back: tuple[int, ...]


_plans: ProfileCache[Hashable, TransformPlan] = ProfileCache(512)


def transform(request: Request, *, conjugate: bool = False) -> Any:
    """A transform of an array on a device, as an array of the same library.

    Args:
        request: what to compute; its `array` is the input itself.
        conjugate: whether to give the conjugate of the result.

    Raises:
        MissingLibraryError: there is no cuFFT.
        TierNotKeptError: cuFFT does not keep what the profile promises.
        DeviceFailedError: the device failed.
    """
    operation = f"fft.{request.operation}"
    given = Arguments(operation, {"input": request.array})
    view: DeviceView = request.came.origin
    given.first, given.first_name = view, "input"
    element = _element_of(request.array, view)
    key = (
        *(type(request.array), element),
        *(request.kind, request.axes, request.sizes, request.norm, request.conjugates),
        *(view.kind, view.ordinal, view.element, view.shape, view.byte_strides),
        _is_aligned(view),
    )
    plan = _plans.find(key, lambda: _planned(request, view, element, given))
    result = _compute(plan, request, view, given)
    if conjugate:
        own_library.conjugate(result)
    if plan.common.is_checked:
        own_library.check_finite(operation, result)
    served(operation, "cufft", BECAUSE, request.shape, view.element)
    return result


def shifted(came: ArrayView, dims: tuple[int, ...] | None, *, forth: bool) -> Any:
    """`fftshift` and `ifftshift` of an array on a device, by its own library."""
    shape = came.origin.shape
    axes = tuple(range(len(shape))) if dims is None else dims
    shifts = [shape[axis] // 2 if forth else -(shape[axis] // 2) for axis in axes]
    return own_library.roll(came.array, shifts, axes)


def take(operation: str, value: Any, *, everything: bool) -> ArrayView:
    """The input of a transform, on a device.

    Args:
        operation: "rfft".
        value: the array.
        everything: take every type of element, as the shifts of frequencies do.

    Raises:
        InvalidArgumentError: its library is not known here, or cuFFT has no such type.
    """
    given = Arguments(f"fft.{operation}", {"input": value})
    view = given.take("input")
    if not own_library.is_known(value):
        given.refuse("`input` must be PyTorch's or CuPy's", helps=["pass it as one of theirs"])
    if not everything and view.element not in FLOATING and view.element not in WHOLE:
        element = view.element or str(getattr(value, "dtype", "")).rpartition(".")[2]
        refuse_element(operation, element, value)
    return ArrayView(value, view.element, DEVICE, view)


def explain(operation: str, shape: tuple[int, ...], place: tuple[int, int]) -> Answer:
    """What `explain` says of a transform on a device.

    Args:
        operation: "fft.rfft".
        shape: of the input.
        place: the device, as DLPack numbers it.
    """
    chosen = sole_library("cufft", place[0])
    broken = plans.unkept(FlagsInForce().tier)
    reasons = (broken,) if broken else chosen.reasons
    who = "" if reasons else "cufft"
    return Answer(
        operation,
        f"{operation} of {shape} on {place_named(place)}",
        shape,
        who,
        chosen.path if who else "",
        BECAUSE if who else "",
        tuple(Reason("cufft", "", why) for why in reasons),
        plans.FLAGS,
    )


def forget() -> None:
    """Drop the plans of calls; the next call of each kind is planned anew."""
    _plans.clear()


def _element_of(value: Any, view: DeviceView) -> str:
    """The type that is transformed: the array's; of integers and bool, their library's default."""
    if view.element in plans.COMPLEX:
        return view.element
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return "float64"
    return "float64" if torch.get_default_dtype() is torch.float64 else "float32"


def _is_aligned(view: DeviceView) -> bool:
    """Whether cuFFT may read it where it begins: real numbers too at a multiple of complex ones."""
    return view.address % plans.ITEM[plans.COMPLEX.get(view.element, "complex128")] == 0


def _planned(request: Request, view: DeviceView, element: str, given: Arguments) -> TransformPlan:
    """Check a call and plan it, for all calls of its kind."""
    operation, kind = given.operation, request.kind
    flags = FlagsInForce()
    messages.refuse_unkept(operation, plans.unkept(flags.tier), "transform on the CPU")
    chosen = sole_library("cufft", view.kind)
    if chosen.library is None:
        raise MissingLibraryError(
            f"{operation}: no library can transform on {view.place}",
            notes=list(chosen.reasons),
            state="nothing was computed",
            helps=["transform on the CPU: move `input` there"],
        )
    read = element if kind == "rfft" else plans.COMPLEX[element]
    written = plans.REAL[read] if kind == "irfft" else plans.COMPLEX[element]
    axes = plans.ordered(kind, request.axes)
    shape = list(view.shape)
    for axis, size in zip(request.axes, request.sizes, strict=True):
        shape[axis] = size
    if kind == "irfft":
        shape[request.axes[-1]] = request.sizes[-1] // 2 + 1
    signals = tuple(shape)
    common = _Common(
        chosen.library,
        chosen.driver,
        written,
        plans.scale(kind, request.norm, request.sizes),
        int(flags[MAX_SIZE]),
        bool(flags["ops.check_finite"]),
    )
    result = (request.shape, plans.dense_strides(request.shape), written)
    if 0 in request.shape:
        return TransformPlan(common, (), None, (), request.shape, ())
    if not axes:
        return TransformPlan(common, (), (signals, read), (), request.shape, ())
    # "irfft" always reads a copy: cuFFT overwrites what it makes real numbers of.
    fits = (view.shape, view.element) == (signals, read) and _is_aligned(view)
    if fits and kind != "irfft" and not request.conjugates:
        one = plans.single(kind, axes, (view.shape, view.strides, read), result)
        if one is not None:
            return TransformPlan(common, (one,), None, (), request.shape, ())
    copy = (signals, plans.dense_strides(signals), read)
    if (one := plans.single(kind, axes, copy, result)) is not None:
        return TransformPlan(common, (one,), (signals, read), (), request.shape, ())
    order = (*(axis for axis in range(len(shape)) if axis not in axes), *axes)
    batch = 1
    for axis in order[: -len(axes)]:
        batch *= shape[axis]
    sizes = tuple(request.sizes[request.axes.index(axis)] for axis in axes)
    return TransformPlan(
        common,
        plans.several(kind, batch, sizes, read),
        (tuple(signals[axis] for axis in order), read),
        order,
        tuple(request.shape[axis] for axis in order),
        tuple(order.index(axis) for axis in range(len(order))),
    )


def _compute(plan: TransformPlan, request: Request, view: DeviceView, given: Arguments) -> Any:
    source, copy = view, None
    if plan.source is not None:
        copy, source = given.make(*plan.source)
        value = own_library.plain(request.array)
        if plan.order:
            value = own_library.turned(value, plan.order)
        own_library.fill(copy, value, zero=_grows(source.shape, tuple(value.shape)))
        if request.conjugates:
            own_library.conjugate(copy)
    if copy is not None and not plan.passes:
        return copy
    result, written = given.make(plan.result, plan.common.element)
    for each in plan.passes:
        _run(plan.common, each, source, written, given)
    if plan.common.scale != 1 and plan.passes:
        own_library.multiply(result, plan.common.scale)
    return own_library.turned(result, plan.back) if plan.back else result


def _grows(to: tuple[int, ...], of: tuple[int, ...]) -> bool:
    return any(one > other for one, other in zip(to, of, strict=True))


def _run(
    common: _Common, each: Pass, source: DeviceView, written: DeviceView, given: Arguments
) -> None:
    """Put the work of one plan of cuFFT on the stream."""
    where = (common.library, common.driver, written.ordinal)
    cache = plan_cache.of_device(written.ordinal)
    ends = {"": (source, written), "input": (source, source), "output": (written, written)}
    start, end = ends[each.within]
    try:
        key = (*where, each.plan)
        plan = cache.get(key, lambda: CufftPlan(*where, each), common.max_size)
        room, area = given.make((plan.bytes,), "uint8") if plan.bytes else (None, None)
        work = given.work(common.library, common.driver, start, end, area)
        place = area.address if area is not None else 0
        plan.run(work, each, (start.address, end.address, place))
        del room  # now that the work is on the stream: what its library does with it comes after
    except Fault as fault:
        given.failed("cuFFT", fault.args, _words(each))


def _words(each: Pass) -> str:
    """A plan of cuFFT in words."""
    signals = "1 signal" if each.batch == 1 else f"{each.batch} signals"
    return f"plan: {signals} of {each.sizes}, cudaDataType {each.input.type} to {each.output.type}"
