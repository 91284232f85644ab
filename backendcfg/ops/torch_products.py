"""PyTorch's products on our kernels: those of float32, or those of bfloat16 and float16.

`torch.nn.functional.linear`, `torch.matmul`, their gradients, autocast and compiled code all come
down to the operators that are replaced here.

float32: PyTorch's MKL uses AVX2 and no more on CPUs that are not Intel's. `mm` and `bmm` are
replaced in C (`native/src/python/torch_products.c`). `addmm`, which adds a bias, takes a `Scalar`,
which PyTorch's interface for C has not: it stays PyTorch's.

16 bits: where a CPU has no instructions for these types, PyTorch multiplies them one by one: on one
with AVX2, its `mm` of bfloat16 computes 1 GF/s and ours 50 to 100. Sums are those of float32,
rounded once at the end, as PyTorch's are. What is replaced is in Python.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError, NotFiniteError
from backendcfg.ops.arrays import broadcasts
from backendcfg.ops.torch_library import Kernel, KernelsInC, Replaced, array

FEW = 2
"""Up to so many rows times a matrix that lies by columns, as in a linear layer that is given one
token, stay PyTorch's: it reads such a matrix as it lies, up to twice as fast. With AMX our kernels
read bfloat16 so too, and are faster, so they compute it."""

LARGE = 1 << 26
"""Elements of the left matrix times elements of the right one from which a product that is left to
PyTorch is computed without the GIL: two matrices of 90 x 90. Smaller ones take microseconds."""


def _ours(
    dimensions: int,
    left: Any,
    right: Any,
    *,
    added: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
) -> Any:
    """The product, plus what is added; NotImplemented for what is PyTorch's, errors included."""
    if left.itemsize != 2 or alpha != 1 or beta != 1:  # most calls, which should cost little
        return NotImplemented
    import torch

    if left.dtype not in (torch.bfloat16, torch.float16):
        return NotImplemented
    shape = _shape(dimensions, left, right, added, out)
    if shape is None:
        return NotImplemented
    is_bfloat16 = left.dtype is torch.bfloat16
    is_few = left.shape[-2] <= FEW and right.stride(-2) == 1
    if is_few and not (is_bfloat16 and _native.has_tiles()):
        return NotImplemented
    if out is None:
        out = left.new_empty(shape)
    elif added is not None and _shares(added, out) and not added.is_set_to(out):
        return NotImplemented
    try:
        if added is not None:
            _native.addmm(array(added.expand(shape)), array(left), array(right), array(out))
        elif is_bfloat16:
            _native.matmul_bfloat16(array(left), array(right), array(out))
        else:
            _native.matmul(array(left), array(right), array(out))
    except NotFiniteError:
        raise
    except InvalidArgumentError:  # elements of `out` share memory, which PyTorch tells its way
        return NotImplemented
    return out


def _unlocked(
    dimensions: int,
    left: Any,
    right: Any,
    *,
    added: Any = None,
    beta: Any = 0,
    alpha: Any = 1,
    out: Any = None,
) -> Any:
    """PyTorch's own product: by `addmm_` or `baddbmm_`, which are not replaced."""
    if left.numel() * right.numel() < LARGE:
        return NotImplemented
    if (shape := _shape(dimensions, left, right, added, out)) is None:
        return NotImplemented
    if added is None:
        out = left.new_empty(shape) if out is None else out
    elif out is None:
        out = left.new_empty(shape).copy_(added)
    elif out is not added:
        if any(_shares(each, out) for each in (added, left, right)):
            return NotImplemented
        out.copy_(added)
    in_place = out.addmm_ if dimensions == 2 else out.baddbmm_
    return in_place(left, right, beta=beta, alpha=alpha)


def _adding(product: Any, dimensions: int) -> Any:
    """The same product with the arguments of `addmm`, where what is added comes first."""

    def call(added: Any, left: Any, right: Any, **options: Any) -> Any:
        return product(dimensions, left, right, added=added, **{"beta": 1, **options})

    return call


def _shape(dimensions: int, left: Any, right: Any, added: Any, out: Any) -> tuple[int, ...] | None:
    """The shape of a product; None where types or shapes do not fit, or the inner size is 0."""
    if not left.ndim == right.ndim == dimensions or left.shape[:-2] != right.shape[:-2]:
        return None
    if left.shape[-1] != right.shape[-2] or not left.shape[-1]:
        return None
    if any(each is not None and each.dtype is not left.dtype for each in (right, added, out)):
        return None
    shape = (*left.shape[:-1], right.shape[-1])
    if added is not None and not broadcasts(added.shape, shape):
        return None
    return shape if out is None or out.shape == shape else None


def _shares(one: Any, other: Any) -> bool:
    """Whether two tensors are of one storage."""
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


OWN = "RegisterCPU"
"""The file in which PyTorch registers its own kernels."""


def _taken(torch: Any) -> str:
    """Why kernels in C cannot pass calls on, or "": they call PyTorch's own, and nobody else's."""
    if FLOAT32.is_registered or NARROW.is_registered:
        return ""
    for operator in ("mm", "bmm"):
        lines = torch._C._dispatch_dump(f"aten::{operator}").splitlines()
        if not any(line.startswith("CPU: ") and OWN in line for line in lines):
            return f"something else has replaced PyTorch's `aten::{operator}` on the CPU"
    return ""


FLOAT32 = Replaced(
    [],
    KernelsInC(
        ("mm", "bmm"),
        _native.torch_lacks,
        _native.serve_torch_products,
        _native.restore_torch_products,
    ),
    _taken,
)
"""PyTorch's products of matrices of float32."""

NARROW = Replaced(
    [
        Kernel(f"{operator}{overload}", called(_ours, size), unlocked=called(_unlocked, size))
        for operator, size, called in (
            ("mm", 2, partial),
            ("bmm", 3, partial),
            ("addmm", 2, _adding),
            ("baddbmm", 3, _adding),
        )
        for overload in ("", ".out")
    ]
)
"""PyTorch's products of matrices of bfloat16 and float16."""
