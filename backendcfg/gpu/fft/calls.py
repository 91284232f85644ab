"""Transforms of arrays on CUDA devices by cuFFT, on their stream.

cuFFT reads and writes where arrays lie if its data layout can say it. What it cannot, and what is
padded, cropped, widened or conjugated first, is copied by the array's own library, which scales the
result too. What a call needs is cached by everything that it follows from.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg import _native
from backendcfg._native import current
from backendcfg.errors import MissingLibraryError, TierNotKeptError
from backendcfg.flags import FlagsInForce
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import Arguments, Held
from backendcfg.gpu.fft import plans as device_fft
from backendcfg.gpu.libraries import alone as device_alone
from backendcfg.gpu.products import calls as device_products
from backendcfg.ops.fft.plans import MAX_SIZE, plan_cache
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Hashable

    from backendcfg.gpu.fft.plans import Pass
    from backendcfg.ops.arrays import ArrayView
    from backendcfg.ops.fft.arguments import Request

KEPT = 512
BECAUSE = "it transforms on NVIDIA's devices"
"""Why cuFFT serves."""


class _Common(NamedTuple):
    """What does not depend on layouts.

    Attributes:
        library: cuFFT.
        driver: of the device.
        element: of the result.
        scale: of the result.
        max_size: of the plan cache.
        is_checked: whether a result that is not finite is refused.
    """

    library: int
    driver: int
    element: str
    scale: float
    max_size: int
    is_checked: bool


class Call(NamedTuple):
    """What is known of all calls of one kind.

    Attributes:
        common: see there.
        passes: the plans to run; none where nothing is transformed.
        source: shape and element of the copy that is read; None where the input is.
        order: of the input's dimensions in that copy; () for its own.
        result: the shape that is written.
        back: the order of the dimensions of `result` that the caller sees; () for its own.
    """

    common: _Common
    passes: tuple[Pass, ...]
    source: tuple[tuple[int, ...], str] | None
    order: tuple[int, ...]
    result: tuple[int, ...]
    back: tuple[int, ...]


_calls: dict[Hashable, Call] = {}


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
    held: Held = request.came.origin
    given.first, given.first_name = held, "input"
    element = _element_of(request.array, held)
    in_force = current()
    key = (
        *(type(request.array), element),
        *(request.kind, request.axes, request.sizes, request.norm, request.conjugates),
        *(held.kind, held.ordinal, held.element, held.shape, held.steps, in_force),
        _is_aligned(held),
    )
    call = _calls.get(key)
    if call is None:
        call = _prepared(request, held, element, given)
        if len(_calls) >= KEPT:
            _calls.clear()
        if current() is in_force:  # else another thread has put a profile in force
            _calls[key] = call
    result = _compute(call, request, held, given)
    if conjugate:
        own_library.conjugate(result)
    if call.common.is_checked:
        device_products.finite(operation, result)
    served(operation, "cufft", BECAUSE, request.shape, held.element)
    return result


def shifted(came: ArrayView, dims: tuple[int, ...] | None, *, forth: bool) -> Any:
    """`fftshift` and `ifftshift` of an array on a device, by its own library."""
    shape = came.origin.shape
    axes = tuple(range(len(shape))) if dims is None else dims
    shifts = [shape[axis] // 2 if forth else -(shape[axis] // 2) for axis in axes]
    return own_library.roll(came.array, shifts, axes)


def forget() -> None:
    """Forget what is known of calls; the next one of each kind is looked at anew."""
    _calls.clear()


def _element_of(value: Any, held: Held) -> str:
    """The type that a transform is computed from: of integers and bool, their library's reals."""
    if held.element in device_fft.COMPLEX:
        return held.element
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return "float64"
    return "float64" if torch.get_default_dtype() is torch.float64 else "float32"


def _is_aligned(held: Held) -> bool:
    """Whether it begins where cuFFT may read: also real numbers at a multiple of complex ones."""
    return held.address % device_fft.ITEM[device_fft.COMPLEX.get(held.element, "complex128")] == 0


