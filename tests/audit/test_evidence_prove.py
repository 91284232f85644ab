"""`prove`: what runs of a program under one profile produce, and what is found to differ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from backendcfg import childprocess, errors
from backendcfg.audit.evidence import files, runs
from backendcfg.audit.evidence.outputs import Distance
from backendcfg.audit.evidence.prove import (
    HASH_SEED,
    PADDING,
    THREADS,
    Difference,
    Proof,
    cure,
    is_equal,
    prove,
)
from backendcfg.audit.evidence.runs import Side
from backendcfg.cli.main import main


def proven(program, folder, *, runs=3, held=(), **variables):
    side = Side("here", {**os.environ, **variables})
    words = [sys.executable, "-c", program]
    return prove(words, side, dict.fromkeys(held), runs=runs, folder=str(folder))


EQUAL = "print('loss', 0.25)"


def test_equal_runs_are_told_with_what_was_varied_and_the_bound(tmp_path):
    found = proven(EQUAL, tmp_path)
    assert found.equal
    assert (found.runs, found.numbers, found.files) == (3, 1, 0)
    assert found.bound == pytest.approx(0.632, abs=0.001)
    assert found.varied[:3] == ("addresses", "the time of day", "the length of the environment")
    assert found.varied[-1] == "the seed of hashes"
    assert found.held == (
        "the machine and its libraries",
        "the working directory",
        "the processors that may be used",
    )
    steady = proven(EQUAL, tmp_path, runs=2, held=[HASH_SEED, THREADS])
    assert "the seed of hashes" not in steady.varied
    assert steady.held[3:] == ("the number of threads", "the seed of hashes")


FAULTS = {
    "a generator without a seed": "import random; print(random.random())",
    "the order of a set": "print({'a', 'b', 'c', 'd', 'e', 'f', 'g'})",
    "the time as a seed": "import random, time; print(random.Random(time.time_ns()).random())",
    "an address": "print(id(object()))",
    "the environment": "import os; print(sum(map(len, os.environ.values())))",
    "what an earlier run left": (
        "import os; n = len(os.listdir()); open(f'left-{n}', 'w').close(); print('files', n)"
    ),
    "bytes of the operating system": "import os; open('key', 'wb').write(os.urandom(8))",
}


@pytest.mark.parametrize("program", FAULTS.values(), ids=FAULTS)
def test_what_differs_from_run_to_run_is_found(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(HASH_SEED, raising=False)
    found = proven(program, tmp_path)
    assert not found.equal
    assert found.differences[0].run == 2


def test_what_is_held_is_not_varied(tmp_path):
    program = f"import os; print(len(os.environ.get({PADDING!r}, '')), hash('a'))"
    assert not proven(program, tmp_path).equal
    steady = proven(program, tmp_path, held=[HASH_SEED, PADDING], **{HASH_SEED: "0"})
    assert steady.equal


# It prints whether the process that proves, which started the one that runs this, has others like
# those that keep processors busy.
LOOKS = """
import os
from pathlib import Path

def parent(process):
    return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[1]

proves, found = parent(os.getppid()), []
for each in Path("/proc").iterdir():
    try:
        if each.name.isdigit() and parent(each.name) == proves:
            found.append("range(100" + "_000)" in (each / "cmdline").read_text())
    except OSError:
        pass
print("busy", any(found))
"""


def test_every_second_run_finds_the_processors_busy_and_none_is_left(tmp_path):
    found = proven(LOOKS, tmp_path, runs=4)
    assert [(one.run, one.loaded, one.output.state) for one in found.differences] == [
        (2, True, "text differs"),
        (4, True, "text differs"),
    ]


ENDED = """
import os, signal, time
def end(number, _):
    open(signal.Signals(number).name, "w").close()
    raise SystemExit
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
with open("begun", "w") as begun:
    print(os.getpid(), file=begun)
time.sleep(60)
"""


@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("words", [["prove", "nothing"], ["compare", "nothing", "fast"]])
def test_who_ends_a_proof_ends_the_program_which_may_tidy_up(words, number, tmp_path):
    os.mkfifo(tmp_path / "begun")
    words = [sys.executable, "-m", "backendcfg", *words, "--", sys.executable, "-c", ENDED]
    with subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, process_group=0
    ) as proving:
        program = int((tmp_path / "begun").read_text())
        if number == signal.SIGINT:  # as a terminal sends it
            os.killpg(proving.pid, number)
        else:
            proving.send_signal(number)
        _, complaints = proving.communicate(timeout=60)
    assert proving.returncode == 128 + number
    assert complaints.endswith(
        "\n  state: files that the command wrote are there; nothing else changed\n"
    )
    assert [path.name for path in tmp_path.glob("SIG*")] == [number.name]
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


STUBBORN = """
import os, signal
def passed(number, _):
    with open("heard", "w") as heard:
        heard.write(signal.Signals(number).name)
