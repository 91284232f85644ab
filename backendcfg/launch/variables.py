"""The variables of an instance: its threads, and the libraries that are preloaded.

Those that preload memory allocators and Intel's OpenMP runtime, with the settings beside them, are
those of `torch.backends.xeon.run_cpu`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from backendcfg.catalogue.cpu import LIBIOMP5
from backendcfg.probe import ldcache

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""Variables that say how many threads some library starts; the first is set in every instance."""

PLACES = {"GOMP_CPU_AFFINITY": "", "OMP_PLACES": "{", "KMP_AFFINITY": "proclist"}
"""Variables that send threads to numbered processors, and what is in them when they do."""


def threads(
    environment: Mapping[str, str],
    cores: int,
    decided: Collection[str] = (),
    preset: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """What to set in an instance's environment, and what to tell about it.

    A preset count above the number of cores, or one that is none, contradicts the binding and is
    replaced; one below leaves cores idle, which may be meant, and stays. Either is told. What a
    profile says stays, and is told when there are fewer cores, or when it replaces a preset that
    contradicts the binding.

    Args:
        environment: what the instance has.
        cores: how many cores it has.
        decided: variables that its profile sets.
        preset: what the user's environment has, where the profile may have replaced it.
    """
    preset = preset or {}
    changes: dict[str, str] = {}
    notes: list[str] = []
    for name in COUNTS:
        text, given = environment.get(name), preset.get(name)
        if name in decided and given and given != text and not 0 < _count(given) <= cores:
            instead = f"the profile sets {text}" if text else "the profile unsets it"
            notes.append(f"{name}={given} contradicts {cores} bound cores; {instead}")
        if not text:
            continue
        count = _count(text)
        if name in decided:
            if count > cores:
                notes.append(f"the profile sets {name}={text}, on {cores} bound cores")
        elif not 0 < count <= cores:
            changes[name] = str(cores)
            notes.append(f"{name}={text} contradicts {cores} bound cores; instances get {cores}")
        elif count < cores:
            notes.append(f"{name}={text} is set, so {cores - count} of {cores} cores will idle")
    if not environment.get(COUNTS[0]):
        changes[COUNTS[0]] = str(cores)
    notes += [
        f"{name}={environment[name]} is set, which may send threads to cores of other instances"
        for name, mark in PLACES.items()
        if name not in decided and (text := environment.get(name)) and mark in text
    ]
    return changes, notes


def _count(text: str) -> int:
    """The number of threads that a variable asks for, of nested levels the first; 0 for none."""
    first = text.split(",", maxsplit=1)[0].strip()
    return int(first) if first.isdecimal() else 0


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
