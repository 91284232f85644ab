"""A fault at every single step of an apply, and mutants of the journal that this must catch."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import faulty_machine
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg.transact import journal

SOURCE = Path(journal.__file__).read_text()


def test_one_fault_at_any_step_leaves_everything_as_it_was():
    assert faulty_machine.every_single_fault(journal.transact) > 60


def test_two_faults_leave_everything_as_it_was_or_name_what_is_stuck():
    assert faulty_machine.every_pair_of_faults(journal.transact) > 10_000


def test_a_signal_before_any_line_leaves_the_old_state_or_the_new():
    assert faulty_machine.a_signal_at_every_line(journal.transact, {}) > 50
    assert faulty_machine.a_signal_at_every_line(journal.transact, {8: "raise"}) > 80
    assert faulty_machine.a_signal_at_every_line(journal.transact, {8: "half", 10: "lie"}) > 80


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(1, 6),
    st.dictionaries(st.integers(1, 60), st.sampled_from(faulty_machine.FAULTS), max_size=5),
)
def test_any_faults_leave_everything_as_it_was_or_name_what_is_stuck(count, faults):
    faulty_machine.check(journal.transact, count, faults)


# Each is one way to get a transaction wrong.  (what, text, replacement)
MUTANTS = [
    (
        "journal after the write",
        "                done.append(step)\n                step.write()\n",
        "                step.write()\n                done.append(step)\n",
    ),
    (
        "only ordinary errors roll back",
        "        except BaseException as cause:\n            roll_back(",
        "        except Exception as cause:\n            roll_back(",
    ),
    ("no read-back", "        if found != wanted:\n", "        if False:\n"),
    ("undo in forward order", "    waiting = list(done)\n", "    waiting = list(done)[::-1]\n"),
    ("no read-back of the undo", "        if found != self.before:\n", "        if False:\n"),
    (
        "publish before the writes",
        "            for step in foreseen.steps:\n                interrupts.deliver()\n",
        (
            "            publish()\n            for step in foreseen.steps:\n"
            "                interrupts.deliver()\n"
        ),
    ),
    (
        "publish outside the rollback",
        "            interrupts.deliver()\n            publish()\n        except",
        "            interrupts.deliver()\n        except",
    ),
    (
        "the undo stops at the first failure",
        "            waiting.pop().stuck = reason(error)\n            again = False\n",
        "            waiting.pop().stuck = reason(error)\n            break\n",
    ),
    (
        "the undo stops at an interrupt",
        "            late = error\n            if again:\n",
        "            late = error\n            break\n            if again:\n",
    ),
    (
        "an interrupted undo step is not repeated",
        "            if again:\n                waiting.pop().stuck = reason(error)\n",
        "            waiting.pop()\n",
    ),
    (
        "the failing step is not undone",
        "    late = undo(done)\n",
        "    late = undo(done[:-1] if done and not done[-1].written else done)\n",
    ),
    (
        "signals are not held back during the undo",
        "    with Deferral(graver=RollbackIncompleteError) as interrupts:\n",
        "    with NotDeferred() as interrupts:\n",
    ),
    (
        "what is stuck is not reported",
        "    if any(step.stuck for step in done):\n",
        "    if False:\n",
    ),
    (
        "an interrupt is reported as an ordinary failure",
        "    if not isinstance(cause, Exception):\n",
        "    if False:\n",
    ),
    (
        "an interrupt during the undo is forgotten",
        "    if late is not None:\n",
        "    if False:\n",
    ),
    (
        "each switch is read just before it is written",
        "    foreseen = foresee(settings)\n",
        "    foreseen = OneByOne(foresee, settings)\n",
    ),
    (
        "unreadable switches are written all the same",
        (
            "            if obstacle:\n                _refuse_unreadable(setting, obstacle)\n"
            "            outcomes"
        ),
        "            outcomes",
    ),
    (
        "nothing is restored",
        "            switch.write(self.before)\n        except",
        "            pass\n        except",
    ),
]


class NotDeferred:
    """What the journal would be without `Deferral`."""

    def __enter__(self):
        return self

    def deliver(self):
        pass

    def __exit__(self, *_):
        pass


class OneByOne:
    """Steps that read their switch when their turn comes."""

    def __init__(self, foresee, settings):
        self.foresee, self.settings = foresee, settings
        self.outcomes, self.steps = (), self

    def __len__(self):
        return len(self.settings)

    def __iter__(self):
        for setting in self.settings:
            one = self.foresee([setting])
            self.outcomes += one.outcomes
            yield from one.steps


def everything(transact):
    """The suite that every mutant must fail."""
    faulty_machine.every_single_fault(transact)
    faulty_machine.every_pair_of_faults(transact, count=2, reach=18)
    faulty_machine.a_signal_at_every_line(transact, {8: "raise"})


@pytest.mark.parametrize(("what", "text", "replacement"), MUTANTS, ids=[m[0] for m in MUTANTS])
def test_every_mutant_of_the_journal_is_caught(what, text, replacement, monkeypatch):
    assert SOURCE.count(text) == 1, f"the journal no longer has the text that {what!r} replaces"
    mutant = types.ModuleType("backendcfg.transact.mutant")
    mutant.NotDeferred, mutant.OneByOne = NotDeferred, OneByOne
    monkeypatch.setitem(sys.modules, mutant.__name__, mutant)
    exec(compile(SOURCE.replace(text, replacement), "mutant.py", "exec"), mutant.__dict__)
    with pytest.raises((Exception, KeyboardInterrupt, SystemExit)):
        everything(mutant.transact)


def test_the_unchanged_journal_passes_what_the_mutants_fail():
    everything(journal.transact)