def _prepared(request: Request, held: Held, element: str, given: Arguments) -> Call:
    """Check a call and plan it, for all calls of its kind."""
    operation, kind = given.operation, request.kind
    flags = FlagsInForce()
    if broken := device_fft.unkept(flags.tier):
        raise TierNotKeptError(
            f"{operation}: {broken}",
            state="nothing was computed",
            helps=["transform on the CPU", "use a profile of a lower tier"],
        )
    chosen = device_alone.choose("cufft", held.kind)
    if not chosen.library:
        raise MissingLibraryError(
            f"{operation}: no library can transform on {held.place}",
            notes=list(chosen.reasons),
            state="nothing was computed",
            helps=["transform on the CPU: move `input` there"],
        )
    read = element if kind == "rfft" else device_fft.COMPLEX[element]
    written = device_fft.REAL[read] if kind == "irfft" else device_fft.COMPLEX[element]
    axes = device_fft.ordered(kind, request.axes)
    shape = list(held.shape)
    for axis, size in zip(request.axes, request.sizes, strict=True):
        shape[axis] = size
    if kind == "irfft":
        shape[request.axes[-1]] = request.sizes[-1] // 2 + 1
    signals = tuple(shape)
    common = _Common(
        chosen.library,
        chosen.driver,
        written,
        device_fft.scale(kind, request.norm, request.sizes),
        int(flags[MAX_SIZE]),
        bool(flags["ops.check_finite"]),
    )
    result = (request.shape, device_fft.dense_strides(request.shape), written)
    if 0 in request.shape:
        return Call(common, (), None, (), request.shape, ())
    if not axes:
        return Call(common, (), (signals, read), (), request.shape, ())
    # What becomes real numbers is copied always: cuFFT overwrites it.
    fits = (held.shape, held.element) == (signals, read) and _is_aligned(held)
    if fits and kind != "irfft" and not request.conjugates:
        one = device_fft.single(kind, axes, (held.shape, held.strides, read), result)
        if one is not None:
            return Call(common, (one,), None, (), request.shape, ())
    copy = (signals, device_fft.dense_strides(signals), read)
    if (one := device_fft.single(kind, axes, copy, result)) is not None:
        return Call(common, (one,), (signals, read), (), request.shape, ())
    order = (*(axis for axis in range(len(shape)) if axis not in axes), *axes)
    batch = 1
    for axis in order[: -len(axes)]:
        batch *= shape[axis]
    sizes = tuple(request.sizes[request.axes.index(axis)] for axis in axes)
    return Call(
        common,
        device_fft.several(kind, batch, sizes, read),
        (tuple(signals[axis] for axis in order), read),
        order,
        tuple(request.shape[axis] for axis in order),
        tuple(order.index(axis) for axis in range(len(order))),
    )


def _compute(call: Call, request: Request, held: Held, given: Arguments) -> Any:
    source, copy = held, None
    if call.source is not None:
        copy, source = given.make(*call.source)
        value = own_library.plain(request.array)
        if call.order:
            value = own_library.turned(value, call.order)
        own_library.fill(copy, value, zero=_grows(source.shape, tuple(value.shape)))
        if request.conjugates:
            own_library.conjugate(copy)
    if copy is not None and not call.passes:
        return copy
    result, written = given.make(call.result, call.common.element)
    for each in call.passes:
        _run(call.common, each, source, written, given)
    if call.common.scale != 1 and call.passes:
        own_library.multiply(result, call.common.scale)
    return own_library.turned(result, call.back) if call.back else result


def _where(common: _Common, ordinal: int) -> tuple[int, int, int]:
    return common.library, common.driver, ordinal


def _grows(to: tuple[int, ...], of: tuple[int, ...]) -> bool:
    return any(one > other for one, other in zip(to, of, strict=True))


def _run(common: _Common, each: Pass, source: Held, written: Held, given: Arguments) -> None:
    """Put one plan's work on the stream."""
    where = _where(common, written.ordinal)

    def make() -> tuple[Any, int]:
        plan, size, fault = _native.device_transform_plan(*where, *each.plan)
        if fault is not None:
            given.failed("cuFFT", fault, _words(each))
        return plan, size

    cache = plan_cache.of_device(written.ordinal)
    plan, size = cache.get((*where, each.plan), make, common.max_size)
    room, area = given.make((size,), "uint8") if size else (None, None)
    ends = {"": (source, written), "input": (source, source), "output": (written, written)}
    start, end = ends[each.within]
    fault = _native.device_transform(
        plan,
        given.work(0, common.driver, start, end, area),
        start.address,
        end.address,
        area.address if area is not None else 0,
        each.direction,
        each.count,
        *each.steps,
    )
    del room  # not before: its library gives the memory to what comes next on the stream
    if fault is not None:
        given.failed("cuFFT", fault, _words(each))


def _words(each: Pass) -> str:
    """A plan for people."""
    signals = "1 signal" if each.batch == 1 else f"{each.batch} signals"
    return f"plan: {signals} of {each.sizes}, cudaDataType {each.input.type} to {each.output.type}"
