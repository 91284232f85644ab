"""The ways to compute a convolution. Every one is given the same, and writes the same result.

- direct: ours; each pixel read where it lies, one chain of fused multiply-adds an element
- im2col: the matrix of columns in bounded pieces, by our matmul
- pointwise: kernels of 1 by 1 are a product of matrices as they lie, by our matmul
- onednn: PyTorch's, where it is loaded and computes with oneDNN
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from backendcfg.ops.switches import Switches

COLUMNS = 1 << 22
"""Bytes of columns that exist at a time, or one row of them where that is more."""


@dataclass(frozen=True)
class Convolution:
    """One call, checked.

    Attributes:
        input: (batch, channels, height, width), float32 or float64, its rows dense.
        weight: (outputs, channels / groups, kernel height, kernel width), dense.
        bias: (outputs,), dense, or None.
        stride, padding, dilation: (vertical, horizontal); padding is what lies above and left,
            and below and right is what `out` needs.
        out: height and width of the result.
        groups: blocks of channels.
    """

    input: NDArray[Any]
    weight: NDArray[Any]
    bias: NDArray[Any] | None
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]
    groups: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return (self.input.shape[0], self.weight.shape[0], *self.out)

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result sees one pixel, in its place."""
        return self.weight.shape[2:] == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    @property
    def padding_after(self) -> tuple[int, int]:
        """Zeros below and right that the result needs; below 0 where it leaves pixels out."""
        after = [
            (self.out[d] - 1) * self.stride[d]
            + (self.weight.shape[2 + d] - 1) * self.dilation[d]
            + 1
            - self.padding[d]
            - self.input.shape[2 + d]
            for d in range(2)
        ]
        return after[0], after[1]


def direct(call: Convolution, switches: Switches) -> NDArray[Any]:
    """Ours, without a matrix of columns."""
    del switches
    out = np.empty(call.shape, call.input.dtype)
    _native.convolve(
        call.input,
        call.weight,
        call.bias,
        out,
        call.stride,
        call.padding,
        call.dilation,
        call.groups,
        0,
    )
    return out


def im2col(call: Convolution, switches: Switches) -> NDArray[Any]:
    """A product for each image and group, of columns that are made piece by piece."""
    del switches
    out = np.empty(call.shape, call.input.dtype)
    outputs = call.weight.shape[0] // call.groups
    depth, pixels = math.prod(call.weight.shape[1:]), call.out[0] * call.out[1]
    weights = call.weight.reshape(call.groups, outputs, depth)
    piece = max(1, min(pixels, COLUMNS // max(1, depth * out.itemsize)))
    columns = np.empty(depth * piece, out.dtype)
    planes = out.reshape(call.shape[0], call.groups, outputs, pixels)
    for image in range(call.shape[0]):
        for group in range(call.groups):
            for first in range(0, pixels, piece):
                count = min(piece, pixels - first)
                part = columns[: depth * count].reshape(depth, count)
                _native.unfold(
                    call.input,
                    part,
                    (call.weight.shape[2], call.weight.shape[3]),
                    call.out,
                    call.stride,
                    call.padding,
                    call.dilation,
                    call.groups,
                    (image, group, first),
                    0,
                )
                target = planes[image, group, :, first : first + count]
                _native.matmul(weights[group], part, out=target)
    return _with_bias(out, call)


def pointwise(call: Convolution, switches: Switches) -> NDArray[Any]:
    """The weights times the pixels of each image, which are a matrix already."""
    del switches
    batch, groups = call.shape[0], call.groups
    weights = call.weight.reshape(groups, call.shape[1] // groups, call.weight.shape[1])
    pixels = call.input.reshape(batch, groups, call.weight.shape[1], math.prod(call.out))
    out = np.empty((batch, groups, weights.shape[1], pixels.shape[3]), call.input.dtype)
    _native.matmul(weights, pixels, out=out)
    return _with_bias(out.reshape(call.shape), call)


def onednn(call: Convolution, switches: Switches) -> NDArray[Any]:
    """PyTorch's, over the same memory."""
    del switches
    torch = sys.modules["torch"]
    from_numpy: Callable[[NDArray[Any]], Any] = torch.from_numpy
    with torch.inference_mode():
        images, weight = from_numpy(_readable(call.input)), from_numpy(_readable(call.weight))
        bias = None if call.bias is None else from_numpy(_readable(call.bias))
        after, padding = call.padding_after, call.padding
        if any(after[d] > padding[d] for d in range(2)):  # "same" of an even kernel
            sides = (padding[1], max(0, after[1]), padding[0], max(0, after[0]))
            images, padding = torch.nn.functional.pad(images, sides), (0, 0)
        result = torch.nn.functional.conv2d(
            images, weight, bias, call.stride, padding, call.dilation, call.groups
        )
        found: NDArray[Any] = result.contiguous().numpy()
    return found


WAYS: dict[str, Callable[[Convolution, Switches], NDArray[Any]]] = {
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
