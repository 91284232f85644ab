"""`backendcfg tune -- CMD`: what is measured, said and written, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from backendcfg.audit.choices import candidates
from backendcfg.audit.choices.candidates import Candidate
from backendcfg.audit.choices.turns import Program
from backendcfg.audit.evidence.runs import Run
from backendcfg.cli import choosing
from backendcfg.errors import CommandFailedError

ONE = Candidate("threads.count", 1, "Why one.")
FEW = (
    ONE,
    Candidate("memory.keep_freed", 1000000, "Why kept."),
    Candidate("memory.keep_freed", 0, "Why not kept.", takes_back=True),
)
TRAIN = ("--", "python", "train.py")


@pytest.fixture(name="two")
def _two(project, monkeypatch):
    """A profile of two threads, over which there are two choices and one that is none."""
    (project / "profiles" / "two.toml").write_text("schema = 1\n[threads]\ncount = 2\n")
    monkeypatch.setattr(candidates, "candidates", lambda cores: iter(FEW))
    return project


class Fake:
    """Runs take given times, by the name of what they are under, and print given texts."""

    def __init__(self):
        self.times, self.texts, self.now, self.sides = {}, {}, 0.0, []

    def start(self, command, side, *, seconds):
        self.sides.append(side)
        took = self.times.get(side.name, 2.0)
        if isinstance(took, BaseException):
            raise took
        self.now += took
        return Run(took, took, 1 << 20, self.texts.get(side.name, "loss 0.5\n"))

    def program(self, command, side, seconds):
        return Program(command, side, seconds, start=self.start, clock=lambda: self.now, prepare=id)


@pytest.fixture(name="fake")
def _fake(two, monkeypatch):
    fake = Fake()
    monkeypatch.setattr(choosing, "Program", fake.program)
    return fake


BOTH = "two with threads.count = 1", "two with memory.keep_freed = 1000000"


def test_it_says_what_each_choice_is_worth_and_what_all_that_are_faster_are_together(call, fake):
    fake.times = {"nothing": 4.0, BOTH[0]: 1.0, BOTH[1]: 1.6, "two with all that is faster": 0.8}
    result = call("tune", "two", *TRAIN)
    assert result.code == 0
    assert result.err == "2 choices, 3 rounds: about 15 runs of 2 s, 30 s\n"
    assert result.out == (
        "measured  python train.py\n"
        "          3 rounds of 5 runs, the first of which took 2 s\n"
        "base      two, as named\n"
        "noise     a factor of 1.02, as between two runs of two in one round\n"
        "\n"
        "choice                       speed  interval      processor  memory  prints          \n"
        "threads.count = 1            2.00   2.00 to 2.00  0.50       1.00    the same  faster\n"
        "memory.keep_freed = 1000000  1.25   1.25 to 1.25  0.80       1.00    the same  faster\n"
        "nothing: no profile          0.50   0.50 to 0.50  2.00       1.00    the same  slower\n"
        "together                     2.50   2.50 to 2.50  0.40       1.00    the same  faster\n"
        "\n"
        "left out  memory.keep_freed = 0: as under two\n"
        "best      together, as a profile:\n"
        "          # 2.50 times the speed of two, as measured here with\n"
        "          #   python train.py\n"
        "          schema = 1\n"
        '          extends = "two"\n'
        "          # Why one.\n"
        "          threads.count = 1\n"
        "          # Why kept.\n"
        "          memory.keep_freed = 1000000\n"
    ).replace("prints          \n", "prints\n")


def test_json_has_every_run(call, fake):
    fake.times = {BOTH[0]: 1.0}
    fake.texts = {"nothing": "loss 0.25\n"}
    document = json.loads(call("tune", "two", "--rounds", "3", "--json", *TRAIN).out)
    assert document["command"] == ["python", "train.py"]
    assert document["base"] == {"profile": "two", "source": "as named"}
    assert (document["rounds"], document["first"], document["noise"]) == (3, 2.0, 1.02)
    assert [[one["seconds"] for one in pair] for pair in document["runs"]] == [[2.0, 2.0]] * 3
    nothing, one, kept = document["choices"]
    assert [each["seconds"] for each in one["runs"]] == [1.0] * 3
    assert (one["flags"], one["verdict"], one["interval"]) == (
        {"threads.count": 1},
        "faster",
        [2.0, 2.0],
    )
    assert (kept["verdict"], kept["prints"], kept["prints_the_same"]) == ("noise", "the same", True)
    assert nothing["prints"] == "numbers apart by 5e-01"
    assert nothing["runs"][0]["printed"] != one["runs"][0]["printed"]
    assert document["together"] is None
    assert document["flags"] == {"threads.count": 1}
    assert document["left_out"] == {"memory.keep_freed = 0": "as under two"}
    assert document["path"] is None


def test_the_profile_that_is_written_gives_what_was_measured(call, fake, two):
    fake.times = {BOTH[0]: 1.0}
    result = call("tune", "two", "-o", "profiles/quick.toml", *TRAIN)
    assert result.code == 0
    assert result.err.splitlines()[-1] == "profiles/quick.toml was written"
    plan = json.loads(call("plan", "quick", "--json").out)
    (count,) = [one for one in plan["entries"] if one["flag"] == "threads.count"]
    assert (count["value"], count["origin"]["title"]) == (1, "profile `quick`")
    again = call("tune", "two", "-o", "profiles/quick.toml", *TRAIN)
    assert again.code == 2
    assert again.err == (
        "error[usage]: profiles/quick.toml is there already\n"
        "  state: the command was not started\n"
        "  help: give another file with `--output`\n"
    )


def test_where_nothing_is_faster_nothing_is_written(call, fake, two):
    fake.times = {"nothing": 1.0}
    result = call("tune", "two", "-o", "quick.toml", *TRAIN)
    assert result.code == 0
    assert result.out.splitlines()[-2:] == [
        "nothing   without a profile the program is 2.00 times as fast as under two",
        "best      two as it is: no choice is faster",
    ]
    assert result.err.splitlines()[-1] == "quick.toml was not written"
    assert not (two / "quick.toml").exists()


def test_a_choice_under_which_the_program_prints_something_else_is_told_and_not_written(call, fake):
    fake.times, fake.texts = {BOTH[0]: 1.0}, {BOTH[0]: "loss 0.5000001\n"}
    lines = call("tune", "two", *TRAIN).out.splitlines()
    row = "threads.count = 1 2.00 2.00 to 2.00 0.50 1.00 numbers apart by 2e-07 faster"
    assert " ".join(lines[6].split()) == row
    assert (
        "differs   threads.count = 1 is faster and prints something else: not in the profile"
        in lines
    )
    assert lines[-1] == "best      two as it is: no choice is faster"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ("loss 1\n", "loss 2\n"),
            "unknown   1 number that it prints: no run has the same as another",
        ),
        (
            ("one\n", "two\n"),
            "unknown   what the program prints changes from run to run, so nobody knows what choices do",
        ),
    ],
)
def test_what_the_program_prints_otherwise_each_time_is_told(call, fake, monkeypatch, texts, said):
    start = fake.start

    def changing(command, side, *, seconds):
        fake.texts[side.name] = texts[len(fake.sides) % 2]
        return start(command, side, seconds=seconds)

    monkeypatch.setattr(fake, "start", changing)
    assert said in call("tune", "two", *TRAIN).out.splitlines()


def test_a_choice_under_which_the_program_fails_is_told_with_its_last_line(call, fake):
    fake.times = {
        BOTH[0]: CommandFailedError(f"the command exited with 3 under {BOTH[0]}", notes=["boom"])
    }
    out = call("tune", "two", *TRAIN).out
    assert (
        "threads.count = 1            -      -             -          -       -         failed"
        in (out.splitlines())
    )
    assert (
        "failed    threads.count = 1: the command exited with 3 under two with threads.count = 1:"
        " boom"
    ) in " ".join(out.split("\n          "))


def test_when_the_time_is_up_the_rounds_that_were_whole_are_shown(call, fake):
    result = call("tune", "two", "--seconds", "25", *TRAIN)
    assert result.err.splitlines() == [
        "2 choices, 3 rounds: about 15 runs of 2 s, 30 s",
        "the time of 25 s was up after 2 of 3 rounds",
    ]
    assert "          2 rounds of 5 runs, the first of which took 2 s" in result.out.splitlines()


def test_winners_that_could_not_be_measured_together_leave_the_best_one(call, fake):
    fake.times = {BOTH[0]: 1.0, BOTH[1]: 1.6}
    out = call("tune", "two", "--rounds", "3", "--seconds", "32", *TRAIN).out
    assert "together  not measured: the time of 32 s was up" in out.splitlines()
    assert "best      threads.count = 1, as a profile:" in out.splitlines()


def test_a_time_for_not_even_one_round_is_refused(call, fake):
    result = call("tune", "two", "--seconds", "9", *TRAIN)
    assert result.code == 2
    assert result.err == (
        "error[usage]: one round of 5 runs takes about 10 s, more than is left of the 9 s of "
        "`--seconds`\n"
        "  state: nothing was written\n"
        "  help: give the command less to do: fewer steps, or fewer data\n"
        "  help: or more time, as `--seconds 3600`\n"
    )


@pytest.mark.parametrize(
    ("words", "variables", "base", "source"),
    [
        ((), {}, "fast", "as no profile is named, and none is in force here"),
        ((), {"BACKENDCFG_PROFILE": "two"}, "two", "in force here by BACKENDCFG_PROFILE"),
        (("base",), {"BACKENDCFG_PROFILE": "two"}, "base", "as named"),
    ],
)
def test_the_base_is_the_profile_that_is_named_or_in_force_or_fast(
    call, fake, monkeypatch, words, variables, base, source
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    document = json.loads(call("tune", *words, "--rounds", "1", "--json", *TRAIN).out)
    assert document["base"] == {"profile": base, "source": source}


def test_a_run_starts_as_run_starts_it_and_under_nothing_backendcfg_is_off(call, fake, two):
    assert call("tune", "two", "--rounds", "1", *TRAIN).code == 0
    sides = {one.name: one.environment for one in fake.sides}
    for name, count in (("two", "2"), (BOTH[0], "1")):
        assert sides[name]["BACKENDCFG_PROFILE"] == "two"
        assert sides[name]["OMP_NUM_THREADS"] == count
        assert os.path.isfile(
            os.path.join(sides[name]["PYTHONPATH"].split(os.pathsep)[0], "sitecustomize.py")
        )
    assert sides[BOTH[0]]["BACKENDCFG_THREADS_COUNT"] == "1"
    assert sides["nothing"]["BACKENDCFG_DISABLE"] == "1"
    assert "BACKENDCFG_PROFILE" not in sides["nothing"]


def test_a_tier_leaves_out_what_would_break_it(call, fake, monkeypatch):
    two_threads = Candidate("threads.count", 2, "Why two.")
    monkeypatch.setattr(candidates, "candidates", lambda cores: iter((ONE, two_threads)))
    result = call("tune", "reproducible-anywhere", "--rounds", "1", "--json", *TRAIN)
    assert result.code == 0, result.out
    document = json.loads(result.out)
    assert [one["choice"] for one in document["choices"]] == ["nothing"]
    assert set(document["left_out"]) == {"threads.count = 1", "threads.count = 2"}
    assert document["left_out"]["threads.count = 1"] == "as under reproducible-anywhere"
    because = document["left_out"]["threads.count = 2"]
    assert because.startswith(
        ("profile `reproducible-anywhere` cannot keep its tier", "`environment.NPROC")
    )


REFUSED = [
    (
        ("--show", *TRAIN),
        "`--show` is for libraries, not for a command",
        "leave out the option",
    ),
    (
        ("--noise", "20", *TRAIN),
        "`--noise` is for libraries, not for a command",
        "leave out the option",
    ),
    (
        ("fast", "--rounds", "3"),
        "`--rounds` is for a command",
        "write `backendcfg tune -- python train.py`",
    ),
    (
        ("-o", "quick.toml"),
        "`--output` is for a command",
        "write `backendcfg tune -- python train.py`",
    ),
    (
        ("fast", "--"),
        "`backendcfg tune` needs a command",
        "write `backendcfg tune fast -- python train.py`",
    ),
    (
        ("fast", "train.py"),
        "`backendcfg tune`: got unexpected extra argument (train.py)",
        "run `backendcfg tune --help` for what it accepts",
    ),
]


@pytest.mark.parametrize(("words", "message", "remedy"), REFUSED)
def test_what_belongs_to_the_other_form_is_refused(call, project, words, message, remedy):
    result = call("tune", *words)
    assert result.code == 2
    assert result.err == (
        f"error[usage]: {message}\n  state: nothing was changed\n  help: {remedy}\n"
    )


def test_it_is_refused_where_backendcfg_is_off(call, project, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    result = call("tune", *TRAIN)
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        "error[usage]: backendcfg is turned off by BACKENDCFG_DISABLE, so no profile would act",
    )


def test_a_command_that_is_not_there_is_127(call, two):
    result = call("tune", "two", "--", "./no-such-command")
    assert (result.code, result.out) == (127, "")
    assert result.err == (
        "error[command-not-found]: command `./no-such-command` was not found\n"
        "  state: there is no result, and nothing was stored\n"
        "  help: check its spelling, or give its whole path\n"
    )


@pytest.mark.slow
def test_a_command_that_fails_under_the_base_is_an_error_with_its_last_lines(call, two):
    program = "import sys; sys.exit('a\\nb\\nc\\nd')"
    result = call("tune", "two", "--", sys.executable, "-c", program)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[command-failed]: the command exited with 1 under two\n"
        "  note: b\n"
        "  note: c\n"
        "  note: d\n"
        "  state: there is no result, and nothing was stored\n"
        "  help: run it alone until it exits with 0; it reads nothing from standard input here\n"
    )


BY_THREADS = """
import os, sys
assert sys.stdin.read() == ""
if os.environ.get("OMP_NUM_THREADS") == "2":
    for _ in range(20_000_000):
        pass
