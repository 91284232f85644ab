"""A scope that another thread has open."""

from __future__ import annotations

import threading
from contextlib import contextmanager


@contextmanager
def open_elsewhere(scope):
    """Have another thread enter a scope before the body, and leave it after the body."""
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with scope:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    try:
        yield
    finally:
        leave.set()
        thread.join()
