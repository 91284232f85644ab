"""Memory allocators and Intel's OpenMP runtime, preloaded where they are installed.

The settings beside them are those of `torch.backends.xeon.run_cpu`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from backendcfg.catalogue.cpu import LIBIOMP5
from backendcfg.probe import ldcache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Preload = Literal["tcmalloc", "jemalloc", "iomp5"]

FILES: dict[Preload, tuple[str, ...]] = {
    "tcmalloc": ("libtcmalloc.so", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4"),
    "jemalloc": ("libjemalloc.so", "libjemalloc.so.2"),
    "iomp5": (f"{LIBIOMP5.name}.so",),
}

SETTINGS: dict[Preload, dict[str, str]] = {
    "tcmalloc": {},
    "jemalloc": {"MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto"},
    "iomp5": {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"},
}

SOURCES: dict[Preload, str] = {
    "tcmalloc": "gperftools, or the package libtcmalloc-minimal4",
    "jemalloc": "jemalloc, or the package libjemalloc2",
    "iomp5": LIBIOMP5.listed[0],
}


def find(
    kind: Preload, environment: Mapping[str, str], root: str = "/", prefix: str = sys.prefix
) -> str:
    """The file of a library that can be preloaded, or "".

    Args:
        kind: which.
        environment: names the folders of conda and of a virtual environment.
        root: where the system's folders are found.
        prefix: the Python environment.
    """
    homes = (environment.get("CONDA_PREFIX"), environment.get("VIRTUAL_ENV"), prefix)
    user = os.path.join(os.path.expanduser("~"), ".local", "lib")
    folders = [os.path.join(home, "lib") for home in homes if home]
    folders += [user, *(os.path.join(root, path) for path in ("usr/local/lib", "usr/local/lib64"))]
    folders += [os.path.join(root, path) for path in ("usr/lib", "usr/lib64")]
    for folder in folders:
        for name in FILES[kind]:
            if os.path.isfile(path := os.path.join(folder, name)):
                return path
    try:
        known = ldcache.installed(root)
    except (OSError, ValueError):
        return ""
    return next((known[name] for name in FILES[kind] if name in known), "")


def preload(
    kinds: Sequence[Preload],
    environment: Mapping[str, str],
    *,
    leave: Sequence[str] = (),
    root: str = "/",
    prefix: str = sys.prefix,
) -> tuple[dict[str, str], list[str]]:
    """The variables that preload libraries, and what to tell: above all, what is not installed.

    What is set already is kept, as PyTorch's launcher does, and told when it differs.

    Args:
        kinds: the libraries.
        environment: of the instances.
        leave: variables not to set.
        root: where the system's folders are found.
        prefix: the Python environment.
    """
    variables: dict[str, str] = {}
    notes: list[str] = []
    present = environment.get("LD_PRELOAD", "")
    for kind in kinds:
        if any(
            os.path.basename(item) in FILES[kind] for item in present.replace(" ", ":").split(":")
        ):
            continue
        path = find(kind, environment, root, prefix)
        if not path:
            notes.append(
                f"{FILES[kind][0]} is not installed, so it is not preloaded;"
                f" it comes with {SOURCES[kind]}"
            )
            continue
        present = ":".join(filter(None, (path, present)))
        variables["LD_PRELOAD"] = present
        for name, text in SETTINGS[kind].items():
            if name in leave:
                continue
            if environment.get(name, text) != text:
                notes.append(f"{name}={environment[name]} is set already and kept, not {text}")
            else:
                variables[name] = text
    return variables, notes
