"""Questions about a host that more than one rule asks: versions, what is here, who reads a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from backendcfg.catalogue import cpu
from backendcfg.catalogue.cpu import MKL
from backendcfg.catalogue.frameworks import FRAMEWORKS, ON_DEVICES, TORCH
from backendcfg.catalogue.gpu import CUBLAS, NCCL, VENDORS
from backendcfg.resolve.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.schema.base import Flag
    from backendcfg.schema.host import Gpu, Host

_WORDS = {
    ">=": "{} or newer",
    "<=": "{} or older",
    ">": "newer than {}",
    "<": "older than {}",
    "==": "{}",
    "!=": "other than {}",
    "~=": "{} or a compatible release",
}


def parsed(text: str) -> Version | None:
    """A version, or None when the text is not one."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def within(text: str, bounds: str) -> bool:
    """Whether a version lies in a range; what cannot be compared does not."""
    version = parsed(text)
    try:
        # Drivers and nightly builds are pre-releases to the standard and are what is here.
        return version is not None and SpecifierSet(bounds).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def in_words(bounds: str) -> str:
    """A range as people say it: ">=8.0" is "8.0 or newer"."""
    try:
        ranges = SpecifierSet(bounds)
    except InvalidSpecifier:
        return f'in the range "{bounds}", which is not a version range'
    ordered = sorted(
        ranges,
        key=lambda one: (
            bounds.index(one.operator + one.version) if one.operator + one.version in bounds else 0
        ),
    )
    return " and ".join(_WORDS[one.operator].format(one.version) for one in ordered)


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


def _package(*names: str) -> Callable[[Host], bool]:
    return lambda host: has_package(host, *names)


def _kind(kind: str) -> Callable[[Host], bool]:
    return lambda host: has_kind(host, kind)


READERS: dict[str, tuple[str, Callable[[Host], bool]]] = {
    cpu.NATIVE.name: ("backendcfg", lambda host: True),
    "backendcfg": ("backendcfg", lambda host: True),
    "python": ("Python", lambda host: True),
    "environment": ("the environment", lambda host: True),
    "glibc": ("glibc", lambda host: host.system.libc.startswith("glibc")),
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


def dormancy(flag: Flag, host: Host) -> str:
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
