"""A signal anywhere in `apply`, `undo` and an assignment: what is in force and what is known agree."""

from __future__ import annotations

import pytest

PROGRAM = """
import os, signal, sys
import backendcfg
from backendcfg import backends
from backendcfg.session import installed

def raises(number, frame):
    raise KeyboardInterrupt

def other(number, frame):
    pass

signal.signal(SIGNAL, raises)
signal.signal(signal.SIGTERM, other)

def interrupted_at(number, action):
    "Run it with the signal at its number-th call or return; whether it was that long."
    seen, armed = 0, True
    def count(frame, event, argument):
        nonlocal seen
        seen += 1
        if seen == number and armed:
            sys.setprofile(None)
            signal.raise_signal(SIGNAL)
    sys.setprofile(count)
    try:
        action()
        armed = False
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return seen >= number

def check(number):
    depth = installed.depth()
    assert (backendcfg.active() is None) == (depth == 0), (number, backendcfg.active(), depth)
    while installed.depth():
        backendcfg.undo()
    assert backendcfg.active() is None, number
    assert "OPENBLAS_CORETYPE" not in os.environ and "OMP_DYNAMIC" not in os.environ, number
    assert "BACKENDCFG_INHERIT" not in os.environ, number
    assert signal.getsignal(SIGNAL) is raises, number
    assert signal.getsignal(signal.SIGTERM) is other, number

def apply():
    backendcfg.apply("reproducible")

def assign():
    backends.cudnn.benchmark_limit = 7

action, before = {
    "apply": (apply, lambda: None),
    "undo": (lambda: backendcfg.undo(), apply),
    "assign": (assign, lambda: None),
}[sys.argv[1]]
before(), action()
while installed.depth():
    backendcfg.undo()
number = 1
while True:
    before()
    going_on = interrupted_at(number, action)
    check(number)
    if not going_on:
        break
    number += 13
assert number > 200, number
"""


@pytest.mark.slow
@pytest.mark.sweep(1)
@pytest.mark.parametrize("action", ["apply", "undo", "assign"])
@pytest.mark.parametrize("signal", ["SIGINT", "SIGALRM"])
def test_an_interrupt_leaves_a_profile_that_is_known_or_none(python, action, signal):
    """By Ctrl-C, or by the timer that ends a test or a request which takes too long."""
    program = PROGRAM.replace("sys.argv[1]", repr(action))
    assert python(program.replace("SIGNAL", f"signal.{signal}")) == ""
