"""Calls of cuSPARSELt. All matrices are given row by row.

Plans are kept with the handle, each with all that it was made of, because the library does not
document which of it a plan still reads.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.gpu.libraries.calling import Fault, Handle
from backendcfg.gpu.libraries.signatures import CUSPARSELT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.gpu.libraries.calling import OpenLibrary

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
