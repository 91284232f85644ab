"""Questions about a host that more than one rule asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from backendcfg.catalogue.cpu import MKL
from backendcfg.resolve.versions import parsed

if TYPE_CHECKING:
    from backendcfg.schema.host import Gpu, Host


def visible_gpus(host: Host, *vendors: str) -> tuple[Gpu, ...]:
    """The GPUs that a process here would see, of some vendors or of all."""
    return tuple(gpu for gpu in host.gpus if gpu.visible and (not vendors or gpu.vendor in vendors))


def has_package(host: Host, *names: str) -> bool:
    """Whether any of these is installed."""
    return any(name in host.packages for name in names)


def is_older(host: Host, package: str, version: str) -> bool:
    """Whether an installed package is older than a version; false when it cannot be compared."""
    here = parsed(host.packages.get(package, ""))
    return here is not None and here < Version(version)


def has_kind(host: Host, kind: str) -> bool:
    """Whether a library of this kind was found, whoever brought it."""
    return any(library.kind == kind for library in host.libraries)


def has_mkl(host: Host) -> bool:
    """Whether MKL computes for somebody here: as a library, or inside PyTorch on x86-64."""
    return has_kind(host, MKL.kind) or (
        has_package(host, *MKL.inside)
        and host.cpu.architecture == "x86_64"
        and host.system.os != "macos"
    )
