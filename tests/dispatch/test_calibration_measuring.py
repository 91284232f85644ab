"""Measuring: in turns, in processes of their own, bounded in time, and losing nobody's work."""

import os
import signal

import pytest

from backendcfg.dispatch import measuring, tuning
from backendcfg.dispatch.measuring import Process
from backendcfg.dispatch.tuning import Case, ContenderLostError, measure
from backendcfg.transact.compiled import Compiled

CASES = (Case("dgemm", 4, 4, 4), Case("dgemm", 8, 8, 8), Case("dgemm", 16, 16, 16))


class Fake:
    """A contender with given times, which notes when it is asked."""

    def __init__(self, name, seconds, journal, *, serial=False, dies_after=None):
        self.name, self.seconds, self.journal = name, seconds, journal
        self.serial, self.dies_after = serial, dies_after

    def take(self, case):
        if self.dies_after is not None and len(self.journal) >= self.dies_after:
            raise ContenderLostError("its process ended with signal 11")
        self.journal.append((self.name, case.m))
        seconds = self.seconds
        return seconds(case) if callable(seconds) else seconds


class Clock:
    """Each look takes a second."""

    def __init__(self):
        self.now = -1.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_contenders_take_turns_and_every_size_comes_before_the_second_turn():
    journal = []
    outcome = measure([Fake("a", 2.0, journal), Fake("b", 1.0, journal)], 1e9, measured=CASES)
    first = [("a", 4), ("b", 4), ("a", 8), ("b", 8), ("a", 16), ("b", 16)]
    assert journal == first * tuning.TURNS
    assert outcome.complete
    assert outcome.times["dgemm"].keys() == {6, 9, 12}
    assert outcome.times["dgemm"][6]["b"].seconds == 1.0
    assert outcome.times["dgemm"][6]["b"].turns == tuning.TURNS


def test_what_is_kept_is_the_median_and_how_turns_differ():
    seconds = iter((1.0, 9.0, 1.0, 1.2, 0.8, 1.0, 1.0))
    outcome = measure([Fake("a", lambda case: next(seconds), [])], 1e9, measured=CASES[:1])
    measured = outcome.times["dgemm"][6]["a"]
    assert (measured.seconds, measured.turns) == (1.0, 7)
    assert measured.spread == pytest.approx(0.0, abs=1e-9)
    assert outcome.noise == measured.spread


def test_when_time_is_up_what_was_measured_is_kept():
    journal = []
    outcome = measure([Fake("a", 1.0, journal)], 4.5, measured=CASES, clock=Clock())
    assert not outcome.complete
    assert [size for _, size in journal] == [4, 8, 16, 4]
    assert outcome.times["dgemm"][6]["a"].turns == 2
    assert outcome.times["dgemm"][6]["a"].spread == 0.25  # two turns say little of noise


def test_a_serial_one_that_is_hopeless_is_not_asked_for_larger_sizes():
    journal = []
    slow = Fake("slow", lambda case: case.m * 1.0, journal, serial=True)
    quick = Fake("quick", lambda case: 1.5, journal)
    outcome = measure([slow, quick], 1e9, measured=CASES)
    assert {size for name, size in journal if name == "slow"} == {4, 8}
    assert set(outcome.times["dgemm"][12]) == {"quick"}
    threaded = Fake("slow", lambda case: case.m * 1.0, journal)
    outcome = measure([threaded, quick], 1e9, measured=CASES)
    assert set(outcome.times["dgemm"][12]) == {"slow", "quick"}


def test_one_that_dies_is_left_out_with_the_reason():
    outcome = measure([Fake("a", 1.0, []), Fake("b", 1.0, [], dies_after=2)], 1e9, measured=CASES)
    assert outcome.lost == {"b": "its process ended with signal 11"}
    assert all(set(row) == {"a"} for row in outcome.times["dgemm"].values())


