"""What an open BLAS, LAPACK or OpenMP library answers about itself.

Standard library, the catalogue and `text_of` only: a bare child interpreter runs this file to ask
libraries that this process has not loaded (`child.py`). Everything called here is a getter or a
product of three numbers. Whether a call is safe in the user's own process is said at each.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from backendcfg.catalogue.cpu import (
    BLIS,
    LIBGOMP,
    MKL,
    NETLIB_BLAS,
    NETLIB_LAPACK,
    OPENBLAS,
    OPENMP,
    PROVIDERS,
    RUNTIMES,
    is_torch,
)
from backendcfg.probe import text_of

OPENBLAS_AFFIXES = tuple(
    (prefix, suffix)
    # Old scipy wheels export unprefixed internals beside the prefixed interface: prefix first.
    for prefix in ("scipy_", "")
    for suffix in ("64_", "_64", "")
)
_OPENBLAS_THREADING = {0: "sequential", 1: "pthreads", 2: "openmp"}
# MKL_CBWR_Get_Auto_Branch; 2 ("auto") is what MKL answers on processors that are not Intel's.
_MKL_BRANCHES = {
    3: "compatible",
    4: "sse2",
    6: "ssse3",
    7: "sse4_1",
    8: "sse4_2",
    9: "avx",
    10: "avx2",
    11: "avx512_mic",
    12: "avx512",
    13: "avx512_mic_e1",
    14: "avx512_e1",
}
_MKL_LAYERS = ("intel_thread", "gnu_thread", "tbb_thread", "sequential")


def inspect(request: dict[str, Any]) -> dict[str, Any]:
    """Open `request["path"]` and return its facts; for a process that may die of it.

    Raises:
        OSError: the loader refuses the file.
        LookupError: it lacks the symbols that its name promises.
    """
    handle = ctypes.CDLL(request["path"], mode=os.RTLD_LAZY | os.RTLD_LOCAL)
    return facts(handle, request["path"], request["kind"])


def facts(handle: ctypes.CDLL, path: str, kind: str) -> dict[str, Any]:
    """Everything the library says of itself.

    Keys: kind ("" when it is not what its name promises and nothing is wrong with that), version,
    interface, prefix, suffix, threading, core_type, max_threads, serves.

    Raises:
        LookupError: it lacks the symbols that its name promises.
    """
    name = os.path.basename(path)
    if kind == OPENMP:
        return _openmp(handle, name)
    if kind == NETLIB_LAPACK.kind:
        return _lapack(handle, name)
    if is_torch(path):
        return _mkl_in_torch(handle)
    # Distributions install OpenBLAS and BLIS under the name libblas.so.3: ask, do not guess.
    if affixes := openblas_affixes(handle):
        return openblas(handle, *affixes)
    if hasattr(handle, BLIS.symbol):
        return _blis(handle)
    if hasattr(handle, MKL.symbol):
        return _mkl(handle)
    if kind == NETLIB_BLAS.kind:
        return _reference(handle, name)
    symbol = next(each.symbol for each in PROVIDERS if each.kind == kind)
    if not hasattr(handle, symbol):
        raise LookupError(f"no symbol {symbol}")
    return {"kind": kind, "serves": hasattr(handle, "cblas_dgemm")}


def openblas_affixes(handle: ctypes.CDLL) -> tuple[str, str] | None:
    """Prefix and suffix of the library's names; None when it is not OpenBLAS. Looks only."""
    for prefix, suffix in OPENBLAS_AFFIXES:
        if hasattr(handle, f"{prefix}{OPENBLAS.symbol}{suffix}"):
            return prefix, suffix
    return None


def openblas(handle: ctypes.CDLL, prefix: str, suffix: str) -> dict[str, Any]:
    """Facts of an OpenBLAS. Safe in any process: these getters return constants."""
    config = text(handle, f"{prefix}{OPENBLAS.symbol}{suffix}")
    parallel = getattr(handle, f"{prefix}openblas_get_parallel{suffix}", None)
    version = re.match(r"OpenBLAS (\S+)", config)
    limit = re.search(r"MAX_THREADS=(\d+)", config)
    return {
        "kind": OPENBLAS.kind,
        "version": version.group(1) if version else "",
        "interface": "ilp64" if "USE64BITINT" in config else "lp64",
        "prefix": prefix,
        "suffix": suffix,
        "threading": _OPENBLAS_THREADING.get(parallel(), "") if parallel else "",
        "core_type": text(handle, f"{prefix}openblas_get_corename{suffix}"),
        "max_threads": int(limit.group(1)) if limit else 0,
        "serves": hasattr(handle, f"{prefix}cblas_dgemm{suffix}"),
    }


def text(handle: ctypes.CDLL, name: str) -> str:
    """What a `char *name(void)` returns; "" when the symbol or the string is missing."""
    function = getattr(handle, name, None)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    answer = function()
    return answer.decode(errors="replace").strip() if answer is not None else ""


def mkl_version(handle: ctypes.CDLL, name: str = MKL.symbol) -> str:
    """MKL's version, "2026.2". Makes libmkl_rt open its layers: not for the user's process."""
    function = getattr(handle, name, None)
    if function is None:
        return ""
    buffer = ctypes.create_string_buffer(512)
    function(buffer, len(buffer))
    found = re.search(r"Version (\S+?)-", buffer.value.decode(errors="replace"))
    return found.group(1) if found else ""


