"""What only an array's own library does to it: PyTorch or CuPy, on its stream.

Everything here puts work on the stream that is current for that library, where that of our own
calls goes too. Arrays that have PyTorch's methods are taken as PyTorch's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def cupy_of(value: Any) -> Any:
    """CuPy, where the array is its; else None."""
    cupy = sys.modules.get("cupy")
    return cupy if cupy is not None and isinstance(value, cupy.ndarray) else None


def is_known(value: Any) -> bool:
    """Whether the functions here can work with an array."""
    return hasattr(value, "copy_") or cupy_of(value) is not None


def plain(value: Any) -> Any:
    """The same numbers without their history."""
    return value.detach() if hasattr(value, "detach") else value


def fill(target: Any, source: Any, *, zero: bool) -> None:
    """Put the corner that two arrays of as many dimensions share from one into the other.

    Real numbers become complex, and integers real, as the target holds them.

    Args:
        target: what is written.
        source: what is read.
        zero: write zeros into the rest of the target.
    """
    corner = tuple(
        slice(0, min(one, other)) for one, other in zip(target.shape, source.shape, strict=True)
    )
    if cupy_of(target) is not None:
        if zero:
            target.fill(0)
        target[corner] = source[corner]
        return
    target = plain(target)
    if zero:
        target.zero_()
    target[corner].copy_(plain(source)[corner])


def turned(value: Any, order: Sequence[int]) -> Any:
    """A view whose dimensions are in another order."""
    if cupy_of(value) is not None:
        return value.transpose(tuple(order))
    return plain(value).permute(tuple(order))


def multiply(value: Any, factor: float) -> None:
    """Multiply an array by a number, in place."""
    if (cupy := cupy_of(value)) is not None:
        cupy.multiply(value, factor, out=value)
    else:
        value.mul_(factor)


def conjugate(value: Any) -> None:
    """Conjugate an array, in place."""
    if (cupy := cupy_of(value)) is not None:
        cupy.conj(value, out=value)
    else:
        value.conj_physical_()


def roll(value: Any, shifts: Sequence[int], axes: Sequence[int]) -> Any:
    """A copy whose numbers are moved along some axes, around the end."""
    if (cupy := cupy_of(value)) is not None:
        return cupy.roll(value, tuple(shifts), axis=tuple(axes))
    return plain(value).roll(tuple(shifts), tuple(axes))