def test_one_that_has_no_such_operation_is_passed_over():
    linear = Case("dgetrf", 64, 64, 64)
    some = Fake("some", lambda case: None if case == linear else 1.0, [])
    outcome = measure([some, Fake("all", 2.0, [])], 1e9, measured=(*CASES, linear))
    assert outcome.lost == {}
    assert set(outcome.times["dgetrf"][18]) == {"all"}
    assert set(outcome.times["dgemm"][6]) == {"some", "all"}


def test_factorisations_are_measured_in_the_first_turns_alone():
    journal = []
    linear = Case("dgetrf", 64, 64, 64)
    outcome = measure([Fake("a", 1.0, journal)], 1e9, measured=(CASES[0], linear))
    assert outcome.complete
    assert [size for _, size in journal] == [4, 64] * tuning.LINEAR_TURNS + [4] * 4
    assert outcome.times["dgetrf"][18]["a"].turns == tuning.LINEAR_TURNS


def test_progress_never_goes_back_and_ends_at_one():
    told = []
    measure(
        [Fake("a", 1.0, [])],
        1e9,
        measured=CASES,
        progress=lambda done, what: told.append((done, what)),
    )
    assert told[-1] == (1.0, "")
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[0] == (pytest.approx(0.0), "dgemm")


def test_an_interrupt_goes_through():
    def interrupted(case):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure([Fake("a", interrupted, [])], 1e9, measured=CASES)


def plan(path):
    library = {"provider": "blis", "path": path, "owner": "system", "interface": "lp64"}
    return Compiled("p", "none", {}, order=("blis",), libraries=(library,))


def test_a_library_is_measured_in_a_process_of_its_own(fake):
    path = fake("lp64", "measured")
    process = Process("blis", plan(path), os.environ, 1)
    try:
        assert (process.path, process.serial) == (path, False)
        assert process.take(Case("dgemm", 4, 4, 4)) > 0
        assert process.take(Case("cgemv", 16, 1, 16)) > 0
        assert process.take(Case("dgetrf", 64, 64, 64)) is None  # it has no LAPACK
    finally:
        process.close()
    with pytest.raises(ContenderLostError, match="its process ended with signal 9"):
        process.take(CASES[0])


def test_our_own_code_is_measured_under_one_of_its_two_names():
    taken = {}
    for name in ("reference", "native"):
        process = Process(name, Compiled("p", "none", {}, order=(name,)), os.environ, 1)
        try:
            for operation in ("sgetrf", "dpotrf", "cgeqrf", "zheevd", "sgesdd"):
                taken[name, operation] = process.take(Case(operation, 64, 64, 64))
        finally:
            process.close()
    assert {name for (name, _), seconds in taken.items() if seconds} == {"reference"}
    assert sum(seconds is None for seconds in taken.values()) == 5


def test_a_library_that_prints_does_not_disturb_the_answers(fake):
    process = Process("blis", plan(fake("talkative", "measured")), os.environ, 1)
    process.close()
    assert process.path == fake("talkative", "measured")


def test_a_library_that_cannot_serve_is_told_with_its_reason(fake):
    path = fake("without_symbol", "measured")
    with pytest.raises(ContenderLostError) as caught:
        Process("blis", plan(path), os.environ, 1)
    assert str(caught.value) == f"{path} has no symbol cblas_zgemv"


def test_a_process_that_does_not_answer_is_given_up(fake, monkeypatch):
    process = Process("blis", plan(fake("lp64", "measured")), os.environ, 1)
    monkeypatch.setattr(measuring, "PATIENCE", 0.0)
    try:
        with pytest.raises(ContenderLostError, match="its process did not answer within 0 s"):
            process.take(CASES[0])
    finally:
        process.close()


def test_a_process_that_is_killed_is_lost_and_says_how(fake):
    process = Process("blis", plan(fake("lp64", "measured")), os.environ, 1)
    try:
        os.kill(process._child.process.pid, signal.SIGTERM)
        with pytest.raises(ContenderLostError, match="its process ended with signal 15"):
            process.take(CASES[0])
    finally:
        process.close()
