"""Where this thread is while it calls a function: addresses of instructions."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from backendcfg import _native

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

SPIN = """
unsigned spin(unsigned n) { volatile unsigned x = 1; while (n--) x = x * 3 + 1; return x; }
"""


@pytest.fixture(scope="module")
def spin(tmp_path_factory):
    """A function that computes for about a millisecond, and where it begins."""
    folder = tmp_path_factory.mktemp("spin")
    (folder / "spin.c").write_text(SPIN)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", folder / "spin.so", folder / "spin.c"], check=True
    )
    function = ctypes.CDLL(str(folder / "spin.so")).spin
    return lambda: function(1_000_000), ctypes.cast(function, ctypes.c_void_p).value


def handled():
    """The signals that this process handles, and those that it ignores."""
    return re.findall(r"Sig(?:Cgt|Ign):\s*(\w+)", Path("/proc/self/status").read_text())


def test_most_addresses_are_where_the_function_computes(spin):
    compute, begin = spin

    def turns():
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            compute()

    addresses = _native.sampled(turns, 200)
    inside = [address for address in addresses if begin <= address < begin + 64]
    assert len(addresses) > 10
    assert len(inside) > 0.8 * len(addresses)


def test_signals_are_handled_as_before(spin):
    before = handled()
    during = []
    _native.sampled(lambda: during.append(handled()), 1000)
    assert during != [before]
    assert handled() == before


def test_what_the_function_raises_is_raised_and_signals_are_as_before():
    before = handled()
    with pytest.raises(ZeroDivisionError):
        _native.sampled(lambda: 1 / 0, 1000)
    assert handled() == before
    assert _native.sampled(lambda: None, 1_000_000) == []


def test_a_signal_that_somebody_handles_is_left_alone(spin):
    came = []
    taken = list(range(signal.SIGRTMIN + 1, signal.SIGRTMAX + 1))
    before = {number: signal.signal(number, lambda *_: came.append(1)) for number in taken}
    try:
        assert len(_native.sampled(lambda: [spin[0]() for _ in range(20)], 200)) > 1
        assert came == []
        # With the last one taken nobody can be asked.
        before[signal.SIGRTMIN] = signal.signal(signal.SIGRTMIN, lambda *_: came.append(1))
        assert _native.sampled(lambda: came.append("called"), 200) is None
        assert came == []
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_signal_that_this_thread_waits_for_stays_pending(spin):
    waited = {signal.SIGRTMAX}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGRTMAX)
        assert len(_native.sampled(lambda: [spin[0]() for _ in range(20)], 200)) > 1
        assert signal.sigtimedwait(waited, 0).si_signo == signal.SIGRTMAX
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_handler_that_the_function_sets_stays(spin):
    came = []
    try:
        _native.sampled(lambda: signal.signal(signal.SIGRTMAX, lambda *_: came.append(1)), 1000)
        signal.pthread_kill(threading.get_ident(), signal.SIGRTMAX)
        assert len(came) >= 1
    finally:
        signal.signal(signal.SIGRTMAX, signal.SIG_DFL)


def test_a_child_that_is_forked_meanwhile_can_be_sampled(spin):
    ended = []

    def forking():
        if not (child := os.fork()):
            os._exit(0 if _native.sampled(spin[0], 200) is not None else 1)
        ended.append(os.waitpid(child, 0)[1])

    _native.sampled(forking, 1000)
    assert ended == [0]


def test_nobody_is_sampled_where_the_system_gives_no_timer():
    code = (
        "import resource; from backendcfg import _native; "
        "resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0)); "
        "print(_native.sampled(print, 200))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "None\n"


def test_one_thread_is_sampled_at_a_time(spin):
    found = []

    def meanwhile():
        found.append(_native.sampled(spin[0], 200))
        thread = threading.Thread(target=lambda: found.append(_native.sampled(spin[0], 200)))
        thread.start()
        thread.join()

    assert _native.sampled(meanwhile, 1000) is not None
    assert found == [None, None]
    assert _native.sampled(spin[0], 1000) is not None


def test_other_threads_are_not_interrupted(spin):
    """A poll of C that a signal interrupts ends with -1, whatever the handler's flags."""
    reading, writing = os.pipe()
    asked = struct.pack("ihh", reading, select.POLLIN, 0)
    polled = []
    poll = ctypes.CDLL(None).poll
    thread = threading.Thread(target=lambda: polled.append(poll(asked, 1, -1)))
    thread.start()
    found = _native.sampled(lambda: [spin[0]() for _ in range(20)], 100)
    os.write(writing, b"1")
    thread.join()
    os.close(reading)
    os.close(writing)
    assert len(found) > 1
    assert polled == [1]


def test_samples_beyond_the_place_for_them_are_dropped(spin):
    """There is place for 4096."""

    def turns():
        end = time.perf_counter() + 0.5
        while time.perf_counter() < end:
            spin[0]()

    assert len(_native.sampled(turns, 50)) <= 4096


@pytest.mark.parametrize("microseconds", [0, 49, 1_000_001, -1])
def test_an_interval_out_of_bounds_is_refused(microseconds):
    with pytest.raises(
        ValueError, match=f"^cannot sample every {microseconds} microseconds: 50 to"
    ):
        _native.sampled(print, microseconds)


@pytest.mark.parametrize("arguments", [(), (print,), (1, 200), (print, 200, 1), (print, "200")])
def test_other_arguments_are_refused(arguments):
    with pytest.raises(TypeError):
        _native.sampled(*arguments)
