"""fork() at bad moments: in scopes, while other threads hold locks, with claims laid."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest

from backendcfg import _native, session
from backendcfg.registry import owners
from backendcfg.registry.entering import holdings
from backendcfg.session import adjust, children, process, threads, wiring
from backendcfg.transact.compiled import Compiled
from backendcfg.transact.switch import Setting

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_fork(function):
    """Run in a forked child, which must end by itself within 20 s, and give what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os.write(writer, repr(function()).encode())
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(child, 0)
    assert 0 == status, "the child hung"
    return text


class Holder:
    """Another thread that holds a lock from entering until leaving."""

    def __init__(self, lock):
        self.lock, self.held, self.go = lock, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.hold)

    def hold(self):
        with self.lock:
            self.held.set()
            self.go.wait()

    def __enter__(self):
        self.thread.start()
        self.held.wait()

    def __exit__(self, *exception):
        self.go.set()
        self.thread.join()


class Switch:
    latch = "anytime"
    reversible = True

    def __init__(self, name, reach="process"):
        self.name, self.reach, self.value, self.writes = name, reach, "base", []

    def read(self):
        return self.value

    def write(self, value):
        self.writes.append(value)
        self.value = value

    def too_late(self):
        return ""


def scope(name, *wanted):
    wiring.connect()
    settings = [Setting(switch, value, "flag") for switch, value in wanted]
    return _native.Scope(_native.Prepared(name, Compiled(name, "none", {}), lambda: settings), 0)


def test_a_lock_that_another_thread_holds_is_free_in_the_child():
    with Holder(adjust._process.lock):
        assert "'tf32-off'" == in_fork(lambda: session.profile("tf32-off").prepared.name)


def test_a_change_in_another_thread_does_not_stop_the_child():
    with Holder(process._CHANGING):
        assert "None" == in_fork(process.catch_up)


def test_a_fork_waits_for_a_change_that_is_under_way_and_the_child_can_change():
    """Otherwise the child would have half of it, and a lock that nobody releases."""
    switch = Switch("half")
    begun, go = threading.Event(), threading.Event()

    def slowly(value):
        begun.set()
        go.wait()
        switch.value = value

    switch.write = slowly
    there = scope("there", (switch, "there"))
    leave = threading.Event()

    def other():
        with there:
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    # The last registered runs first: the change ends when the fork is about to wait for it.
    os.register_at_fork(before=go.set)

    def child():
        found = switch.value
        switch.write = lambda value: setattr(switch, "value", value)
        with scope("mine", (switch, "mine")):
            return found, switch.value

    # The other thread's scope is not in the child, where that thread does not exist.
    assert "('base', 'mine')" == in_fork(child)
    assert "there" == switch.value
    leave.set()
    thread.join()
    assert "base" == switch.value


def test_leaving_the_scope_in_the_child_is_the_child_s_affair():
    switch = Switch("own")
    with scope("outer", (switch, "outer")) as outer:

        def child():
            inside = switch.value, len(holdings())
            with scope("inner", (switch, "inner")):
                pass
            outer.__exit__(None, None, None)
            return inside, switch.value, _native.chain(), len(holdings())

        assert "(('outer', 1), 'base', (), 0)" == in_fork(child)
        assert ("outer", 1) == (switch.value, len(holdings()))
        assert ["outer"] == switch.writes
    assert "base" == switch.value


def test_a_per_thread_switch_in_a_child_goes_back_to_its_base():
    switch = Switch("by thread", "thread")
    with scope("outer", (switch, "outer")) as outer:

        def child():
            outer.__exit__(None, None, None)
            found = []
            thread = threading.Thread(target=lambda: found.append(switch.read()))
            thread.start()
            thread.join()
            return switch.value, found, list(owners.STUCK)

        assert "('base', ['base'], [])" == in_fork(child)


def test_a_child_that_takes_over_has_no_scopes_left_to_leave():
    switch = Switch("abandoned")
    given = children.Inheritance((), (1,))
    with scope("outer", (switch, "outer")), scope("inner", (switch, "inner")):

        def child():
            given.take_over(multiprocessing.current_process())
            return switch.value, _native.chain(), _native.claims(), len(holdings())

        assert "('base', (), (), 0)" == in_fork(child)
        assert "inner" == switch.value


def test_a_child_of_a_thread_starts_threads_with_the_base():
    switch = Switch("given", "thread")
    original = threading.Thread._bootstrap_inner
    threads._wanted["given"] = Setting(switch, "wanted", "flag")
    try:
        threads._follow()

        def child():
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()
            return switch.value

        assert "'wanted'" == in_fork(child)
        assert "base" == switch.value
    finally:
        threads.base_changed([], [])
    assert threading.Thread._bootstrap_inner is original or threads._scopes


# `logging` is imported first: a fork during its first import prints an ignored error of its own hooks.
FIRST_ENTRY = """
import logging, os, signal, sys, threading
import backendcfg

begin = threading.Barrier(2)

def enter():
    begin.wait()
    for name in ("reproducible", "debug"):
        with backendcfg.profile(name):
            pass

thread = threading.Thread(target=enter)
thread.start()
begin.wait()
children = []
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for ever
        try:
            with backendcfg.profile("fast"):
                os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
        os._exit(1)
    children.append(child)
print([status for child in children if (status := os.waitpid(child, 0)[1])])
thread.join()
"""


KEEP = """
import backendcfg

for name in ("reproducible", "debug", "fast"):
    with backendcfg.profile(name):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "forks"), [(2, 10), pytest.param(96, 10, marks=pytest.mark.exhaustive)]
)
def test_no_child_hangs_that_is_forked_while_a_thread_enters_for_the_first_time(
    python, rounds, forks
):
    """Each round is a process of its own, because a process has one first time."""
    python(KEEP)  # on disk: otherwise every child looks for libraries again
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIRST_ENTRY, str(forks)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)
