"""The ways to compute a convolution, and which of them does: a fixed rule, or the fastest one.

- direct: ours; each pixel read where it lies, one chain of fused multiply-adds an element
- im2col: the matrix of columns in bounded pieces, by our matmul
- pointwise: kernels of 1 by 1 are a product of matrices as they lie, by our matmul
- onednn: PyTorch's, where it is loaded and computes with oneDNN

Every way is given the same, and writes the same result. `cudnn.benchmark` measures, as it does on a
GPU: the ways that may serve are tried once for each shape, `cudnn.benchmark_limit` of them at most,
and the fastest is remembered. Where a flag asks for the same bits in each run, nothing is measured,
because what wins may differ from run to run.
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
from backendcfg.ops.convolution.shapes import geometry
from backendcfg.ops.explanation import Answer, Question, Reason, element_of, of_explain
from backendcfg.ops.serving import served

if TYPE_CHECKING:
    from collections.abc import Callable

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
