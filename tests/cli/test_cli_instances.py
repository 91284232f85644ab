"""`backendcfg run PROFILE --instances N -- CMD`: real instances on the cores of this machine."""

from __future__ import annotations

import json
import os
import sys

import pytest

from backendcfg import environ

HERE = sorted(os.sched_getaffinity(0))
SHOW = (
    "import json, os;"
    "print(json.dumps([sorted(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'),"
    " os.environ.get('BACKENDCFG_STARTED_BY')]))"
)
PYTHON = (sys.executable, "-S", "-E", "-c", SHOW)
two = pytest.mark.skipif(len(HERE) < 2, reason="needs two processors")


def shown(result):
    """What each instance printed, by its name."""
    assert result.code == 0, result.err
    pairs = (line.partition("]:") for line in sorted(result.out.splitlines()))
    return {name.strip("["): json.loads(text) for name, _, text in pairs}


@two
def test_auto_threads_are_the_cores_of_the_instance(process):
    half = len(HERE) // 2
    found = shown(process("run", "mine", "--instances", "2", "--", *PYTHON))
    assert list(found) == ["run0", "run1"]
    assert [threads for _, threads, _ in found.values()] == [str(half)] * 2
    assert {by for _, _, by in found.values()} == {"run mine"}
    cores = [set(cores) for cores, _, _ in found.values()]
    assert [len(each) for each in cores] == [half, half]
    assert not cores[0] & cores[1]


@pytest.mark.exhaustive
def test_one_instance_takes_the_place_of_the_command(process, project):
    """Its streams are those of the shell, and its status too."""
    (project / "read.py").write_text("import sys; print(repr(sys.stdin.read())); sys.exit(5)")
    listed = str(HERE[0])
    result = process("run", "mine", "--core-list", listed, sys.executable, "-S", "-E", "read.py")
    assert (result.code, result.out, result.err) == (5, "''\n", "")
    found = json.loads(process("run", "--core-list", listed, "mine", *PYTHON).out)
    assert found == [[HERE[0]], "1", "run mine"]


def test_python_in_an_instance_finds_the_plan_for_its_cores(process):
    code = "import backendcfg; print(backendcfg.active().name, backendcfg.flags.threads.count)"
    words = ("--core-list", str(HERE[-1]), "--", sys.executable, "-c", code)
    result = process("run", "mine", *words)
    assert (result.code, result.out, result.err) == (0, "mine 1\n", "")


def test_a_preset_that_contradicts_the_cores_is_told(process):
    """`debug` says nothing about threads, so the shell's preset would be obeyed."""
    preset = {"OMP_NUM_THREADS": "64", "OPENBLAS_NUM_THREADS": "64"}
    words = ("--set", "python.hash_seed=1", "--core-list", str(HERE[0]), "--", *PYTHON)
    result = process("run", "tf32-off", *words, variables=preset)
    assert result.code == 0, result.err
    assert json.loads(result.out)[:2] == [[HERE[0]], "1"]
    assert result.err.splitlines() == [
        "note: OMP_NUM_THREADS=64 contradicts 1 bound cores; instances get 1",
        "note: OPENBLAS_NUM_THREADS=64 contradicts 1 bound cores; instances get 1",
    ]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("text", ["7000", "abc"])
@pytest.mark.parametrize("name", ["OMP", "MKL", "OPENBLAS", "BLIS"])
def test_a_preset_that_the_profile_replaces_is_told_where_it_contradicts_the_cores(
    process, name, text
):
    variable = f"{name}_NUM_THREADS"
    words = ("--core-list", str(HERE[0]), "--", "sh", "-c", f"echo ${variable}")
    result = process("run", "fast", *words, variables={variable: text})
    assert (result.code, result.out) == (0, "1\n")
    told = f"note: {variable}={text} contradicts 1 bound cores; the profile sets 1"
    assert [line for line in result.err.splitlines() if variable in line] == [told]


