"""What a transform is asked for, and what is refused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.arrays import Taken, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FLOATING = ("float32", "float64", "complex64", "complex128")
NORMS = ("backward", "ortho", "forward")


class Request(NamedTuple):
    """One transform.

    Attributes:
        operation: as it was called: "hfft".
        kind: "fft", "ifft", "rfft" (real to half complex) or "irfft" (half complex to real).
        array: float32 or float64 where `kind` is "rfft", else complex64 or complex128.
        axes: what is transformed, from 0 on, each once; "rfft" and "irfft" halve the last.
        sizes: of each, in the signal.
        norm: one of `NORMS`.
        came: the input, for `give`.
    """

    operation: str
    kind: str
    array: NDArray[Any]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    norm: str
    came: Taken


def one(  # noqa: PLR0917
    operation: str, kind: str, value: Any, n: int | None, dim: int, norm: str | None
) -> Request:
    """A transform along one dimension.

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it.
    """
    came = taken(operation, value)
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        refuse(operation, f"`dim` must be a whole number, not {dim!r}")
    axes = shape_of(operation, came.array.ndim, [dim.__index__()]) or ()
    return _request(operation, kind, came, axes, None if n is None else (n,), norm, "n")


def several(  # noqa: PLR0917
    operation: str,
    kind: str,
    value: Any,
    s: Sequence[int] | None,
    dim: Sequence[int] | None,
    norm: str | None,
) -> Request:
    """A transform along several dimensions.

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it.
    """
    came = taken(operation, value)
    dimensions = came.array.ndim
    lengths = whole_numbers(operation, "s", s)
    axes = shape_of(operation, dimensions, whole_numbers(operation, "dim", dim))
    if axes is None:
        count = dimensions if lengths is None else len(lengths)
        if count > dimensions:
            refuse(operation, f"`s` must have {dimensions} sizes at most, not {count}")
        axes = tuple(range(dimensions - count, dimensions))
    if lengths is not None and len(lengths) != len(axes):
        refuse(operation, f"`s` must have as many sizes as `dim`, {len(axes)}, not {len(lengths)}")
    if kind in ("rfft", "irfft") and not axes:
        refuse(operation, "`dim` must have at least one dimension")
    return _request(operation, kind, came, axes, lengths, norm, "s")


def _request(  # noqa: PLR0917
    operation: str,
    kind: str,
    came: Taken,
    axes: tuple[int, ...],
    lengths: Sequence[int] | None,
    norm: str | None,
    name: str,
) -> Request:
    if norm is not None and norm not in NORMS:
        refuse(operation, f'`norm` must be "backward", "ortho" or "forward", not {norm!r}')
    array = _numbers(came)
    if kind == "rfft" and array.dtype.kind == "c":
        refuse(
            operation, f"`input` must be real, not {array.dtype}", "take its real part, or `fft`"
        )
    if kind != "rfft":
        array = array.astype(np.result_type(array.dtype, np.complex64), copy=False)
    sizes = [array.shape[axis] for axis in axes]
    if kind == "irfft":
        sizes[-1] = 2 * (sizes[-1] - 1)
    for position, length in enumerate(lengths or ()):
        if isinstance(length, bool) or not hasattr(length, "__index__"):
            refuse(operation, f"`{name}` must be whole numbers, not {length!r}")
        if length.__index__() != -1:
            sizes[position] = length.__index__()
    for axis, size in zip(axes, sizes, strict=True):
        if size < 1:
            refuse(operation, f"`{name}` must be at least 1 for dimension {axis}, not {size}")
    return Request(operation, kind, array, axes, tuple(sizes), norm or "backward", came)


def flipped(norm: str) -> str:
    """The scale of the other direction."""
    return {"backward": "forward", "forward": "backward"}.get(norm, norm)


def shape_of(operation: str, dimensions: int, dims: Sequence[int] | None) -> tuple[int, ...] | None:
    """Dimensions from 0 on; None for all."""
    if dims is None:
        return None
    for dim in dims:
        if not -dimensions <= dim < dimensions:
            limit = f"from {-dimensions} to {dimensions - 1}" if dimensions else "left out"
            refuse(operation, f"`dim` must be {limit}, not {dim}: `input` has {dimensions}")
    found = tuple(dim % dimensions for dim in dims)
    if len(set(found)) < len(found):
        refuse(operation, f"`dim` must have each dimension once, not {tuple(dims)}")
    return found


def taken(operation: str, value: Any, *, everything: bool = False) -> Taken:
    """The input.

    Raises:
        InvalidArgumentError: it is no array, or not of numbers that can be transformed.
    """
    came = take(value, "input", f"fft.{operation}")
    if not everything and came.element not in FLOATING and came.array.dtype.kind not in "biu":
        _refuse_element(operation, came.element)
    if came.element == "bfloat16" and not everything:
        _refuse_element(operation, came.element)
    return came


def _refuse_element(operation: str, element: str) -> NoReturn:
    refuse(
        operation,
        f"`input` must hold {', '.join(FLOATING)} or integers, not {element}",
        "convert it: `input.astype(numpy.float32)`",
    )


def _numbers(came: Taken) -> NDArray[Any]:
    """Floating point: integers as the framework makes real numbers of them."""
    if came.element in FLOATING:
        return came.array
    single = False
    if came.framework == "torch":
        torch = sys.modules["torch"]
        single = torch.get_default_dtype() is not torch.float64
    elif came.framework == "jax":
        single = not sys.modules["jax"].config.jax_enable_x64
    return came.array.astype(np.float32 if single else np.float64)


def whole_numbers(operation: str, name: str, value: Any) -> list[int] | None:
    """One whole number or several; None for None."""
    if value is None:
        return None
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return [value.__index__()]
    try:
        return [each.__index__() for each in value]
    except (AttributeError, TypeError):
        refuse(operation, f"`{name}` must be whole numbers, not {value!r}")


def refuse(operation: str, what: str, *helps: str) -> NoReturn:
    """Raise for an argument of a transform."""
    raise InvalidArgumentError(
        f"fft.{operation}: {what}", state="nothing was computed", helps=[*helps]
    )
