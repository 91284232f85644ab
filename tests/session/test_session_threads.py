"""Per-thread switches in threads that start under a profile."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from backendcfg.registry import owners
from backendcfg.session import threads
from backendcfg.transact.outcome import Outcome
from backendcfg.transact.switch import Setting


class Switch:
    """A switch that each thread has for itself, with a default."""

    reach = "thread"
    latch = "each-thread"
    reversible = True

    def __init__(self, name="switch"):
        self.name = name
        self.values = threading.local()
        self.writes = 0

    def read(self):
        return getattr(self.values, "value", "default")

    def write(self, value):
        self.writes += 1
        self.values.value = value

    def too_late(self):
        return ""


@pytest.fixture(name="base")
def base_fixture():
    """`base({switch: value})` makes that the base, as `apply` does in the calling thread."""
    threads._scopes.clear()  # of tests before
    threads.base_changed([], [])
    monkeyed = threading.Thread._bootstrap_inner

    def base(wanted, state="set"):
        settings = [Setting(switch, value, "flag") for switch, value in wanted.items()]
        for setting in settings:
            setting.switch.write(setting.wanted)
        outcomes = [Outcome(one.switch.name, "flag", one.wanted, state=state) for one in settings]
        threads.base_changed(settings, outcomes)

    yield base
    threads._scopes.clear()
    threads.base_changed([], [])
    assert threading.Thread._bootstrap_inner is monkeyed


def in_thread(function, kind=threading.Thread):
    found = []
    thread = kind(target=lambda: found.append(function()), name="looking")
    thread.start()
    thread.join()
    return found[0]


def test_every_way_to_start_a_thread_gets_the_base(base):
    switch = Switch()
    base({switch: 1})

    class Own(threading.Thread):
        def run(self):
            self.found = switch.read()

    own = Own()
    own.start()
    own.join()
    timed = []
    timer = threading.Timer(0, lambda: timed.append(switch.read()))
    timer.start()
    timer.join()
    with ThreadPoolExecutor(1) as pool:
        pooled = pool.submit(switch.read).result()

    async def main():
        return await asyncio.to_thread(switch.read)

    assert [1] * 5 == [in_thread(switch.read), own.found, *timed, pooled, asyncio.run(main())]


def test_only_per_thread_switches_that_were_set_are_given(base):
    process, late = Switch("process"), Switch("late")
    process.reach = "process"
    base({process: 1})
    assert "default" == in_thread(process.read)
    base({late: 1}, state="pending")
    assert "default" == in_thread(late.read)
    assert threads._wrapped == []


def test_a_switch_that_has_its_value_already_is_not_written(base):
    switch = Switch()
    base({switch: "default"})
    before = switch.writes
    in_thread(switch.read)
    assert before == switch.writes


def test_a_thread_has_its_own_run_while_it_runs(base):
    base({Switch(): 1})
    seen = []
    thread = threading.Thread()
    thread.run = lambda: seen.append("run" in vars(thread) and thread.run)
    mine = thread.run
    thread.start()
    thread.join()
    assert [mine] == seen
    thread = threading.Thread(target=lambda: seen.append("run" in vars(thread)))
    thread.start()
    thread.join()
    assert [mine, False] == seen


def test_a_switch_that_fails_is_told_and_the_thread_runs(base, caplog):
    good, bad = Switch("good"), Switch("bad")
    base({bad: 1, good: 2})

    def refuse(value):
        raise OSError("no")

    bad.write = refuse
    setting = Setting(bad, 1, "flag")
    found = in_thread(lambda: (good.read(), bad.read(), threads.missed(setting)))
    assert (2, "default", "it could not be set when this thread started: no") == found
    assert ["thread looking: bad could not be set to 1: no"] == caplog.messages


def test_a_switch_that_does_not_hold_its_value_is_told(base, caplog):
    switch = Switch()
    base({switch: 1})
    switch.write = lambda value: None
    assert "default" == in_thread(switch.read)
    assert [
        "thread looking: switch could not be set to 1: wrote 1, read back default"
    ] == caplog.messages


def test_a_thread_that_ran_before_is_told_of_and_can_be_given_the_base(base):
    switch = Switch()
    setting = Setting(switch, 1, "flag")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        base({switch: 1})
        assert "" == threads.missed(setting)
        assert (
            "this thread ran before the profile was applied; `backendcfg.reload()` in it sets it"
            == pool.submit(threads.missed, setting).result()
        )
        pool.submit(threads.begin).result()
        assert ("", 1) == (
            pool.submit(threads.missed, setting).result(),
            pool.submit(switch.read).result(),
        )


def test_a_second_base_is_given_to_later_threads_and_none_after_the_last(base):
    switch, other = Switch(), Switch("other")
    base({switch: 1})
    base({other: 2})
    assert ("default", 2) == in_thread(lambda: (switch.read(), other.read()))
    grown = [Setting(switch, 3, "flag")]
    threads.base_grew(grown, [Outcome("switch", "flag", 3)])
    assert (3, 2) == in_thread(lambda: (switch.read(), other.read()))
    threads.base_changed([], [])
    assert ("default", "default") == in_thread(lambda: (switch.read(), other.read()))


def test_whoever_holds_the_lock_may_start_a_thread(base):
    switch = Switch()
    base({switch: 1})
    found = []
    thread = threading.Thread(target=lambda: found.append(switch.read()))
    with owners.LOCK:
        thread.start()  # returns although the thread cannot write yet
        assert [] == found
    thread.join()
    assert [1] == found


def test_a_lock_that_nobody_gives_back_does_not_hang_the_thread(base, monkeypatch, caplog):
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.01)
    switch = Switch()
    base({switch: 1})
    with owners.LOCK:
        assert "default" == in_thread(switch.read)
    because = "another thread was changing switches for 0.01 s"
    assert [f"thread looking: switch could not be set to 1: {because}"] == caplog.messages


def test_somebody_else_s_wrapper_stays_and_nothing_piles_up(base):
    switch = Switch()
    base({switch: 1})
    calls = []
    ours = threading.Thread._bootstrap_inner

    def theirs(thread):
        calls.append("theirs")
        ours(thread)

    threading.Thread._bootstrap_inner = theirs
    try:
        for _ in range(3):
            threads.base_changed([], [])
            assert "default" == in_thread(switch.read)
            base({switch: 1})
            assert 1 == in_thread(switch.read)
        assert threading.Thread._bootstrap_inner is theirs
        assert 6 == len(calls)
    finally:
        threading.Thread._bootstrap_inner = ours


def test_what_a_scope_leaves_for_later_threads_is_put_right(base):
    """PyTorch hands the count that was set last to threads that start later."""
    switch = Switch("inheriting")
    shared = {"last": "base"}
    switch.read = lambda: getattr(switch.values, "value", shared["last"])

    def write(value):
        switch.values.value = shared["last"] = value

    switch.write = write
    threads.scopes_may_open()
    cell = owners.cell_of(switch)
    claim = owners.Claim(type("Prepared", (), {"name": "scope"})(), None)
    with owners.LOCK:
        assert [] == owners.take(claim, [Setting(switch, "scope", "flag")], ())
    try:
        assert ("scope", "base") == (switch.read(), cell.base)
        assert "base" == in_thread(switch.read)
        shared["last"] = "somebody's"
        assert "somebody's" == in_thread(switch.read)
    finally:
        with owners.LOCK:
            owners.give_back(claim)
    assert "base" == switch.read()


@pytest.mark.torch
def test_pytorch_s_switches_hold_in_every_thread(python):
    """Among them TorchInductor's, which a thread has for itself (its values are context variables)."""
    printed = python(
        """
import asyncio, threading, torch, backendcfg
from concurrent.futures import ThreadPoolExecutor
early = ThreadPoolExecutor(1)
early.submit(int).result()
torch._inductor.config  # loads it
def bare():
    return torch._inductor.config.deterministic
torch._inductor.config.deterministic = True
assert ThreadPoolExecutor(1).submit(bare).result() is False, "no longer by thread"
torch._inductor.config.deterministic = False
backendcfg.apply("reproducible", settings={"threads.count": 1})
def look():
    readings = {r.switch: r for r in backendcfg.verify().readings}
    mine = ("torch.num_threads", "torch.inductor.deterministic", "mkl[torch].local_threads")
    return [(readings[k].found, readings[k].state) for k in mine if k in readings]
late = ThreadPoolExecutor(1).submit(look).result()
print(look() == late, late)
async def to_thread():
    return await asyncio.to_thread(look)
print(asyncio.run(to_thread()) == late)
print([state for _, state in early.submit(look).result()])
early.submit(backendcfg.reload).result()
print(early.submit(look).result() == late)
backendcfg.undo()
torch.set_num_threads(2)
with backendcfg.profile("debug"):
    print(torch.get_num_threads(), ThreadPoolExecutor(1).submit(torch.get_num_threads).result())
"""
    ).splitlines()
    values = [(1, "ok"), (True, "ok"), (0, "ok")]
    assert [f"True {values}", "True", "True", "1 2"] == [printed[0], printed[1], *printed[3:]]
    assert "differs" in printed[2]


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_undo_in_another_thread_names_who_keeps_a_count(python):
    printed = python(
        """
import threading, torch, backendcfg
from concurrent.futures import ThreadPoolExecutor
before = torch.get_num_threads()
wanted = 1 if before > 1 else 2
early = ThreadPoolExecutor(1)
early.submit(int).result()
backendcfg.apply(settings={"threads.count": wanted})
worker = ThreadPoolExecutor(1, thread_name_prefix="worker")
assert worker.submit(torch.get_num_threads).result() == wanted
report = early.submit(backendcfg.undo).result()
left = {one.switch: [one.state, one.wanted == before, one.because] for one in report.outcomes}
print(report.profile, left["torch.num_threads"], torch.get_num_threads() == wanted)
print(backendcfg.active(), worker.submit(torch.get_num_threads).result() == wanted)
backendcfg.apply(settings={"threads.count": wanted})
worker.shutdown()
early.shutdown()
torch.set_num_threads(before)
print(backendcfg.undo())
"""
    ).splitlines()
    because = (
        "threads `MainThread` and `worker_0` keep what the profile gave: `undo()` reaches only the"
        " thread that calls it"
    )
    assert f"none {['irreversible', True, because]} True" == printed[0]
    assert printed[1:] == ["None True", "None"]
