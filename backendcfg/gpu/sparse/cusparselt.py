"""cuSPARSELt: the types and limits of a 2:4 sparse product, and the calls that make and run one.

All matrices are given row by row.

Plans are kept with the handle, each with all that it was made of, because the library does not
document which of it a plan still reads.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu import messages
from backendcfg.gpu.libraries.calling import Fault, Handle
from backendcfg.gpu.libraries.signatures import CUSPARSELT
from backendcfg.gpu.products.gemm import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.gpu.libraries.calling import OpenLibrary
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


ALIGNMENT = 16
_BYTES = 1024  # of each struct of the library's: in 0.7, and 512 since
_PLANS = 32
_N = CUSPARSELT.constants
_PLAIN, _TURNED = _N["CUSPARSE_OPERATION_NON_TRANSPOSE"], _N["CUSPARSE_OPERATION_TRANSPOSE"]
_ROWS, _SPARSITY = _N["CUSPARSE_ORDER_ROW"], _N["CUSPARSELT_SPARSITY_50_PERCENT"]
_ALGORITHM, _SPLIT, _SPLIT_MODE, _MOST = (
    _N[f"CUSPARSELT_MATMUL_{name}"]
    for name in ("ALG_CONFIG_ID", "SPLIT_K", "SPLIT_K_MODE", "ALG_CONFIG_MAX_ID")
)


class Matrix(NamedTuple):
    """A sparse matrix before it is compressed; sizes in numbers, a cudaDataType."""

    rows: int
    columns: int
    leading: int
    type: int


class Product(NamedTuple):
    """d = a b + bias, where a is compressed of (m, k), b (k, n), d (m, n): all of a plan.

    Attributes:
        leading: numbers between rows of b as it is given.
        bias: address of m numbers, one for each row; 0 for none.
        type: cudaDataType of the factors.
        result: of d.
        compute: cusparseComputeType.
        transposed: b is given as (n, k).
        algorithm: its number, as a search gives it.
        split_k: 1 does not split.
        split_k_mode: 0 for the library's choice.
    """

    m: int
    n: int
    k: int
    leading: int
    bias: int
    type: int
    result: int
    compute: int
    transposed: bool
    algorithm: int
    split_k: int
    split_k_mode: int


class Operands(NamedTuple):
    """Addresses of a, b and d, and of the bytes that `workspace` says."""

    a: int
    b: int
    d: int
    area: int


def _opaque() -> Any:
    """Memory for a struct of the library's, aligned as it needs."""
    memory = (ctypes.c_char * (_BYTES + ALIGNMENT))()
    offset = -ctypes.addressof(memory) % ALIGNMENT
    return (ctypes.c_char * _BYTES).from_buffer(memory, offset)


class SparseHandle(Handle):
    """A handle with its plans. The stream is passed with each call."""

    def make(self) -> None:
        self.value, self.plans = _opaque(), dict[Product, _Plan]()
        self.library.call("cusparseLtInit", self.value)

    def close(self) -> None:
        for plan in self.plans.values():
            plan.close()
        self.library.functions["cusparseLtDestroy"](self.value)

    def _plan(self, product: Product) -> _Plan:
        plan = self.plans.get(product)
        if plan is None:
            plan = _Plan(self.library, self.value, product)
            if len(self.plans) == _PLANS:
                self.plans.pop(next(iter(self.plans))).close()
            self.plans[product] = plan
        return plan

    def _described(self, matrix: Matrix) -> _Described:
        return _Described(self.library, self.value, matrix)

    def sizes(self, matrix: Matrix) -> tuple[int, int]:
        """The bytes of a matrix compressed, and of a buffer for compressing it."""
        size, buffer = ctypes.c_size_t(), ctypes.c_size_t()
        name = "cusparseLtSpMMACompressedSize2"
        with self._described(matrix) as it:
            self.library.call(name, self.value, it, ctypes.byref(size), ctypes.byref(buffer))
        return size.value, buffer.value

    def check(self, matrix: Matrix, dense: int, invalid: int) -> None:
        """Set the number at `invalid`, on the device, to 0 where the matrix is 2:4."""
        with self._described(matrix) as it:
            given = (self.value, it, 1, _PLAIN, dense, invalid, self.stream)
            self.library.call("cusparseLtSpMMAPruneCheck2", *given)

    def compress(self, matrix: Matrix, dense: int, compressed: int, buffer: int) -> None:
        """Compress a matrix."""
        with self._described(matrix) as it:
            given = (self.value, it, 1, _PLAIN, dense, compressed, buffer, self.stream)
            self.library.call("cusparseLtSpMMACompress2", *given)

    def workspace(self, product: Product) -> int:
        """The bytes that a product works in."""
        size, plan = ctypes.c_size_t(), self._plan(product)
        name = "cusparseLtMatmulGetWorkspace"
        self.library.call(name, self.value, plan.plan, ctypes.byref(size))
        return size.value

    def multiply(self, product: Product, of: Operands) -> None:
        """Multiply."""
        self._run("cusparseLtMatmul", self._plan(product), of)

    def search(self, product: Product, of: Operands) -> tuple[int, ...]:
        """The fastest algorithm, its two numbers of splitting, and the highest algorithm.

        It runs every algorithm, and waits for the device.
        """
        plan = _Plan(self.library, self.value, product)  # not kept, because the search changes it
        try:
            self._run("cusparseLtMatmulSearch", plan, of)
            return tuple(plan.asked(name) for name in (_ALGORITHM, _SPLIT, _SPLIT_MODE, _MOST))
        finally:
            plan.close()

    def _run(self, function: str, plan: _Plan, of: Operands) -> None:
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        stream = ctypes.byref(ctypes.c_void_p(self.stream))
        given = (one, of.a, of.b, zero, of.d, of.d, of.area, stream, 1)
        self.library.call(function, self.value, plan.plan, *given)


