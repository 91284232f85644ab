"""Linear algebra by MAGMA, one matrix after the other.

MAGMA is a hybrid library: matrices are on the device, but pivots, tau and eigenvalues are in the
host's memory, and singular values are computed on the host alone. Its functions use queues of their
own and wait for them, so the stream is synchronized before. Copies between host and device use a
queue on the stream, and wait too. Only solving by a Cholesky factor does not wait: potrs would
return before its own queue is done, so trsm is called twice on the stream's queue instead.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from backendcfg.gpu.libraries.calling import Complex64, Complex128, Handle
from backendcfg.gpu.libraries.signatures import MAGMA
from backendcfg.gpu.linalg import vendors
from backendcfg.gpu.linalg.vendors import ITEM, MOST, REAL, fits

if TYPE_CHECKING:
    from backendcfg.gpu.linalg.vendors import Here, Room, Step

_N = MAGMA.constants
_HERE = (b"", b"", 0)  # the function, file and line that call
_INT = 4
_TRANSPOSED = {"N": _N["MagmaNoTrans"], "T": _N["MagmaTrans"], "C": _N["MagmaConjTrans"]}
_VECTORS = {"N": _N["MagmaNoVec"], "S": _N["MagmaSomeVec"], "A": _N["MagmaAllVec"]}
_WIDEST_BLOCK = 512
_ONE = {
    "float32": 1.0,
    "float64": 1.0,
    "complex64": Complex64(1, 0),
    "complex128": Complex128(1, 0),
}


class _Queue(Handle):
    """A queue on the stream. MAGMA stays loaded, so `magma_finalize` is not called."""

    def make(self) -> None:
        functions = self.library.functions
        self.library.call("magma_init")  # it counts its calls; only the first does something
        device, queue = ctypes.c_int(), ctypes.c_void_p()
        functions["magma_getdevice"](ctypes.byref(device))
        toolkit, blas = (
            ("hip", "hipblas") if self.library.name == "magma_hip" else ("cuda", "cublas")
        )
        name = f"magma_queue_create_from_{toolkit}"
        made = ctypes.byref(queue)
        functions[f"{name}_internal"](device.value, self.stream, None, None, made, *_HERE)
        self.value = queue.value
        if self.value is None:
            self.library.fail(name, _N["MAGMA_ERR_HOST_ALLOC"])
        if functions[f"magma_queue_get_{blas}_handle"](self.value) is None:
            self.close()  # MAGMA only prints such an error
            self.library.fail(name, _N["MAGMA_ERR_UNKNOWN"])

    def close(self) -> None:
        self.library.functions["magma_queue_destroy_internal"](self.value, *_HERE)


class _HostMemory:
    """A step's memory on the host, and the lengths of what its function works in."""

    def __init__(self) -> None:
        self.a = self.b = self.c = self.values = self.work = self.real = self.integers = None
        self.lengths = (-1, -1, -1)  # which asks a function how much it needs

    a: Any
    b: Any
    c: Any
    values: Any
    work: Any
    real: Any
    integers: Any


def _bytes(count: int, size: int) -> Any:
    return (ctypes.c_char * (max(count, 1) * size))()


