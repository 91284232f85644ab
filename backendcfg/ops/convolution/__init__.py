"""`conv2d`: what it takes and refuses, the ways to compute it, and which of them does.

The way is chosen by a fixed rule, or the fastest one is measured; see `cudnn.benchmark`.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backendcfg import _native
from backendcfg.cache import BoundedCache
from backendcfg.catalogue.cpu import ONEDNN
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.dispatch.array_facts import dense_facts
from backendcfg.errors import InvalidArgumentError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import devices
from backendcfg.ops.arrays import ArrayView, check_finite, give, round_to, take, widen
from backendcfg.ops.convolution import shapes
from backendcfg.ops.convolution.shapes import geometry
from backendcfg.ops.explanation import Answer, Question, Reason, element_of, of_explain
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from backendcfg.ops.convolution.shapes import Geometry


COLUMNS = 1 << 22
"""Bytes of columns that exist at a time, or one row of them where that is more."""


class Convolution(NamedTuple):
    """One call.

    Attributes:
        geometry: its shapes, and how the kernel moves.
        input: of the geometry's shape and dtype, its rows dense.
        weight, bias: the same, dense; `bias` may be None.
    """

    geometry: Geometry
    input: NDArray[Any]
    weight: NDArray[Any]
    bias: NDArray[Any] | None


def direct(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """Ours, without a matrix of columns."""
    del flags
    how = call.geometry
    out = np.empty(how.computed, how.dtype)
    _native.convolve(
        call.input,
        call.weight,
        call.bias,
        out,
        how.stride,
        how.padding,
        how.dilation,
        how.groups,
        0,
    )
    return out


def im2col(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """A product for each image and group, of columns that are made piece by piece."""
    del flags
    how = call.geometry
    out = np.empty(how.computed, how.dtype)
    batch, groups, outputs = how.input[0], how.groups, how.weight[0] // how.groups
    depth, pixels = math.prod(how.weight[1:]), how.out[0] * how.out[1]
    weights = call.weight.reshape(groups, outputs, depth)
    piece = max(1, min(pixels, COLUMNS // max(1, depth * out.itemsize)))
    columns = np.empty(depth * piece, out.dtype)
    planes = out.reshape(batch, groups, outputs, pixels)
    for image in range(batch):
        for group in range(groups):
            for first in range(0, pixels, piece):
                count = min(piece, pixels - first)
                part = columns[: depth * count].reshape(depth, count)
                _native.unfold(
                    call.input,
                    part,
                    (how.weight[2], how.weight[3]),
                    how.out,
                    how.stride,
                    how.padding,
                    how.dilation,
                    groups,
                    (image, group, first),
                    0,
                )
                target = planes[image, group, :, first : first + count]
                _native.matmul(weights[group], part, out=target)
    return _with_bias(out, call)


def pointwise(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """The weights times the pixels of each image, which are a matrix already."""
    del flags
    how = call.geometry
    batch, groups = how.input[0], how.groups
    weights = call.weight.reshape(groups, how.weight[0] // groups, how.weight[1])
    pixels = call.input.reshape(batch, groups, how.weight[1], math.prod(how.out))
    out = np.empty((batch, groups, weights.shape[1], pixels.shape[3]), how.dtype)
    _native.matmul(weights, pixels, out=out)
    return _with_bias(out.reshape(how.computed), call)


def onednn(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """PyTorch's, over the same memory."""
    del flags
    torch, how = sys.modules[TORCH.name], call.geometry
    from_numpy: Callable[[NDArray[Any]], Any] = torch.from_numpy
    # Autocast would compute in bfloat16, whatever was asked of us.
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        images, weight = from_numpy(_readable(call.input)), from_numpy(_readable(call.weight))
        bias = None if call.bias is None else from_numpy(_readable(call.bias))
        after, padding = how.padding_after, how.padding
        if any(after[d] > padding[d] for d in range(2)):  # "same" of an even kernel
            sides = (padding[1], max(0, after[1]), padding[0], max(0, after[0]))
            images, padding = torch.nn.functional.pad(images, sides), (0, 0)
        result = torch.nn.functional.conv2d(
            images, weight, bias, how.stride, padding, how.dilation, how.groups
        )
        found: NDArray[Any] = result.contiguous().numpy()
    return found


