"""What only the library of an array on a device can do with it: views, copies, triangles, numbers.

Everything is put on that library's own stream, and nothing waits but `numbers`. Gradients are not
followed. PyTorch's tensors are used by their methods, CuPy's arrays by CuPy's functions, which are
NumPy's.
"""

from __future__ import annotations

from typing import Any

from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.own_library import cupy_of


def columns(value: Any) -> Any:
    """The transposed view: of matrices that lie by columns, as they are written."""
    return value.swapaxes(-2, -1)


def copy(operation: str, name: str, target: Any, source: Any) -> None:
    """Put an argument, broadcast and converted, into an array of the same library.

    Raises:
        InvalidArgumentError: they are of two libraries, or of one that copies nothing.
    """
    if (cupy := cupy_of(target)) is not None and isinstance(source, cupy.ndarray):
        cupy.copyto(target, source, casting="same_kind")
        return
    if cupy is None and hasattr(target, "copy_") and hasattr(source, "copy_"):
        # Nothing is recorded; a view without history costs as much as the call.
        target.copy_(source.detach() if getattr(source, "requires_grad", False) else source)
        return
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    raise InvalidArgumentError(
        f"{operation}: `{name}` must be of the library that makes the results, not {kind}",
        state="nothing was computed",
        helps=["pass all arrays as PyTorch's, or all as CuPy's"],
    )


def triangle(value: Any, *, upper: bool, within: int = 0) -> Any:
    """A new array with one triangle of each matrix, zero elsewhere.

    Args:
        value: matrices.
        upper: which.
        within: 1 leaves the diagonal out.
    """
    offset = within if upper else -within
    if (cupy := cupy_of(value)) is not None:
        return cupy.triu(value, offset) if upper else cupy.tril(value, offset)
    return value.triu(offset) if upper else value.tril(offset)


def keep_triangle(value: Any, *, upper: bool) -> None:
    """Clear the other triangle of each matrix."""
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.triu(value) if upper else cupy.tril(value)
    elif upper:
        value.triu_()
    else:
        value.tril_()


def unit_diagonal(value: Any) -> None:
    """Set the diagonal of each matrix to one."""
    if (cupy := cupy_of(value)) is not None:
        places = cupy.arange(min(value.shape[-2:]))
        value[..., places, places] = 1  # one kernel
    else:
        value.diagonal(0, -2, -1).fill_(1)


def identity(value: Any) -> None:
    """Make each matrix the identity."""
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.eye(*value.shape[-2:], dtype=value.dtype)
    else:
        value.zero_()
        value.diagonal(0, -2, -1).fill_(1)


def zero(value: Any) -> None:
    """Set all to zero."""
    if cupy_of(value) is not None:
        value[...] = 0
    else:
        value.zero_()


def ramp(value: Any) -> None:
    """Count from 1 along the last dimension."""
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.arange(1, value.shape[-1] + 1, dtype=value.dtype)
    else:
        value.fill_(1).cumsum_(-1)


def ladder(value: Any, first: int, step: int) -> None:
    """Count from a number by steps, exactly: addresses."""
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.arange(value.size, dtype=value.dtype) * step + first
    else:
        value.fill_(step).cumsum_(-1)
        value.add_(first - step)


def clamp(value: Any, largest: int) -> None:
    """Bring numbers into the range from 1 to the largest that is allowed."""
    if (cupy := cupy_of(value)) is not None:
        cupy.clip(value, 1, largest, out=value)
    else:
        value.clamp_(1, largest)


def spoil(value: Any, info: Any) -> None:
    """Fill what belongs to a matrix whose `info` is not zero with NaN."""
    lead = tuple(info.shape)
    failed = (info != 0).reshape(lead + (1,) * (len(value.shape) - len(lead)))
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.where(failed, float("nan"), value)
    else:
        value.masked_fill_(failed, float("nan"))


def sound(value: Any) -> Any:
    """For each matrix whether its numbers (..., n) are finite."""
    if (cupy := cupy_of(value)) is not None:
        return cupy.isfinite(value).all(-1)
    return value.isfinite().all(-1)


def zeros_on_diagonal(value: Any) -> Any:
    """For each matrix and place of the diagonal whether it is zero."""
    if (cupy := cupy_of(value)) is not None:
        return cupy.diagonal(value, 0, -2, -1) == 0
    return value.diagonal(0, -2, -1) == 0


def numbers(operation: str, value: Any) -> list[Any]:
    """The numbers of an array, flat. This waits for the device.

    Raises:
        DeviceFailedError: something that was put on the stream before failed.
    """
    try:
        return list(value.reshape(-1).tolist())
    except Exception as error:  # the library's own, of whatever type
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeviceFailedError(
            f"{operation}: the device failed before its answer could be read",
            notes=[first],
            state="the result was not computed",
            helps=["an earlier kernel may have failed: see `compute-sanitizer`"],
        ) from error
