"""Where the libraries that compute on devices are: their files, in the order to try them.

A framework that computes on a device has its library in the process already, and two copies of one
do not share what they keep on the device: what is loaded comes first, then other files of the same
major version, then the rest by where they are. Nothing is opened here.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.catalogue.gpu import AMD, CALLED, NVIDIA, GpuLibrary
from backendcfg.probe import loaded
from backendcfg.probe.installed import loader_cache

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UNKNOWN = -1


BY_NAME = {library.name: library for library in CALLED}

# Windows' Linux, Colab and Google's Kubernetes keep the driver off the loader's path.
_OF_DRIVERS = (
    *("usr/lib/wsl/lib", "usr/lib64-nvidia", "usr/local/nvidia/lib64"),
    *("usr/lib64", "usr/lib", "run/opengl-driver/lib"),
)


@dataclass(frozen=True)
class DeviceFile:
    """A file that could be one of these libraries.

    Attributes:
        path: absolute, links resolved: a file is opened under one name only.
        library: its name.
        major: of its interface, as its name says it; UNKNOWN when it does not.
        found: "loaded", "wheel", "conda", "LD_LIBRARY_PATH", "system" or the name of the variable
            that led there.
    """

    path: str
    library: str
    major: int
    found: str


def framework_toolkits() -> dict[str, int]:
    """The major version of the toolkit that PyTorch here is built for, if it is imported."""
    version = getattr(sys.modules.get(TORCH.name), "version", None)
    said = {NVIDIA: getattr(version, "cuda", None), AMD: getattr(version, "hip", None)}
    return {vendor: int(text.partition(".")[0]) for vendor, text in said.items() if text}


def _mapped() -> list[str]:
    return loaded.mapped_files()  # looked up when it is asked, because tests replace it


@dataclass(frozen=True)
class World:
    """Where to look. The defaults are this process and its machine.

    Attributes:
        root: where /etc, /usr and /opt are found.
        entries: directories of Python packages, as sys.path.
        prefix: of the environment, as sys.prefix.
        environment: the variables.
        mapped: files that are in the process.
        toolkit: the major versions of CUDA and ROCm that a framework in the process says it is
            built for, by vendor.
    """

    root: str = "/"
    entries: Sequence[str] = field(default_factory=lambda: tuple(sys.path))
    prefix: str = sys.prefix
    environment: Mapping[str, str] = field(default_factory=environ.copy)
    mapped: Sequence[str] = field(default_factory=_mapped)
    toolkit: Mapping[str, int] = field(default_factory=framework_toolkits)


def find(name: str, world: World | None = None) -> list[DeviceFile]:
    """The files that could be a library, in the order to try them; each file once.

    Args:
        name: of the library, as in `BY_NAME`.
        world: instead of this process and its machine.
    """
    library, world = BY_NAME[name], world or World()
    found: dict[str, DeviceFile] = {}
    for file in _everywhere(library, world):
        path = os.path.realpath(file.path)
        found.setdefault(path, replace(file, path=path))
    wanted = _preferred(library, world)

    def rank(file: DeviceFile) -> tuple[bool, bool]:
        return file.found != "loaded", wanted is not None and file.major != wanted

    return sorted(found.values(), key=rank)


def _everywhere(library: GpuLibrary, world: World) -> Iterator[DeviceFile]:
    yield from _loaded(library, world)
    for directory, found in _directories(library, world):
        yield from _in_directory(library, directory, found)


def _loaded(library: GpuLibrary, world: World) -> Iterator[DeviceFile]:
    # Wheels that bring their own copy may put a hash into its name.
    pattern = re.escape(library.stem).replace(r"\.so", r"(?:-[0-9a-f]{8})?\.so(?:\.(\d+)[\w.]*)?")
    for path in world.mapped:
        if match := re.fullmatch(pattern, os.path.basename(path)):
            # The driver's file carries the driver's version, and not that of its interface.
            major = 1 if library.is_driver else int(match.group(1) or UNKNOWN)
            yield DeviceFile(path, library.name, major, "loaded")


def _in_directory(library: GpuLibrary, directory: str, found: str) -> Iterator[DeviceFile]:
    for major in library.majors:
        path = os.path.join(directory, f"{library.stem}.{major}")
        if os.path.isfile(path):
            yield DeviceFile(path, library.name, major, found)
    # PyTorch's wheels for ROCm bundle its libraries under names without a version. Elsewhere such a
    # name is a link for compilers.
    path = os.path.join(directory, library.stem)
    is_bundled = library.vendor == AMD and found == "wheel"
    if (library.plain or is_bundled) and os.path.isfile(path):
        yield DeviceFile(path, library.name, UNKNOWN, found)


def _directories(library: GpuLibrary, world: World) -> Iterator[tuple[str, str]]:
    """Each with what led there."""
    if not library.is_driver:
        yield from ((place, "wheel") for place in _wheels(library, world))
        if os.path.isdir(os.path.join(world.prefix, "conda-meta")):
            yield os.path.join(world.prefix, "lib"), "conda"
    for entry in world.environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if os.path.isabs(entry):
            yield entry, "LD_LIBRARY_PATH"
    yield from ((place, "system") for place in _system(library, world))
    if not library.is_driver:
        yield from _toolkits(library, world)


def _wheels(library: GpuLibrary, world: World) -> Iterator[str]:
    """The directories of the vendor's wheels, and PyTorch's own, which may bundle them."""
    # nvidia/cu13/lib holds all of CUDA 13, nvidia/cublas/lib and its like CUDA 12.
    pattern = "nvidia/*/lib" if library.vendor == NVIDIA else "_rocm_sdk_*/lib"
    for entry in dict.fromkeys(world.entries):
        if entry and os.path.isdir(entry):
            yield from sorted(glob.glob(os.path.join(glob.escape(entry), pattern)))
            yield os.path.join(entry, TORCH.name, "lib")


def _system(library: GpuLibrary, world: World) -> Iterator[str]:
    # No cache on musl and NixOS; `backendcfg detect` reports one that cannot be read.
    with suppress(OSError, ValueError):
        installed = loader_cache(world.root)
        names = library.names
        yield from (os.path.dirname(installed[name]) for name in names if name in installed)
    if library.is_driver:
        yield from (os.path.join(world.root, place) for place in _OF_DRIVERS)


def _toolkits(library: GpuLibrary, world: World) -> Iterator[tuple[str, str]]:
    variables = ("CUDA_PATH", "CUDA_HOME") if library.vendor == NVIDIA else ("ROCM_PATH",)
    for variable in (*library.variables, *variables):
        if os.path.isabs(place := world.environment.get(variable, "")):
            yield from ((os.path.join(place, part), variable) for part in ("lib64", "lib"))
    pattern = "usr/local/cuda*" if library.vendor == NVIDIA else "opt/rocm*"
    # The newest last by name; cuda and rocm without a number are links to one of them.
    patterns = [os.path.join(glob.escape(world.root), each) for each in (*library.places, pattern)]
    for place in (found for each in patterns for found in sorted(glob.glob(each))):
        yield from ((os.path.join(place, part), "system") for part in ("lib64", "lib"))


def loaded_toolkits(vendor: str, world: World | None = None) -> set[int]:
    """The major versions of a vendor's toolkit whose libraries are in the process."""
    world = world or World()
    return {
        toolkit
        for library in CALLED
        if library.vendor == vendor and not library.is_driver
        for file in _loaded(library, world)
        if (toolkit := library.majors.get(file.major))
    }


def _preferred(library: GpuLibrary, world: World) -> int | None:
    """The major version of the interface that fits what is in the process; None for any."""
    vendor = library.vendor
    said = {world.toolkit[vendor]} if vendor in world.toolkit else loaded_toolkits(vendor, world)
    fitting = [major for major, toolkit in library.majors.items() if toolkit in said]
    return fitting[0] if len(fitting) == 1 else None
