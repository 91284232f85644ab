"""What is installed: versions of packages, and where the files of libraries are.

Nothing is imported or opened; the loader's own list of libraries, /etc/ld.so.cache, is read as
ldconfig writes it. The order of the files says who is asked first for the same provider:
NumPy's own copy, SciPy's, the wheels, the environment's, the system's.
"""

from __future__ import annotations

import fnmatch
import os
import re
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata

from backendcfg import environ
from backendcfg.catalogue.cpu import LIBRARIES, PACKAGES, kind_of
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


def versions() -> dict[str, str]:
    """Installed versions by import name, sorted; the first distribution that is there answers."""
    found, folders = {}, _folders()
    for name, distributions in sorted(PACKAGES.items()):
        for distribution in distributions:
            if version := _version(folders.get(_normal(distribution), "")):
                found[name] = version
                break
    return found


def _folders() -> dict[str, str]:
    """The metadata folder of each distribution on `sys.path`, by its name as `scikit_learn`.

    `importlib.metadata.distribution` goes through the whole path again for each name.
    """
    found: dict[str, str] = {}
    for entry in sys.path:
        if entry.endswith(".egg"):
            name = os.path.basename(entry).partition("-")[0]
            found.setdefault(_normal(name), os.path.join(entry, "EGG-INFO"))
            continue
        with suppress(OSError):
            for name in os.listdir(entry or "."):
                if name.endswith((".dist-info", ".egg-info")):
                    project = name.rpartition(".")[0].partition("-")[0]
                    found.setdefault(_normal(project), os.path.join(entry, name))
    return found


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _version(folder: str) -> str:
    """The version of a distribution; "" when it is not installed or half installed."""
    text = ""
    if folder:
        installed = metadata.Distribution.at(folder)
        with suppress(OSError, ValueError):
            text = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    # `installed.version` would parse the whole description as an e-mail: 8 ms for all of them.
    version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
    return version.group(1) if version else ""


# Beside or inside the package, as the wheels of each distribution lay it out.
_BUNDLED = {
    **{package: each.bundles for each in FRAMEWORKS if each.bundles for package in each.packages},
    **{package: globs for each in LIBRARIES for package, globs in each.wheels.items()},
}
_LISTED = tuple(package for each in LIBRARIES for package in each.listed)
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
    found, folders = Candidates(), _folders()
    for name, patterns in _BUNDLED.items():
        if folder := folders.get(_normal(name)):
            for pattern in patterns:
                for path in _matching(os.path.dirname(folder), pattern):
                    found.add(path)
    for name in _LISTED:
        if folder := folders.get(_normal(name)):
            for path in _listed(folder):
                found.add(path)
    if os.path.realpath(prefix) not in {"/usr", "/"}:
        for path in _numeric(os.path.join(prefix, "lib")):
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
        for path in _matching(root, pattern):
            found.add(path)
    return found


def _matching(folder: str, pattern: str) -> list[str]:
    """The paths below a folder that a pattern matches, sorted.

    `glob` would ask each of the thousand entries of /usr/lib whether it is a folder.
    """
    first, _, rest = pattern.partition("/")
    try:
        names = fnmatch.filter(os.listdir(folder), first)
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in sorted(names)]
    return [below for path in paths for below in _matching(path, rest)] if rest else paths


def _listed(folder: str) -> list[str]:
    """Libraries in the file list of a distribution that installs outside its package."""
    try:
        files = metadata.Distribution.at(folder).files or []
    except (OSError, ValueError):
        return []
    return [os.path.normpath(str(file.locate())) for file in files if kind_of(file.name)]


def _searched() -> list[str]:
    """Libraries in the directories that LD_LIBRARY_PATH names."""
    listed = environ.foreign(["LD_LIBRARY_PATH"]).get("LD_LIBRARY_PATH", "")
    return [
        path
        for directory in listed.split(os.pathsep)
        if os.path.isabs(directory)
        for path in _numeric(directory)
    ]


def _numeric(directory: str) -> list[str]:
    """The files of a directory that are numeric libraries by their names."""
    try:
        names = sorted(filter(kind_of, os.listdir(directory)))
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names]


def _words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
