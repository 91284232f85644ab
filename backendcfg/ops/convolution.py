"""`conv2d`: what it takes, what it refuses, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.arrays import Taken, give, take
from backendcfg.ops.convolution_choice import compute
from backendcfg.ops.convolution_ways import Convolution
from backendcfg.ops.finite import check_finite
from backendcfg.ops.narrow import round_to, widen
from backendcfg.ops.switches import Switches

if TYPE_CHECKING:
    from collections.abc import Sequence

ELEMENTS = ("float32", "float64", "float16", "bfloat16")
_MOST = 1 << 31


class _Window(NamedTuple):
    """How a kernel moves: (vertical, horizontal); `padding` is what lies above and left."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]


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
            float32, float64, float16 or bfloat16. The narrow ones are computed in float32 and
            rounded once.
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

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it. Nothing is computed.
    """
    images, kernel = take(input, "input", "conv2d"), take(weight, "weight", "conv2d")
    shift = take(bias, "bias", "conv2d") if bias is not None else None
    shape, window, count = checked(images, kernel, shift, stride, padding, dilation, groups)
    call = Convolution(
        _rows_dense(widen(images.array.reshape(shape), images.element)),
        _dense(widen(kernel.array, images.element)),
        None if shift is None else _dense(widen(shift.array, images.element)),
        *window,
        count,
    )
    switches = Switches()
    result = compute(call, switches)
    result = round_to(result, images.element)
    check_finite(result, "conv2d", switches, images.element)
    return give(result if images.array.ndim == 4 else result[0], images)


def checked(  # noqa: PLR0917 - the order of conv2d
    images: Taken,
    kernel: Taken,
    shift: Taken | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
    groups: int,
) -> tuple[tuple[int, ...], _Window, int]:
    """The shape of the input with its batch, how the kernel moves, and the number of groups.

    Raises:
        InvalidArgumentError: an argument does not fit.
    """
    for name, taken in (("input", images), ("weight", kernel), ("bias", shift)):
        _check_element(name, taken, images)
    count = _whole(groups, "groups", 1)
    shape = _check_shapes(images, kernel, shift, count)
    return shape, _window(shape, kernel.array.shape, stride, padding, dilation), count


def _check_element(name: str, taken: Taken | None, images: Taken) -> None:
    if taken is None:
        return
    if taken.element not in ELEMENTS:
        _refuse(
            f"`{name}` must hold float32, float64, float16 or bfloat16, not {taken.element}",
            f"convert it: `{name}.astype(numpy.float32)`",
        )
    if taken.element != images.element:
        _refuse(f"`{name}` must hold {images.element}, as `input` does, not {taken.element}")


def _check_shapes(
    images: Taken, kernel: Taken, shift: Taken | None, groups: int
) -> tuple[int, ...]:
    """The shape of the input with its batch."""
    shape, weights = images.array.shape, kernel.array.shape
    if len(shape) not in (3, 4):
        _refuse(f"`input` must have 4 dimensions, or 3 for one image, not {len(shape)}")
    if len(weights) != 4:
        _refuse(f"`weight` must have 4 dimensions, not {len(weights)}")
    shape = shape if len(shape) == 4 else (1, *shape)
    if 0 in weights[2:]:
        _refuse(f"`weight` must have a kernel, not one of {weights[2]} by {weights[3]}")
    if weights[0] < groups or weights[0] % groups:
        _refuse(f"`weight` must have a multiple of {groups} outputs (`groups`), not {weights[0]}")
    if shape[1] != weights[1] * groups:
        _refuse(
            f"`input` must have {weights[1] * groups} channels, as `weight` has {weights[1]} in "
            f"each of {groups} group{'s' * (groups > 1)}, not {shape[1]}"
        )
    if shift is not None and shift.array.shape != weights[:1]:
        _refuse(f"`bias` must have the shape ({weights[0]},), not {shift.array.shape}")
    return shape


def _window(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    stride: int | Sequence[int],
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
) -> _Window:
    steps, spread = _pair(stride, "stride", 1), _pair(dilation, "dilation", 1)
    reach = [(weights[2 + d] - 1) * spread[d] for d in range(2)]
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            _refuse(f'`padding` must be numbers, "valid" or "same", not {padding!r}')
        if padding == "same" and steps != (1, 1):
            _refuse('`padding` "same" needs a `stride` of 1')
        both = reach if padding == "same" else [0, 0]
        before = (both[0] // 2, both[1] // 2)
    else:
        before = _pair(padding, "padding", 0)
        both = [2 * before[0], 2 * before[1]]
    sizes = [shape[2 + d] + both[d] for d in range(2)]
    if any(sizes[d] <= reach[d] for d in range(2)):
        _refuse(
            f"`weight` must fit the padded input of {sizes[0]} by {sizes[1]}, not reach over "
            f"{reach[0] + 1} by {reach[1] + 1}"
        )
    out = [(sizes[d] - reach[d] - 1) // steps[d] + 1 for d in range(2)]
    return _Window(steps, before, spread, (out[0], out[1]))


def _pair(value: Any, name: str, least: int) -> tuple[int, int]:
    """One number for both directions, or two."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if len(values) not in (1, 2):
        _refuse(f"`{name}` must be one number or two, not {len(values)}")
    whole = [_whole(each, name, least) for each in values]
    return whole[0], whole[-1]


def _whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        _refuse(f"`{name}` must be a whole number, not {value!r}")
    number = value.__index__()
    if not least <= number < _MOST:
        limit = f"at least {least}" if number < least else f"below {_MOST}"
        _refuse(f"`{name}` must be {limit}, not {number}")
    return int(number)


def _rows_dense(array: Any) -> Any:
    """As it is where its rows are dense, and a copy where not."""
    size = array.itemsize
    dense = array.shape[3] <= 1 or array.strides[3] == size
    whole = all(step % size == 0 for step in array.strides) and array.flags.aligned
    return array if dense and whole else array.copy()


def _dense(array: Any) -> Any:
    return np.require(array, requirements=["C", "A"])


def _refuse(what: str, *helps: str) -> NoReturn:
    raise InvalidArgumentError(f"conv2d: {what}", state="nothing was computed", helps=[*helps])
