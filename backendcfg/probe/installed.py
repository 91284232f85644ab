"""What is installed: versions of packages, and where the files of libraries are.

Nothing is imported or opened. The order of the files says who is asked first for the same provider:
NumPy's own copy, SciPy's, the wheels, the environment's, the system's.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from dataclasses import dataclass, field
from importlib import metadata

from backendcfg import environ
from backendcfg.catalogue.cpu import LIBRARIES, kind_of
from backendcfg.catalogue.frameworks import FRAMEWORKS
from backendcfg.probe import ldcache
from backendcfg.schema.host import Broken

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
            for path in sorted(ldcache.installed(root).values()):
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
