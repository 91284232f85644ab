"""A forked child has a lock of its own, whoever had it in the parent."""

from __future__ import annotations

import os
import threading

import pytest

from backendcfg.locks import ProcessLock

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def in_a_fork(work):
    """The exit status of a forked child: 0 where `work` says True."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(not work())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_free(process):
    taken = process.lock.acquire(blocking=False)
    if taken:
        process.lock.release()
    return taken


def test_a_child_has_the_lock_that_another_thread_had_at_the_fork():
    process = ProcessLock()
    taken, done = threading.Event(), threading.Event()

    def work():
        with process.lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    taken.wait()
    before = process.lock
    status = in_a_fork(lambda: process.lock is not before and is_free(process))
    still_taken = not is_free(process)
    done.set()
    thread.join()
    assert (status, still_taken, is_free(process)) == (0, True, True)


def test_a_thread_that_forks_with_the_lock_gives_it_back_in_both_processes():
    process = ProcessLock()

    def work():
        with process.lock:
            pass
        return is_free(process)

    with process.lock:
        status = in_a_fork(work)
    assert (status, is_free(process)) == (0, True)