def openmp_of(handle: ctypes.CDLL) -> str:
    """The OpenMP runtime that a library depends on. Looks only."""
    # LLVM's and Intel's runtime export GOMP_parallel as well, so its own name comes first.
    if hasattr(handle, "__kmpc_fork_call"):
        return "intel"
    return "gnu" if hasattr(handle, "GOMP_parallel") else ""


def _mkl(handle: ctypes.CDLL) -> dict[str, Any]:
    version = mkl_version(handle)
    maps = text_of("/proc/self/maps", has_names=True)
    layers = [layer for layer in _MKL_LAYERS if f"{MKL.stem}_{layer}" in maps]
    branch = getattr(handle, "MKL_CBWR_Get_Auto_Branch", None)
    return {
        "kind": MKL.kind,
        "version": version,
        # The bare names are LP64; cblas_dgemm_64 and so on are ILP64 and always there.
        "interface": "both",
        "threading": layers[0].removesuffix("_thread") if len(layers) == 1 else "",
        "core_type": _MKL_BRANCHES.get(branch(), "") if branch else "",
        "serves": hasattr(handle, "cblas_dgemm"),
    }


def _mkl_in_torch(handle: ctypes.CDLL) -> dict[str, Any]:
    version = mkl_version(handle, "mkl_serv_get_version_string")
    if not version:
        return {"kind": ""}
    return {
        "kind": MKL.kind,
        "version": version,
        "interface": "lp64",
        "threading": openmp_of(handle),
        # Its cblas_dgemm is not exported, only Fortran's dgemm_: it serves PyTorch alone.
        "serves": hasattr(handle, "cblas_dgemm"),
    }


def _blis(handle: ctypes.CDLL) -> dict[str, Any]:
    # Asked before it is initialised, BLIS 0.9 takes every BLIS_ARCH_TYPE for an invalid one; and
    # it aborts the process when the variable names kernels that it does not have.
    if hasattr(handle, "bli_init"):
        handle.bli_init()
    core = ""
    if hasattr(handle, "bli_arch_query_id") and hasattr(handle, "bli_arch_string"):
        handle.bli_arch_string.restype = ctypes.c_char_p
        core = (handle.bli_arch_string(handle.bli_arch_query_id()) or b"").decode()
    threading = next(
        (
            layer
            for layer, question in (
                ("openmp", "bli_info_get_enable_openmp"),
                ("pthreads", "bli_info_get_enable_pthreads"),
            )
            if hasattr(handle, question) and getattr(handle, question)()
        ),
        "sequential",
    )
    return {
        "kind": BLIS.kind,
        "version": text(handle, BLIS.symbol),
        "interface": blis_interface(handle),
        "threading": threading,
        "core_type": core,
        "serves": hasattr(handle, "cblas_dgemm"),
    }


def blis_interface(handle: ctypes.CDLL) -> str:
    """The width of a BLIS's integers, "" for one that does not say. Safe: it is a constant."""
    size = getattr(handle, "bli_info_get_blas_int_type_size", None)
    return ("ilp64" if size() == 64 else "lp64") if size else ""


def _reference(handle: ctypes.CDLL, name: str) -> dict[str, Any]:
    if name.startswith("libcblas"):
        if not hasattr(handle, "cblas_dgemm"):
            raise LookupError("no symbol cblas_dgemm")
    elif not hasattr(handle, "dgemm_"):
        raise LookupError("no symbol dgemm_")
    return {
        "kind": NETLIB_BLAS.kind,
        # Without a word on its threads: BLIS and others are installed under this name as well.
        "interface": integer_width(handle, "isamax_"),
        "serves": hasattr(handle, "cblas_dgemm"),
    }


def _lapack(handle: ctypes.CDLL, name: str) -> dict[str, Any]:
    if name.startswith("liblapacke"):
        if not hasattr(handle, "LAPACKE_dgesv"):
            raise LookupError("no symbol LAPACKE_dgesv")
        return {"kind": NETLIB_LAPACK.kind, "interface": "ilp64" if "64" in name else "lp64"}
    if not hasattr(handle, "dgesv_"):
        raise LookupError("no symbol dgesv_")
    version = ""
    if hasattr(handle, "ilaver_"):
        # Eight bytes each: an ILP64 library writes all of them, an LP64 one the lower half.
        parts = [ctypes.c_int64(0) for _ in range(3)]
        handle.ilaver_(*(ctypes.byref(part) for part in parts))
        version = ".".join(str(part.value) for part in parts)
    return {
        "kind": NETLIB_LAPACK.kind,
        "version": version,
        "interface": "ilp64" if "64" in name.partition(".")[0] else "lp64",
    }


def _openmp(handle: ctypes.CDLL, name: str) -> dict[str, Any]:
    if not hasattr(handle, LIBGOMP.symbol):
        raise LookupError(f"no symbol {LIBGOMP.symbol}")
    return {
        "kind": OPENMP,
        "threading": next(each.threading for each in RUNTIMES if name.startswith(each.name)),
    }


def integer_width(handle: ctypes.CDLL, name: str) -> str:
    """Whether an `isamax` takes 32-bit or 64-bit integers, found by calling it.

    The length is 3 in the lower 32 bits and negative as 64: a negative length answers 0.
    The probe is libblastrampoline's (src/autodetection.c).
    """
    function = getattr(handle, name, None)
    if function is None:
        return ""
    length = ctypes.c_int64(-0x1_0000_0000 + 3)
    one = ctypes.c_int64(1)
    numbers = (ctypes.c_float * 3)(1.0, 2.0, 4.0)
    function.restype = ctypes.c_int32
    answer = function(ctypes.byref(length), numbers, ctypes.byref(one))
    return {3: "lp64", 0: "ilp64"}.get(answer, "")