signal.signal(signal.SIGINT, passed)
signal.signal(signal.SIGTERM, passed)
open("begun", "w").close()
while True:
    signal.pause()
"""


def test_who_runs_a_program_passes_sigterm_on_and_kills_it_at_sigusr1(tmp_path):
    for name in ("begun", "heard"):
        os.mkfifo(tmp_path / name)
    files = [str(tmp_path / name) for name in ("out", "err")]
    program = [sys.executable, "-c", STUBBORN]
    words = childprocess.command(["-c", runs._RUNNER, "0", *files, *program], isolated=True)
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as runner:
        (tmp_path / "begun").read_text()
        for _ in range(2):
            runner.terminate()
            assert (tmp_path / "heard").read_text() == "SIGTERM"
        runner.send_signal(signal.SIGINT)  # which the program has from the terminal
        runner.send_signal(signal.SIGUSR1)
        told, _ = runner.communicate(timeout=60)
    assert json.loads(told)["status"] == -signal.SIGKILL


def test_a_folder_that_is_not_there_after_the_first_run_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["prove", "nothing", "--files", "outt", "--", sys.executable, "-c", "import os; {}"]
    words[-1] = words[-1].format("os.makedirs('out', exist_ok=True)")
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "error[usage]: there is no folder outt after the first run\n"
        "  state: the command ran once; files that it wrote are there\n"
        "  help: give the folder that it writes to with `--files`\n"
    )
    words[3] = "out"
    assert main([*words[:4], "--runs", "2", *words[4:]]) == 0
    capsys.readouterr()
    (tmp_path / "file").write_text("")
    words[3] = "file"
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "error[usage]: file is no folder\n"
        "  state: the command was not started\n"
        "  help: give the folder that it writes to with `--files`\n"
    )


@pytest.mark.parametrize("text", ["", "1 2 3"])
def test_what_is_given_on_standard_input_is_said_to_be_left(tmp_path, text):
    words = [sys.executable, "-m", "backendcfg", "prove", "nothing", "--runs", "2"]
    (tmp_path / "given").write_text(text)
    with open(tmp_path / "given") as given:
        done = subprocess.run(
            [*words, "--", sys.executable, "-c", "import sys; print(sys.stdin.read() or 1)"],
            cwd=tmp_path,
            stdin=given,
            capture_output=True,
            text=True,
            check=True,
        )
    assert ("the command finds standard input empty" in " ".join(done.stderr.split())) is bool(text)


def test_without_a_place_for_temporary_files_nothing_is_started(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert main(["prove", "nothing", "--", "true"]) == 3
    assert capsys.readouterr().err == (
        f"error[state-unwritable]: no temporary folder can be made in {tmp_path}/gone: No such file"
        " or directory\n"
        "  state: there is no result, and nothing was stored\n"
        "  help: set TMPDIR to a folder that you may write, on a disk that has space\n"
    )


def test_times_are_left_out_and_named(tmp_path):
    found = proven("import time; print('took', time.perf_counter_ns() / 1e9)", tmp_path)
    assert found.equal
    assert [(one.kind, one.line) for one in found.left_out] == [("time", 1)]


def test_a_folder_with_too_many_files_is_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_FILES", 2)
    for i in range(4):
        (tmp_path / str(i)).write_text("")
    assert files.stamps(str(tmp_path)) is None
    assert proven(EQUAL, tmp_path, runs=2).files is None


UNSEEDED = "import numpy; print('draw', numpy.random.rand())"


@pytest.mark.slow
def test_the_shell_proves_a_program_under_a_profile_that_seeds_it(backendcfg, tmp_path):
    (tmp_path / "seeded.toml").write_text("schema = 1\nseed.value = 1\n")
    words = ("--runs", "2", "--", sys.executable, "-c", UNSEEDED)
    printed = backendcfg("prove", "./seeded.toml", *words)
    assert printed.splitlines()[0] == (
        "equal     2 runs under ./seeded.toml printed the same text and 1 number"
    )
    assert printed.splitlines()[-1] == (
        "bound     a deviation in 78 % of runs or more would have shown (95 %)"
    )


def test_a_program_that_no_profile_reaches_is_proven_with_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["prove", "fast", "--runs", "2", "--", "echo", "0.5"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("equal     2 runs under fast printed the same text and 1 number\n")
    assert told.err == (
        "no Python with backendcfg ran, so a profile set no more than the variables that a process"
        " starts with\n"
    )
    assert main(["prove", "nothing", "--runs", "2", "--", "echo", "0.5"]) == 0
    assert capsys.readouterr().err == ""


def test_the_shell_exits_with_1_where_runs_differ(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["prove", "nothing", "--runs", "3", "--", sys.executable, "-c", UNSEEDED]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "differs   2 of 3 runs under nothing differ from the first"
    assert lines[1].startswith("          run 2 (with load): line 1 has 0.")
    assert lines[-1] == "tier      none"
    assert main(["--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["tier"], found["files"]) == (False, "none", 0)
    assert [one["run"] for one in found["differences"]] == [2, 3]
    assert found["differences"][0]["output"]["state"] == "numbers differ"


ALSO = {
    "processors": "import os; print(len(os.sched_getaffinity(0)))",
    "threads": "import os; print(os.environ.get('OMP_NUM_THREADS'))",
}


@pytest.mark.parametrize(("name", "program"), ALSO.items())
def test_every_third_run_has_what_is_asked_for_otherwise(name, program, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    side = Side("here", {**os.environ}, also={name: 1})
    found = prove([sys.executable, "-c", program], side, {}, runs=6, folder=str(tmp_path))
    differing = [(one.run, one.also) for one in found.differences]
    assert found.varied[-1] == f"in every third run {name} = 1"
    if name == "threads" or len(os.sched_getaffinity(0)) > 1:
        assert differing == [(3, (f"{name} = 1",)), (6, (f"{name} = 1",))]


@pytest.mark.parametrize("given", ["threads", "threads=0", "threads=x", "cores=1", "=1"])
def test_what_no_run_can_have_otherwise_is_refused(given, capsys):
    assert main(["prove", "nothing", "--also", given, "--", "true"]) == 2
    assert capsys.readouterr().err == (
        f"error[usage]: `--also {given}` is no number of threads or processors\n"
        "  state: nothing was changed\n"
        "  help: write `--also threads=1` or `--also processors=1`\n"
    )


def test_a_third_run_is_needed_to_have_something_otherwise(capsys):
    words = ["prove", "nothing", "--runs", "2", "--also", "threads=1", "--", "true"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "error[usage]: `--also` needs 3 runs or more, not 2\n"
        "  state: nothing was changed\n"
        "  help: it is every third run that differs so\n"
    )


@pytest.mark.slow
def test_the_fewest_flags_that_make_runs_the_same_are_found(tmp_path, monkeypatch):
    monkeypatch.delenv(HASH_SEED, raising=False)
    program = [sys.executable, "-c", "import os; print(hash('a'), len(os.environ['SURROUNDINGS']))"]

    def as_wanted(some):
        held = {}
        if "refused" in some and len(some) < 4:
            raise errors.TierNotKeptError("the tier needs more")
        if "hashes" in some:
            held[HASH_SEED] = "0"
        if "length" in some:
            held[PADDING] = ""
        return Side("here", {**os.environ, PADDING: "", **held}), held

    def suffices(some):
        return is_equal(program, as_wanted, some, runs=3, folder=str(tmp_path))

    flags = ["refused", "hashes", "idle", "length"]
    assert cure(flags, suffices) == ("hashes", "length")
    assert cure(flags[:3], suffices) is None
    assert cure([], suffices) is None


@pytest.mark.parametrize(
    ("runs", "differing", "convincing"), [(4, 0, 4), (4, 3, 4), (4, 1, 8), (3, 1, 5), (40, 1, 116)]
)
def test_a_cure_is_shown_by_more_runs_the_fewer_differ(runs, differing, convincing):
    odd = tuple(
        Difference(number + 2, False, Distance("text differs", line=1), (), ())
        for number in range(differing)
    )
    found = Proof("fast", runs, 0, 0, (), (), 0.5, odd)
    assert found.convincing == convincing


def test_no_run_is_made_after_one_that_differs_where_only_equal_runs_count(tmp_path):
    (tmp_path / "runs").mkdir()
    program = (
        "import os; at = os.path.join('runs', str(len(os.listdir('runs')))); os.mkdir(at);"
        "print(at == os.path.join('runs', '1'))"
    )
    side = Side("here", {**os.environ})
    words = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {program}"]
    found = prove(words, side, {}, runs=5, folder=str(tmp_path), to_the_end=False)
    assert (found.runs, [one.run for one in found.differences]) == (2, [2])
    assert len(os.listdir(tmp_path / "runs")) == 2


@pytest.mark.exhaustive
def test_the_shell_names_the_flags_of_reproducible_that_help(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["prove", "nothing", "--runs", "3", "--why", "--", sys.executable, "-c", UNSEEDED]
    assert main(words) == 1
    assert capsys.readouterr().out.endswith(
        "cure      seed.value = 0: with that, 3 runs were the same\n"
    )
    words[-1] = "import time; print(time.time_ns())"
    assert main(words) == 1
    assert capsys.readouterr().out.endswith(
        "cure      none: with every flag of reproducible, runs differ, too\n"
    )


@pytest.mark.exhaustive
def test_an_equal_program_is_found_equal_in_fifty_proofs(tmp_path, monkeypatch):
    program = (
        "import numpy as np, time\n"
        "x = np.random.default_rng(0).random((50, 50)); np.save('x.npy', x @ x)\n"
        "print('norm', np.linalg.norm(x), 'seconds', time.perf_counter())"
    )
    monkeypatch.chdir(tmp_path)
    assert all(proven(program, tmp_path, runs=2).equal for _ in range(50))
