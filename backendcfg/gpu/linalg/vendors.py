"""How a library is asked for one step of a function of `ops.linalg`: cuSOLVER, hipSOLVER, cuBLAS.

A function is one or two steps over a stack of matrices: a solution is LU and LU_SOLVE, QR is QR and
QR_VECTORS. MAGMA is in `magma.py`. A library is added by its table in `libraries/signatures.py`, a
`Handle` and a `StepMaker` here, and its rules in `steps.py`. The rules of every step:

- Matrices lie by columns, each column right behind the one before. From one matrix of a stack to
  the next it is a `Stack.stride`, which may be 0 for what is only read.
- All memory is the device's and ready in the order of the stream, and so must results be: a library
  that computes on the host or on a stream of its own waits by itself.
- `info` gets an int32 for each matrix, on the device, as LAPACK defines it. Its stride is 0 where
  nobody will read it.
- Sizes are never 0. A step with `a_pointers` is one call for the whole stack.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from backendcfg.gpu.libraries.calling import Handle
from backendcfg.gpu.libraries.signatures import CUBLAS, CUSOLVER, HIPSOLVER
from backendcfg.gpu.products.gemm import TYPES

if TYPE_CHECKING:
    from backendcfg.gpu.libraries.calling import OpenLibrary

MOST = 2**31 - 1
"""The largest number of 32 bits."""

# What a step reads and writes; `a` is always factorised where it lies.
CHOLESKY = 0  # potrf: a (n, n) -> its factor in the triangle `upper`
CHOLESKY_SOLVE = 1  # potrs: b (n, k) <- solution, by the factor in a
LU = 2  # getrf: a (m, n) -> L and U; pivots (least of m, n)
LU_SOLVE = 3  # getrs: b (n, k) <- solution of op(A) X = b, by a and pivots
QR = 4  # geqrf: a (m, n) -> R, and reflectors below it; values: tau
QR_VECTORS = 5  # orgqr, ungqr: a (m, n) of k reflectors -> n columns of Q; values: tau
EIGH = 6  # syevd: a (n, n) -> eigenvectors unless vectors is "N"; values: ascending
# gesvd, m >= n: values: descending; unless vectors is "N", b gets U (m, m for "A", m, n for "S")
# and c V^H (n, n); a is lost
SVD = 7

ITEM = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
"""By element: its bytes."""

LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
REAL = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}
"""By element: the type of eigenvalues and singular values."""

NOWHERE, AREA = -1, -2


class Stack(NamedTuple):
    """Where the matrices of a stack are.

    Attributes:
        at: of their memory among the values of a call, `AREA` or `NOWHERE`.
        offset: bytes from there to the first matrix.
        stride: bytes from one matrix to the next; 0 where there is one for all.
    """

    at: int
    offset: int = 0
    stride: int = 0


NOTHING = Stack(NOWHERE)


class Step(NamedTuple):
    """One step: what it is, and where its arrays are.

    Attributes:
        library: whose it is.
        kind: `CHOLESKY` and so on.
        element: a key of `ITEM`.
        upper: the triangle that is read and written.
        transpose: "N", "T" or "C", of what is solved with.
        vectors: "N" for none, "S", or "A" for a whole basis.
        deterministic: the library's number of a mode to set; 0 where there is none.
        matrices: of the stack, at least 1.
        m: rows.
        n: columns.
        k: right-hand sides, or reflectors.
        a: the array that is factorised, or the factor.
        a_pointers: where each matrix of `a` starts, for a whole stack in one call.
        b_pointers: the same of `b`.
    """

    library: OpenLibrary
    kind: int
    element: str
    upper: bool
    transpose: str
    vectors: str
    deterministic: int
    matrices: int
    m: int
    n: int
    k: int
    a: Stack
    b: Stack = NOTHING
    c: Stack = NOTHING
    values: Stack = NOTHING
    pivots: Stack = NOTHING
    info: Stack = NOTHING
    a_pointers: Stack = NOTHING
    b_pointers: Stack = NOTHING

    @property
    def is_together(self) -> bool:
        """Whether it is one call for the whole stack."""
        return self.a_pointers.at != NOWHERE

    @property
    def is_complex(self) -> bool:
        """Whether its numbers are complex."""
        return self.element.startswith("complex")

    def here(self, bases: dict[int, int], matrix: int = 0) -> Here:
        """The addresses of one matrix.

        Args:
            bases: the address of each memory, by `Stack.at`; what is not known is 0.
            matrix: its number.
        """
        return Here(
            *[
                base + one.offset + one.stride * matrix if (base := bases.get(one.at)) else 0
                for one in self[11:]
            ]
        )


class Here(NamedTuple):
    """The addresses of a step's arrays for one matrix, in the order of `Step`; 0 for none."""

    a: int
    b: int
    c: int
    values: int
    pivots: int
    info: int
    a_pointers: int
    b_pointers: int


