"""A lock that a forked child has anew."""

from __future__ import annotations

import os
import threading


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
        self.lock = threading.RLock()
