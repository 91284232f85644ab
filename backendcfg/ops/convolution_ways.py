"""The ways to compute a convolution. Every one is given the same, and writes the same result.

- direct: ours; each pixel read where it lies, one chain of fused multiply-adds an element
- im2col: the matrix of columns in bounded pieces, by our matmul
- pointwise: kernels of 1 by 1 are a product of matrices as they lie, by our matmul
- onednn: PyTorch's, where it is loaded and computes with oneDNN
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backendcfg import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backendcfg.flags import FlagsInForce
    from backendcfg.ops.convolution_shapes import Geometry

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
    torch, how = sys.modules["torch"], call.geometry
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
    "onednn": onednn,
}


def _with_bias(out: NDArray[Any], call: Convolution) -> NDArray[Any]:
    if call.bias is not None:
        out += call.bias[:, np.newaxis, np.newaxis]
    return out


def _readable(array: NDArray[Any]) -> NDArray[Any]:
    """As PyTorch takes it: writeable, though it only reads, and not backwards."""
    plain = array.flags.writeable and min(array.strides) >= 0
    return array if plain else array.copy()