class Room(NamedTuple):
    """Memory that a step works in: on the device, and on the host until the call returns."""

    device: int
    device_bytes: int
    host: Any
    host_bytes: int


class StepMaker(Protocol):
    """A library's steps."""

    handle: type[Handle]

    def supports(self, step: Step) -> bool:
        """Whether it has a step for such sizes."""

    def sizes(self, handle: Any, step: Step, here: Here) -> tuple[int, int]:
        """Bytes on the device and on the host that it needs; addresses may be 0."""

    def compute(self, handle: Any, step: Step, bases: dict[int, int], room: Room) -> None:
        """Put it on the handle's stream for all its matrices."""


def fits(step: Step) -> bool:
    """Whether its sizes are numbers of 32 bits."""
    return max(step.m, step.n, step.k) <= MOST


def name_of(step: Step, real: str, unitary: str = "") -> str:
    """A function's name in LAPACK: "Sorgqr", "Cungqr"."""
    return LETTERS[step.element] + (unitary if unitary and step.is_complex else real)


# cuSOLVER: the 64-bit functions, one matrix after the other, and the batched functions for Cholesky
# and eigenproblems

_CONSTANTS = {**CUBLAS.constants, **CUSOLVER.constants, **HIPSOLVER.constants}
# Stacks of eigenproblems up to this size use the batched function, where the library has it. One
# larger matrix fills a device by itself.
_LARGEST_TOGETHER = 512


def _fill(step: Step, vendor: str) -> int:
    return _CONSTANTS[f"{vendor}_FILL_MODE_{'UPPER' if step.upper else 'LOWER'}"]


def _mode(step: Step, vendor: str) -> int:
    return _CONSTANTS[f"{vendor}_EIG_MODE_{'NOVECTOR' if step.vectors == 'N' else 'VECTOR'}"]


class _CusolverHandle(Handle):
    """Of cuSOLVER, with its parameters and the deterministic mode that was last set."""

    params: Any = None
    deterministic = 0

    def make(self) -> None:
        self.value = self.created("cusolverDnCreate", "cusolverDnSetStream", "cusolverDnDestroy")
        params = ctypes.c_void_p()
        try:
            self.library.call("cusolverDnCreateParams", ctypes.byref(params))
        except Exception:
            self.library.functions["cusolverDnDestroy"](self.value)
            raise
        self.params = params.value

    def close(self) -> None:
        self.library.functions["cusolverDnDestroyParams"](self.params)
        self.library.functions["cusolverDnDestroy"](self.value)

    def set_mode(self, mode: int) -> None:
        """The deterministic mode that the flags ask for; a workspace's size may depend on it."""
        if mode in (0, self.deterministic):
            return
        if "cusolverDnSetDeterministicMode" not in self.library.functions:
            status = CUSOLVER.constants["CUSOLVER_STATUS_NOT_SUPPORTED"]
            self.library.fail("cusolverDnSetDeterministicMode", status)
        self.library.call("cusolverDnSetDeterministicMode", self.value, mode)
        self.deterministic = mode


