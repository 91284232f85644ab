"""Which libraries are mapped: whether that changed, and handles to them. Loads nothing."""

from __future__ import annotations

import os

from backendcfg.probe import loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes


def mapped_set() -> tuple[int, int] | None:
    """How many libraries were ever loaded and unloaded here; None where nobody counts.

    The compiled part asks the loader. ctypes could not: the loader calls back under its own lock,
    which deadlocks when Python code in the callback waits for another thread that loads a library,
    and callbacks break forked children (https://github.com/joblib/threadpoolctl/issues/225).
    """
    try:
        from backendcfg._native import mapped
    except ImportError:
        return None
    return mapped()


_handles: dict[tuple[str, int], ctypes.CDLL] = {}


def handle(path: str) -> ctypes.CDLL | None:
    """A handle to a file that is loaded, or None; one per file, and never closed.

    What was replaced since has another inode, and is another file.
    """
    try:
        key = (path, os.stat(path).st_ino)
    except OSError:
        key = (path, 0)
    if key not in _handles:
        opened = loaded.handle_of(path)
        if opened is None:
            return None
        _handles[key] = opened
    return _handles[key]
