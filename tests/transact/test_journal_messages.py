"""What the journal says: every sentence, whole."""

from __future__ import annotations

import logging
import sys
import threading

import pytest
from faulty_machine import FakeSwitch, Machine

from backendcfg import log
from backendcfg.errors import (
    RollbackIncompleteError,
    RolledBackError,
    TooLateError,
    UnreadableSwitchError,
)
from backendcfg.transact import journal
from backendcfg.transact.switch import Setting


def switch(name, value, **options):
    return FakeSwitch(Machine({}), name, value, **options)


def refusing(name, value, why, *, always=True):
    class Refusing(FakeSwitch):
        def write(self, wanted):
            if always or wanted != value:
                raise OSError(why)
            super().write(wanted)

    return Refusing(Machine({}), name, value)


def nothing():
    pass


def test_a_rolled_back_apply_reads_as_documented():
    magma = refusing(
        "magma.workspace_mib", 256, "cudaMalloc returned 2 (cudaErrorMemoryAllocation)"
    )
    settings = [
        Setting(switch("openblas.threads", 64), 8, "blas.threads"),
        Setting(switch("cublas.math_mode", "default"), "tf32", "precision.tf32"),
        Setting(magma, 4096, "magma.workspace_mib"),
        Setting(switch("four", 1), 2, "four"),
        Setting(switch("five", 1), 2, "five"),
    ]
    with pytest.raises(RolledBackError) as caught:
        journal.transact(settings, nothing, profile="fast", active="base")
    assert caught.value.render() == (
        "error[rolled-back]: applying profile `fast` failed at step 3 of 5; "
        "steps 1 and 2 were undone\n"
        "  note: step 1 `openblas.threads` 64 -> 8: written, then restored to 64\n"
        "  note: step 2 `cublas.math_mode` default -> tf32: written, then restored to default\n"
        "  note: step 3 `magma.workspace_mib` 256 -> 4096: failed: "
        "cudaMalloc returned 2 (cudaErrorMemoryAllocation)\n"
        "  note: steps 4 and 5 were not attempted\n"
        "  state: as before the call; profile `base` is active; "
        "every restored value was read back and matched\n"
        "  help: run `backendcfg plan fast` to see all five steps without applying them"
    )
    assert isinstance(caught.value.__cause__, OSError)


def test_a_clamped_value_is_a_failure_and_is_named():
    threads = switch("openblas[numpy].threads", 8, ceiling=64)
    with pytest.raises(RolledBackError) as caught:
        journal.transact([Setting(threads, 1000, "blas.threads")], nothing)
    assert caught.value.render() == (
        "error[rolled-back]: applying the settings failed at step 1 of 1; "
        "nothing had been written before it\n"
        "  note: step 1 `openblas[numpy].threads` 8 -> 1000: failed: "
        "wrote 1000, read back 64; restored to 8\n"
        "  state: as before the call; every restored value was read back and matched"
    )
    assert threads.value == 8


def test_an_incomplete_rollback_names_what_is_stuck_and_why():
    class OneWay(FakeSwitch):
        def write(self, value):
            if self.value != 1:
                raise OSError("the device is gone")
            self.value = value

    settings = [
        Setting(switch("a", True), False, "a"),
        Setting(OneWay(Machine({}), "b", 1), 2, "b"),
        Setting(refusing("c", 0, "no"), 5, "c"),
    ]
    with pytest.raises(RollbackIncompleteError) as caught:
        journal.transact(settings, nothing, profile="fast", active="base")
    assert caught.value.render() == (
        "error[rollback-incomplete]: applying profile `fast` failed at step 3 of 3, "
        "and `b` could not be restored\n"
        "  note: step 1 `a` true -> false: written, then restored to true\n"
        "  note: step 2 `b` 1 -> 2: written, and not restored: the device is gone\n"
        "  note: step 3 `c` 0 -> 5: failed: no\n"
        "  state: `b` is 2 and should be 1 (the device is gone); "
        "everything else is as before the call\n"
        "  help: run `backendcfg plan fast` to see all three steps without applying them\n"
        "  help: restart the process to be rid of what is stuck"
    )


def test_an_incomplete_rollback_after_ctrl_c_keeps_the_interrupt_as_its_cause():
    def interrupted():
        raise KeyboardInterrupt

    class OneWay(FakeSwitch):
        def write(self, value):
            if self.value == 1:
                self.value = value

    settings = [Setting(OneWay(Machine({}), "b", 1), 2, "b")]
    with pytest.raises(RollbackIncompleteError, match="failed when publishing") as caught:
        journal.transact(settings, interrupted)
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    assert caught.value.state == (
        "`b` is 2 and should be 1 (wrote 1, read back 2); everything else is as before the call"
    )


