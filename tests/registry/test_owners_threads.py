"""The tokens of threads, while threads begin and end."""

from __future__ import annotations

import sys
import threading

import pytest

from backendcfg.registry import owners


@pytest.mark.slow
def test_threads_may_begin_while_another_lists_them():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    failures, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            try:
                with owners.LOCK:
                    owners.threads()
            except RuntimeError as error:
                failures.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(40):
            threads = [threading.Thread(target=owners.this_thread) for _ in range(25)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    finally:
        stop.set()
        looking.join()
        sys.setswitchinterval(before)
    assert failures == []


def test_a_thread_that_has_ended_is_no_longer_listed():
    tokens = []
    thread = threading.Thread(target=lambda: tokens.append(owners.this_thread().ident))
    thread.start()
    thread.join()
    with owners.LOCK:
        assert tokens[0] not in [one.ident for one in owners.threads()]
        assert owners.this_thread() in owners.threads()
