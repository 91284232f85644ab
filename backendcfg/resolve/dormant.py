"""Dormancy: why nothing on a host reads a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.catalogue import cpu
from backendcfg.catalogue.frameworks import FRAMEWORKS, ON_DEVICES, TORCH
from backendcfg.catalogue.gpu import CUBLAS, NCCL, VENDORS
from backendcfg.resolve.facts import has_kind, has_mkl, has_package, visible_gpus
from backendcfg.resolve.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.schema.flag import Flag
    from backendcfg.schema.host import Host


def _package(*names: str) -> Callable[[Host], bool]:
    return lambda host: has_package(host, *names)


def _kind(kind: str) -> Callable[[Host], bool]:
    return lambda host: has_kind(host, kind)


READERS: dict[str, tuple[str, Callable[[Host], bool]]] = {
    cpu.NATIVE.name: ("backendcfg", lambda host: True),
    "backendcfg": ("backendcfg", lambda host: True),
    "python": ("Python", lambda host: True),
    "environment": ("the environment", lambda host: True),
    **{each.name: (each.title, _package(each.name)) for each in FRAMEWORKS},
    **{each.name: (each.title, _kind(each.kind)) for each in (cpu.OPENBLAS, cpu.BLIS)},
    cpu.MKL.name: (cpu.MKL.title, has_mkl),
    cpu.OPENMP: (
        "OpenMP",
        lambda host: has_kind(host, cpu.OPENMP) or has_package(host, TORCH.name),
    ),
    cpu.ONEDNN.name: (cpu.ONEDNN.title, _package(*cpu.ONEDNN.inside)),
    **{each.name: (each.title, _package(*ON_DEVICES)) for each in (CUBLAS, NCCL)},
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
