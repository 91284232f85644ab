"""The base: what apply() sets, and how it and open scopes leave each other alone."""

from __future__ import annotations

import threading

import pytest
from fake_switches import Switch, profile, scope

from backendcfg import _native
from backendcfg.errors import RolledBackError, TooLateError
from backendcfg.registry import base


def apply(name, *wanted, **options):
    prepared = profile(name, *wanted)
    return base.set_base(prepared, prepared.switches(), **options)


def states(outcomes):
    return [(outcome.switch, outcome.state, outcome.because) for outcome in outcomes]


def test_apply_sets_every_switch_and_the_profile():
    threads, core = Switch("threads", 8), Switch("core", "zen")
    assert states(apply("fast", (threads, 4), (core, "zen"))) == [
        ("threads", "set", ""),
        ("core", "unchanged", ""),
    ]
    assert threads.value == 4
    assert _native.current().name == "fast"


def test_a_failed_apply_leaves_the_base_as_it_was():
    threads, core = Switch("threads", 8), Switch("core", "zen", refuse=("haswell",))
    apply("base", (threads, 4))
    with pytest.raises(RolledBackError) as caught:
        apply("fast", (threads, 2), (core, "haswell"), active="base")
    assert str(caught.value) == ("applying profile `fast` failed at step 2 of 2; step 1 was undone")
    assert (threads.value, core.value) == (4, "zen")
    assert _native.current().name == "base"
    with scope("scope", (threads, 1)):
        pass
    assert threads.value == 4


def test_the_last_scope_returns_to_what_apply_set():
    threads = Switch("threads", 8)
    apply("fast", (threads, 4))
    threads.value = 3  # somebody else's write, outside every scope
    with scope("scope", (threads, 1)):
        assert threads.value == 1
    assert threads.value == 4


def test_apply_changes_the_base_and_open_scopes_keep_theirs():
    threads = Switch("threads", 8)
    with scope("scope", (threads, 1)):
        outcomes = apply("fast", (threads, 4))
        assert threads.value == 1
        assert states(outcomes) == [
            ("threads", "set", "a scope of profile `scope` holds it at 1 until it ends")
        ]
        assert _native.current().name == "scope"
    assert threads.value == 4
    assert threads.writes == [1, 4]


def test_an_apply_that_fails_inside_a_scope_restores_the_base_too():
    threads, core = Switch("threads", 8), Switch("core", "zen", refuse=("haswell",))
    with scope("scope", (threads, 1)), pytest.raises(RolledBackError):
        apply("fast", (threads, 4), (core, "haswell"))
    assert threads.value == 8


def test_what_the_next_apply_does_not_set_returns_to_its_original_value():
    threads, core = Switch("threads", 8), Switch("core", "zen")
    apply("one", (threads, 4), (core, "haswell"))
    apply("two", (threads, 2))
    assert (threads.value, core.value) == (2, "zen")
    outcomes = base.set_base(None, ())
    assert (threads.value, core.value) == (8, "zen")
    assert states(outcomes) == [("threads", "set", "")]
    assert base.applied() == {}
    assert _native.current() is None


def test_strict_refuses_what_is_too_late():
    late = Switch("OMP_NUM_THREADS", "8", latch="before-import", late="libgomp is loaded")
    threads = Switch("threads", 8)
    with pytest.raises(TooLateError):
        apply("fast", (threads, 4), (late, "4"), strict=True)
    assert threads.value == 8
    assert states(apply("fast", (threads, 4), (late, "4"))) == [
        ("threads", "set", ""),
        ("OMP_NUM_THREADS", "pending", "libgomp is loaded"),
    ]
    assert set(base.applied()) == {"threads"}


def test_a_library_that_is_loaded_later_is_added_to_the_base():
    threads, later = Switch("threads", 8), Switch("later", 8)
    apply("fast", (threads, 4))
    prepared = profile("fast", (later, 2))
    assert states(base.extend_base(prepared.switches(), profile="fast")) == [("later", "set", "")]
    assert (threads.value, later.value) == (4, 2)
    base.set_base(None, ())
    assert (threads.value, later.value) == (8, 8)


def test_applies_and_scopes_at_once_never_mix():
    threads = Switch("threads", 8)
    problems = []
    done = threading.Event()

    def applying():
        for number in range(300):
            apply(f"p{number}", (threads, 10 + number % 3))
        done.set()

    def scoping():
        while not done.is_set():
            with scope("scope", (threads, 1)):
                if threads.value != 1:
                    problems.append(threads.value)

    workers = [threading.Thread(target=work) for work in (applying, scoping, scoping)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []
    assert threads.value == 12
