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


def _mm(keys: Any, left: Any, right: Any) -> Any:
    found = _product(2, left, right)
    return REPLACED.theirs["mm"].call_boxed(keys, left, right) if found is None else found


def _mm_out(keys: Any, left: Any, right: Any, *, out: Any) -> Any:
    found = _product(2, left, right, out=out)
    if found is None:
        return REPLACED.theirs["mm.out"].call_boxed(keys, left, right, out=out)
    return out


def _bmm(keys: Any, left: Any, right: Any) -> Any:
    found = _product(3, left, right)
    return REPLACED.theirs["bmm"].call_boxed(keys, left, right) if found is None else found


def _bmm_out(keys: Any, left: Any, right: Any, *, out: Any) -> Any:
    found = _product(3, left, right, out=out)
    if found is None:
        return REPLACED.theirs["bmm.out"].call_boxed(keys, left, right, out=out)
    return out


def _added(operator: str, dimensions: int) -> Any:
    """`addmm` or `baddbmm`, with and without `out`."""

    def call(
        keys: Any, added: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1, **out: Any
    ) -> Any:
        found = None
        if alpha == 1 and beta == 1:
            found = _product(dimensions, left, right, added=added, **out)
        if found is None:
            return REPLACED.theirs[operator].call_boxed(
                keys, added, left, right, beta=beta, alpha=alpha, **out
            )
        return out.get("out", found)

    return call


REPLACED = Replaced(
    (
        Kernel("mm", _mm),
        Kernel("mm.out", _mm_out),
        Kernel("bmm", _bmm),
        Kernel("bmm.out", _bmm_out),
        Kernel("addmm", _added("addmm", 2)),
        Kernel("addmm.out", _added("addmm.out", 2)),
        Kernel("baddbmm", _added("baddbmm", 3)),
        Kernel("baddbmm.out", _added("baddbmm.out", 3)),
    )
)
"""PyTorch's products of matrices."""


def _product(dimensions: int, left: Any, right: Any, *, added: Any = None, out: Any = None) -> Any:
    """The product, plus what is added; None for what is left to PyTorch, errors included."""
    if left.itemsize != 2:  # most calls, which should cost little
        return None
    import torch

    dtype = left.dtype
    if dtype not in (torch.bfloat16, torch.float16) or right.dtype is not dtype:
        return None
    if not left.ndim == right.ndim == dimensions or left.shape[:-2] != right.shape[:-2]:
        return None
    if left.shape[-1] != right.shape[-2] or not left.shape[-1]:
        return None
    if left.shape[-2] <= FEW and right.stride(-2) == 1:
        return None
    shape = (*left.shape[:-1], right.shape[-1])
    if added is not None and not (added.dtype is dtype and _broadcasts(added.shape, shape)):
        return None
    if out is None:
        out = left.new_empty(shape)
    elif out.dtype is not dtype or out.shape != shape:
        return None
    try:
        if added is not None:
            _native.addmm(array(added.expand(shape)), array(left), array(right), array(out))
        elif dtype is torch.bfloat16:
            _native.matmul_bfloat16(array(left), array(right), array(out))
        else:
            _native.matmul(array(left), array(right), array(out))
    except NotFiniteError:
        raise
    except InvalidArgumentError:  # elements of `out` share memory, which PyTorch tells its way
        return None
    return out


def _broadcasts(given: Any, shape: tuple[int, ...]) -> bool:
    return len(given) <= len(shape) and all(
        size in (1, wanted) for size, wanted in zip(reversed(given), reversed(shape), strict=False)
    )
