"""What people write instead of a profile: read each switch, set it, read it back, restore it.

It calls what the libraries document, writes only where the value differs, and does not look whether
restoring worked. PyTorch's own context managers set fewer switches and look at nothing.
"""

from __future__ import annotations

import ctypes
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Access = tuple[Callable[[], Any], Callable[[Any], object]]


class ByHand:
    """A context manager over switches, each with how to read and write it."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        known = accesses(wanted)
        self.switches = [(*known[name], value) for name, value in wanted.items()]

    def __enter__(self) -> None:
        self.before: list[Any] = []
        for read, write, wanted in self.switches:
            before = read()
            self.before.append(before)
            if before != wanted:
                write(wanted)
                if (found := read()) != wanted:
                    raise RuntimeError(f"wrote {wanted!r}, read back {found!r}")

    def __exit__(self, *_: object) -> None:
        for (_, write, wanted), before in zip(
            reversed(self.switches), reversed(self.before), strict=True
        ):
            if before != wanted:
                write(before)


def accesses(names: Iterable[str]) -> dict[str, Access]:
    """How to read and write the switches of the shipped profiles, by the names that we have."""
    import jax
    import torch

    mha, cuda = torch.backends.mha, torch.backends.cuda
    found: dict[str, Access] = {
        **_pools(torch),
        "torch.deterministic_algorithms": (
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        "torch.utils.deterministic.fill_uninitialized_memory": _attribute(
            torch.utils.deterministic, "fill_uninitialized_memory"
        ),
        "torch.backends.mha.fastpath_enabled": (
            mha.get_fastpath_enabled,
            mha.set_fastpath_enabled,
        ),
        "torch.backends.cuda.enable_cudnn_sdp": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp": (
            cuda.fp16_bf16_reduction_math_sdp_allowed,
            cuda.allow_fp16_bf16_reduction_math_sdp,
        ),
    }
    for name in names:
        if name in found:
            continue
        if name.startswith("torch.backends."):
            *path, attribute = name.split(".")[1:]
            found[name] = _attribute(reduce(getattr, path, torch), attribute)
        elif name.startswith("jax."):
            found[name] = _option(jax.config, f"jax_{name.split('.')[1]}")
    return found


def by_hand(wanted: Mapping[str, Any]) -> ByHand:
    """The same switches at the same values, in the words that the libraries have for them."""
    modes = {"any": 0, "warn": 1, "deterministic": 2}
    return ByHand(
        {
            name: modes[value]
            if name == "torch.deterministic_algorithms"
            else value[0]
            if isinstance(value, tuple)  # reducing in 16 bits; splitting has no public name
            else value
            for name, value in wanted.items()
        }
    )


def _attribute(owner: Any, name: str) -> Access:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _option(config: Any, name: str) -> Access:
    return lambda: getattr(config, name), lambda value: config.update(name, value)


def _library(part: str) -> ctypes.CDLL:
    """The library in this process whose path has a part."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        paths = {line.split(maxsplit=5)[-1].strip() for line in file}
    return ctypes.CDLL(next(path for path in sorted(paths) if part in path))


def _pools(torch: Any) -> dict[str, Access]:
    """Thread counts and verbosity: C functions of NumPy's and SciPy's OpenBLAS, MKL and OpenMP."""
    numpy, scipy = (
        _library("numpy.libs/libscipy_openblas"),
        _library("scipy.libs/libscipy_openblas"),
    )
    mkl, openmp = _library("libtorch_cpu.so"), _library("libgomp")
    mkl.mkl_serv_verbose_mode.restype = ctypes.c_void_p
    verbose = ctypes.c_int.from_address(mkl.mkl_serv_verbose_mode())
    set_local = mkl.mkl_serv_set_num_threads_local
    onednn = [0]  # it has no function that tells

    def threads_of_mkl() -> int:
        mine = set_local(0)
        count: int = mkl.mkl_serv_get_max_threads()
        set_local(mine)
        return count

    def local_threads() -> int:
        mine: int = set_local(0)
        set_local(mine)
        return mine

    def set_torch(count: int) -> None:
        # It changes two switches of MKL as well.
        dynamic, mine = mkl.mkl_serv_get_dynamic(), set_local(0)
        torch.set_num_threads(count)
        mkl.mkl_serv_set_dynamic(dynamic)
        set_local(mine)

    def set_onednn(level: int) -> None:
        torch._C._verbose.mkldnn_set_verbose(level)
        onednn[0] = level

    return {
        "mkl[torch].dynamic": (mkl.mkl_serv_get_dynamic, mkl.mkl_serv_set_dynamic),
        "mkl[torch].threads": (threads_of_mkl, mkl.mkl_serv_set_num_threads),
        "mkl[torch].local_threads": (local_threads, set_local),
        "mkl[torch].verbose": (lambda: verbose.value, mkl.MKL_Verbose),
        "onednn[torch].verbose": (lambda: onednn[0], set_onednn),
        "openblas[numpy].threads": (
            numpy.scipy_openblas_get_num_threads64_,
            numpy.scipy_openblas_set_num_threads64_,
        ),
        "openblas[scipy].threads": (
            scipy.scipy_openblas_get_num_threads,
            scipy.scipy_openblas_set_num_threads,
        ),
        "openmp[libgomp torch].dynamic": (openmp.omp_get_dynamic, openmp.omp_set_dynamic),
        "openmp[libgomp torch].threads": (openmp.omp_get_max_threads, openmp.omp_set_num_threads),
        "torch.num_threads": (torch.get_num_threads, set_torch),
    }
