"""Locks at a fork: the child has only the thread that forked, so it must not wait for another's."""

from __future__ import annotations

import os
from _thread import RLock

LOADING = RLock()
"""Held by a thread that prepares a profile or loads a part of this package for the first time.

A fork waits for it. Otherwise the child would wait for ever for a module that another thread was
importing: the lock of that module is not given back in the child.
"""

OWNERS = RLock()
"""Held while claims of scopes change and while switches are written: see `registry/owners.py`.

It is here because a fork waits for it from the import of this package on: a thread may load the
owner table and take this lock while a fork waits for `LOADING`. A thread that holds `LOADING` may
take this one, and never the other way round.
"""


def _before_fork() -> None:
    LOADING.acquire()
    OWNERS.acquire()


def _after_fork() -> None:
    """In both processes. A fork that began before this module was loaded took neither lock."""
    for lock in (OWNERS, LOADING):
        if lock._is_owned():  # type: ignore[attr-defined]
            lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


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