def test_a_failing_publish_undoes_every_step():
    def publish():
        raise OSError("no memory for the table")

    threads = switch("threads", 8)
    with pytest.raises(RolledBackError) as caught:
        journal.transact([Setting(threads, 4, "threads")], publish, profile="fast")
    assert str(caught.value) == (
        "applying profile `fast` failed when publishing; step 1 was undone"
    )
    assert caught.value.notes == (
        "step 1 `threads` 8 -> 4: written, then restored to 8",
        "the cause: no memory for the table",
    )
    assert threads.value == 8


def test_an_unreadable_switch_is_refused_before_anything_is_written():
    class Unreadable(FakeSwitch):
        def read(self):
            raise RuntimeError("mixing the legacy and the new API")

    first = switch("first", 1)
    broken = Unreadable(Machine({}), "torch.fp32_precision", "none")
    with pytest.raises(UnreadableSwitchError) as caught:
        journal.transact(
            [Setting(first, 2, "a"), Setting(broken, "ieee", "fp32_precision")], nothing
        )
    assert caught.value.render() == (
        "error[unreadable-switch]: cannot read `torch.fp32_precision`, which `fp32_precision` sets: "
        "mixing the legacy and the new API\n"
        "  note: what cannot be read could not be put back, so nothing is written\n"
        "  state: nothing was changed\n"
        "  help: remove `fp32_precision` from the profile, or repair the library behind it"
    )
    assert first.machine.log == [("read", "first", 1)]


def test_an_irreversible_switch_is_marked_and_written_last():
    machine = Machine({})
    sentinel = FakeSwitch(machine, "torch.fp32_precision", "none", reversible=False)
    plain = FakeSwitch(machine, "threads", 8)
    settings = [Setting(sentinel, "ieee", "fp32_precision"), Setting(plain, 4, "threads")]
    outcomes = journal.transact(settings, machine.publish)
    assert [(o.switch, o.state, o.because) for o in outcomes] == [
        ("torch.fp32_precision", "irreversible", "the value it had cannot be written back"),
        ("threads", "set", ""),
    ]
    assert [entry for entry in machine.log if entry[0] == "write"] == [
        ("write", "threads", 4),
        ("write", "torch.fp32_precision", "ieee"),
    ]


def test_what_is_too_late_is_pending_and_not_written():
    late = switch("OMP_NUM_THREADS", "8", late="libgomp is loaded")
    same = switch("threads", 4)
    settings = [
        Setting(late, "4", "threads.count", remedy="backendcfg run fast -- python app.py"),
        Setting(same, 4, "threads.count"),
    ]
    outcomes = journal.transact(settings, nothing)
    assert outcomes == journal.foresee(settings).outcomes
    assert [(o.state, o.before, o.because, o.remedy) for o in outcomes] == [
        ("pending", "8", "libgomp is loaded", "backendcfg run fast -- python app.py"),
        ("unchanged", 4, "", ""),
    ]
    assert not [e for k in (late, same) for e in k.machine.log if e[0] == "write"]


def test_what_is_too_late_and_already_as_wanted_is_unchanged():
    late = switch("OMP_NUM_THREADS", "4", late="libgomp is loaded")
    (outcome,) = journal.transact([Setting(late, "4", "threads.count")], nothing, strict=True)
    assert (outcome.state, outcome.because) == ("unchanged", "")


def test_strict_refuses_what_is_too_late_before_anything_is_written():
    late = switch("PYTHONHASHSEED", None, late="the interpreter has started")
    other = switch("threads", 8)
    settings = [
        Setting(other, 4, "threads"),
        Setting(late, "0", "seed", remedy="backendcfg run fast -- CMD"),
    ]
    with pytest.raises(TooLateError) as caught:
        journal.transact(settings, nothing, strict=True)
    assert caught.value.render() == (
        "error[too-late]: `PYTHONHASHSEED` can no longer be set in this process\n"
        "  note: `PYTHONHASHSEED`: the interpreter has started\n"
        "  state: nothing was changed\n"
        "  help: run `backendcfg run fast -- CMD`"
    )
    assert other.value == 8


def test_the_journal_works_outside_the_main_thread():
    threads = switch("threads", 8)
    outcomes = []

    def work():
        outcomes.extend(journal.transact([Setting(threads, 4, "threads")], nothing))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [outcome.state for outcome in outcomes] == ["set"]
    assert threads.value == 4


def test_steps_are_logged_to_the_backendcfg_logger(caplog):
    with caplog.at_level(logging.DEBUG, logger="backendcfg"):
        journal.transact([Setting(switch("threads", 8), 4, "threads")], nothing, profile="fast")
    assert caplog.messages == ["threads: 8 -> 4", "applied fast: 1 of 1 written"]


def test_nothing_is_logged_when_the_program_never_imported_logging(monkeypatch):
    monkeypatch.delitem(sys.modules, "logging")
    log.debug("one")
    log.info("two")
    assert "logging" not in sys.modules