WAYS: dict[str, Callable[[Convolution, FlagsInForce], NDArray[Any]]] = {
    "direct": direct,
    "im2col": im2col,
    "pointwise": pointwise,
    ONEDNN.name: onednn,
}


def _with_bias(out: NDArray[Any], call: Convolution) -> NDArray[Any]:
    if call.bias is not None:
        out += call.bias[:, np.newaxis, np.newaxis]
    return out


def _readable(array: NDArray[Any]) -> NDArray[Any]:
    """As PyTorch takes it: writeable, though it only reads, and not backwards."""
    plain = array.flags.writeable and min(array.strides) >= 0
    return array if plain else array.copy()


FLAGS = (
    *("cudnn.benchmark", "cudnn.benchmark_limit", "cudnn.enabled", "cudnn.deterministic"),
    *("mkldnn.enabled", "mkldnn.deterministic", "determinism.tier", "determinism.algorithms"),
)
"""The flags that the choice looks at."""

fastest: BoundedCache[tuple[Any, ...], str] = BoundedCache(512)
"""The fastest way by shape; the shape that was not used for longest is forgotten first."""


def fixed_by(flags: FlagsInForce) -> str:
    """What forbids to measure, or ""."""
    if flags.tier != "none":
        return f"the tier is {flags.tier}"
    if flags["determinism.algorithms"] == "deterministic":
        return "`determinism.algorithms` is deterministic"
    for flag in ("cudnn.deterministic", "mkldnn.deterministic"):
        if flags[flag]:
            return f"`{flag}` is on"
    if not flags["cudnn.enabled"]:
        return "`cudnn.enabled` is off"
    return "" if flags["cudnn.benchmark"] else "`cudnn.benchmark` is off"


def unmet(way: str, call: Geometry, flags: FlagsInForce) -> str:
    """Why a way cannot serve a call, or ""."""
    if way == "pointwise":
        return "" if call.is_pointwise else "the kernel is not 1 by 1 at stride 1 without padding"
    if way == "im2col":
        return "a 1 by 1 kernel needs no columns" if call.is_pointwise else ""
    return _onednn_unmet(call, flags) if way == ONEDNN.name else ""


def _onednn_unmet(call: Geometry, flags: FlagsInForce) -> str:
    if not flags["mkldnn.enabled"]:
        return "`mkldnn.enabled` is off"
    torch: Any = sys.modules.get(TORCH.name)
    if torch is None or not hasattr(torch, "nn"):
        return "PyTorch, which brings it, is not loaded"
    if not (torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()):
        return "PyTorch does not compute with it"
    if call.dtype != "float32":
        return "PyTorch gives it no float64"
    return "there is nothing to compute" if 0 in call.input + call.weight else ""


def candidates(call: Geometry, flags: FlagsInForce) -> list[str]:
    """The ways that may serve, the fixed rule's first."""
    return [way for way in WAYS if not unmet(way, call, flags)]


def _choose(call: Geometry, flags: FlagsInForce, *, used: bool) -> tuple[str, str]:
    """The way that serves, and why; "" where the ways are to be measured.

    Args:
        call: what is to be computed.
        flags: the flags.
        used: whether the call is made, which keeps its shape from being forgotten.
    """
    if fixed := fixed_by(flags):
        return "direct", fixed
    key = _key(call, candidates(call, flags))
    known = fastest.get(key)
    if known is not None and used:
        fastest.put(key, known)
    return (known, "the fastest when it was measured") if known is not None else ("", "")


