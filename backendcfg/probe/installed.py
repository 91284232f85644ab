"""What is installed: versions of packages, and where the files of libraries are.

Nothing is imported or opened; the loader's own list of libraries, /etc/ld.so.cache, is read as
ldconfig writes it. The order of the files says who is asked first for the same provider:
NumPy's own copy, SciPy's, the wheels, the environment's, the system's.
"""

from __future__ import annotations

import glob
import os
import re
import struct
import sys
from dataclasses import dataclass, field
from importlib import metadata

from backendcfg import environ
from backendcfg.catalogue.cpu import LIBRARIES, kind_of
from backendcfg.catalogue.frameworks import FRAMEWORKS
from backendcfg.schema.host import Broken

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("=20sII")
_HEADER_SIZE = 48
_ENTRY = struct.Struct("=iIIIQ")


def loader_cache(root: str = "/") -> dict[str, str]:
    """Every library that the loader finds by name: `{soname: path}`, the preferred file of each.

    Raises:
        OSError: there is no cache, as on musl or NixOS.
        ValueError: it is not in a format that glibc has written since 1999.
    """
    with open(os.path.join(root, "etc/ld.so.cache"), "rb") as file:
        data = file.read()
    start = data.find(_MAGIC)
    if start < 0:
        raise ValueError("/etc/ld.so.cache does not hold the glibc 2.2 format")
    try:
        _, count, _ = _HEADER.unpack_from(data, start)
        found: dict[str, str] = {}
        for index in range(count):
            _, key, value, _, _ = _ENTRY.unpack_from(
                data, start + _HEADER_SIZE + index * _ENTRY.size
            )
            name = _string(data, start + key)
            path = _string(data, start + value)
            if path.startswith("/") and _fits(path):
                found.setdefault(name, os.path.join(root, path.lstrip("/")))
    except struct.error as error:
        raise ValueError("/etc/ld.so.cache ends too early") from error
    return found


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset)
    return os.fsdecode(data[offset:end]) if end >= 0 else ""


def _fits(path: str) -> bool:
    """Leave out the 32-bit copies that a 64-bit system may have beside its own."""
    return sys.maxsize <= 2**32 or not path.startswith(("/lib/i386", "/usr/lib/i386", "/usr/lib32"))


# By import name; the first distribution that is installed answers.
_DISTRIBUTIONS = {
    **{each.name: each.packages for each in FRAMEWORKS if each.in_host},
    **{name: packages for each in LIBRARIES for name, packages in each.modules.items()},
}


def versions() -> dict[str, str]:
    """Installed versions by import name, sorted."""
    found = {}
    for name, distributions in sorted(_DISTRIBUTIONS.items()):
        for distribution in distributions:
            if version := _version(distribution):
                found[name] = version
                break
    return found


def _version(distribution: str) -> str:
    """The installed version; "" when it is not installed or half installed."""
    try:
        installed = metadata.distribution(distribution)
        text = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return ""
    # `installed.version` would parse the whole description as an e-mail: 8 ms for all of them.
    version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
    return version.group(1) if version else ""


# Beside or inside the package, as the wheels of each distribution lay it out.
_BUNDLED = {
    **{package: each.bundles for each in FRAMEWORKS if each.bundles for package in each.packages},
    **{package: globs for each in LIBRARIES for package, globs in each.wheels.items()},
}
_LISTED = tuple(package for each in LIBRARIES for package in each.listed)
_NAMES = tuple(name for each in LIBRARIES for name in each.globs)
_PLACES = tuple(place for each in LIBRARIES for place in each.places)


@dataclass
class Candidates:
    """Files that are numeric libraries by their names, and what went wrong while looking.

    Attributes:
        kinds: the kind that each file's name promises, by absolute path with links resolved.
        broken: places that could not be read.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Take a file if its name or that of what it links to is one of ours."""
        # The name first: resolving the links of everything installed takes 20 ms.
        if not (kind := kind_of(path)):
            return
        real = os.path.realpath(path)
        if os.path.isfile(real):
            # libblas.so.3 may be a link to libopenblas.so.0, and that to libopenblasp-r0.3.21.so.
            self.kinds.setdefault(real, kind_of(real) or kind)


def find(root: str = "/", prefix: str = sys.prefix) -> Candidates:
    """Every candidate of this environment and this system.

    Args:
        root: where the system's directories are found.
        prefix: the environment's directory.
    """
    found = Candidates()
    for name, patterns in _BUNDLED.items():
        for path in _beside(name, patterns):
            found.add(path)
    for name in _LISTED:
        for path in _listed(name):
            found.add(path)
    if os.path.realpath(prefix) not in {"/usr", "/"}:
        for pattern in _NAMES:
            for path in sorted(glob.glob(os.path.join(glob.escape(prefix), "lib", pattern))):
                found.add(path)
    for path in _searched():
        found.add(path)
    if sys.platform.startswith("linux"):
        try:
            for path in sorted(loader_cache(root).values()):
                found.add(path)
        except FileNotFoundError:
            pass  # musl and NixOS have none
        except (OSError, ValueError) as error:
            found.broken.append(
                Broken(probe="libraries", path="/etc/ld.so.cache", reason=_words(error))
            )
    for pattern in _PLACES:
        for path in sorted(glob.glob(os.path.join(glob.escape(root), pattern))):
            found.add(path)
    return found


def _beside(name: str, patterns: tuple[str, ...]) -> list[str]:
    """Files below the directory that a distribution is installed in."""
    try:
        place = str(metadata.distribution(name).locate_file(""))
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return []
    return [
        path
        for pattern in patterns
        for path in sorted(glob.glob(os.path.join(glob.escape(place), pattern)))
    ]


def _listed(name: str) -> list[str]:
    """Libraries in the file list of a distribution that installs outside its package."""
    try:
        files = metadata.distribution(name).files or []
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return []
    return [os.path.normpath(str(file.locate())) for file in files if kind_of(file.name)]


def _searched() -> list[str]:
    """Libraries in the directories that LD_LIBRARY_PATH names."""
    listed = environ.foreign(["LD_LIBRARY_PATH"]).get("LD_LIBRARY_PATH", "")
    return [
        path
        for directory in listed.split(os.pathsep)
        if os.path.isabs(directory)
        for pattern in (*_NAMES, "libblas.*", "libcblas.*", "liblapack.*")
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))
    ]


def _words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
