"""Makes something once in a run of pytest, for all its workers: what compilers make above all."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path


def once(key, make):
    """The folder that `make(folder)` has filled, in this worker or in another one.

    Args:
        key: text that says all that decides what is made, such as a command and its source.
        make: is called with an empty folder; where it raises, the next caller tries again.
    """
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    shared = Path(os.environ["TESTS_OF_THIS_RUN"])
    shared.mkdir(parents=True, exist_ok=True)
    folder, finished = shared / name, shared / f"{name}.finished"
    with open(shared / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            finished.touch()
    return folder