def compute(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """The result, by the way that the flags and the shape choose."""
    how = call.geometry
    way, because = _choose(how, flags, used=True)
    if not way:
        return _measure(call, flags)
    result = WAYS[way](call, flags)
    served("conv2d", way, because, how.shape, how.dtype)
    return result


def foreseen(call: Geometry, flags: FlagsInForce) -> tuple[str, str]:
    """The way that would serve, and why; the first one where the call would measure."""
    way, because = _choose(call, flags, used=False)
    if way:
        return way, because
    return candidates(call, flags)[0], "not measured yet: a call of this shape measures"


def _measure(call: Convolution, flags: FlagsInForce) -> NDArray[Any]:
    """The result of the fastest of the ways, each tried twice: the first wakes threads."""
    how = call.geometry
    ways = candidates(how, flags)
    key = _key(how, ways)
    tried: dict[str, tuple[float, NDArray[Any]]] = {}
    limit = flags["cudnn.benchmark_limit"] or len(WAYS)
    for way in ways[:limit]:
        spent = []
        for _ in range(2):
            start = time.perf_counter()
            result = WAYS[way](call, flags)
            spent.append(time.perf_counter() - start)
        tried[way] = (min(spent), result)
    way = min(tried, key=lambda way: tried[way][0])
    if (known := fastest.get(key)) is not None:  # another thread measured meanwhile
        way = known
    fastest.put(key, way)
    because = f"the fastest of {', '.join(tried)}"
    served("conv2d", way, because, how.shape, how.dtype)
    return tried[way][1] if way in tried else WAYS[way](call, flags)


def _key(call: Geometry, ways: list[str]) -> tuple[Any, ...]:
    """What decides how fast a way is: shapes, arithmetic, window, what may serve, and the profile.

    Not the element: float16 and bfloat16 are computed as float32.
    """
    return (call._replace(element=""), *ways, _native.snapshot())


def explain(question: Question) -> Answer:
    """`shapes` are of the input, the weight and perhaps the bias; the rest is named as there."""
    shapes, name = question.shapes_of(2, 3), element_of(question.dtype)
    operands = [dense_facts(shape, name) for shape in shapes]
    try:
        call = geometry(
            operands[0],
            operands[1],
            operands[2] if len(operands) > 2 else None,
            question.option("stride", 1),
            question.option("padding", 0),
            question.option("dilation", 1),
            question.option("groups", 1),
        )
    except InvalidArgumentError as error:
        raise of_explain(error, "conv2d: ") from None
    what = f"conv2d of {shapes[0]} by {shapes[1]}"
    if (place := devices.place_of(question.option("device", "cpu"))) is not None:
        where = f"{what} {name} on {devices.place_named(place)}"
        answer: Answer = devices.gpu().explain_convolution(call, place, where, tuple(WAYS))
        return answer
    flags = FlagsInForce()
    way, because = foreseen(call, flags)
    fixed = fixed_by(flags)
    reasons = tuple(
        Reason(name, "", unmet(name, call, flags) or fixed or f"behind `{way}`")
        for name in WAYS
        if name != way
    )
    return Answer("conv2d", what, call.shape, way, "", because, reasons, FLAGS)


def conv2d(  # noqa: PLR0917 - torch.nn.functional's order
    input: Any,  # noqa: A002 - torch.nn.functional's name
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """The 2-D convolution (cross-correlation) of images, as `torch.nn.functional.conv2d`.

    Args:
        input: (batch, channels, height, width), or (channels, height, width) for one image:
            float32, float64, complex64, complex128, float16 or bfloat16. The narrow ones are
            computed in float32 and rounded once.
        weight: (outputs, channels / groups, kernel height, kernel width), of the same dtype.
        bias: (outputs,), of the same dtype, or None.
        stride: of the window, one number or (vertical, horizontal), from 1 on.
        padding: zeros on each side, one number or two; "valid" for none, or "same" for a result
            as large as the input, the odd zero at the bottom and at the right.
        dilation: distance between kernel elements, one number or two, from 1 on.
        groups: blocks of channels that see nothing of each other.

    Returns:
        (batch, outputs, height, width), or without the batch, as `input` came: a NumPy array, or
        a tensor of its library. No gradient is recorded.

    Arrays on a CUDA device are convolved there by cuDNN, in float32, float64, float16 and bfloat16.

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it. Nothing is computed.
        MissingLibraryError: on a device: cuDNN cannot be opened.
        DeviceFailedError: on a device: cuDNN or the driver failed.
        TierNotKeptError: on a device: no library there keeps what the profile promises.
    """
    if type(input) is not np.ndarray and _native.device_holds(input):
        return devices.gpu().convolve((input, weight, bias), (stride, padding, dilation, groups))
    images, kernel = take(input, "input", "conv2d"), take(weight, "weight", "conv2d")
    shift = take(bias, "bias", "conv2d") if bias is not None else None
    geometry = shapes.geometry(
        images.facts,
        kernel.facts,
        None if shift is None else shift.facts,
        stride,
        padding,
        dilation,
        groups,
    )
    flags = FlagsInForce()
    result = compute(_prepared(images, kernel, shift, geometry), flags)
    if geometry.is_complex:
        result = _joined(result, geometry)
    result = round_to(result, images.element)
    check_finite(result, "conv2d", flags, images.element)
    return give(result if images.array.ndim == 4 else result[0], images)


def _prepared(
    images: ArrayView, kernel: ArrayView, shift: ArrayView | None, geometry: Geometry
) -> Convolution:
    """The arrays as they are computed: with a batch, wide enough, real, and as dense as need be."""
    x, weight = images.array, kernel.array
    bias = None if shift is None else shift.array
    if x.ndim == 3:
        x = x[np.newaxis]
    if geometry.is_complex:
        x, weight, bias = _taken_apart(x, weight, bias, geometry)
    element = images.element
    return Convolution(
        geometry,
        _rows_dense(widen(x, element)),
        _dense(widen(weight, element)),
        None if bias is None else _dense(widen(bias, element)),
    )


def _taken_apart(
    x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None, geometry: Geometry
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """A complex convolution as a real one: a group's channels are its real and imaginary parts.

    Its outputs are too: `real` of them sees (real, -imaginary) weights, `imaginary` the others.
    """
    groups, area = geometry.groups, geometry.weight[2:]
    each = (groups, 2, geometry.input[1] // groups // 2)
    images = np.empty((x.shape[0], *each, *x.shape[2:]), geometry.dtype)
    by_group = x.reshape(x.shape[0], each[0], each[2], *x.shape[2:])
    images[:, :, 0], images[:, :, 1] = by_group.real, by_group.imag
    outputs = geometry.weight[0] // groups // 2
    weights = np.empty((groups, 2, outputs, *each[1:], *area), geometry.dtype)
    kernel = weight.reshape(groups, outputs, each[2], *area)
    weights[:, 0, :, 0] = weights[:, 1, :, 1] = kernel.real
    weights[:, 1, :, 0] = kernel.imag
    np.negative(kernel.imag, out=weights[:, 0, :, 1])
    if bias is not None:
        both = bias.reshape(groups, outputs)
        bias = np.stack((both.real, both.imag), axis=1).reshape(-1)
    return images.reshape(geometry.input), weights.reshape(geometry.weight), bias


def _joined(result: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """The complex numbers of what `_taken_apart` made to be computed."""
    parts = result.reshape(
        result.shape[0], geometry.groups, 2, result.shape[1] // geometry.groups // 2, *geometry.out
    )
    joined = np.empty((*parts.shape[:2], *parts.shape[3:]), geometry.element)
    joined.real, joined.imag = parts[:, :, 0], parts[:, :, 1]
    return joined.reshape(geometry.shape)


def _rows_dense(array: NDArray[Any]) -> NDArray[Any]:
    """As it is where its rows are dense, and a copy where not."""
    layout = array.flags
    if layout.c_contiguous and layout.aligned:
        return array
    size = array.itemsize
    dense = array.shape[3] <= 1 or array.strides[3] == size
    whole = all(step % size == 0 for step in array.strides) and layout.aligned
    return array if dense and whole else array.copy()


def _dense(array: NDArray[Any]) -> NDArray[Any]:
    layout = array.flags
    if layout.c_contiguous and layout.aligned:
        return array
    return np.require(array, requirements=["C", "A"])
