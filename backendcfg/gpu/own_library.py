"""What only the library that owns an array can do with it: PyTorch, CuPy or JAX, on its stream.

Views, copies, memory for results, and elementwise work. PyTorch's tensors are used by their
methods, and so is every array that has them; CuPy's arrays by CuPy's functions, which are NumPy's.
Each function puts its work on the stream that is current for the library, where the calls of ours
go too; none waits but `numbers` and `check_finite`. No gradients are recorded.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from backendcfg.errors import DeviceFailedError, InvalidArgumentError, NotFiniteError
from backendcfg.gpu.messages import describe, type_of
from backendcfg.ops.devices import CUDA

if TYPE_CHECKING:
    from collections.abc import Sequence


def cupy_of(value: Any) -> Any:
    """CuPy, where the array is CuPy's; else None."""
    cupy = sys.modules.get("cupy")
    return cupy if cupy is not None and isinstance(value, cupy.ndarray) else None


def torch_of(value: Any) -> Any:
    """PyTorch, where the array is a tensor; else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def is_known(value: Any) -> bool:
    """Whether the functions here work with an array."""
    return hasattr(value, "copy_") or cupy_of(value) is not None


def stream_of(value: Any, index: int) -> int | None:
    """The stream that PyTorch works on now on a device; None for what is no tensor."""
    torch = torch_of(value)
    return None if torch is None else int(torch.cuda.current_stream(index).cuda_stream)


# --- memory and copies -----------------------------------------------------------------------


def make(like: Any, shape: tuple[int, ...], element: str, kind: int, index: int) -> Any:
    """Uninitialised memory for a result, made by the library that owns an operand.

    Args:
        like: the operand.
        shape: of the result.
        element: of the result: "float32".
        kind: of the device, as DLPack numbers it.
        index: of the device.

    Raises:
        InvalidArgumentError: the library makes no arrays for others.
    """
    if (torch := torch_of(like)) is not None:  # of a release without a DLPack exchange table
        return torch.empty(shape, dtype=getattr(torch, element), device=like.device)
    if (cupy := cupy_of(like)) is not None and kind == CUDA:
        with cupy.cuda.Device(index):
            return cupy.empty(shape, element)
    raise InvalidArgumentError(
        f"arrays of {type_of(like)} cannot be made on a device from here",
        state="nothing was computed",
        helps=["pass `out`, or arrays of PyTorch or CuPy"],
    )


def plain(value: Any) -> Any:
    """The same numbers without their history of gradients."""
    return value.detach() if hasattr(value, "detach") else value


def dense(operation: str, name: str, value: Any) -> Any:
    """The same array with its rows one after the other: itself, or a copy.

    Raises:
        InvalidArgumentError: its library has no function for that.
    """
    if hasattr(value, "contiguous"):
        return value.contiguous()
    if (cupy := cupy_of(value)) is not None:
        return cupy.ascontiguousarray(value)
    raise InvalidArgumentError(
        f"{operation}: `{name}` must lie in memory as a BLAS can read it",
        notes=[f"{name}: {describe(value)}"],
        state="nothing was computed",
        helps=["copy it, so that its rows follow each other"],
    )


def _copied(target: Any, source: Any) -> bool:
    """Copy a source, broadcast and converted; False where the two libraries cannot."""
    if (cupy := cupy_of(target)) is not None:
        if not isinstance(source, cupy.ndarray):
            return False
        cupy.copyto(target, source, casting="same_kind")
        return True
    if not hasattr(target, "copy_") or not hasattr(source, "copy_"):
        return False
    # A detached view costs as much as the copy's launch, so only those that need it get one.
    target = target.detach() if getattr(target, "requires_grad", False) else target
    target.copy_(source.detach() if getattr(source, "requires_grad", False) else source)
    return True


def copy(operation: str, target: Any, source: Any) -> None:
    """Copy what is added to a product, broadcast, into its result.

    Raises:
        InvalidArgumentError: their libraries have no function for that.
    """
    if not _copied(target, source):
        raise InvalidArgumentError(
            f"{operation}: arrays of {type_of(source)} cannot be copied into those of "
            f"{type_of(target)} on a device from here",
            state="nothing was computed",
            helps=["pass PyTorch's alone or CuPy's, or add to the product of `matmul` yourself"],
        )


def copy_argument(operation: str, name: str, target: Any, source: Any) -> None:
    """Copy an argument, broadcast and converted, into an array that its library made.

    Raises:
        InvalidArgumentError: the argument is of another library, or of one that copies nothing.
    """
    if not _copied(target, source):
        kind = f"{type(source).__module__}.{type(source).__qualname__}"
        raise InvalidArgumentError(
            f"{operation}: `{name}` must be of the library that makes the results, not {kind}",
            state="nothing was computed",
            helps=["pass all arrays as PyTorch's, or all as CuPy's"],
        )


def fill(target: Any, source: Any, *, zero: bool) -> None:
    """Copy the corner that two arrays of as many dimensions share.

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


# --- views, and copies that are moved about --------------------------------------------------


def turned(value: Any, order: Sequence[int]) -> Any:
    """A view whose dimensions are in another order."""
    if cupy_of(value) is not None:
        return value.transpose(tuple(order))
    return plain(value).permute(tuple(order))


def transposed(value: Any) -> Any:
    """A view with the last two dimensions exchanged: matrices by columns, as they are written."""
    return value.swapaxes(-2, -1)


