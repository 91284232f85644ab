"""Two threads that change the profile of the process at once: one after the other, each whole."""

from __future__ import annotations

import pytest

MEETING = """
import sys, threading
import numpy, threadpoolctl
import backendcfg
from backendcfg.session import adjust, installed, process, threads

class Told:
    # The lock, and whether the other thread has come as far as that.
    def __init__(self):
        self.lock = threading.RLock()
    def acquire(self, blocking=True):
        if threading.current_thread() is other: arrived.set()
        return self.lock.acquire(blocking)
    def release(self):
        self.lock.release()
    def __enter__(self):
        self.acquire()
    def __exit__(self, *exception):
        self.release()

def counts():
    return [each["num_threads"] for each in threadpoolctl.threadpool_info()]

def in_the_other():
    deed()
    done.append("other")
    arrived.set()

def in_the_middle(*arguments):
    # The switches of the first apply are set, and nobody else knows of it.
    threads.base_changed = original
    other.start()
    assert arrived.wait(60)
    done.append("first")
    original(*arguments)

before = counts()
done, arrived, original = [], threading.Event(), threads.base_changed
other = threading.Thread(target=in_the_other)
process._CHANGING = Told()
backendcfg.apply(settings={"log.level": "error"})
threads.base_changed = in_the_middle

def meet():
    backendcfg.apply(settings={"threads.count": 1})
    other.join()
    assert ["first", "other"] == done, done
    found = [(each.switch, each.state) for each in backendcfg.verify().readings if each.state != "ok"]
    assert [] == found, found
"""

DEEDS = {
    "apply": """
def deed(): backendcfg.apply(settings={"threads.count": 2})
meet()
assert (3, [2]) == (installed.depth(), counts())
backendcfg.undo()
assert (2, [1]) == (installed.depth(), counts())
""",
    "undo": """
def deed(): backendcfg.undo()
meet()
assert (1, before) == (installed.depth(), counts())
""",
    "assign": """
def deed(): adjust.assign({"threads.dynamic": False})
meet()
assert (2, [1]) == (installed.depth(), counts())
values = installed.prepared().payload.values
assert (1, False) == (values["threads.count"], values["threads.dynamic"]), values
backendcfg.undo()
assert (1, before) == (installed.depth(), counts())
""",
    "import": """
def deed(): import scipy.linalg
meet()
assert (2, [1, 1]) == (installed.depth(), counts())
told = [outcome.switch for outcome in installed.report().outcomes]
assert 1 == told.count("openblas[scipy].threads"), told
""",
}


def test_an_import_inside_a_scope_does_not_wait_for_an_apply_that_waits_for_the_scope(python):
    pytest.importorskip("scipy")
    printed = python(
        """
import threading, numpy
import backendcfg
from backendcfg.bridges import pools
from backendcfg.session import adjust, installed, process

go, held = threading.Event(), threading.Event()

class Told:
    def __init__(self):
        self.lock = threading.RLock()
    def acquire(self, blocking=True):
        taken = self.lock.acquire(blocking)
        if taken and threading.current_thread() is other: held.set()
        return taken
    def release(self):
        self.lock.release()
    def __enter__(self):
        self.acquire()
    def __exit__(self, *exception):
        self.release()

def deed():
    assert go.wait(60)
    process.install(plan, "a test")

def write_and_import(self, value):
    # The scope holds the lock of the owners here, and the other thread is about to wait for it.
    pools.Threads.write = write
    go.set()
    assert held.wait(60)
    import scipy.linalg
    write(self, value)

other = threading.Thread(target=deed)
write = pools.Threads.write
backendcfg.apply(settings={"threads.count": 2})
plan = installed.prepared().payload
other.start()
scope = adjust.overlay({"threads.count": 1})
scope.prepared
process._CHANGING, pools.Threads.write = Told(), write_and_import
with scope:
    pass
other.join()
assert 2 == installed.depth()
backendcfg.reload()
import threadpoolctl
print([each["num_threads"] for each in threadpoolctl.threadpool_info()])
print([each.state for each in backendcfg.verify().readings if each.state != "ok"])
"""
    )
    assert "[2, 2]\n[]\n" == printed


@pytest.mark.sweep(2)
@pytest.mark.parametrize("deed", DEEDS)
def test_what_comes_while_a_profile_is_applied_waits_until_it_is(python, deed):
    if deed == "import":
        pytest.importorskip("scipy")
    assert "" == python(MEETING + DEEDS[deed])
