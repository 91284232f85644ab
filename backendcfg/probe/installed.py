"""Where the files of numeric libraries are, found without importing or opening anything.

The order says who is asked first for the same provider: NumPy's own copy, SciPy's, the wheels,
the environment's, the system's.
"""

from __future__ import annotations

import glob
import os
import sys
from dataclasses import dataclass, field
from importlib import metadata

from backendcfg import environ
from backendcfg.probe import ldcache
from backendcfg.probe.names import kind_of
from backendcfg.schema.host import Broken

# Beside or inside the package, as the wheels of each distribution lay it out.
_BUNDLED = {
    "numpy": ("numpy.libs/*", "numpy/.dylibs/*"),
    "scipy": ("scipy.libs/*", "scipy/.dylibs/*"),
    "scipy-openblas64": ("scipy_openblas64/lib/*",),
    "scipy-openblas32": ("scipy_openblas32/lib/*",),
    "torch": ("torch/lib/libtorch_cpu.*", "torch/lib/lib*omp*", "torch.libs/*"),
    "scikit-learn": ("scikit_learn.libs/*", "sklearn/.dylibs/*"),
    "blis": ("blis/cy.*",),
}
_ANYWHERE = ("mkl", "intel-openmp")
_NAMES = ("libopenblas*", "libmkl_rt*", "libblis*", "libiomp5*", "libomp.*", "libgomp.*")
_STANDARD = (
    "usr/lib/*-linux-gnu/openblas*/*",
    "usr/lib/*-linux-gnu/blis*/*",
    "usr/lib/*-linux-gnu/blas*/*",
    "usr/lib/*-linux-gnu/lapack*/*",
    "usr/lib64/lib*blas*",
    "usr/lib64/libblis*",
    "usr/local/lib/lib*blas*",
    "usr/local/lib/libblis*",
    "opt/intel/oneapi/mkl/latest/lib/libmkl_rt*",
    "opt/homebrew/opt/openblas/lib/libopenblas*",
    "opt/homebrew/opt/libomp/lib/libomp*",
)


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
    for name in _ANYWHERE:
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
    for pattern in _STANDARD:
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
