"""What a convolution is by its shapes alone: what fits, what comes out, what is computed.

`conv2d` and `explain` both ask here, the one of arrays and the other of words about them; so they
cannot disagree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.dispatch.array_facts import ArrayFacts

ARITHMETIC = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
    "float16": "float32",
    "bfloat16": "float32",
}
"""In what each type of element is computed. A complex convolution is a real one, twice as wide."""

_MOST = 1 << 31


class Geometry(NamedTuple):
    """One call, checked.

    Attributes:
        input: (batch, channels, height, width) of what is computed: complex channels are two.
        weight: (outputs, channels / groups, kernel height, kernel width), the same.
        element: of the arguments.
        dtype: of the arithmetic: "float32" or "float64".
        has_bias: whether there is one.
        stride, padding, dilation: (vertical, horizontal); padding is what lies above and left,
            and below and right is what `out` needs.
        out: height and width of the result.
        groups: blocks of channels.
    """

    input: tuple[int, ...]
    weight: tuple[int, ...]
    element: str
    dtype: str
    has_bias: bool
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    out: tuple[int, int]
    groups: int

    @property
    def is_complex(self) -> bool:
        """Whether the arguments are complex."""
        return self.element.startswith("complex")

    @property
    def computed(self) -> tuple[int, ...]:
        """The shape of what is computed."""
        return (self.input[0], self.weight[0], *self.out)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, with its batch."""
        return (self.input[0], self.weight[0] // (1 + self.is_complex), *self.out)

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the result sees one pixel, in its place."""
        return self.weight[2:] == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0)

    @property
    def padding_after(self) -> tuple[int, int]:
        """Zeros below and right that the result needs; below 0 where it leaves pixels out."""
        after = [
            (self.out[d] - 1) * self.stride[d]
            + (self.weight[2 + d] - 1) * self.dilation[d]
            + 1
            - self.padding[d]
            - self.input[2 + d]
            for d in range(2)
        ]
        return after[0], after[1]


def geometry(  # noqa: PLR0917 - the order of conv2d
    images: ArrayFacts,
    kernel: ArrayFacts,
    shift: ArrayFacts | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int] | str,
    dilation: int | Sequence[int],
    groups: int,
) -> Geometry:
    """What a call computes.

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it.
    """
    return _geometry(
        images,
        kernel,
        shift,
        _pair(stride, "stride", 1),
        padding if isinstance(padding, str) else _pair(padding, "padding", 0),
        _pair(dilation, "dilation", 1),
        _whole(groups, "groups", 1),
    )


@lru_cache(maxsize=512)
def _geometry(  # noqa: PLR0917
    images: ArrayFacts,
    kernel: ArrayFacts,
    shift: ArrayFacts | None,
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
    groups: int,
) -> Geometry:
    for name, operand in (("input", images), ("weight", kernel), ("bias", shift)):
        if operand is not None:
            _check_element(name, operand, images)
    shape = _check_shapes(images, kernel, shift, groups)
    before, out = _window(shape, kernel.shape, stride, padding, dilation)
    parts = 2 if images.element.startswith("complex") else 1
    weight = (kernel.shape[0] * parts, kernel.shape[1] * parts, *kernel.shape[2:])
    return Geometry(
        (shape[0], shape[1] * parts, *shape[2:]),
        weight,
        images.element,
        ARITHMETIC[images.element],
        shift is not None,
        stride,
        before,
        dilation,
        out,
        groups,
    )


def _check_element(name: str, operand: ArrayFacts, images: ArrayFacts) -> None:
    if operand.element not in ARITHMETIC:
        *most, last = ARITHMETIC
        _refuse(
            f"`{name}` must hold {', '.join(most)} or {last}, not {operand.element}",
            f"convert it: `{name}.astype(numpy.float32)`",
        )
    if operand.element != images.element:
        _refuse(f"`{name}` must hold {images.element}, as `input` does, not {operand.element}")


def _check_shapes(
    images: ArrayFacts, kernel: ArrayFacts, shift: ArrayFacts | None, groups: int
) -> tuple[int, ...]:
    """The shape of the input with its batch."""
    shape, weights = images.shape, kernel.shape
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
    if shift is not None and shift.shape != weights[:1]:
        _refuse(f"`bias` must have the shape ({weights[0]},), not {shift.shape}")
    return shape


def padded(geometry: Geometry) -> tuple[int, ...]:
    """The shape of x with the zeros below and right that an odd "same" has more than above."""
    batch, channels, *sizes = geometry.input
    more = (
        max(after - before, 0)
        for before, after in zip(geometry.padding, geometry.padding_after, strict=True)
    )
    return batch, channels, *(size + zeros for size, zeros in zip(sizes, more, strict=True))


def _window(
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    steps: tuple[int, int],
    padding: tuple[int, int] | str,
    spread: tuple[int, int],
) -> tuple[tuple[int, int], tuple[int, int]]:
    """What lies above and left of the input, and height and width of the result."""
    reach = [(weights[2 + d] - 1) * spread[d] for d in range(2)]
    if isinstance(padding, str):
        if padding not in ("valid", "same"):
            _refuse(f'`padding` must be numbers, "valid" or "same", not {padding!r}')
        if padding == "same" and steps != (1, 1):
            _refuse('`padding` "same" needs a `stride` of 1')
        both = reach if padding == "same" else [0, 0]
        before = (both[0] // 2, both[1] // 2)
    else:
        before = padding
        both = [2 * before[0], 2 * before[1]]
    sizes = [shape[2 + d] + both[d] for d in range(2)]
    if any(sizes[d] <= reach[d] for d in range(2)):
        _refuse(
            f"`weight` must fit the padded input of {sizes[0]} by {sizes[1]}, not reach over "
            f"{reach[0] + 1} by {reach[1] + 1}"
        )
    out = [(sizes[d] - reach[d] - 1) // steps[d] + 1 for d in range(2)]
    return before, (out[0], out[1])


def _pair(value: Any, name: str, least: int) -> tuple[int, int]:
    """One number for both directions, or two."""
    if type(value) is int and least <= value < _MOST:  # most calls
        return value, value
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if len(values) not in (1, 2):
        _refuse(f"`{name}` must be one number or two, not {len(values)}")
    whole = [_whole(each, name, least) for each in values]
    return whole[0], whole[-1]


def _whole(value: Any, name: str, least: int) -> int:
    try:
        number = None if isinstance(value, (bool, np.bool_)) else value.__index__()
    except (AttributeError, TypeError):  # an array of several has it, and cannot
        number = None
    if number is None:
        _refuse(f"`{name}` must be a whole number, not {value!r}")
    if not least <= number < _MOST:
        limit = f"at least {least}" if number < least else f"below {_MOST}"
        _refuse(f"`{name}` must be {limit}, not {number}")
    return int(number)


def _refuse(what: str, *helps: str) -> NoReturn:
    raise InvalidArgumentError(f"conv2d: {what}", state="nothing was computed", helps=[*helps])
