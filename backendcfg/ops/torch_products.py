"""PyTorch's products of bfloat16 and float16 on our kernels.

Where a CPU has no instructions for these types, PyTorch multiplies them one by one: on one with
AVX2, its `mm` of bfloat16 computes 1 GF/s and ours 50 to 100. `torch.nn.functional.linear`,
`torch.matmul`, their gradients, autocast and compiled code all come down to the operators that are
replaced here. Sums are those of float32, rounded once at the end, as PyTorch's are.
"""

from __future__ import annotations

from typing import Any

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.arrays import NotFiniteError
from backendcfg.ops.torch_library import Kernel, Replaced, array

FEW = 4
"""Up to so many rows times a matrix that lies by columns, as in a linear layer that is given one
token, stay PyTorch's: it reads such a matrix as it lies, up to four times as fast."""

LARGE = 1 << 26
"""The sizes of both arrays multiplied, from which on other threads may run Python while PyTorch
computes a product that is left to it: two of 90 x 90. Smaller products are soon done."""


def _ours(dimensions: int) -> Any:
    """`mm` or `bmm`, with and without `out`."""

    def call(left: Any, right: Any, *, out: Any = None) -> Any:
        return _product(dimensions, left, right, out=out)

    return call


def _ours_added(dimensions: int) -> Any:
    """`addmm` or `baddbmm`, with and without `out`."""

    def call(
        added: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None
    ) -> Any:
        if alpha != 1 or beta != 1:
            return NotImplemented
        return _product(dimensions, left, right, added=added, out=out)

    return call


def _product(dimensions: int, left: Any, right: Any, *, added: Any = None, out: Any = None) -> Any:
    """The product, plus what is added; NotImplemented for what is PyTorch's, errors included."""
    if left.itemsize != 2:  # most calls, which should cost little
        return NotImplemented
    import torch

    if left.dtype not in (torch.bfloat16, torch.float16):
        return NotImplemented
    shape = _shape(dimensions, left, right, added, out)
    if shape is None or (left.shape[-2] <= FEW and right.stride(-2) == 1):
        return NotImplemented
    if out is None:
        out = left.new_empty(shape)
    elif added is not None and _shares(added, out) and not added.is_set_to(out):
        return NotImplemented
    try:
        if added is not None:
            _native.addmm(array(added.expand(shape)), array(left), array(right), array(out))
        elif left.dtype is torch.bfloat16:
            _native.matmul_bfloat16(array(left), array(right), array(out))
        else:
            _native.matmul(array(left), array(right), array(out))
    except NotFiniteError:
        raise
    except InvalidArgumentError:  # elements of `out` share memory, which PyTorch tells its way
        return NotImplemented
    return out


def _unlocked(dimensions: int) -> Any:
    """PyTorch's own `mm` or `bmm`, by the operator in place, which is not replaced."""

    def call(left: Any, right: Any, *, out: Any = None) -> Any:
        if left.numel() * right.numel() < LARGE:
            return NotImplemented
        if (shape := _shape(dimensions, left, right, None, out)) is None:
            return NotImplemented
        out = left.new_empty(shape) if out is None else out
        return _in_place(dimensions, out)(left, right, beta=0)

    return call


def _unlocked_added(dimensions: int) -> Any:
    """PyTorch's own `addmm` or `baddbmm`, by the operator in place, which is not replaced."""

    def call(
        added: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None
    ) -> Any:
        if left.numel() * right.numel() < LARGE:
            return NotImplemented
        if (shape := _shape(dimensions, left, right, added, out)) is None:
            return NotImplemented
        if out is None:
            out = left.new_empty(shape).copy_(added)
        elif out is not added:
            if any(_shares(each, out) for each in (added, left, right)):
                return NotImplemented
            out.copy_(added)
        return _in_place(dimensions, out)(left, right, beta=beta, alpha=alpha)

    return call


def _in_place(dimensions: int, out: Any) -> Any:
    return out.addmm_ if dimensions == 2 else out.baddbmm_


def _shape(dimensions: int, left: Any, right: Any, added: Any, out: Any) -> tuple[int, ...] | None:
    """The shape of a product; None where types or shapes do not fit, or sums have no addends."""
    if not left.ndim == right.ndim == dimensions or left.shape[:-2] != right.shape[:-2]:
        return None
    if left.shape[-1] != right.shape[-2] or not left.shape[-1]:
        return None
    if any(each is not None and each.dtype is not left.dtype for each in (right, added, out)):
        return None
    shape = (*left.shape[:-1], right.shape[-1])
    if added is not None and not _broadcasts(added.shape, shape):
        return None
    return shape if out is None or out.shape == shape else None


def _shares(one: Any, other: Any) -> bool:
    """Whether two tensors are of one storage."""
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def _broadcasts(given: Any, shape: tuple[int, ...]) -> bool:
    return len(given) <= len(shape) and all(
        size in (1, wanted) for size, wanted in zip(reversed(given), reversed(shape), strict=False)
    )


REPLACED = Replaced(
    [
        Kernel(f"{operator}{overload}", ours(dimensions), unlocked=unlocked(dimensions))
        for operator, dimensions, ours, unlocked in (
            ("mm", 2, _ours, _unlocked),
            ("bmm", 3, _ours, _unlocked),
            ("addmm", 2, _ours_added, _unlocked_added),
            ("baddbmm", 3, _ours_added, _unlocked_added),
        )
        for overload in ("", ".out")
    ]
)
"""PyTorch's products of matrices."""