@pytest.mark.exhaustive
def test_what_backendcfg_set_in_the_process_that_asks_is_no_preset_to_tell_of(process):
    variables = {"OMP_NUM_THREADS": "64", environ.CARRIED.name: "OMP_NUM_THREADS=64"}
    result = process("run", "mine", "--core-list", str(HERE[0]), "--", *PYTHON, variables=variables)
    assert json.loads(result.out)[:2] == [[HERE[0]], "1"]
    assert result.err == ""


def test_a_profile_with_more_threads_than_cores_is_told(process):
    words = ("--set", "threads.count=64", "--core-list", str(HERE[0]), "--", *PYTHON)
    result = process("run", "mine", *words)
    assert json.loads(result.out)[1] == "64"
    assert "note: the profile sets OMP_NUM_THREADS=64, on 1 bound cores" in result.err.splitlines()


@two
def test_each_instance_has_log_files_of_its_own(process, project):
    script = "echo out; echo err >&2"
    options = ("--instances", "2", "--log-path", "logs", "--log-file-prefix", "night")
    result = process("run", "mine", *options, "--", "sh", "-c", script)
    assert result.code == 0
    assert sorted(result.out.splitlines()) == ["[night0]:out", "[night1]:out"]
    assert sorted(result.err.splitlines()) == ["[night0]:err", "[night1]:err"]
    files = {path.name: path.read_text() for path in (project / "logs").iterdir()}
    assert files == {
        f"night{rank}.{stream}.log": text
        for rank in (0, 1)
        for stream, text in (("stdout", "out\n"), ("stderr", "err\n"))
    }


@two
def test_the_status_is_that_of_the_first_instance_that_fails(process):
    script = (
        "import os, signal, sys; first = min(os.sched_getaffinity(0)) == " + str(HERE[0]) + "\n"
        "sys.exit(9) if first else signal.pause()"
    )
    words = ("--instances", "2", "--", sys.executable, "-S", "-E", "-c", script)
    result = process("run", "mine", *words)
    assert (result.code, result.out) == (9, "")
    assert result.err.endswith("ended with status 9; the others were ended\n")
    assert result.err.startswith("instance 0 on core")


@two
def test_rank_starts_only_one_of_them(process):
    words = ("--instances", str(len(HERE)), "--rank", str(len(HERE) - 1), "--", *PYTHON)
    cores, threads, _ = json.loads(process("run", "mine", *words).out)
    assert (len(cores), threads) == (1, "1")


def test_a_library_that_is_not_installed_is_told(process, monkeypatch, tmp_path):
    words = ("--core-list", str(HERE[0]), "--preload", "tcmalloc", "--", *PYTHON)
    result = process("run", "mine", *words, variables={"HOME": str(tmp_path)})
    assert result.code == 0
    told = "libtcmalloc.so is not installed, so it is not preloaded"
    from backendcfg.launch.launcher import find

    assert (told in result.err) is (not find("tcmalloc", {}))


def test_turned_off_instances_are_bound_all_the_same(process):
    result = process(
        "run",
        "mine",
        "--core-list",
        str(HERE[0]),
        "--",
        *PYTHON,
        variables={"BACKENDCFG_DISABLE": "1"},
    )
    assert json.loads(result.out) == [[HERE[0]], "1", None]
    assert result.err == (
        "backendcfg is turned off by BACKENDCFG_DISABLE; running the command alone\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--core-list", "1023"), "this process may not use processor 1023"),
        (("--core-list", "x"), '"x" is not a list of cores'),
        (("--node", "63"), "there is no memory node 63 here"),
        (("--instances", "0"), "`backendcfg run`: --instances/--ninstances: 0 is not in the range"),
        (("--log-file-prefix", "a/b"), "`--log-file-prefix` is a name, not a path"),
    ],
)
def test_what_cannot_be_done_starts_nothing(process, options, message):
    result = process("run", "mine", *options, "--", "touch", "started")
    assert (result.code, result.out) == (2, "")
    assert message in result.err.splitlines()[0]