print("done", file=sys.stdout)
print("not shown", file=sys.stderr)
"""


@pytest.mark.slow
def test_a_real_program_that_is_faster_under_a_choice_is_found_so(call, two, monkeypatch):
    monkeypatch.setattr(candidates, "candidates", lambda cores: iter((ONE,)))
    (two / "train.py").write_text(BY_THREADS)
    before = sorted(path.name for path in two.rglob("*"))
    result = call("tune", "two", "--rounds", "1", "--json", "--", sys.executable, "train.py")
    assert (result.code, "not shown" in result.err) == (0, False)
    document = json.loads(result.out)
    one = document["choices"][1]
    assert (one["choice"], one["prints"]) == ("threads.count = 1", "the same")
    assert one["runs"][0]["processor"] < document["runs"][0][0]["processor"]
    assert one["runs"][0]["memory"] > 1 << 20
    assert sorted(path.name for path in two.rglob("*")) == before


NEVER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open("started.part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("started.part", "started")
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")],
)
def test_an_interrupt_ends_what_the_program_started_and_says_that_nothing_was_stored(
    number, status, said, two
):
    (two / "train.py").write_text(NEVER)
    command = subprocess.Popen(
        [sys.executable, "-m", "backendcfg", "tune", "two", "--", sys.executable, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (two / "started").exists():
        assert command.poll() is None
        time.sleep(0.05)
    command.send_signal(number)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out) == (status, "")
    assert err == (
        f"{said}\n  state: nothing was stored or changed; files that the command wrote are there\n"
    )
    for process in map(int, (two / "started").read_text().split()):
        _wait_for_the_end_of(process)


def _wait_for_the_end_of(number):
    """Whoever was killed is there until its parent has looked at it."""
    for _ in range(200):
        try:
            with open(f"/proc/{number}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {number} is still there")
