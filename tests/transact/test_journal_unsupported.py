"""What a library cannot take at all is left as it is, and said."""

from __future__ import annotations

import pytest
from faulty_machine import FakeSwitch, Machine

from backendcfg.errors import UnreadableSwitchError
from backendcfg.transact import journal
from backendcfg.transact.outcome import Report
from backendcfg.transact.switch import Setting, told

WHY = "this build of PyTorch has no MAGMA"


class Refusing(FakeSwitch):
    """A switch of a build that cannot take what a profile wants."""

    def unsupported(self):
        return WHY


def switch(value, **options):
    return Refusing(Machine({}), "torch.backends.cuda.preferred_linalg_library", value, **options)


def wants(switch, value):
    return Setting(switch, value, "cuda.preferred_linalg_library")


def test_what_is_unsupported_is_not_written_and_the_rest_is():
    magma, threads = switch("default"), FakeSwitch(Machine({}), "threads", 8)
    published = []
    settings = [wants(magma, "magma"), Setting(threads, 4, "threads.count")]
    foreseen = journal.foresee(settings).outcomes
    outcomes = journal.transact(settings, lambda: published.append(True), strict=True)
    assert outcomes == foreseen
    assert [(one.state, one.before, one.because) for one in outcomes] == [
        ("unsupported", "default", WHY),
        ("set", 8, ""),
    ]
    # Read when it was foreseen, and when it was applied.
    assert [operation for operation, *_ in magma.machine.log] == ["read", "read"]
    assert threads.value == 4
    assert published == [True]


def test_what_is_unsupported_and_already_as_wanted_is_unchanged():
    (outcome,) = journal.transact([wants(switch("magma"), "magma")], lambda: None)
    assert (outcome.state, outcome.because) == ("unchanged", "")


def test_unsupported_is_said_before_too_late():
    (outcome,) = journal.transact([wants(switch("default", late="in use"), "magma")], lambda: None)
    assert (outcome.state, outcome.because, outcome.remedy) == ("unsupported", WHY, "")


def test_a_switch_that_the_build_does_not_have_need_not_be_readable():
    class Missing(Refusing):
        def read(self):
            raise AttributeError("no attribute 'preferred_linalg_library'")

    switch = Missing(Machine({}), "torch.backends.cuda.preferred_linalg_library", None)
    (outcome,) = journal.transact([wants(switch, "magma")], lambda: None)
    assert (outcome.state, outcome.before) == ("unsupported", None)


def test_a_switch_that_cannot_say_whether_it_is_supported_is_refused():
    class Broken(Refusing):
        def unsupported(self):
            raise RuntimeError("half imported")

    switch = Broken(Machine({}), "torch.switch", 1)
    with pytest.raises(UnreadableSwitchError) as caught:
        journal.transact([Setting(switch, 2, "a.flag")], lambda: None)
    assert str(caught.value) == "cannot read `torch.switch`, which `a.flag` sets: half imported"


def test_the_report_of_an_apply_says_why():
    report = Report("fast", outcomes=journal.transact([wants(switch("default"), "magma")], list))
    assert repr(report) == (
        "fast (no tier): 1 unsupported\n"
        f"  unsupported torch.backends.cuda.preferred_linalg_library: {WHY}"
    )


def test_a_switch_without_the_optional_methods_has_nothing_to_say():
    plain = FakeSwitch(Machine({}), "threads", 8)
    assert [told(plain, what) for what in ("unsupported", "overridden", "writer")] == ["", "", ""]
    assert told(switch(1), "unsupported") == WHY
