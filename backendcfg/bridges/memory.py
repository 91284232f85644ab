"""How much freed memory the process keeps: the `[memory]` table.

glibc gives the pages of large arrays back to the kernel when they are freed, and the kernel clears
them anew for the next array. A program that makes and frees such arrays in a loop, as a training
step does, spends up to half of its time there. mallopt(3) tells glibc to keep them, at any time and
for the whole process; see `native/src/python/malloc.c`.

Nobody can ask glibc what its thresholds are, and by itself it moves them, so what it had before
cannot be put back.
"""

from __future__ import annotations

import os
import sys

from backendcfg import _native, environ
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

FRAMEWORK: str | None = None
SCOPED_FLAGS: frozenset[str] = frozenset()
"""None: what a scope kept would stay with the process after it."""

VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
"""What glibc itself reads when a process starts; a user who sets one has decided."""

LEAST = 64 << 20
"""Bytes for a worker at least: what glibc goes up to by itself."""

_forked: list[int] = []


class KeptMemory(AnytimeSwitch):
    """The bytes of freed memory that malloc keeps, as told last; 0 while nobody told it."""

    name = "malloc.keep_freed"
    reversible = False
    only = "base"
    is_numeric = False

    def read(self) -> int:
        return _native.keep_freed() or 0

    def write(self, value: int) -> None:
        _native.keep_freed(value)

    def dormant(self) -> str:
        if _native.keep_freed() is None:
            return "another malloc than glibc's serves this process"
        tunables = environ.foreign(["GLIBC_TUNABLES"]).get("GLIBC_TUNABLES", "")
        if "glibc.malloc." in tunables:
            return "GLIBC_TUNABLES decides"
        return next((f"{name} decides" for name in environ.foreign(VARIABLES)), "")


def settings(values: Mapping[str, Any], asked: Collection[str], remedy: str = "") -> list[Setting]:
    """The setting, if the profile asks for memory to be kept."""
    if "memory.keep_freed" not in asked or not values["memory.keep_freed"]:
        return []
    return [Setting(KeptMemory(), _share(values["memory.keep_freed"]), "memory.keep_freed")]


def _share(kept: int) -> int:
    """What this process keeps: a worker of a pool an equal part, as one per processor may run."""
    if not (_forked or is_worker()):
        return kept
    return max(min(kept, LEAST), kept // _processors())


def is_worker() -> bool:
    """Whether this process was started by `multiprocessing` or a library on top of it."""
    if "multiprocessing.process" not in sys.modules:
        return False
    from backendcfg.bridges import lineage

    return bool(lineage.process())


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _after_fork() -> None:
    """In the child: it is most likely one of several workers."""
    if not _forked and (kept := _native.keep_freed()):
        _forked.append(os.getpid())
        _native.keep_freed(_share(kept))


os.register_at_fork(after_in_child=_after_fork)
