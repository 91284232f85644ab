"""The numeric libraries that are in this process now, and who brought a file. Opens nothing new.

Standard library only. Linux lists mapped files in /proc/self/maps, macOS through dyld. A handle to
one is taken with RTLD_NOLOAD, which fails rather than load anything.
"""

from __future__ import annotations

import os
import sys

from backendcfg.catalogue.cpu import (
    BLIS,
    LIBRARIES,
    MKL,
    NETLIB_BLAS,
    OPENBLAS,
    is_torch,
    kind_of,
    provider_of,
)
from backendcfg.catalogue.frameworks import SKLEARN
from backendcfg.probe import text_of
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes

_MAPS = "/proc/self/maps"
# A part of every path that `kind_of` knows, which is quicker to look for.
_HINTS = tuple(hint for each in LIBRARIES for hint in each.hints)


@record(frozen=True)
class LoadedLibrary:
    """A numeric library that is mapped in this process.

    Attributes:
        kind: "openblas", "mkl", "blis", "reference-blas", "lapack" or "openmp".
        provider: the provider it could serve as, or "".
        owner: who brought it: "numpy", "torch", "scipy-openblas64", "mkl", "system".
        path: absolute, links resolved, as the loader mapped it.
        prefix: before each symbol: `scipy_` in `scipy_cblas_dgemm64_`.
        suffix: after each symbol: `64_` in `scipy_cblas_dgemm64_`.
        interface: "lp64", "ilp64", "both" (MKL: bare names LP64, `_64` names ILP64) or "".
    """

    kind: str
    provider: str
    owner: str
    path: str
    prefix: str = ""
    suffix: str = ""
    interface: str = ""


def libraries_in_process() -> list[LoadedLibrary]:
    """Every numeric library of this process, in the order of their addresses.

    A file that was deleted or replaced since it was loaded cannot be asked and is left out.
    """
    found = []
    for path in filter(may_be_numeric, mapped_files()):
        kind = kind_of(path)
        handle = handle_of(path) if kind else None
        if handle is not None and (library := _describe(handle, path, kind)) is not None:
            found.append(library)
    return found


def may_be_numeric(path: str) -> bool:
    """False for a file that `kind_of` would not know."""
    return any(hint in path for hint in _HINTS)


def mapped_files(maps: str = _MAPS) -> list[str]:
    """Every shared library mapped in this process, each once."""
    if sys.platform == "darwin":
        return _dyld_images()
    lines = text_of(maps, has_names=True).split("\n")
    # Address, permissions, offset, device, inode, path: the path may hold spaces.
    paths = (line.split(maxsplit=5)[5:] for line in lines)
    return list(dict.fromkeys(path[0] for path in paths if path and ".so" in path[0]))


def handle_of(path: str) -> ctypes.CDLL | None:
    """A handle to a library that is loaded already; None when it is not."""
    import ctypes

    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError:
        return None


def _describe(handle: ctypes.CDLL, path: str, kind: str) -> LoadedLibrary | None:
    """Look at symbols, and call nothing but OpenBLAS's constant getter."""
    from backendcfg.probe import symbols

    prefix = suffix = interface = ""
    serves = hasattr(handle, "cblas_dgemm")
    if is_torch(path):
        if not hasattr(handle, "mkl_serv_get_version"):
            return None
        interface = "lp64"
    elif kind == MKL.kind:
        interface = "both"
    elif kind in {OPENBLAS.kind, BLIS.kind, NETLIB_BLAS.kind}:
        if (affixes := symbols.openblas_affixes(handle)) is not None:
            prefix, suffix = affixes
            about = symbols.openblas(handle, prefix, suffix)
            kind, interface, serves = OPENBLAS.kind, about["interface"], about["serves"]
        elif kind == OPENBLAS.kind:
            return None
        elif hasattr(handle, BLIS.symbol):
            kind, interface = BLIS.kind, symbols.blis_interface(handle)
    owner = owner_of(path, sys.prefix)
    provider = provider_of(kind, owner, serves=serves)
    return LoadedLibrary(kind, provider, owner, path, prefix, suffix, interface)


def _dyld_images() -> list[str]:
    import ctypes

    process = ctypes.CDLL(None)
    process._dyld_get_image_name.restype = ctypes.c_char_p
    names = (process._dyld_get_image_name(i) for i in range(process._dyld_image_count()))
    return [os.fsdecode(name) for name in names if name]


_PACKAGE = r"/(?:site|dist)-packages/([\w-]+?)(?:\.libs)?/"
_BUNDLE = r"/([\w-]+)\.libs/[^/]+$"


def owner_of(path: str, prefix: str) -> str:
    """Who brought the file: a distribution's name, "conda" or "system".

    Args:
        path: absolute.
        prefix: the environment's directory, as `sys.prefix`.
    """
    import re

    found = re.search(_PACKAGE, path) or re.search(_BUNDLE, path)
    if found:
        name = found.group(1)
        return SKLEARN.packages[0] if name == SKLEARN.name else name.replace("_", "-")
    if path.startswith((os.path.join(prefix, ""), os.path.join(os.path.realpath(prefix), ""))):
        if os.path.isdir(os.path.join(prefix, "conda-meta")):
            return "conda"
        name = os.path.basename(path)
        # Wheels that install outside their package.
        return next(
            (
                each.listed[0]
                for each in LIBRARIES
                if each.listed and any(re.fullmatch(one, name) for one in each.patterns)
            ),
            "system",
        )
    return "system"
