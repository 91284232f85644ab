"""Dormancy: why nothing on a host reads a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.resolve.facts import TITLES, VENDORS, has_kind, has_mkl, has_package, visible_gpus
from backendcfg.resolve.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.schema.flag import Flag
    from backendcfg.schema.host import Host

_GPU_FRAMEWORKS = ("torch", "jax", "cupy", "tensorflow")


def _package(name: str) -> Callable[[Host], bool]:
    return lambda host: has_package(host, name)


READERS: dict[str, tuple[str, Callable[[Host], bool]]] = {
    "native": ("backendcfg", lambda host: True),
    "backendcfg": ("backendcfg", lambda host: True),
    "python": ("Python", lambda host: True),
    "numpy": ("NumPy", _package("numpy")),
    "environment": ("the environment", lambda host: True),
    **{name: (TITLES[name], _package(name)) for name in _GPU_FRAMEWORKS},
    "openblas": ("OpenBLAS", lambda host: has_kind(host, "openblas")),
    "blis": ("BLIS", lambda host: has_kind(host, "blis")),
    "mkl": ("MKL", has_mkl),
    "openmp": ("OpenMP", lambda host: has_kind(host, "openmp") or has_package(host, "torch")),
    "onednn": ("oneDNN", lambda host: has_package(host, "torch", "tensorflow")),
    "cublas": ("cuBLAS", lambda host: has_package(host, *_GPU_FRAMEWORKS)),
    "nccl": ("NCCL", lambda host: has_package(host, *_GPU_FRAMEWORKS)),
}
"""Who may read a flag: what people call it, and whether it is on a host."""


def reason(flag: Flag, host: Host) -> str:
    """Why nothing on this host reads a flag, or "" when something does."""
    vendors = tuple(need.removesuffix("-gpu") for need in flag.needs)
    if vendors and not visible_gpus(host, *vendors):
        titles = listed([VENDORS[vendor] for vendor in vendors], "or")
        hidden = any(gpu.vendor in vendors for gpu in host.gpus)
        return f"every {titles} GPU is hidden" if hidden else f"no {titles} GPU is here"
    if any(READERS[reader][1](host) for reader in flag.readers):
        return ""
    titles = listed([READERS[reader][0] for reader in flag.readers], "or")
    return f"no {titles} is here" if " or " in titles else f"{titles} is not here"
