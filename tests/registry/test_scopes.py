"""Scopes over switches of other libraries: nesting, sharing, restoring, refusing."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sys
import threading
from contextlib import nullcontext

import fake_switches
import pytest
from elsewhere import open_elsewhere
from fake_switches import RAISE, SKIP, WAIT, Switch, profile, scope

from backendcfg import _native
from backendcfg.errors import ProfileBusyError, RollbackIncompleteError, RolledBackError
from backendcfg.records import replace
from backendcfg.registry import base as process_base
from backendcfg.registry import busy, entering, owners, restoring
from backendcfg.transact.switch import Setting


def in_thread(function, *arguments):
    """Run in a fresh thread with an empty context; what it returns, or raises, here."""
    box = []

    def run():
        try:
            box.append((function(*arguments), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=contextvars.Context().run, args=(run,), name="other")
    thread.start()
    thread.join()
    result, error = box[0]
    if error is not None:
        raise error
    return result


def pass_through(a_scope):
    """Enter and leave without looking at the cells, so that C does both."""
    with a_scope:
        pass


def enter_and_leave(a_scope):
    with a_scope:
        return [(h.switch, h.now) for h in entering.holdings()]


def test_a_scope_sets_its_switches_and_restores_the_base():
    threads, core = Switch("threads", 8), Switch("core", "zen")
    with scope("fast", (threads, 4), (core, "haswell")) as entered:
        assert (threads.value, core.value) == (4, "haswell")
        assert _native.current() is entered.prepared
    assert (threads.value, core.value) == (8, "zen")
    assert threads.writes == [4, 8]


def test_a_switch_that_already_has_the_value_is_not_written():
    threads = Switch("threads", 4)
    with scope("fast", (threads, 4)):
        assert threads.value == 4
    assert threads.writes == []


class Counted(Switch):
    """A switch that counts its reads."""

    reads = 0

    def read(self):
        self.reads += 1
        return super().read()


def test_a_scope_that_changes_nothing_reads_every_switch_on_its_way_in_and_out():
    threads, precision = Counted("threads", 4), Counted("precision", "ieee")
    same = scope("same", (threads, 4), (precision, "ieee"))
    with same:
        assert (threads.reads, precision.reads) == (1, 1)
        with same:
            assert (threads.reads, precision.reads) == (2, 2)
    assert (threads.reads, precision.reads) == (4, 4)
    assert (threads.writes, precision.writes) == ([], [])


def test_a_scope_that_changes_nothing_is_in_the_way_of_others_like_any():
    threads = Switch("threads", 4)
    with scope("same", (threads, 4)):
        with pytest.raises(ProfileBusyError, match="threads"):
            in_thread(enter_and_leave, scope("fast", (threads, 2)))
        assert in_thread(enter_and_leave, scope("alike", (threads, 4))) == [("threads", 4)]
        with scope("inner", (threads, 1)):
            assert [len(each.holders) for each in entering.holdings()] == [2]
            assert threads.value == 1
        assert threads.value == 4
    assert entering.holdings() == ()


def test_scopes_that_change_nothing_are_left_in_any_order():
    threads = Switch("threads", 4)
    same = scope("same", (threads, 4))
    entered, leave = threading.Event(), threading.Event()

    def stay():
        with same:
            entered.set()
            leave.wait()

    with same:
        other = threading.Thread(target=contextvars.Context().run, args=(stay,))
        other.start()
        entered.wait()
        threads.value = 3
    # The other scope still holds it: the last one to leave puts it back.
    assert threads.value == 3
    leave.set()
    other.join()
    assert threads.value == 4


def test_a_scope_that_wants_what_apply_would_take_away_knows_its_base():
    threads = Switch("threads", 8)
    setting = Setting(threads, 2, "threads")
    process_base.set_base(profile("base", (threads, 2)), [setting])
    threads.value = 4  # by the program
    with scope("same", (threads, 4)):
        assert threads.value == 4
    assert threads.value == 2
    with scope("again", (threads, 2)):
        [outcome] = process_base.set_base(
            profile("base", (threads, 6)), [replace(setting, wanted=6)]
        )
        assert outcome.because.startswith("a scope of profile `again` holds it at 2")
        assert threads.value == 2
    assert threads.value == 6
    process_base.set_base(None, [])


def test_a_switch_that_cannot_be_read_refuses_a_scope_that_would_change_nothing():
    class Unreadable(Switch):
        def read(self):
            raise OSError("nobody answers")

    with pytest.raises(RolledBackError, match="nobody answers"):
        scope("same", (Switch("one", 4), 4), (Unreadable("two", 4), 4)).__enter__()
    assert entering.holdings() == ()


def test_a_value_that_the_body_changed_is_restored():
    threads = Switch("threads", 8)
    with scope("fast", (threads, 8)):
        threads.value = 3
    assert threads.value == 8


def test_what_somebody_sets_between_two_entries_is_restored_by_the_second():
    threads = Switch("threads", 8)
    fast = scope("fast", (threads, 4))
    for base in (8, 6, 4, 8):
        threads.value = base
        with fast:
            assert threads.value == 4
        assert threads.value == base


def test_scopes_nest_and_restore_one_by_one():
    threads = Switch("threads", 8)
    with scope("a", (threads, 4)):
        with scope("b", (threads, 2)):
            assert threads.value == 2
            with scope("a", (threads, 4)):
                assert threads.value == 4
            assert threads.value == 2
        assert threads.value == 4
    assert threads.value == 8
    assert threads.writes == [4, 2, 4, 2, 4, 8]


def test_one_scope_object_can_be_entered_again():
    threads = Switch("threads", 8)
    fast = scope("fast", (threads, 4))
    with fast, fast:
        assert threads.value == 4
        with fast:
            pass
        assert threads.value == 4
    assert threads.value == 8
    assert threads.writes == [4, 8]


def test_an_exception_and_an_interrupt_restore():
    threads = Switch("threads", 8)
    for error in (ValueError, KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(error), scope("fast", (threads, 4)):
            raise error
        assert threads.value == 8


def test_scopes_in_two_threads_that_agree_share():
    threads = Switch("threads", 8)
    with scope("fast", (threads, 4)):
        assert in_thread(enter_and_leave, scope("other", (threads, 4))) == [("threads", 4)]
        assert threads.value == 4
    assert threads.writes == [4, 8]


def test_scopes_in_two_threads_that_disagree_are_refused_with_every_fact():
    threads = Switch("openblas[numpy].threads", 8)
    with scope("reproducible", (threads, 1)):
        with pytest.raises(ProfileBusyError) as caught:
            in_thread(enter_and_leave, scope("fast", (threads, 8)))
        assert threads.value == 1
    assert caught.value.render() == (
        "error[profile-busy]: profile `fast` wants `openblas[numpy].threads` at 8, which profile "
        "`reproducible` holds at 1\n"
        "  note: `openblas[numpy].threads` is held at 1 by profile `reproducible`, opened in thread "
        "`MainThread`; `fast` wants 8\n"
        "  state: profile `fast` was not entered; nothing was changed\n"
        "  help: let the other scope end first, or use one profile in both places\n"
        '  help: `profile("fast", busy="wait")` waits until it is free\n'
        '  help: `profile("fast", busy="skip")` leaves process-wide switches alone, and sets only '
        "what is per context"
    )
    assert threads.writes == [1, 8]


def test_a_scope_that_agrees_with_the_value_in_force_but_not_with_a_hidden_claim_is_refused():
    threads = Switch("threads", 8)
    refused = pytest.raises(ProfileBusyError, match="which profile `outer` holds at 4")
    with scope("outer", (threads, 4)), scope("inner", (threads, 2)), refused:
        in_thread(enter_and_leave, scope("other", (threads, 2)))
    assert threads.value == 8


def test_the_same_scope_object_in_another_thread_does_not_count_as_being_inside_it():
    threads = Switch("threads", 8)
    shared = scope("fast", (threads, 4))

    def nested_elsewhere():
        with shared, scope("other", (threads, 2)):
            pass

    with shared, pytest.raises(ProfileBusyError):
        in_thread(nested_elsewhere)
    assert threads.writes == [4, 8]


def test_skip_leaves_every_switch_alone_and_sets_the_context():
    threads, core = Switch("threads", 8), Switch("core", "zen")

    def skipping():
        with scope("fast", (core, "haswell"), (threads, 2), busy=SKIP):
            return _native.current().name, core.value

    with scope("reproducible", (threads, 1)):
        assert in_thread(skipping) == ("fast", "zen")
        assert threads.value == 1
    assert in_thread(skipping) == ("fast", "haswell")
    assert threads.value == 8


def test_wait_enters_when_the_other_scope_ends():
    threads = Switch("threads", 8)
    entered, leave = threading.Event(), threading.Event()
    seen = []

    def holder():
        with scope("reproducible", (threads, 1)):
            entered.set()
            leave.wait()
            seen.append(("holder", threads.value))

    def waiter():
        with scope("fast", (threads, 4), busy=WAIT):
            seen.append(("waiter", threads.value))

    first = threading.Thread(target=holder)
    second = threading.Thread(target=waiter)
    first.start()
    entered.wait()
    second.start()
    while not busy.WAITERS:
        pass
    leave.set()
    first.join()
    second.join()
    assert seen == [("holder", 1), ("waiter", 4)]
    assert threads.value == 8


def test_waiting_for_a_scope_of_the_same_thread_is_refused_instead_of_hanging():
    threads = Switch("threads", 8)
    waiting = scope("fast", (threads, 4), busy=WAIT)
    with scope("reproducible", (threads, 1)), pytest.raises(ProfileBusyError) as caught:
        contextvars.Context().run(enter_and_leave, waiting)
    assert caught.value.notes[1] == (
        "waiting would never end: that scope cannot be left before this call returns"
    )
    assert caught.value.helps[1] == (
        'in a coroutine, use `async with profile("fast", busy="wait")`'
    )


def test_two_threads_that_would_wait_for_each_other_are_told():
    one, two = Switch("one", 8), Switch("two", 8)
    barrier = threading.Barrier(2)
    results = []

    def work(mine, other):
        with scope(f"holds-{mine.name}", (mine, 1)):
            barrier.wait()
            try:
                with scope("wants", (other, 2), busy=WAIT):
                    results.append("entered")
            except ProfileBusyError as error:
                results.append(error.notes[1])

    pair = [threading.Thread(target=work, args=p) for p in ((one, two), (two, one))]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()
    assert sorted(results) == [
        "entered",
        "waiting would never end: that scope cannot be left before this call returns",
    ]
    assert (one.value, two.value) == (8, 8)


def test_a_ctrl_c_while_waiting_leaves_nothing_behind(monkeypatch):
    threads = Switch("threads", 8)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(busy.Waiter, "wait", interrupted)
    with open_elsewhere(scope("reproducible", (threads, 1))):
        with pytest.raises(KeyboardInterrupt):
            pass_through(scope("fast", (threads, 4), busy=WAIT))
        assert not busy.WAITERS
    assert threads.value == 8


def test_a_scope_that_cannot_set_a_switch_undoes_the_others():
    one, two = Switch("one", 8), Switch("two", 8, refuse=(2,))
    with pytest.raises(RolledBackError) as caught, scope("fast", (one, 1), (two, 2)):
        pass
    assert caught.value.render() == (
        "error[rolled-back]: entering profile `fast` failed at step 2 of 2; step 1 was undone\n"
        "  note: step 1 `one` 8 -> 1: written, then restored to 8\n"
        "  note: step 2 `two` 8 -> 2: failed: two refuses 2\n"
        "  state: as before the call; every restored value was read back and matched\n"
        "  help: run `backendcfg plan fast` to see both steps without applying them"
    )
    assert (one.value, two.value) == (8, 8)
    assert _native.chain() == ()


def test_a_switch_that_lies_refuses_the_scope():
    liar = Switch("liar", 8, lie=True)
    with pytest.raises(RolledBackError, match="failed at step 1 of 1") as caught:
        enter_and_leave(scope("fast", (liar, 1)))
    assert caught.value.notes == ("step 1 `liar` 8 -> 1: failed: wrote 1, read back 8",)


def test_an_entry_that_cannot_be_undone_names_what_is_stuck():
    one, two = Switch("one", 8, refuse=(8,)), Switch("two", 8, refuse=(2,))
    with pytest.raises(RollbackIncompleteError) as caught:
        enter_and_leave(scope("fast", (one, 1), (two, 2)))
    assert caught.value.state == (
        "`one` is 1 and should be 8 (one refuses 8); everything else is as before the call"
    )
    assert [(s.switch, s.wanted) for s in entering.stuck()] == [("one", 8)]


def test_leaving_never_raises_and_what_is_stuck_is_kept(caplog):
    threads = Switch("threads", 8, refuse=(8,))
    with caplog.at_level("ERROR", logger="backendcfg"), scope("fast", (threads, 4)):
        pass
    assert [(s.switch, s.wanted, s.because, s.profile) for s in entering.stuck()] == [
        ("threads", 8, "threads refuses 8", "fast")
    ]
    assert caplog.messages == [
        "leaving a scope of profile fast: threads could not be restored to 8: threads refuses 8"
    ]


def test_a_stuck_value_never_becomes_the_base(caplog):
    threads = Switch("threads", 8, refuse=(8,))
    enter_and_leave(scope("fast", (threads, 4)))
    assert threads.value == 4
    threads.refuse = ()
    pass_through(scope("fast", (threads, 4)))
    assert threads.value == 8
    assert entering.stuck() == ()


@pytest.mark.parametrize(
    "switch",
    [
        Switch("OMP_NUM_THREADS", 8, latch="before-import"),
        Switch("PYTHONHASHSEED", 8, latch="before-process"),
        Switch("first", 8, latch="before-first-use"),
        Switch("one way", 8, reversible=False),
        Switch("late", 8, late="it is too late"),
        Switch("call", 8, reach="call"),
    ],
    ids=lambda switch: switch.name,
)
def test_scopes_never_write_what_cannot_be_set_and_put_back_at_any_time(switch):
    with scope("fast", (switch, 1)):
        assert switch.value == 8
    assert switch.writes == []


class PerThread:
    """A switch that every thread has for itself."""

    name, reach, latch, reversible = "local", "thread", "each-thread", True

    def __init__(self):
        self.values = threading.local()
        self.late = {}

    def read(self):
        return getattr(self.values, "value", 8)

    def write(self, value):
        self.values.value = value

    def too_late(self):
        return self.late.get(threading.current_thread().name, "")

    def inside_and_after(self, entered):
        with entered:
            inside = self.read()
        return inside, self.read()


def test_a_per_thread_switch_belongs_to_its_thread():
    local = PerThread()
    fast, other = scope("fast", (local, 4)), scope("other", (local, 2))
    with fast:
        assert in_thread(local.inside_and_after, other) == (2, 8)
        assert in_thread(local.inside_and_after, fast) == (4, 8)
        assert local.read() == 4
    assert local.read() == 8


@pytest.mark.parametrize("late", ["MainThread", "other"])
def test_a_per_thread_switch_may_be_too_late_in_one_thread_alone(late):
    local = PerThread()
    local.late[late] = "it is in use"
    fast = scope("fast", (local, 4))
    inside = {
        "MainThread": local.inside_and_after(fast),
        "other": in_thread(local.inside_and_after, fast),
    }
    assert inside.pop(late) == (8, 8)
    assert [*inside.values()] == [(4, 8)]


def test_a_scope_left_in_another_context_is_given_back():
    threads = Switch("threads", 8)
    fast = scope("fast", (threads, 4))
    fast.__enter__()
    contextvars.copy_context().run(fast.__exit__, None, None, None)
    fast.__exit__(None, None, None)
    assert threads.value == 8


def test_an_outer_scope_that_is_left_first_changes_nothing_of_those_inside():
    threads = Switch("threads", 8)
    outer, middle, inner = (
        scope(name, (threads, n)) for name, n in zip("abc", (4, 2, 1), strict=True)
    )
    for one in (outer, middle, inner):
        one.__enter__()
    outer.__exit__(None, None, None)
    assert threads.value == 1
    inner.__exit__(None, None, None)
    assert threads.value == 2
    middle.__exit__(None, None, None)
    assert threads.value == 8
    assert threads.writes == [4, 2, 1, 2, 8]


def test_a_per_thread_scope_that_is_left_elsewhere_is_told_and_changes_nothing_there():
    local = PerThread()
    fast = scope("fast", (local, 4))
    fast.__enter__()
    context = contextvars.copy_context()

    def leave():
        local.write(6)
        context.run(fast.__exit__, None, None, None)
        return local.read()

    assert in_thread(leave) == 6
    assert [(stuck.switch, stuck.wanted, stuck.found) for stuck in entering.stuck()] == [
        ("local", 8, 4)
    ]
    fast.__exit__(None, None, None)


def test_the_claims_of_a_thread_that_ended_inside_a_scope_block_nobody():
    threads = Switch("threads", 8)
    kept = []

    def die_inside():
        forgotten = scope("forgotten", (threads, 1))
        forgotten.__enter__()
        kept.append((forgotten, contextvars.copy_context()))

    in_thread(die_inside)
    assert threads.value == 1
    assert enter_and_leave(scope("fast", (threads, 4))) == [("threads", 4)]
    assert threads.value == 8
    kept.clear()
    gc.collect()
    assert threads.value == 8


def test_a_scope_whose_context_dies_is_given_back():
    threads = Switch("threads", 8)

    def abandon():
        scope("forgotten", (threads, 1)).__enter__()

    contextvars.Context().run(abandon)
    gc.collect()
    assert threads.value == 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_inside_a_scope_keeps_its_parent_s_and_drops_other_threads():
    mine, others = Switch("mine", 8), Switch("others", 8)
    with open_elsewhere(scope("theirs", (others, 1))), scope("ours", (mine, 4)):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = b"bad"
            try:
                before = (mine.value, others.value)
                with scope("new", (others, 2)):
                    inside = others.value
                busy.WAITERS.clear()
                if (before, inside, others.value) == ((4, 8), 2, 8):
                    status = b"good"
            finally:
                os.write(writing, status)
                os._exit(0)
        os.close(writing)
        assert os.read(reading, 10) == b"good"
        os.close(reading)
        os.waitpid(child, 0)
        assert (mine.value, others.value) == (4, 1)
    assert (mine.value, others.value) == (8, 8)


def test_a_scope_opened_by_a_setter_is_refused_and_one_left_by_it_is_given_back_after():
    other = Switch("other", 8)
    inner = scope("inner", (other, 2))
    errors = []

    class Meddling(Switch):
        def write(self, value):
            if inner_open:
                inner.__exit__(None, None, None)
                inner_open.clear()
            try:
                enter_and_leave(scope("within", (other, 3)))
            except ProfileBusyError as error:
                errors.append(error.message)
            super().write(value)

    meddling = Meddling("meddling", 8)
    inner_open = [True]
    inner.__enter__()
    with scope("fast", (meddling, 4)):
        assert other.value == 8
    assert meddling.value == 8
    assert set(errors) == {
        "a scope of profile `within` was opened while this thread was setting a process-wide switch"
    }


def test_a_library_that_is_loaded_inside_a_scope_is_set_by_extend():
    old, new = Switch("old", 8), Switch("new", 8)
    wanted = [(old, 4)]
    prepared = _native.Prepared("fast", None, lambda: profile("fast", *wanted).switches())
    with _native.Scope(prepared, RAISE):
        wanted.append((new, 2))
        entering.extend()
        assert (old.value, new.value) == (4, 2)
        entering.extend()
    assert (old.value, new.value) == (8, 8)
    assert new.writes == [2, 8]


def test_a_library_that_is_loaded_inside_a_scope_and_refuses_costs_nothing_that_was_set(caplog):
    old, new, newer = Switch("old", 8), Switch("new", 8), Switch("newer", 8, refuse=(3,))
    wanted = [(old, 4)]
    prepared = _native.Prepared("fast", None, lambda: profile("fast", *wanted).switches())
    with _native.Scope(prepared, RAISE):
        wanted += [(new, 2), (newer, 3)]
        entering.extend()
        assert "entering profile `fast` failed at step 2 of 2; step 1 was undone" in caplog.text
        assert (old.value, new.value, newer.value) == (4, 8, 8)
        assert [holding.switch for holding in entering.holdings()] == ["old"]
    assert (old.value, new.value, newer.value) == (8, 8, 8)


def test_holdings_say_who_owns_what():
    threads = Switch("threads", 8)
    with scope("outer", (threads, 4)), scope("inner", (threads, 2)):
        (holding,) = entering.holdings()
        assert (holding.switch, holding.now, holding.base) == ("threads", 2, 8)
        assert [(h.profile, h.thread, h.wanted) for h in holding.holders] == [
            ("outer", "thread `MainThread`", 4),
            ("inner", "thread `MainThread`", 2),
        ]
    assert entering.holdings() == ()


def test_a_parent_that_exits_before_its_child_task_leaves_the_child_s_value():
    threads = Switch("threads", 8)
    seen = []

    async def child(entered, parent_left):
        async with scope("child", (threads, 2)):
            entered.set()
            await parent_left.wait()
            seen.append(threads.value)

    async def parent():
        entered, left = asyncio.Event(), asyncio.Event()
        async with scope("parent", (threads, 4)):
            task = asyncio.create_task(child(entered, left))
            await entered.wait()
            seen.append(threads.value)
        seen.append(threads.value)
        left.set()
        await task

    asyncio.run(parent())
    assert seen == [2, 2, 2]
    assert threads.value == 8
    assert threads.writes == [4, 2, 8]


def test_a_task_that_waits_looks_again_only_when_something_is_given_back(monkeypatch):
    one = Switch("one", 8)
    tries = []
    take = owners.take
    monkeypatch.setattr(owners, "take", lambda *given: tries.append(given[0]) or take(*given))

    async def work():
        entered = asyncio.Event()

        async def wait():
            entered.set()
            async with scope("waits", (one, 2), busy=WAIT):
                return one.value

        with scope("holds", (one, 1)):
            waiting = asyncio.create_task(wait(), context=contextvars.Context())
            await entered.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
        return await waiting

    assert asyncio.run(work()) == 2
    # Of the one that holds; in vain, and again as one who waits; and once that was left.
    assert len(tries) == 4


def test_async_with_waits_without_blocking_the_loop():
    threads = Switch("threads", 8)
    seen = []

    async def holder(entered, leave):
        async with scope("reproducible", (threads, 1)):
            entered.set()
            await leave.wait()

    async def waiter():
        async with scope("fast", (threads, 4), busy=WAIT) as entered:
            seen.append((threads.value, _native.current() is entered.prepared))

    async def main():
        entered, leave = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(holder(entered, leave))
        await entered.wait()
        second = asyncio.create_task(waiter())
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append("the loop runs")
        leave.set()
        await asyncio.gather(first, second)

    asyncio.run(main())
    assert seen == ["the loop runs", (4, True)]
    assert threads.value == 8


def test_a_cancelled_wait_leaves_nothing_behind():
    threads = Switch("threads", 8)

    async def waiter():
        async with scope("fast", (threads, 4), busy=WAIT):
            raise AssertionError("entered")

    async def main():
        holder = contextvars.Context()
        held = scope("reproducible", (threads, 1))
        holder.run(held.__enter__)
        task = asyncio.create_task(waiter())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not busy.WAITERS
        holder.run(held.__exit__, None, None, None)

    asyncio.run(main())
    assert threads.value == 8


class Setter(Switch):
    """A switch whose setter calls functions before and after it sets one of its values."""

    def __init__(self, name, value, *, at=8, before=None, after=None):
        super().__init__(name, value)
        self.at, self.before, self.after = at, before, after

    def write(self, value):
        if value == self.at and self.before is not None:
            self.before()
        super().write(value)
        if value == self.at and self.after is not None:
            self.after()


def once(error):
    """A function that raises, the first time it is called."""
    left = [error]

    def fail():
        if left:
            raise left.pop()

    return fail


@pytest.mark.parametrize("then", [None, OSError, KeyboardInterrupt])
def test_a_setter_that_looks_who_holds_it_while_a_scope_is_left_leaves_no_claim(then):
    """Whether the scope is left at once, another switch fails first, or an interrupt comes."""
    found = []

    def look():
        found.append([(each.switch, each.base) for each in entering.holdings()])

    fail = None if then is None else once(then)
    one, two, three = (
        Setter("one", 8, before=fail),
        Switch("two", 8),
        Setter("three", 8, after=look),
    )
    a_scope = scope("fast", (one, 1), (two, 2), (three, 3))
    a_scope.__enter__()
    with pytest.raises(KeyboardInterrupt) if then is KeyboardInterrupt else nullcontext():
        a_scope.__exit__(None, None, None)
    assert found[0] == [("one", 8), ("two", 8), ("three", 8)]
    # What raises is not written again here, and is put back by the next scope.
    left = ["one"] if then is OSError else []
    assert [each.switch for each in entering.stuck()] == left
    enter_and_leave(a_scope)
    assert entering.stuck() == ()
    assert [switch.value for switch in (one, two, three)] == [8, 8, 8]
    assert not [cell for cell in owners.CELLS.values() if cell.claims]
    assert owners._unnoted == {}


@pytest.mark.parametrize("moment", ["entered", "left"])
def test_a_base_that_a_setter_changes_while_a_scope_is_entered_or_left_is_given_back(moment):
    one = Switch("one", 8)

    def apply():
        process_base.set_base(None, [Setting(one, 5, "one")])

    two = Setter("two", 8, at=2 if moment == "entered" else 8, after=apply)
    enter_and_leave(scope("fast", (one, 1), (two, 2)))
    try:
        assert (one.value, owners.CELLS["one"].base, entering.stuck()) == (5, 5, ())
    finally:
        process_base.set_base(None, [])


def test_a_profile_whose_switches_no_scope_may_set_leaves_nothing():
    pass_through(scope("fast", (Switch("late", 8, late="it is too late"), 4)))
    assert owners._unnoted == {}


@pytest.mark.parametrize("applied", [None, 5])
def test_a_switch_that_stays_behind_at_an_entry_is_given_back_later(applied):
    """To what it held, or to what `apply` had set though the program changed that."""

    class Half(Switch):
        is_broken = False

        def write(self, value):
            if self.is_broken and value == 8:
                raise OSError("no way back")
            super().write(value)
            if self.is_broken:
                raise OSError("half")

    one = Half("one", 8)
    if applied is not None:
        process_base.set_base(None, [Setting(one, applied, "one")])
        one.value = 8
    one.is_broken = True
    with pytest.raises(RollbackIncompleteError):
        scope("fast", (one, 1)).__enter__()
    one.is_broken = False
    pass_through(scope("fast", (one, 2)))
    assert (one.value, entering.stuck()) == (applied or 8, ())
    process_base.set_base(None, [])


def test_a_scope_that_changes_nothing_is_in_the_way_of_one_that_would_not_either():
    one = Switch("one", 8)
    with scope("quiet", (one, 8)):
        one.value = 3
        with pytest.raises(ProfileBusyError):
            in_thread(pass_through, scope("other", (one, 3)))
    assert one.value == 8


def interrupted(work, at):
    """Work that is interrupted at one point; how many points were seen.

    CPython runs signal handlers when a function is entered and when a call has returned; the
    profiler sees exactly these points, those inside a switch too.
    """
    files = {owners.__file__, restoring.__file__, entering.__file__, fake_switches.__file__}
    seen = 0

    def interrupt(frame, event, argument):
        nonlocal seen
        if event in {"call", "c_return"} and frame.f_code.co_filename in files:
            seen += 1
            if seen == at:
                raise KeyboardInterrupt

    was_interrupted = False
    sys.setprofile(interrupt)
    try:
        work()
    except KeyboardInterrupt:
        was_interrupted = True
    finally:
        sys.setprofile(None)
    assert was_interrupted or seen < at, f"point {at}: the interrupt was swallowed"
    return seen


def at_every_point(attempt):
    """Call `attempt(at)` with the points at which `interrupted` interrupts; how many there are."""
    at = 1
    while attempt(at) >= at:
        at += 1
    return at - 1


def test_whoever_waits_is_woken_though_an_interrupt_comes_at_any_point():
    class Waiter:
        is_woken = False

        def wake(self):
            self.is_woken = True

    def attempt(at):
        waiter, one, two = Waiter(), Switch("one", 8), Switch("two", 8)
        a_scope = scope("fast", (one, 1), (two, 2))
        a_scope.__enter__()
        busy.WAITERS.add(waiter)
        try:
            seen = interrupted(lambda: a_scope.__exit__(None, None, None), at)
        finally:
            busy.WAITERS.discard(waiter)
        assert waiter.is_woken, f"point {at}"
        assert (one.value, two.value) == (8, 8), f"point {at}"
        return seen

    assert at_every_point(attempt) > 10


def test_the_steps_of_an_entry_that_fails_are_those_that_would_have_been_made():
    one, two, three = Switch("one", 8), Switch("two", 8), Switch("three", 4)
    fast = scope("fast", (one, 1), (two, 2), (three, 4))
    pass_through(fast)
    one.refuse = (1,)
    with pytest.raises(RolledBackError) as refused:
        fast.__enter__()
    assert "step 1 of 2" in refused.value.message
    assert owners._unnoted == {}


class Own(Switch):
    """A switch that each thread has for itself."""

    def __init__(self, name):
        super().__init__(name, 8, reach="thread", latch="each-thread")
        self.values = threading.local()

    def read(self):
        return getattr(self.values, "value", 8)

    def write(self, value):
        self.values.value = value


@pytest.mark.parametrize("is_applied", [False, True])
def test_scopes_that_change_nothing_are_shared_with_a_thread_that_returns_to_something_else(
    is_applied,
):
    own = Own("own")
    quiet = profile("quiet", (own, 8))

    def enter_quietly():
        with _native.Scope(quiet, RAISE):
            return own.read()

    def over_a_base():
        cell = owners.cell_of(own)
        cell.base, cell.known = 5, True
        return enter_quietly(), own.read()

    # Another scope is around one that shares: the cell of this thread has its claim.
    if is_applied:
        process_base.set_base(None, [Setting(own, 5, "own")])
    own.write(5)
    with scope("another", (own, 8)):
        entering.holdings()
        with open_elsewhere(_native.Scope(quiet, RAISE)):
            assert (enter_quietly(), own.read()) == (8, 8)
    assert own.read() == 5
    process_base.set_base(None, [])
    own.write(8)
    with _native.Scope(quiet, RAISE):
        assert in_thread(over_a_base) == (8, 5)
    assert owners._unnoted == {}
    assert not [cell for cell in owners.this_thread().cells.values() if cell.claims]


def test_a_switch_that_cannot_be_read_is_told_where_others_share_it():
    class Blind(Switch):
        is_blind = False

        def read(self):
            if self.is_blind:
                raise OSError("blind")
            return super().read()

    one = Blind("one", 8)
    quiet = profile("quiet", (one, 8))
    with _native.Scope(quiet, RAISE):
        one.is_blind = True
        enter_and_leave(_native.Scope(quiet, RAISE))
        one.is_blind = False
    assert (one.value, owners._unnoted) == (8, {})


def test_a_base_that_was_found_while_nobody_looked_is_told_to_who_looks():
    one, two = Switch("one", 8), Switch("two", 2)
    with scope("fast", (one, 1), (two, 2)):
        assert [owners.CELLS[name].base for name in ("one", "two")] == [8, 2]
    one.value = two.value = 5
    with scope("fast", (one, 1), (two, 2)):
        two.value = 7
        assert [owners.CELLS[name].base for name in ("one", "two")] == [5, 5]
    assert (one.value, two.value) == (5, 5)


@pytest.mark.parametrize("looks", [False, True], ids=["", "a setter looks"])
@pytest.mark.parametrize("wanted", [(1, 2), (8, 8)], ids=["changes both", "changes nothing"])
def test_an_interrupt_at_any_point_of_entering_or_leaving_leaves_nothing_behind(wanted, looks):
    def attempt(at):
        one = Switch("one", 8)
        two = Setter("two", 8, after=entering.holdings if looks else None)
        both = scope("fast", (one, wanted[0]), (two, wanted[1]))
        seen = interrupted(lambda: pass_through(both), at)
        assert (one.value, two.value) == (8, 8), f"point {at}"
        assert not [cell for cell in owners.CELLS.values() if cell.claims], f"point {at}"
        assert owners.LOCK.acquire(blocking=False)
        owners.LOCK.release()
        assert _native.chain() == ()
        return seen

    assert at_every_point(attempt) > 15


def test_two_tasks_that_would_wait_for_each_other_are_told():
    one, two = Switch("one", 8), Switch("two", 8)
    results = []

    async def work(mine, other, ready, go):
        async with scope(f"holds-{mine.name}", (mine, 1)):
            ready.set()
            await go.wait()
            try:
                async with scope("wants", (other, 2), busy=WAIT):
                    results.append("entered")
            except ProfileBusyError as error:
                results.append(error.notes[1])

    async def main():
        events = [asyncio.Event(), asyncio.Event()]
        await asyncio.gather(
            work(one, two, events[0], events[1]), work(two, one, events[1], events[0])
        )

    asyncio.run(main())
    assert sorted(results) == [
        "entered",
        "waiting would never end: that scope cannot be left before this call returns",
    ]
    assert (one.value, two.value) == (8, 8)


def test_giving_a_claim_back_more_than_once_does_no_harm():
    one, two = Switch("one", 8), Switch("two", 8)
    claim = entering.enter_switches(profile("fast", (one, 1), (two, 2)), None, ())

    for _ in range(3):
        entering.leave_switches(None, None, claim)
        assert (one.value, two.value) == (8, 8)
    assert (one.writes, two.writes) == ([1, 8], [2, 8])
