"""Products of 2:4 sparse matrices on NVIDIA's devices, by cuSPARSELt.

compressed = ops.sparse_compress(weight)          # at most 2 of every 4 numbers are not 0
result = ops.sparse_matmul(compressed, inputs)    # weight @ inputs
fastest = ops.sparse_search(compressed, inputs)   # once for a shape
result = ops.sparse_matmul(compressed, inputs, algorithm=fastest)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from backendcfg.ops import devices
from backendcfg.records import record

OPERATIONS = ("sparse_compress", "sparse_matmul", "sparse_search")


@dataclass(frozen=True, eq=False)
class Compressed:
    """A 2:4 sparse matrix in cuSPARSELt's own form, which `sparse_matmul` takes.

    Attributes:
        shape: (rows, columns) of the matrix.
        dtype: of its numbers: "float16", "bfloat16", "int8".
        device: where it is: "cuda:0".
        memory: the compressed bytes, an array of the library that owned the matrix.
    """

    shape: tuple[int, int]
    dtype: str
    device: str
    memory: Any = field(repr=False)


@record(frozen=True)
class SparseAlgorithm:
    """How cuSPARSELt computes a product; what `sparse_search` finds.

    Attributes:
        number: of the algorithm, from 0 on.
        split_k: into how many parts the sums are divided; 1 for none.
        split_k_mode: cuSPARSELt's number of how; 0 leaves it to the library.
        most: the highest number of an algorithm; -1 where nobody asked.
    """

    number: int = 0
    split_k: int = 1
    split_k_mode: int = 0
    most: int = -1


def sparse_compress(a: Any) -> Compressed:
    """Compress a matrix of which at most 2 of every 4 numbers of a row are not 0.

    The device checks that first, and this function waits for its answer. float16 and bfloat16 need
    rows and columns in multiples of 16, int8 of 32.

    Args:
        a: (m, k), PyTorch's or CuPy's, on an NVIDIA device.

    Raises:
        InvalidArgumentError: it is no such matrix, or not 2:4.
        MissingLibraryError: there is no cuSPARSELt.
        DeviceFailedError: the device failed.
    """
    made: Compressed = devices.gpu().sparse_compress(a)
    return made


def sparse_matmul(
    compressed: Compressed,
    b: Any,
    bias: Any = None,
    *,
    algorithm: SparseAlgorithm | int | None = None,
) -> Any:
    """The product of a compressed matrix and another, and perhaps a number added to each row.

    float16 and bfloat16 are summed in float32 and rounded once; int8 gives int32, exactly.

    Args:
        compressed: (m, k), from `sparse_compress`.
        b: (k, n), of the same type at the same place; n in multiples of 8, for int8 of 16. It is
            read where it lies, by rows or by columns; int8 is copied unless it lies by columns.
        bias: m numbers of the same type, one for each row; not for int8.
        algorithm: from `sparse_search`, or its number; 0 by default.

    Returns:
        (m, n), by rows, of the library that owns `b`.

    Raises:
        InvalidArgumentError: an argument does not fit.
        MissingLibraryError: there is no cuSPARSELt.
        TierNotKeptError: it does not keep the profile's tier.
        DeviceFailedError: the device failed.
    """
    return devices.gpu().sparse_matmul(compressed, b, bias, algorithm)


def sparse_search(compressed: Compressed, b: Any, bias: Any = None) -> SparseAlgorithm:
    """The algorithm that multiplies fastest here, as cuSPARSELt measures it; waits for the device.

    Args:
        compressed: as for `sparse_matmul`.
        b: the same.
        bias: the same.

    Raises:
        InvalidArgumentError: an argument does not fit.
        MissingLibraryError: there is no cuSPARSELt.
        DeviceFailedError: the device failed.
    """
    found: SparseAlgorithm = devices.gpu().sparse_search(compressed, b, bias)
    return found