class _Described:
    """A descriptor of a sparse matrix, for one call."""

    def __init__(self, library: OpenLibrary, handle: Any, matrix: Matrix) -> None:
        self._library, self._it = library, _opaque()
        rows, columns, leading, number = matrix
        given = (rows, columns, leading, ALIGNMENT, number, _ROWS, _SPARSITY)
        library.call("cusparseLtStructuredDescriptorInit", handle, self._it, *given)

    def __enter__(self) -> Any:
        return self._it

    def __exit__(self, *_: object) -> None:
        self._library.functions["cusparseLtMatDescriptorDestroy"](self._it)


class _Plan:
    """A plan with all that it was made of."""

    def __init__(self, library: OpenLibrary, handle: Any, product: Product) -> None:
        self.library, self._handle = library, handle
        self._made: list[tuple[str, Any]] = []  # what ends each part, in the order of making
        try:
            self._make(product)
        except Fault:
            self.close()
            raise

    def _make(self, of: Product) -> None:
        a, b, d, product = (_opaque() for _ in range(4))
        self.selection, self.plan = _opaque(), _opaque()
        dense, ends = "cusparseLtDenseDescriptorInit", "cusparseLtMatDescriptorDestroy"
        sparse = (of.m, of.k, of.k, ALIGNMENT, of.type, _ROWS, _SPARSITY)
        self._call("cusparseLtStructuredDescriptorInit", a, *sparse, ends=ends)
        shape = (of.n, of.k) if of.transposed else (of.k, of.n)
        self._call(dense, b, *shape, of.leading, ALIGNMENT, of.type, _ROWS, ends=ends)
        self._call(dense, d, of.m, of.n, of.n, ALIGNMENT, of.result, _ROWS, ends=ends)
        how = _TURNED if of.transposed else _PLAIN
        name = "cusparseLtMatmulDescriptorInit"
        self._call(name, product, _PLAIN, how, a, b, d, d, of.compute)
        if of.bias:
            bias = ctypes.c_void_p(of.bias)
            given = (_N["CUSPARSELT_MATMUL_BIAS_POINTER"], ctypes.byref(bias), ctypes.sizeof(bias))
            self._call("cusparseLtMatmulDescSetAttribute", product, *given)
        ends = "cusparseLtMatmulAlgSelectionDestroy"
        default = _N["CUSPARSELT_MATMUL_ALG_DEFAULT"]
        self._call("cusparseLtMatmulAlgSelectionInit", self.selection, product, default, ends=ends)
        for attribute, value in _chosen(of):
            number = ctypes.c_int(value)
            given = (attribute, ctypes.byref(number), ctypes.sizeof(number))
            self._call("cusparseLtMatmulAlgSetAttribute", self.selection, *given)
        ends = "cusparseLtMatmulPlanDestroy"
        self._call("cusparseLtMatmulPlanInit", self.plan, product, self.selection, ends=ends)
        self._kept = (a, b, d, product)

    def _call(self, function: str, what: Any, *given: Any, ends: str = "") -> None:
        self.library.call(function, self._handle, what, *given)
        if ends:
            self._made.append((ends, what))

    def asked(self, attribute: int) -> int:
        """A number of its algorithm."""
        number = ctypes.c_int()
        given = (attribute, ctypes.byref(number), ctypes.sizeof(number))
        name = "cusparseLtMatmulAlgGetAttribute"
        self.library.call(name, self._handle, self.selection, *given)
        return number.value

    def close(self) -> None:
        """Destroy it and what it was made of."""
        for function, what in reversed(self._made):
            if function in self.library.functions:
                self.library.functions[function](what)


def _chosen(of: Product) -> Iterator[tuple[int, int]]:
    yield _ALGORITHM, of.algorithm
    if of.split_k != 1:
        yield _SPLIT, of.split_k
        if of.split_k_mode != 0:
            yield _SPLIT_MODE, of.split_k_mode