class Cusolver:
    """Its steps."""

    handle: type[Handle] = _CusolverHandle

    def supports(self, step: Step) -> bool:
        is_narrow = max(step.m, step.n, step.matrices) <= MOST
        if step.is_together:
            solves_one = step.kind == CHOLESKY_SOLVE and step.k == 1
            return is_narrow and (step.kind == CHOLESKY or solves_one)
        return step.kind != QR_VECTORS or is_narrow

    def _call(self, step: Step, here: Here) -> tuple[str, tuple[Any, ...]]:
        """A step's function, and the arguments that it and its sizes have first."""
        m, n, k, kind = step.m, step.n, step.k, step.kind
        of, real = TYPES[step.element], TYPES[REAL[step.element]]
        if kind == LU:
            return "cusolverDnXgetrf", (m, n, of, here.a, m, of)
        if kind == LU_SOLVE:
            how = _CONSTANTS[f"CUBLAS_OP_{step.transpose}"]
            return "cusolverDnXgetrs", (how, n, k, of, here.a, n, here.pivots, of, here.b, n)
        if kind == QR:
            return "cusolverDnXgeqrf", (m, n, of, here.a, m, of, here.values, of)
        if kind == QR_VECTORS:
            name = "cusolverDn" + name_of(step, "orgqr", "ungqr")
            return name, (m, n, k, here.a, m, here.values)
        if kind == SVD:
            vectors = ord(step.vectors)
            left = (vectors, vectors, m, n, of, here.a, m, real, here.values)
            return "cusolverDnXgesvd", (*left, of, here.b, m, of, here.c, n, of)
        fill = _fill(step, "CUBLAS")
        if kind == CHOLESKY:
            return "cusolverDnXpotrf", (fill, n, of, here.a, n, of)
        if kind == CHOLESKY_SOLVE:
            return "cusolverDnXpotrs", (fill, n, k, of, here.a, n, of, here.b, n)
        mode = _mode(step, "CUSOLVER")
        name = "cusolverDnXsyevBatched" if self._is_batched(step) else "cusolverDnXsyevd"
        return name, (mode, fill, n, of, here.a, n, real, here.values, of)

    def _is_batched(self, step: Step) -> bool:
        return (
            step.kind == EIGH
            and step.matrices > 1
            and step.n <= _LARGEST_TOGETHER
            and step.a.stride == step.n * step.n * ITEM[step.element]
            and "cusolverDnXsyevBatched" in step.library.functions
            and "cusolverDnXsyevBatched_bufferSize" in step.library.functions
        )

    def sizes(self, handle: Any, step: Step, here: Here) -> tuple[int, int]:
        handle.set_mode(step.deterministic)
        if step.is_together or step.kind in (CHOLESKY_SOLVE, LU_SOLVE):
            return 0, 0
        name, given = self._call(step, here)
        name = f"{name}_bufferSize"
        if step.kind == QR_VECTORS:
            count = ctypes.c_int()
            step.library.call(name, handle.value, *given, ctypes.byref(count))
            return count.value * ITEM[step.element], 0
        device, host = ctypes.c_size_t(), ctypes.c_size_t()
        given += (ctypes.byref(device), ctypes.byref(host))
        more = (step.matrices,) if self._is_batched(step) else ()
        step.library.call(name, handle.value, handle.params, *given, *more)
        return device.value, host.value

    def compute(self, handle: Any, step: Step, bases: dict[int, int], room: Room) -> None:
        handle.set_mode(step.deterministic)
        if step.is_together:
            self._stack(handle, step, step.here(bases))
            return
        call, value, params = step.library.call, handle.value, handle.params
        if self._is_batched(step):
            here = step.here(bases)
            name, given = self._call(step, here)
            call(name, value, params, *given, *room, here.info, step.matrices)
            return
        for matrix in range(step.matrices):
            here = step.here(bases, matrix)
            name, given = self._call(step, here)
            if step.kind in (CHOLESKY_SOLVE, LU_SOLVE):
                call(name, value, params, *given, here.info)
            elif step.kind == QR_VECTORS:
                count = room.device_bytes // ITEM[step.element]
                call(name, value, *given, room.device, count, here.info)
            elif step.kind == LU:
                call(name, value, params, *given[:5], here.pivots, given[5], *room, here.info)
            else:
                call(name, value, params, *given, *room, here.info)

    def _stack(self, handle: Any, step: Step, here: Here) -> None:
        """Cholesky's factors of a whole stack, or its solutions with one right-hand side each."""
        fill, n = _fill(step, "CUBLAS"), step.n
        if step.kind == CHOLESKY:
            name = name_of(step, "potrfBatched")
            given: tuple[Any, ...] = (fill, n, here.a_pointers, n)
        else:
            name = name_of(step, "potrsBatched")
            given = (fill, n, step.k, here.a_pointers, n, here.b_pointers, n)
        name = f"cusolverDn{name}"
        step.library.call(name, handle.value, *given, here.info, step.matrices)


# cuBLAS: LU of stacks of small matrices, one call for a whole stack. The pointers to the matrices
# are on the device, where Python has put them in stream order.


class _CublasHandle(Handle):
    """Of cuBLAS, apart from those of products, whose modes are of lower precision."""

    def make(self) -> None:
        self.value = self.created("cublasCreate_v2", "cublasSetStream_v2", "cublasDestroy_v2")

    def close(self) -> None:
        self.library.functions["cublasDestroy_v2"](self.value)