def roll(value: Any, shifts: Sequence[int], axes: Sequence[int]) -> Any:
    """A copy whose numbers are moved along some axes, around the end."""
    if (cupy := cupy_of(value)) is not None:
        return cupy.roll(value, tuple(shifts), axis=tuple(axes))
    return plain(value).roll(tuple(shifts), tuple(axes))


# --- elementwise, in place -------------------------------------------------------------------


def can_add(operation: str, target: Any, source: Any) -> None:
    """Check that `add` can add a source to a target.

    Raises:
        InvalidArgumentError: their libraries have no function for that.
    """
    if hasattr(target, "add_") and hasattr(source, "detach"):
        return
    if (cupy := cupy_of(target)) is not None and isinstance(source, cupy.ndarray):
        return
    raise InvalidArgumentError(
        f"{operation}: arrays of {type_of(source)} cannot be added to those of {type_of(target)} "
        "on a device from here",
        state="nothing was computed",
        helps=["pass PyTorch's alone or CuPy's, or add it to the result yourself"],
    )


def add(operation: str, target: Any, source: Any) -> None:
    """Add a source, broadcast, to a target.

    Raises:
        InvalidArgumentError: their libraries have no function for that.
    """
    can_add(operation, target, source)
    if (cupy := cupy_of(target)) is not None:
        cupy.add(target, source, out=target)
    else:
        target.detach().add_(source.detach())


def multiply(value: Any, factor: float) -> None:
    """Multiply an array by a number."""
    if (cupy := cupy_of(value)) is not None:
        cupy.multiply(value, factor, out=value)
    else:
        value.mul_(factor)


def conjugate(value: Any) -> None:
    """Conjugate an array."""
    if (cupy := cupy_of(value)) is not None:
        cupy.conj(value, out=value)
    else:
        value.conj_physical_()


def zero(value: Any) -> None:
    """Set every number to zero."""
    if cupy_of(value) is not None:
        value[...] = 0
    else:
        value.zero_()


def clamp(value: Any, largest: int) -> None:
    """Bring numbers into the range from 1 to the largest that is allowed."""
    if (cupy := cupy_of(value)) is not None:
        cupy.clip(value, 1, largest, out=value)
    else:
        value.clamp_(1, largest)


def count_up(value: Any) -> None:
    """Write 1, 2, 3 and so on along the last dimension."""
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.arange(1, value.shape[-1] + 1, dtype=value.dtype)
    else:
        value.fill_(1).cumsum_(-1)


def count_by(value: Any, first: int, stride: int) -> None:
    """Write addresses: the first, then each a stride further on; exact in 64 bits."""
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.arange(value.size, dtype=value.dtype) * stride + first
    else:
        value.fill_(stride).cumsum_(-1)
        value.add_(first - stride)


# --- matrices --------------------------------------------------------------------------------


def triangle(value: Any, *, upper: bool, within: int = 0) -> Any:
    """A new array with one triangle of each matrix, zero elsewhere.

    Args:
        value: matrices.
        upper: which triangle.
        within: 1 leaves the diagonal out.
    """
    offset = within if upper else -within
    if (cupy := cupy_of(value)) is not None:
        return cupy.triu(value, offset) if upper else cupy.tril(value, offset)
    return value.triu(offset) if upper else value.tril(offset)


def keep_triangle(value: Any, *, upper: bool) -> None:
    """Set the other triangle of each matrix to zero."""
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


def spoil(value: Any, info: Any) -> None:
    """Fill what belongs to a matrix whose `info` is not zero with NaN."""
    lead = tuple(info.shape)
    failed = (info != 0).reshape(lead + (1,) * (len(value.shape) - len(lead)))
    if (cupy := cupy_of(value)) is not None:
        value[...] = cupy.where(failed, float("nan"), value)
    else:
        value.masked_fill_(failed, float("nan"))


def zeros_on_diagonal(value: Any) -> Any:
    """For each matrix and place of its diagonal, whether the number there is zero."""
    if (cupy := cupy_of(value)) is not None:
        return cupy.diagonal(value, 0, -2, -1) == 0
    return value.diagonal(0, -2, -1) == 0


# --- looking at numbers ----------------------------------------------------------------------


def are_finite(value: Any) -> Any:
    """For each row (..., n), whether all its numbers are finite."""
    if (cupy := cupy_of(value)) is not None:
        return cupy.isfinite(value).all(-1)
    return value.isfinite().all(-1)


def check_finite(operation: str, result: Any) -> None:
    """Raise where a result holds NaN or infinity; waits for the device.

    Raises:
        NotFiniteError: it does.
        InvalidArgumentError: its library cannot say.
    """
    if torch_of(result) is not None:
        is_finite = bool(result.detach().isfinite().all())
    elif (cupy := cupy_of(result)) is not None:
        is_finite = bool(cupy.isfinite(result).all())
    else:
        raise InvalidArgumentError(
            f"{operation}: `ops.check_finite` cannot look into arrays of {type_of(result)}",
            state="the result was computed, and is not checked",
            helps=["pass PyTorch's or CuPy's, or turn it off"],
        )
    if not is_finite:
        raise NotFiniteError.of(operation, state="`out`, where it was given, holds it")


def numbers(operation: str, value: Any) -> list[Any]:
    """The numbers of an array, flat; waits for the device.

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