def test_a_command_that_does_not_exist_starts_nothing(process):
    result = process("run", "mine", "--core-list", str(HERE[0]), "--", "./no-such-command")
    assert result.code == 127
    assert result.err == (
        "error[command-not-found]: command `./no-such-command` was not found\n"
        "  state: no instance was started\n"
        "  help: check its spelling, or give its whole path\n"
    )


@pytest.mark.exhaustive
def test_a_file_that_is_no_program_starts_nothing(process, project):
    (project / "script.py").write_text("print(1)\n")
    result = process("run", "mine", "--core-list", str(HERE[0]), "--", "./script.py")
    assert result.code == 126
    assert result.err == (
        "error[command-not-executable]: command `./script.py` cannot be executed: "
        "Permission denied\n"
        "  state: no instance was started\n"
        "  help: for a script, name its interpreter: `python script.py`\n"
    )


@pytest.mark.exhaustive
def test_a_log_folder_that_cannot_be_made_is_an_error(process, project):
    (project / "file").write_text("")
    result = process("run", "mine", "--log-path", "file/logs", "--", "true")
    assert result.code == 3
    assert result.err.startswith(
        "error[state-unwritable]: cannot write file/logs: Not a directory\n"
    )


RANK = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.exhaustive
@two
def test_one_instance_as_a_rank_gets_the_cores_of_the_rank(process):
    half = len(HERE) // 2
    words = ("--cores-per-instance", str(half), "--", *PYTHON)
    result = process("run", "mine", *words, variables=RANK)
    cores, threads, _ = json.loads(result.out)
    assert (cores, threads) == (HERE[half : 2 * half], str(half))
    assert result.err.startswith("note: this is rank 1 of 2 here, by LOCAL_RANK; it gets core")


def test_several_instances_as_one_rank_are_refused(process):
    result = process("run", "mine", "--instances", "2", "--", *PYTHON, variables=RANK)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[invalid-argument]: 2 instances would each be rank 1 of 2\n"
        "  note: LOCAL_RANK says that a launcher started this process\n"
        "  state: nothing was changed\n"
        "  help: let the launcher start as many ranks as you want, and `run` one instance in each\n"
        "  help: or unset LOCAL_RANK where the instances are no ranks\n"
    )


@pytest.mark.sweep(1)
@two
@pytest.mark.parametrize("words", [("mpirun", "train"), (sys.executable, "-m", "accelerate")])
def test_instances_that_are_launchers_are_told_of(process, project, words):
    folder = project / "bin"
    folder.mkdir()
    (folder / "mpirun").write_text("#!/bin/sh\n")
    (folder / "mpirun").chmod(0o755)
    variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    told = "note: each of the 2 instances is a launcher, whose ranks divide the cores of its"
    started = process("run", "mine", "--instances", "2", "--", *words, variables=variables)
    assert told in started.err
    other = process("run", "mine", "--instances", "2", "--", "true", variables=variables)
    assert "launcher" not in other.err


@two
@pytest.mark.torch
def test_ranks_of_torchrun_together_have_as_many_threads_as_there_are_cores(process, tmp_path):
    (tmp_path / "rank.py").write_text(
        "import os, torch; print(torch.get_num_threads(), os.environ['OMP_NUM_THREADS'])"
    )
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    result = process("run", "fast", "--", *torchrun, str(tmp_path / "rank.py"))
    half = len(HERE) // 2
    assert (result.code, result.out) == (0, f"{half} {half}\n" * 2), result.err


def test_an_empty_list_of_cores_is_refused(process):
    """As `--core-list "$CORES"` gives one, where CORES is unset."""
    refused = process("run", "--core-list", "", "tf32-off", "--", "true")
    assert refused.code == 2
    assert "the list of cores names one twice, or none" in refused.err
    assert '\n  help: write "0, 1, 2" or "0-2"\n' in refused.err
