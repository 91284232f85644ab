"""`conv2d`: what it takes, what it refuses, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import devices
from backendcfg.ops.arrays import ArrayView, check_finite, give, round_to, take, widen
from backendcfg.ops.convolution import shapes
from backendcfg.ops.convolution.ways import Convolution, compute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from backendcfg.ops.convolution.shapes import Geometry


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
