"""Calls of NumPy that are told to Python: who is told of what, and that the program sees none of it."""

from __future__ import annotations

PRELUDE = """
import sys
import numpy as np
from backendcfg import _native
from backendcfg.audit.trace.numpy_operations import MODULES, targets

_native.set_array_api()
import numpy.fft, numpy.random

def observe(*modules):
    return [
        _native.observe(each.called, each.name, each.written, each.draws)
        for module in modules for each in targets(module)
    ]
"""


def test_everything_that_is_to_be_observed_can_be_and_only_once(python):
    told = python(
        PRELUDE + "modules = MODULES[:3]\n"
        "print(len(observe(*modules)) > 200, all(observe(*modules)), all(observe(*modules)))\n"
        "print(_native.observe(len, 'len', -1, False), _native.observe(object(), 'it', -1, False))"
    )
    assert told == "True True True\nFalse False\n"


def test_nothing_is_observed_before_the_interface_of_numpy_is_there(python):
    told = python(
        "from backendcfg import _native\n"
        "try:\n    _native.observe(len, 'len', -1, False)\n"
        "except RuntimeError as error:\n    print(error)"
    )
    assert told == "set_array_api was not called\n"


def test_a_token_comes_back_with_the_results_and_without_one_there_are_none(python):
    told = python(
        PRELUDE
        + """
observe("numpy")
def computing(name, arguments, keywords):
    return (arguments, keywords) if name == "numpy.add" else None
_native.bind(computing=computing, computed=lambda *found: print(found[0], *found[2:]))
np.add(1, 2.5, dtype=float)
np.negative(np.arange(2.0))
"""
    )
    assert (
        told
        == "numpy.add float64 ((1, 2.5), {'dtype': <class 'float'>}) 3.5\nnumpy.negative float64 None None\n"
    )


def test_an_exception_of_a_callback_comes_out_of_the_call_and_the_next_one_is_told(python):
    told = python(
        PRELUDE
        + """
observe("numpy")
def tell(name, *rest):
    print(name)
    if fails:
        raise fails.pop()
for callback in ("computing", "computed"):
    fails = [LookupError(callback), RecursionError(), MemoryError()]
    fails.reverse()
    _native.bind(computing=None, computed=lambda *ignored: None)
    _native.bind(**{callback: tell})
    for _ in range(4):
        try:
            print(np.exp(0.0))
        except LookupError as error:
            print("failed", error)
"""
    )
    one, other = "numpy.exp", "numpy.exp float64"
    assert told.splitlines() == [
        *(one, "failed computing", one, "1.0", one, "1.0", one, "1.0"),
        *(other, "failed computed", other, "1.0", other, "1.0", other, "1.0"),
    ]


def test_calls_are_told_in_each_thread_and_not_those_of_a_callback(python):
    told = python(
        PRELUDE
        + """
import threading
observe("numpy", "numpy.random", "numpy.fft")
found = {}
def computed(name, digest, *ignored):
    np.exp(1.0)
    found.setdefault(threading.get_ident(), []).append((name, digest))
generators = [np.random.default_rng(3) for _ in range(4)]
_native.bind(computed=computed)
start = threading.Barrier(4)
def work():
    start.wait()
    rng = generators.pop()
    for _ in range(50):
        x = rng.normal(size=(40, 40))
        x += np.linalg.inv(x @ x.T + np.eye(40))
        x.sort()
        np.add.at(x, [0, 0], 1.0)
        np.fft.fft(x).real.sum()
        np.dot(x, x.T)
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
_native.bind(computed=None)
print(len(found), len({tuple(each) for each in found.values()}))
print(*[name for name, _ in list(found.values())[0]][:10], sep="\\n")
"""
    )
    assert told.splitlines() == [
        "4 1",
        "numpy.random.Generator.normal float64",
        "numpy.matmul float64",
        "numpy.zeros float64",
        "numpy.add float64",
        "numpy.linalg.inv float64",
        "numpy.add float64",
        "numpy.ndarray.sort float64",
        "numpy.add.at float64",
        "numpy.fft.fft complex128",
        "numpy.add.reduce float64",
    ]
