"""`backendcfg tune`: what is measured is stored whole or not at all, shown, and used by nobody who
has a tier."""

from __future__ import annotations

import collections
import json
import os
import re

import pytest

from backendcfg.dispatch import calibration, measuring
from backendcfg.dispatch.tuning import TURNS, ContenderLostError, cases
from backendcfg.probe.limits import read_limits


class Fake:
    """Stands for the process of one provider: its times are given, and it notes its end."""

    times: dict[str, float] = {}
    absent: dict[str, str] = {}
    raises: BaseException | None = None
    made: list[Fake] = []

    def __init__(self, name, compiled, environment, threads):
        if name in self.absent:
            raise ContenderLostError(self.absent[name])
        files = [one["path"] for one in compiled.libraries if one["provider"] == name]
        self.name, self.path, self.serial = name, files[0] if files else "", name == "reference"
        self.threads, self.environment, self.closed = threads, environment, False
        self.made.append(self)

    def take(self, case):
        if self.raises is not None:
            raise self.raises
        return self.times.get(self.name, 1.0) * 1e-6 * case.m

    def close(self):
        self.closed = True


@pytest.fixture(name="fake")
def _fake(monkeypatch, tmp_path):
    """Replaces the processes by given times."""
    monkeypatch.setenv("BACKENDCFG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "Process", Fake)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    for name, value in {"times": {}, "absent": {}, "raises": None, "made": []}.items():
        monkeypatch.setattr(Fake, name, value)
    return Fake


@pytest.fixture(name="usable")
def _usable():
    return read_limits().usable


def test_it_measures_stores_and_shows(call, project, fake, usable):
    fake.times = dict.fromkeys(("scipy-openblas", "mkl", "blis", "native"), 3.0)
    fake.times |= {"openblas": 2.0, "reference": 1.0}
    result = call("tune")
    assert (result.code, result.err) == (0, "")
    table = calibration.read(usable)
    assert table.times["dgemm"][6]["openblas"].seconds == pytest.approx(8e-6)
    assert table.times["dgemm"][6]["openblas"].turns == TURNS
    assert table.libraries["reference"].pool == ""
    assert table.libraries["openblas"].pool == "openblas"
    assert len([1 for rows in table.times.values() for _ in rows]) == len(cases())
    lines = result.out.splitlines()
    assert lines[0].startswith("stored    ")
    assert re.search(
        r"^dgemm +n = 4 +reference +reference +reference 4 us, .*openblas 8 us",
        result.out,
        re.MULTILINE,
    )
    assert re.search(
        r"^dgetrf +n = 64 +reference +reference +reference 64 us, .*openblas 128 us",
        result.out,
        re.MULTILINE,
    )
    assert "used      yes, where no profile or one without a tier is in force" in lines
    assert all(one.closed and one.threads == usable for one in fake.made)


def test_json_is_one_document(call, project, fake):
    document = json.loads(call("tune", "--json").out)
    assert document["complete"] is True
    assert document["unused"] == ""
    assert os.path.exists(document["path"])
    assert document["table"]["libraries"]["openblas"]["version"]
    assert document["fastest"]["sgemm"]["6"] == "openblas"
    assert document["chosen"]["sgemm"]["6"] == "openblas"
    assert document["noise"] == 0.0


def test_the_threads_and_variables_are_those_of_the_profile(call, project, fake, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    (project / "profiles" / "one.toml").write_text(
        'schema = 1\n[threads]\ncount = 1\n[blas]\nlibrary.forbid = ["scipy-openblas"]\n'
    )
    assert call("tune", "one").code == 0
    assert {one.threads for one in fake.made} == {1}
    assert "scipy-openblas" not in {one.name for one in fake.made}
    table = calibration.read(1)
    assert (table.threads, table.environment) == (1, {"OPENBLAS_CORETYPE": "Haswell"})


def test_what_the_profile_sets_at_start_is_no_reason_not_to_use_it(
    call, project, fake, monkeypatch
):
    # `fast` sets OPENBLAS_THREAD_TIMEOUT in the processes that start under it, not in this one.
    used = "used      yes, where no profile or one without a tier is in force"
    assert used in call("tune", "fast").out.splitlines()
    assert used in call("tune", "fast", "--show").out.splitlines()
    monkeypatch.setenv("BACKENDCFG_PROFILE", "fast")
    assert json.loads(call("status", "--json").out)["calibration"]["used"] is True
    monkeypatch.setenv("BACKENDCFG_PROFILE", "tf32-off")
    assert json.loads(call("status", "--json").out)["calibration"]["unused"] == (
        "OPENBLAS_THREAD_TIMEOUT was 14 when it was made, and is not set now"
    )


def test_under_a_profile_with_a_tier_it_says_that_it_is_not_used(call, project, fake):
    lines = call("tune", "reproducible").out.splitlines()
    assert (
        "used      no: profile `reproducible` has tier `run-to-run`: speed decides no bits" in lines
    )


def test_an_interrupt_keeps_what_was_stored(call, project, fake, usable):
    assert call("tune").code == 0
    before = calibration.read(usable)
    fake.made, fake.raises = [], KeyboardInterrupt()
    result = call("tune")
    assert result.code == 130
    assert "the calibration of before, if any, is as it was" in result.err
    assert calibration.read(usable) == before
    assert fake.made
    assert all(one.closed for one in fake.made)


def test_one_that_cannot_be_opened_is_named_and_the_others_are_measured(call, project, fake):
    fake.absent = {"openblas": "tried in a child process, it ended that process by SIGILL"}
    result = call("tune")
    assert result.code == 0
    assert result.err == (
        "not measured: openblas: tried in a child process, it ended that process by SIGILL\n"
    )


def test_when_nobody_can_be_measured_nothing_is_stored(call, project, fake, usable):
    fake.absent = dict.fromkeys(("openblas", "scipy-openblas", "mkl", "blis", "reference"), "no")
    fake.absent["native"] = "no"
    result = call("tune")
    assert result.code == 3
    assert result.err.splitlines()[0] == "error[missing-library]: there is no library to measure"
    assert "state: the calibration is as it was before" in result.err
    assert isinstance(calibration.read(usable), str)


def test_the_fastest_is_the_one_that_was_measured_whoever_serves(call, project, fake):
    fake.times = dict.fromkeys(("scipy-openblas", "mkl", "blis", "reference"), 3.0)
    fake.times |= {"native": 2.45, "openblas": 2.5}  # a lead within the noise counts for nothing
    result = call("tune")
    assert re.search(
        r"^dgemm +n = 4 +native +openblas +native 9.8 us, openblas 10 us", result.out, re.MULTILINE
    )
    document = json.loads(call("tune", "--show", "--json").out)
    assert document["fastest"]["dgemm"]["6"] == "native"
    assert document["chosen"]["dgemm"]["6"] == "openblas"


def test_turns_that_differ_too_much_are_not_stored(call, project, fake, usable, monkeypatch):
    assert call("tune").code == 0
    before = calibration.read(usable)
    turns = collections.Counter()

    def uneven(self, case):
        turns[self.name] += 1
        return 1e-6 * (1 + turns[self.name] % 5)

    monkeypatch.setattr(Fake, "take", uneven)
    result = call("tune")
    assert (result.code, result.err) == (1, "")
    shown = " ".join(result.out.split())
    assert "stored " not in shown.partition("used ")[0]
    assert re.search(
        r"used no: turns differ by \d+ %, more than 20 %, so it is not stored; measure again when "
        r"no other program computes",
        shown,
    )
    assert "processes that start from now on use it" not in shown
    assert calibration.read(usable) == before
    assert json.loads(call("tune", "--json").out)["path"] == ""
    assert call("tune", "--noise", "1000").code == 0
    assert calibration.read(usable) != before


def test_a_machine_that_is_busy_is_told(call, project, fake, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 1.0, 1.0))
    assert re.fullmatch(
        r"1000 programs were computing on \d+ processors: measure again when no other program "
        r"computes\n",
        call("tune").err,
    )


def test_show_measures_nothing(call, project, fake):
    assert call("tune", "--show").out == (
        "stored    nothing to use: there is none: `backendcfg tune` makes one\n"
    )
    assert json.loads(call("tune", "--show", "--json").out) == {
        "profile": "default",
        "table": None,
        "unused": "there is none: `backendcfg tune` makes one",
    }
    call("tune")
    fake.made = []
    shown = call("tune", "--show")
    assert fake.made == []
    assert shown.out.splitlines()[0].startswith("stored    ")
    assert json.loads(call("tune", "--show", "--json").out)["fastest"]


def test_status_and_explain_say_what_becomes_of_it(call, project, fake, monkeypatch):
    (project / "backendcfg.toml").write_text("")
    assert call("status").out.splitlines()[1].startswith("next")
    assert json.loads(call("status", "--json").out)["calibration"] == {
        "used": False,
        "measured": "",
        "unused": "there is none: `backendcfg tune` makes one",
    }
    call("tune")
    (line,) = (line for line in call("status").out.splitlines() if line.startswith("speed"))
    assert re.fullmatch(r"speed     measured \d{4}-\d\d-\d\d, in use", line)
    lines = call("explain", "blas.library").out.splitlines()
    assert line in lines
    monkeypatch.setenv("BACKENDCFG_PROFILE", "reproducible")
    for words in (("status",), ("explain", "ops.calibration")):
        said = " ".join(call(*words).out.split())
        assert "not used: profile `reproducible` has tier `run-to-run`" in said
    assert "speed" not in call("explain", "log.level").out


@pytest.mark.parametrize("seconds", ["0", "-1", "many", "100000"])
def test_a_wrong_time_is_refused(call, project, seconds):
    result = call("tune", "--seconds", seconds)
    assert result.code == 2
    assert result.err.startswith("error[usage]: ")


def test_a_cache_that_cannot_be_written_is_an_error_and_leaves_all_as_it_was(
    call, project, fake, tmp_path
):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "calibration").write_text("in the way")
    result = call("tune")
    assert result.code == 3
    assert "state: the calibration is as it was before" in result.err
    assert "help: set BACKENDCFG_CACHE_DIR to a directory that is yours" in result.err
    assert fake.made == []  # said before anything was measured


@pytest.mark.exhaustive
def test_real_processes_measure_within_the_time(process, project, tmp_path):
    variables = {
        "BACKENDCFG_CACHE_DIR": str(tmp_path / "cache"),
        "BACKENDCFG_BLAS_LIBRARY": '{ require = "reference" }',
        "BACKENDCFG_THREADS_COUNT": "1",
    }
    result = process("tune", "--seconds", "1", "--noise", "1000", "--json", variables=variables)
    assert result.code == 0
    document = json.loads(result.out)
    assert set(document["table"]["libraries"]) == {"reference"}
    (operation,) = list(document["table"]["times"])[:1]
    assert document["table"]["times"][operation]["6"]["reference"]["seconds"] > 0
    assert document["unused"] == "`blas.library` names `reference` alone"
    assert os.listdir(tmp_path / "cache" / "calibration") == [os.path.basename(document["path"])]
