"""Locks on the command line: `prove --output` and `--against`, `run --locked` and `--drift`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from proven_runs import PRESENT, changed, locked

from backendcfg.audit.evidence import lock
from backendcfg.cli import locking

pytestmark = pytest.mark.usefixtures("idle")

PROGRAM = "import numpy as np; np.save('out.npy', np.ones(3)); print('loss', 0.25)"
RUN = ("--", sys.executable, "-c", PROGRAM)
EQUAL = "equal     2 runs under mine printed the same text and 1 number"


@pytest.fixture(name="here")
def _here(monkeypatch):
    """Let be found what a test says, at first all that `locked()` has."""

    def here(found):
        monkeypatch.setattr(locking, "_present", lambda plan, name: found)

    here(PRESENT)
    return here


@pytest.fixture(name="lock_file")
def _lock_file(project):
    lock.write(locked(), "run.lock")
    return project / "run.lock"


@pytest.mark.slow
def test_a_proven_program_starts_silently_where_all_is_as_locked(project, process):
    proven = process("prove", "mine", "--runs", "2", "-o", "run.lock", *RUN)
    assert (proven.code, proven.err) == (0, "")
    assert proven.out.splitlines()[0] == f"{EQUAL}, and wrote the same 1 file"
    assert proven.out.splitlines()[-1] == "lock      run.lock was written"
    written = (project / "run.lock").read_text()

    # No path is in it.
    assert str(project) not in written
    assert sys.prefix not in written
    result = process("run", "--locked", "run.lock", *RUN)
    assert (result.code, result.out, result.err) == (0, "loss 0.25\n", "")

    words = ("--locked", "run.lock", "--drift", "warn", "--set", "python.hash_seed=1", *RUN)
    warned = process("run", *words)
    assert (warned.code, warned.out) == (0, "loss 0.25\n")
    head, first, *_ = warned.err.splitlines()
    assert head.startswith("locked: run.lock does not fit what is here: ")
    assert first == "  profile.flags.python.hash_seed: 0 (locked) -> 1"


def test_a_lock_says_what_every_third_run_had_otherwise(project, call, here):
    words = ("--runs", "3", "--also", "threads=2", "-o", "run.lock", "--", "echo", "loss 0.25")
    assert call("prove", "mine", *words).code == 0
    assert lock.read("run.lock").results.also == {"threads": 2}
    result = call("--json", "prove", "mine", *words)
    assert (result.code, json.loads(result.out)["also"]) == (0, {"threads": 2})


@pytest.mark.slow
def test_where_runs_differ_nothing_is_written(project, call, here):
    words = ("--", sys.executable, "-c", "import time; print('t', time.time_ns())")
    result = call("prove", "mine", "--runs", "2", "-o", "run.lock", *words)
    assert result.code == 1
    assert result.out.splitlines()[-1] == (
        "lock      run.lock was not written, because runs differ"
    )
    assert not (project / "run.lock").exists()
    result = call("--json", "prove", "mine", "--runs", "2", "-o", "run.lock", *words)
    assert (result.code, json.loads(result.out)["lock"]) == (1, None)


def test_a_proof_against_a_lock_tells_results_and_what_drifted(project, call, here):
    words = ("--", "echo", "loss 0.25")
    assert call("prove", "mine", "--runs", "2", "-o", "run.lock", *words).code == 0
    here(changed(PRESENT, "machine/usable", 4))
    result = call("prove", "mine", "--runs", "2", "--against", "run.lock", *words)
    assert result.code == 0
    assert result.out.splitlines()[-2:] == [
        "against   results are those of run.lock",
        "drift     machine.usable: 8 (locked) -> 4",
    ]
    other = ("--", "echo", "loss 0.26")
    result = call("prove", "mine", "--runs", "2", "--against", "run.lock", *other)
    assert result.code == 1
    assert result.out.splitlines()[-3:] == [
        "against   results are not those of run.lock",
        "          another text was printed",
        "drift     machine.usable: 8 (locked) -> 4",
    ]
    result = call("--json", "prove", "mine", "--runs", "2", "--against", "run.lock", *other)
    assert json.loads(result.out)["against"] == {
        "results": ["another text was printed"],
        "drift": [{"name": "machine.usable", "locked": 8, "here": 4, "where": ""}],
    }


@pytest.mark.slow
def test_an_older_lock_is_replaced_be_it_damaged_and_nothing_else_is(project, call, here):
    words = ("--runs", "2", "-o", "run.lock", "--", "echo", "1")
    path = project / "run.lock"
    for before in ("", locked().to_toml(), f"<<<<<<< HEAD\n{locked().to_toml()}", "lock = 2\n"):
        path.write_text(before)
        assert call("prove", "mine", *words).code == 0
        assert lock.read("run.lock").profile.name == "reproducible"
    path.write_text("print('lock = 1')\n")
    result = call("prove", "mine", *words)
    assert (result.code, result.err) == (
        2,
        (
            "error[usage]: run.lock is there already, and is no lock\n"
            "  state: the command was not started\n"
            "  help: give another file with `--output`\n"
        ),
    )
    assert path.read_text() == "print('lock = 1')\n"


def test_a_proof_is_told_even_where_its_lock_cannot_be_written(project, call, here, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lock.disk, "write_whole", full)
    result = call("prove", "mine", "--runs", "2", "-o", "run.lock", "--", "echo", "1")
    assert (result.code, result.out.splitlines()[0]) == (1, EQUAL)
    assert result.out.splitlines()[-1] == (
        "lock      cannot write run.lock: No space left on device"
    )


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("profiles", "profiles is a folder"),
        ("gone/run.lock", "gone/run.lock cannot be written: there is no folder gone"),
        ("pipe", "pipe is there already, and is no lock"),
    ],
)
def test_a_lock_that_could_not_be_written_is_refused_before_the_runs(file, why, project, call):
    os.mkfifo("pipe")
    result = call("prove", "mine", "-o", file, "--", "touch", "ran")
    assert (result.code, result.err.splitlines()[0]) == (2, f"error[usage]: {why}")
    assert not (project / "ran").exists()


def test_a_lock_to_compare_with_that_cannot_be_read_is_refused_before_the_runs(project, call):
    result = call("prove", "mine", "--against", "gone.lock", "--", "touch", "ran")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error[unreadable-file]: cannot read gone.lock: no such file or directory",
    )
    assert not (project / "ran").exists()


def test_without_a_profile_there_is_nothing_to_lock(project, call):
    result = call("prove", "nothing", "-o", "run.lock", "--", "true")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error[usage]: a lock is of runs under a profile, not under `nothing`",
    )


def test_a_link_to_a_lock_is_kept(project, call, here):
    os.mkdir("locks")
    os.symlink("locks/run.lock", "run.lock")
    assert call("prove", "mine", "--runs", "2", "-o", "run.lock", "--", "echo", "1").code == 0
    assert os.readlink("run.lock") == "locks/run.lock"
    assert lock.read("locks/run.lock").results.runs == 2


def test_drift_is_refused_with_every_difference(lock_file, call, here):
    here(changed(changed(PRESENT, "machine/usable", 4), "libraries/numpy/version", "2.4.0"))
    result = call("run", "--locked", "run.lock", "--", "touch", "ran")
    assert (result.code, result.out, result.err) == (
        1,
        "",
        (
            "error[lock-drift]: run.lock does not fit what is here: 2 differences\n"
            "  note: libraries.numpy: 2.3.1 (locked) -> 2.4.0\n"
            "  note: machine.usable: 8 (locked) -> 4\n"
            "  state: the command was not started\n"
            "  help: add `--drift warn` to start it all the same\n"
            "  help: or prove it with what is here: `backendcfg prove reproducible --output"
            " run.lock -- touch ran`\n"
        ),
    )
    assert not Path("ran").exists()


def test_of_very_many_differences_the_first_are_named(lock_file, call, here):
    here(changed(PRESENT, "python/packages", {f"p{n:02}": "1" for n in range(40)}))
    result = call("run", "--locked", "run.lock", "--", "true")
    notes = [line for line in result.err.splitlines() if line.startswith("  note: ")]
    assert len(notes) == locking.MOST_SHOWN + 1
    assert notes[-1] == "  note: and 22 more"


def test_with_warn_the_program_starts_with_its_status_passed_on(lock_file, call, here):
    here(changed(PRESENT, "machine/usable", 4))
    words = ("--locked", "run.lock", "--drift", "warn", "--guard", "--", "false")
    result = call("run", *words)
    assert (result.code, result.err.splitlines()[:2]) == (
        1,
        [
            "locked: run.lock does not fit what is here: 1 difference",
            "  machine.usable: 8 (locked) -> 4",
        ],
    )


def test_the_profile_is_that_of_the_lock_unless_one_is_named(lock_file, call, monkeypatch):
    asked = []

    def present(plan, name):
        asked.append((plan.name, name))
        return changed(PRESENT, "profile/name", name)

    monkeypatch.setattr(locking, "_present", present)
    assert call("run", "--locked", "run.lock", "--guard", "--", "true").code == 0
    result = call("run", "mine", "--locked", "run.lock", "--", "true")
    assert result.code == 1
    assert result.err.splitlines()[1] == "  note: profile.name: reproducible (locked) -> mine"
    assert asked == [("reproducible", "reproducible"), ("mine", "mine")]


def test_a_lock_does_not_choose_a_file_to_read_a_profile_from(project, call, here):
    named = changed(locked(), "profile/name", "/tmp/evil.toml")
    lock.write(named, "run.lock")
    result = call("run", "--locked", "run.lock", "--", "true")
    assert (result.code, result.err) == (
        2,
        (
            "error[usage]: run.lock is of a profile in a file, `/tmp/evil.toml`, which is to be"
            " named\n"
            "  state: nothing was changed\n"
            "  help: write `backendcfg run PROFILE --locked FILE -- COMMAND`\n"
        ),
    )


def test_drift_without_a_lock_is_refused(project, call):
    result = call("run", "--drift", "warn", "mine", "--", "true")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error[usage]: `--drift` says what to do about a lock, and there is none",
    )


def test_where_backendcfg_is_turned_off_no_proven_profile_acts(lock_file, call, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    result = call("run", "--locked", "run.lock", "--", "touch", "ran")
    assert (result.code, result.err.splitlines()[:2]) == (
        1,
        [
            "error[lock-drift]: run.lock does not fit what is here: 1 difference",
            "  note: profile.name: reproducible (locked) -> nothing, by BACKENDCFG_DISABLE",
        ],
    )
    assert not Path("ran").exists()


def test_each_instance_is_compared_on_the_processors_that_it_gets(lock_file, call, monkeypatch):
    def present(plan, name):
        return changed(PRESENT, "machine/usable", len(os.sched_getaffinity(0)))

    monkeypatch.setattr(locking, "_present", present)
    cores = ("--instances", "1", "--core-list", "0")
    result = call("run", "--locked", "run.lock", *cores, "--", "touch", "ran")
    assert (result.code, result.err.splitlines()[1]) == (
        1,
        "  note: machine.usable: 8 (locked) -> 1",
    )
    assert not Path("ran").exists()
