"""Locks at a fork: the child has only the thread that forked, so it must not wait for another's."""

from __future__ import annotations

import os
from _thread import RLock

LOADING = RLock()
"""Held by a thread that prepares a profile or loads a part of this package for the first time.

A fork waits for it. Otherwise the child would wait for ever for a module that another thread was
importing: the lock of that module is not given back in the child. A thread that holds it may take
the lock of the owner table (`registry/owners.py`), and never the other way round.
"""

os.register_at_fork(
    before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release
)


class ProcessLock:
    """A reentrant lock of this process: `with _process.lock:`.

    Another thread may have it when the process is forked. The child does not have that thread and
    would wait for ever, so there `lock` is a new one. A thread that forks inside the `with` gives
    back the lock that it took, in both processes. Each lives as long as the process.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = RLock()