class CublasStacks:
    """Its steps."""

    handle: type[Handle] = _CublasHandle

    def supports(self, step: Step) -> bool:
        is_square = step.m == step.n and max(step.n, step.k, step.matrices) <= MOST
        return step.is_together and is_square and step.kind in (LU, LU_SOLVE)

    def sizes(self, handle: Any, step: Step, here: Here) -> tuple[int, int]:
        del handle, step, here
        return 0, 0

    def compute(self, handle: Any, step: Step, bases: dict[int, int], room: Room) -> None:
        del room
        here, n, call = step.here(bases), step.n, step.library.call
        if step.kind == LU:
            name = f"cublas{LETTERS[step.element]}getrfBatched"
            given: tuple[Any, ...] = (n, here.a_pointers, n, here.pivots, here.info)
        else:
            name = f"cublas{LETTERS[step.element]}getrsBatched"
            how = CUBLAS.constants[f"CUBLAS_OP_{step.transpose}"]
            # On the host: the number of an argument that is wrong, which the status says too.
            wrong = ctypes.byref(ctypes.c_int())
            solved = (here.b_pointers, n, wrong)
            given = (how, n, step.k, here.a_pointers, n, here.pivots, *solved)
        call(name, handle.value, *given, step.matrices)


# hipSOLVER: its 32-bit functions, one matrix after the other


class _HipsolverHandle(Handle):
    """Of hipSOLVER, with its deterministic mode.

    Attributes:
        deterministic: the mode that was last set; 0 while it is as it was made.
        usual: the mode that it was made with, once another was set.
    """

    deterministic = usual = 0

    def make(self) -> None:
        self.value = self.created("hipsolverCreate", "hipsolverSetStream", "hipsolverDestroy")

    def close(self) -> None:
        self.library.functions["hipsolverDestroy"](self.value)

    def set_mode(self, mode: int) -> None:
        """The deterministic mode that the flags ask for, or the one that it was made with."""
        if mode == self.deterministic:
            return
        library, (get, put) = self.library, _MODES
        if get not in library.functions or put not in library.functions:  # before version 2.3
            library.fail(put, HIPSOLVER.constants["HIPSOLVER_STATUS_NOT_SUPPORTED"])
        if self.deterministic == 0:
            usual = ctypes.c_int()
            library.call(get, self.value, ctypes.byref(usual))
            self.usual = usual.value
        library.call(put, self.value, mode or self.usual)
        self.deterministic = mode


_MODES = ("hipsolverGetDeterministicMode", "hipsolverSetDeterministicMode")


class Hipsolver:
    """Its steps."""

    handle: type[Handle] = _HipsolverHandle

    def supports(self, step: Step) -> bool:
        return fits(step)

    def _call(self, step: Step, here: Here) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
        """A step's function, the arguments that its sizes have too, and those of it alone."""
        m, n, k, kind = step.m, step.n, step.k, step.kind
        if kind == LU:
            return name_of(step, "getrf"), (m, n, here.a, m), ()
        if kind == LU_SOLVE:
            how = _CONSTANTS[f"HIPSOLVER_OP_{step.transpose}"]
            return name_of(step, "getrs"), (how, n, k, here.a, n, here.pivots, here.b, n), ()
        if kind == QR:
            return name_of(step, "geqrf"), (m, n, here.a, m), (here.values,)
        if kind == QR_VECTORS:
            return name_of(step, "orgqr", "ungqr"), (m, n, k, here.a, m, here.values), ()
        if kind == SVD:
            vectors = ord(step.vectors)
            written = (here.a, m, here.values, here.b, m, here.c, n)
            return name_of(step, "gesvd"), (vectors, vectors, m, n), written
        fill = _fill(step, "HIPSOLVER")
        if kind == CHOLESKY:
            return name_of(step, "potrf"), (fill, n, here.a, n), ()
        if kind == CHOLESKY_SOLVE:
            return name_of(step, "potrs"), (fill, n, k, here.a, n, here.b, n), ()
        mode = _mode(step, "HIPSOLVER")
        return name_of(step, "syevd", "heevd"), (mode, fill, n, here.a, n, here.values), ()

    def sizes(self, handle: Any, step: Step, here: Here) -> tuple[int, int]:
        handle.set_mode(step.deterministic)
        name, given, _ = self._call(step, here)
        needed = ctypes.c_int()
        name = f"hipsolver{name}_bufferSize"
        step.library.call(name, handle.value, *given, ctypes.byref(needed))
        return needed.value, 0

    def compute(self, handle: Any, step: Step, bases: dict[int, int], room: Room) -> None:
        handle.set_mode(step.deterministic)
        for matrix in range(step.matrices):
            here = step.here(bases, matrix)
            name, given, more = self._call(step, here)
            # Without memory for what lies beside the diagonal `gesvd` takes it from the workspace.
            last = {LU: (here.pivots,), SVD: (None,)}.get(step.kind, ())
            work = (room.device, room.device_bytes)
            step.library.call(
                f"hipsolver{name}", handle.value, *given, *more, *work, *last, here.info
            )
