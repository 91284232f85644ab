"""Real processes: streams, exit codes, what a child gets, and what a start imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

SHOW = (
    "import json, os;"
    "print(json.dumps({k: v for k, v in os.environ.items()"
    " if k.startswith(('BACKENDCFG_', 'OMP_', 'PYTHONHASHSEED', 'PYTHONPATH'))}))"
)
# -S and -E: the child only shows its variables, and nothing of ours starts in it.
PYTHON = (sys.executable, "-S", "-E", "-c", SHOW)


def shown(result):
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def test_data_goes_to_standard_output_and_errors_to_standard_error(process):
    listed = process("list")
    assert (listed.code, listed.err) == (0, "")
    wrong = process("plan", "nope", "--toml")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error[unknown-profile]: profile `nope` does not exist\n")
    assert "Traceback" not in wrong.err


def test_the_version_is_printed(process):
    from backendcfg import __version__

    result = process("--version")
    assert (result.code, result.out, result.err) == (0, f"backendcfg {__version__}\n", "")


def test_a_reader_that_goes_away_is_no_error(project):
    child = subprocess.Popen(
        [sys.executable, "-m", "backendcfg", "explain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait() == 141


def test_run_gives_the_child_what_must_be_there_from_the_start(process):
    found = shown(process("run", "mine", "--set", "threads.count=3", "--", *PYTHON))
    assert found["BACKENDCFG_PROFILE"] == "mine"
    assert found["BACKENDCFG_STARTED_BY"] == "run mine"
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["PYTHONHASHSEED"] == "0"
    first = found["PYTHONPATH"].split(os.pathsep)[0]
    assert os.path.isfile(os.path.join(first, "sitecustomize.py"))


@pytest.mark.exhaustive
def test_run_does_not_need_two_dashes(process):
    assert shown(process("run", "mine", *PYTHON))["BACKENDCFG_PROFILE"] == "mine"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("run mine -- echo -- --json", "-- --json"),
        ("run mine echo -- --json", "-- --json"),
        ("run --set threads.count=2 mine echo x", "x"),
        ("run mine --set threads.count=2 echo x", "x"),
        ("run mine --set threads.count=2 -- echo --set y", "--set y"),
        ("run --set threads.count=2 -- echo x", "x"),
        ("run mine printf %s -n", "-n"),
    ],
)
def test_what_stands_after_the_command_is_the_commands(line, output, process):
    result = process(*line.split())
    assert (result.code, result.out.rstrip("\n"), result.err) == (0, output, "")


@pytest.mark.slow
def test_run_without_a_profile_uses_the_active_one(process):
    process("apply", "mine", "--set", "threads.count=3")
    found = shown(process("run", "--", *PYTHON))
    assert found["BACKENDCFG_PROFILE"] == "mine"
    assert found["OMP_NUM_THREADS"] == "3"


def test_what_would_come_out_otherwise_in_the_child_is_pinned(process):
    """A profile that is named wins over BACKENDCFG_<FLAG>; in the child it would lose."""
    found = shown(
        process("run", "base", "--", *PYTHON, variables={"BACKENDCFG_THREADS_COUNT": "5"})
    )
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["BACKENDCFG_THREADS_COUNT"] == "1"


@pytest.mark.slow
def test_a_number_of_threads_is_each_worker_s_although_auto_comes_to_the_same(process, tmp_path):
    script = tmp_path / "pools.py"
    script.write_text(
        "import multiprocessing, os\n"
        "def count(_=None):\n"
        "    import backendcfg\n"
        "    return backendcfg.active().compiled.values['threads.count']\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Pool(os.cpu_count() + 1) as pool:\n"
        "        print(count(), pool.apply(count))\n"
    )
    cores = len(os.sched_getaffinity(0))
    counts = {"auto": f"{cores} 1\n", str(cores): f"{cores} {cores}\n"}
    for count, expected in counts.items():
        words = [
            "run",
            "fast",
            "--set",
            f"threads.count={count}",
            "--",
            sys.executable,
            str(script),
        ]
        assert process(*words).out == expected


def test_a_child_of_run_finds_the_same_plan(process):
    python = (sys.executable, "-c", "import backendcfg; print(backendcfg.active().compiled)")
    argument = process("run", "base", "--set", "threads.count=3", "--", *python)
    assert argument.err == ""
    assert "'threads.count': 3" in argument.out
    assert argument.out.startswith("Compiled(name='base', tier='none'")


def test_the_exit_code_of_run_is_that_of_its_command(process):
    assert process("run", "mine", "--", "sh", "-c", "exit 7").code == 7


def test_a_command_that_does_not_exist_is_127(process):
    result = process("run", "mine", "--", "./no-such-command")
    assert (result.code, result.out) == (127, "")
    assert result.err == (
        "error[command-not-found]: command `./no-such-command` was not found\n"
        "  state: the command was not started\n"
        "  help: check its spelling, or give its whole path\n"
    )


@pytest.mark.exhaustive
def test_a_command_that_cannot_be_executed_is_126(process, project):
    (project / "script.py").write_text("print(1)\n")
    result = process("run", "mine", "--", "./script.py")
    assert (result.code, result.out) == (126, "")
    assert result.err == (
        "error[command-not-executable]: command `./script.py` cannot be executed: "
        "Permission denied\n"
        "  state: the command was not started\n"
        "  help: for a script, name its interpreter: `python script.py`\n"
    )


def test_a_word_that_is_no_profile_may_have_been_meant_as_the_command(process):
    result = process("run", "python", "train.py")
    assert (result.code, result.out) == (2, "")
    assert (
        "  help: for the profile in force here, write `backendcfg run -- python train.py`"
    ) in result.err.splitlines()


def test_run_without_a_profile_needs_something_in_force(process):
    # A settings file is applied by `backendcfg apply`, not by being there.
    for directory in (None, "/"):
        result = process("run", "--", "true", **({"cwd": directory} if directory else {}))
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(
            "error[usage]: no profile is named, and none is in force here\n"
        )


def test_when_turned_off_run_only_runs(process):
    result = process("run", "mine", "--", *PYTHON, variables={"BACKENDCFG_DISABLE": "1"})
    assert result.code == 0
    assert result.err == (
        "backendcfg is turned off by BACKENDCFG_DISABLE; running the command alone\n"
    )
    assert "BACKENDCFG_PROFILE" not in json.loads(result.out)


def test_env_prints_what_run_sets(process):
    started = shown(process("run", "mine", "--", *PYTHON))
    variables = json.loads(process("env", "mine", "--format", "json").out)
    del started["BACKENDCFG_STARTED_BY"]
    present = {name: value for name, value in variables.items() if value is not None}
    assert {name: present.get(name, value) for name, value in started.items()} == started
    script = process("env", "mine").out + f"exec '{sys.executable}' -S -E -c \"$SHOW\"\n"
    done = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, "SHOW": SHOW},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == started


@pytest.mark.parametrize(
    ("own", "unset"), [("", ["unset PYTHONHASHSEED"]), ("export PYTHONHASHSEED=5", [])]
)
def test_env_unsets_what_env_of_another_profile_set_and_not_what_the_user_did(process, own, unset):
    ours = f"'{sys.executable}' -m backendcfg env"
    script = f'eval "$({ours} reproducible)"\n{own}\n{ours} tf32-off'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if "PYTHONHASHSEED" in line] == unset
    assert "export BACKENDCFG_PROFILE=tf32-off" in lines


def test_verify_reads_every_switch_in_a_process_of_its_own(process):
    process("apply", "base")
    result = process("verify", "--json")
    assert (result.code, result.err) == (1, "")
    answer = json.loads(result.out)
    assert answer["python"] == "not before you run `backendcfg autoload on`"
    threads = {one["switch"]: one for one in answer["readings"] if one["flag"] == "threads.count"}
    assert answer["profile"] == "base"
    assert threads["openblas[numpy].threads"]["found"] == 1
    assert {one["state"] for one in threads.values()} == {"ok"}


@pytest.mark.exhaustive
def test_verify_names_a_profile_that_does_not_exist_as_plan_does(process):
    result = process("verify", "nope")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[unknown-profile]: ")
    assert result == process("plan", "nope")
    assert "BACKENDCFG_PROFILE" not in result.err


@pytest.mark.slow
def test_verify_says_what_the_child_could_not_do(process, project):
    needs = 'schema = 1\n[requires]\nlibraries.numpy = ">=99"\n'
    (project / "profiles" / "elsewhere.toml").write_text(needs)
    result = process("verify", "elsewhere")
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith(
        "error[unsupported-hardware]: profile `elsewhere` needs numpy 99 or newer; numpy "
    )


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["backendcfg", "ver"], {"verify"}),
        (["backendcfg", "plan", "reproducible-"], {"reproducible-anywhere"}),
        (["backendcfg", "plan", "fast+mi"], {"fast+mine"}),
        (["backendcfg", "run", "tf"], {"tf32-off"}),
        (["backendcfg", "explain", "threads.c"], {"threads.count"}),
        (["backendcfg", "plan", "--set", "threads.d"], {"threads.dynamic="}),
        (["backendcfg", "env", "--format", "d"], {"dotenv"}),
    ],
)
def test_the_shell_completes_verbs_profiles_and_flags(words, expected, process):
    variables = {
        "_BACKENDCFG_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    result = process(variables=variables)
    assert (result.code, result.err) == (0, "")
    assert {line.partition(",")[2] for line in result.out.splitlines()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell, process):
    result = process("completion", shell)
    assert (result.code, result.err) == (0, "")
    assert f"_BACKENDCFG_COMPLETE={shell}_complete" in result.out


def loaded(*words, cwd):
    """The modules that a command imports."""
    code = (
        "import sys; sys.orig_argv = ['python', '-m', 'backendcfg'];"
        "from backendcfg.cli.main import main;"
        f"code = main({list(words)!r}); print(code, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    code, *modules = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stderr
    return set(modules)


def test_the_entry_imports_only_click_and_errors(project):
    modules = loaded("--version", cwd=project)
    assert {name for name in modules if name.startswith("backendcfg.cli.verbs.")} == set()
    assert modules & {"pydantic", "numpy", "tomllib", "packaging", "archspec"} == set()


def test_status_under_a_valid_plan_imports_nothing_heavy(process, project):
    assert process("apply", "mine").code == 0
    modules = loaded("status", cwd=project)
    assert modules & {"pydantic", "numpy", "tomllib", "packaging", "archspec"} == set()
    assert "backendcfg.cli.verbs.status" in modules
    assert "backendcfg.cli.verbs.plan" not in modules


@pytest.mark.exhaustive
def test_a_profile_named_by_its_path_is_found_from_any_folder(process, project):
    found = shown(process("run", "./profiles/base.toml", "--", *PYTHON))
    assert found["BACKENDCFG_PROFILE"] == str(project / "profiles" / "base.toml")
    process("apply", "profiles/base.toml", "--user")
    elsewhere = process("status", "--json", cwd="/")
    assert json.loads(elsewhere.out)["profile"] == str(project / "profiles" / "base.toml")


@pytest.mark.sweep(1)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "words", [("list",), ("explain", "--json"), ("plan", "nope", "--toml", "--json")]
)
def test_output_that_cannot_be_written_is_an_error(words, project):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "backendcfg", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == (
        "error[state-unwritable]: cannot write the output: No space left on device\n"
        "  state: the command did its work; what it had to say is lost in part\n"
        "  help: make room where standard output goes, and run it again\n"
    )


def test_an_interrupt_ends_a_real_process_with_130(project):
    child = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate() == ("", "interrupted\n  state: nothing was changed\n")
    assert child.returncode == 130


WAITING = """
import signal, sys, time
# Tests that a shell started in the background would hand down that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.orig_argv = ["python", "-m", "backendcfg"]
from backendcfg.cli import main, sources
def wait(path):
    print("waiting", flush=True)
    time.sleep(60)
sources.host = wait
sys.exit(main.main(["plan", "mine"]))
"""


def test_an_option_of_a_command_without_a_profile_is_explained(process):
    result = process("run", "python", "-c", "print(1)")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[usage]: unknown option `-c` of `backendcfg run`\n"
        "  state: nothing was changed\n"
        "  help: if it belongs to the command, write `backendcfg run -- python -c 'print(1)'`\n"
        "  help: run `backendcfg run --help` for what it accepts\n"
    )


def test_a_profile_and_options_are_no_command(process):
    result = process("run", "mine", "--no-color")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[usage]: `backendcfg run` needs a command\n")