class Magma:
    """Its steps, of both builds."""

    handle: type[Handle] = _Queue

    def supports(self, step: Step) -> bool:
        """MAGMA computes sizes of memory in 32 bits. This bound is above each of its formulas."""
        m, n, k = step.m, step.n, step.k
        if not fits(step):
            return False
        largest = max(m * n, n * k)
        if step.kind == vendors.EIGH:
            largest = 2 * n * n + _WIDEST_BLOCK * n
        if step.kind == vendors.SVD:
            if n > 1 << 15 or m > 1 << 21:
                return False
            whole = m * m if step.vectors == "A" else 0
            largest = max(4 * n * n + _WIDEST_BLOCK * (m + n), whole, m * n)
        return largest <= MOST

    def sizes(self, handle: Any, step: Step, here: Here) -> tuple[int, int]:
        del handle, step, here  # it works in memory of its own, and of the host's
        return 0, 0

    def compute(self, handle: Any, step: Step, bases: dict[int, int], room: Room) -> None:
        del room
        host = self._host(step)
        if step.kind != vendors.CHOLESKY_SOLVE:
            step.library.functions["magma_queue_sync_internal"](handle.value, *_HERE)
        for matrix in range(step.matrices):
            self._one(handle.value, step, step.here(bases, matrix), host)

    def _host(self, step: Step) -> _HostMemory:
        """The host's memory for one matrix."""
        m, n, k, few, size = step.m, step.n, step.k, min(step.m, step.n), ITEM[step.element]
        real, host = ITEM[REAL[step.element]], _HostMemory()
        if step.kind in (vendors.LU, vendors.LU_SOLVE):
            host.integers = _bytes(few, _INT)
        elif step.kind == vendors.QR:
            host.values = _bytes(few, size)
        elif step.kind == vendors.QR_VECTORS:
            host.values, host.a = _bytes(k, size), _bytes(m * n, size)
        elif step.kind in (vendors.EIGH, vendors.SVD):
            host.work, host.real, host.integers = _bytes(1, 16), _bytes(1, 16), _bytes(1, _INT)
            self._call(step, 0, host)
            asked = [self._number(step, each) for each in (host.work, host.real)]
            integers = ctypes.c_int.from_buffer(host.integers).value
            host.values, host.a = _bytes(few, real), _bytes(m * n, size)
            if step.kind == vendors.SVD:
                asked[1], integers = 7 * n * (n + 1) + 2 * m * n, 8 * n
                if step.vectors != "N":
                    host.b = _bytes(m * (m if step.vectors == "A" else n), size)
                    host.c = _bytes(n * n, size)
            host.lengths = (asked[0], asked[1] if step.is_complex else 0, integers)
            host.work, host.real = _bytes(asked[0], size), _bytes(host.lengths[1], real)
            host.integers = _bytes(integers, _INT)
        return host

    def _number(self, step: Step, said: Any) -> int:
        real = ctypes.c_float if REAL[step.element] == "float32" else ctypes.c_double
        return int(real.from_buffer(said).value)

    def _call(self, step: Step, a: int, host: _HostMemory) -> int:
        """One matrix's `syevd_gpu`, `heevd_gpu` or `gesdd`."""
        m, n = step.m, step.n
        work, real, integers = host.lengths
        if step.kind == vendors.EIGH:
            mode = _N["MagmaNoVec"] if step.vectors == "N" else _N["MagmaVec"]
            worked = (host.work, work, *((host.real, real) if step.is_complex else ()))
            name, given = (
                "heevd_gpu" if step.is_complex else "syevd_gpu",
                (mode, _fill(step), n, a, n),
            )
            return self._status(
                step, name, *given, host.values, host.a, n, *worked, host.integers, integers
            )
        worked = (host.work, work, *((host.real,) if step.is_complex else ()))
        arrays = (host.a, m, host.values, host.b, m, host.c, n)
        return self._status(
            step, "gesdd", _VECTORS[step.vectors], m, n, *arrays, *worked, host.integers
        )

    def _status(self, step: Step, name: str, *given: Any) -> int:
        """The `info` of the step's function for its type, where it is no failure."""
        name, info = f"magma_{vendors.LETTERS[step.element].lower()}{name}", ctypes.c_int()
        step.library.functions[name](*given, ctypes.byref(info))
        if info.value < 0:
            step.library.fail(name, info.value)
        return info.value

    def _one(self, queue: int, step: Step, here: Here, host: _HostMemory) -> None:
        m, n, k, few, size = step.m, step.n, step.k, min(step.m, step.n), ITEM[step.element]
        real, functions, status = ITEM[REAL[step.element]], step.library.functions, self._status

        def fetch(count: int, of: int, start: int, to: Any) -> None:
            functions["magma_getvector_internal"](count, of, start, 1, to, 1, queue, *_HERE)

        def store(count: int, of: int, start: Any, to: int) -> None:
            functions["magma_setvector_internal"](count, of, start, 1, to, 1, queue, *_HERE)

        info = 0
        if step.kind == vendors.CHOLESKY:
            info = status(step, "potrf_gpu", _fill(step), n, here.a, n)
        elif step.kind == vendors.CHOLESKY_SOLVE:
            self._solve_cholesky(queue, step, here)
        elif step.kind == vendors.LU:
            info = status(step, "getrf_gpu", m, n, here.a, m, host.integers)
            store(few, _INT, host.integers, here.pivots)
        elif step.kind == vendors.LU_SOLVE:
            fetch(n, _INT, here.pivots, host.integers)
            how = _TRANSPOSED[step.transpose]
            info = status(step, "getrs_gpu", how, n, k, here.a, n, host.integers, here.b, n)
        elif step.kind == vendors.QR:
            info = status(step, "geqrf2_gpu", m, n, here.a, m, host.values)
            store(few, size, host.values, here.values)
        elif step.kind == vendors.QR_VECTORS:
            fetch(k, size, here.values, host.values)
            fetch(m * n, size, here.a, host.a)
            name = "ungqr2" if step.is_complex else "orgqr2"
            info = status(step, name, m, n, k, host.a, m, host.values)
            store(m * n, size, host.a, here.a)
        elif step.kind == vendors.EIGH:
            info = self._call(step, here.a, host)
            store(n, real, host.values, here.values)
        else:
            fetch(m * n, size, here.a, host.a)
            info = self._call(step, here.a, host)
            store(n, real, host.values, here.values)
            if step.vectors != "N":
                store(m * (m if step.vectors == "A" else n), size, host.b, here.b)
                store(n * n, size, host.c, here.c)
        if step.info.stride:
            store(1, _INT, ctypes.byref(ctypes.c_int(info)), here.info)

    def _solve_cholesky(self, queue: int, step: Step, here: Here) -> None:
        """Solve with both triangles, on the stream."""
        name = f"magma_{vendors.LETTERS[step.element].lower()}trsm"
        first, second = _TRANSPOSED["C"], _TRANSPOSED["N"]
        for how in (first, second) if step.upper else (second, first):
            given = (_N["MagmaLeft"], _fill(step), how, _N["MagmaNonUnit"], step.n, step.k)
            solved = (_ONE[step.element], here.a, step.n, here.b, step.n, queue)
            step.library.functions[name](*given, *solved)


def _fill(step: Step) -> int:
    return _N["MagmaUpper"] if step.upper else _N["MagmaLower"]
