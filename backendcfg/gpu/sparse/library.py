"""What a product of a 2:4 sparse matrix asks of cuSPARSELt: its types, and limits.

The numbers and limits are PyTorch's, which has run them. Nothing is opened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.gpu import messages
from backendcfg.gpu.libraries.signatures import CUSPARSELT
from backendcfg.gpu.products.gemm import TYPES
from backendcfg.gpu.sparse.cusparselt import Product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.ops.sparse import SparseAlgorithm

ELEMENTS = ("float16", "bfloat16", "int8")
NUMBERS = {**TYPES, "int8": 3, "int32": 10}
"""cudaDataType's."""
_COMPUTE = {"int8": CUSPARSELT.constants["CUSPARSE_COMPUTE_32I"]}
RESULT = {"float16": "float16", "bfloat16": "bfloat16", "int8": "int32"}
SPARSE_MULTIPLE = {"float16": 16, "bfloat16": 16, "int8": 32}
DENSE_MULTIPLE = {"float16": 8, "bfloat16": 8, "int8": 16}
OLDEST = (0, 7, 0)
"""cuSPARSELt before that has other numbers, or was not compared with ours."""

FLAGS = ("determinism.tier", "ops.check_finite")
"""The flags that are looked at."""


def unkept(tier: str, algorithm: SparseAlgorithm | None = None) -> str:
    """Why no sparse product keeps a tier, or ""."""
    if why := messages.unkept(tier, "cuSPARSELt does not keep"):
        return why
    if tier != "none" and algorithm is not None and algorithm.split_k > 1:
        return f"`determinism.tier` promises `{tier}`, and `algorithm` splits sums"
    return ""


def misfit(shape: Sequence[int], element: str) -> str:
    """Why a matrix cannot be compressed, or ""."""
    if element not in ELEMENTS:
        return f"hold {', '.join(ELEMENTS[:-1])} or {ELEMENTS[-1]}, not {element or 'another type'}"
    if len(shape) != 2:
        return f"have 2 dimensions, not {len(shape)}"
    multiple = SPARSE_MULTIPLE[element]
    if not all(size > 0 and size % multiple == 0 for size in shape):
        return f"have rows and columns in multiples of {multiple} for {element}, not {tuple(shape)}"
    return ""


def misfit_dense(shape: Sequence[int], columns: int, element: str) -> str:
    """Why a matrix cannot be multiplied by a compressed one, or "".

    Args:
        shape: of the matrix.
        columns: of the compressed one.
        element: of both.
    """
    if len(shape) != 2:
        return f"have 2 dimensions, not {len(shape)}"
    if shape[0] != columns:
        return f"have {columns} rows, as the compressed matrix has columns, not {shape[0]}"
    multiple = DENSE_MULTIPLE[element]
    if shape[1] < 1 or shape[1] % multiple:
        return f"have columns in multiples of {multiple} for {element}, not {shape[1]}"
    return ""


def product(
    sizes: tuple[int, int, int],
    element: str,
    leading: int,
    bias: int,
    algorithm: SparseAlgorithm,
    *,
    transposed: bool,
) -> Product:
    """A product as cuSPARSELt plans it.

    Args:
        sizes: m, n and k.
        element: of the factors.
        leading: numbers between rows of b as it is given.
        bias: its address; 0 for none.
        algorithm: which.
        transposed: whether b is given as (n, k).
    """
    compute = _COMPUTE.get(element, CUSPARSELT.constants["CUSPARSE_COMPUTE_32F"])
    types = (NUMBERS[element], NUMBERS[RESULT[element]], compute)
    choice = (algorithm.number, algorithm.split_k, algorithm.split_k_mode)
    return Product(*sizes, leading, bias, *types, transposed, *choice)
