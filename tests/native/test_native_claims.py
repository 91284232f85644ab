"""Process-wide switches behind scopes: each entry's claim is given back exactly once."""

import contextvars
import gc
import sys

import pytest

from backendcfg._native import Prepared, Scope, chain, claims

SWITCHES = Prepared("switches", None, {"threads": 1})
PURE = Prepared("pure", None)


@pytest.fixture
def journal(callbacks):
    """What was entered and left; claims are counted up from 1."""
    lines = []

    def enter(prepared, scope, ancestors):
        lines.append(("enter", len(lines), ancestors))
        return len(lines)

    def leave(prepared, scope, claim):
        lines.append(("leave", claim))

    callbacks(enter_switches=enter, leave_switches=leave)
    return lines


def test_a_claim_is_made_before_the_entry_and_given_back_after_the_exit(callbacks):
    seen = []
    callbacks(
        enter_switches=lambda *_: seen.append(chain()) or "claim",
        leave_switches=lambda *given: seen.append((chain(), given)),
    )
    scope = Scope(SWITCHES, 2)
    with scope:
        assert claims() == ("claim",)
    assert seen == [(), ((), (SWITCHES, scope, "claim"))]


def test_the_ancestors_claims_are_those_of_this_context(journal):
    def apart():
        with Scope(SWITCHES, 0):
            pass

    with Scope(SWITCHES, 0), Scope(PURE, 0), Scope(SWITCHES, 0):
        contextvars.Context().run(apart)
    assert journal[:3] == [("enter", 0, ()), ("enter", 1, (1,)), ("enter", 2, ())]


def test_a_refused_entry_pushes_nothing(callbacks):
    callbacks(enter_switches=lambda *_: 1 / 0, leave_switches=lambda *_: pytest.fail("left"))
    with pytest.raises(ZeroDivisionError):
        Scope(SWITCHES, 0).__enter__()
    assert chain() == ()


def test_out_of_order_and_repeated_exits_give_back_once(journal, callbacks):
    callbacks(misplaced=lambda scope: None)
    outer, middle, inner = (Scope(SWITCHES, 0) for _ in range(3))
    for scope in (outer, middle, inner):
        scope.__enter__()
    for scope in (middle, outer, inner, middle):
        scope.__exit__(None, None, None)
    assert [line[1] for line in journal if line[0] == "leave"] == [2, 1, 3]


def test_leaving_elsewhere_gives_back_and_the_copy_does_not_do_it_again(journal, callbacks):
    callbacks(misplaced=lambda scope: None)
    scope = Scope(SWITCHES, 0)
    context = contextvars.copy_context()
    context.run(scope.__enter__)
    scope.__exit__(None, None, None)
    context.run(scope.__exit__, None, None, None)
    assert journal == [("enter", 0, ()), ("leave", 1)]


def test_a_context_that_dies_open_gives_back(journal):
    context = contextvars.copy_context()
    context.run(Scope(SWITCHES, 0).__enter__)
    del context
    gc.collect()
    assert journal == [("enter", 0, ()), ("leave", 1)]


def test_a_failure_to_give_back_is_reported_and_does_not_raise(callbacks, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: reported.append(raised.exc_type))
    callbacks(enter_switches=lambda *_: None, leave_switches=lambda *_: 1 / 0)
    with Scope(SWITCHES, 0):
        pass
    assert reported == [ZeroDivisionError]
    assert chain() == ()


@pytest.mark.parametrize("interrupts", [1, 2, 3, 10])
def test_an_interrupted_giving_back_is_tried_again_and_reaches_the_user(callbacks, interrupts):
    calls = []

    def interrupted(*_):
        calls.append(1)
        if len(calls) <= interrupts:
            raise KeyboardInterrupt

    callbacks(enter_switches=lambda *_: None, leave_switches=interrupted)
    with pytest.raises(KeyboardInterrupt), Scope(SWITCHES, 0):
        pass
    assert len(calls) == min(interrupts + 1, 3)
    assert chain() == ()


def test_binding_an_unknown_name_binds_nothing(callbacks):
    with pytest.raises(TypeError, match="bind has no callback 'entre'"):
        callbacks(misplaced=print, entre=print)
    with pytest.raises(TypeError, match="decorate must be callable or None"):
        callbacks(misplaced=print, decorate=3)
    assert callbacks(misplaced=None) == {"misplaced": None}
