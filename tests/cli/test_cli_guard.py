"""`backendcfg run --guard -- CMD`: what the command did to numeric switches, said at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

CHANGES = """\
import os, sys
os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
print("out", sys.argv[1:])
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
CHANGED = (
    "guard: the program changed 1 switch\n"
    "  `NVIDIA_TF32_OVERRIDE` was unset and is 1, set at script.py:2\n"
)
NOTHING = "guard: the program changed no switch\n"


@pytest.fixture(name="script")
def _script(project):
    path = project / "script.py"
    path.write_text(CHANGES)
    return str(path)


@pytest.fixture(name="guarded")
def _guarded(process):
    """Run a Python program under the profile `base` and guard, and give how it ended."""

    def guarded(program, *words, **options):
        return process(
            "run", "--guard", *words, "base", "--", sys.executable, "-c", program, **options
        )

    return guarded


def test_what_the_program_changed_is_said_at_its_end_and_its_status_is_passed_on(process, script):
    result = process("run", "--guard", "base", "--", sys.executable, script, "7", "--guard")
    assert (result.code, result.out) == (7, "out ['7', '--guard']\n")
    assert result.err == CHANGED


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "line", ["--guard base --", "base --guard --", "--set threads.count=2 --guard base --"]
)
def test_guard_stands_where_other_options_of_run_do(line, process, script):
    result = process("run", *line.split(), sys.executable, script)
    assert (result.code, result.out, result.err) == (0, "out []\n", CHANGED)


def test_a_program_that_changes_nothing_is_told_so_although_the_profile_sets_switches(guarded):
    result = guarded("import numpy, scipy.linalg")
    assert (result.code, result.out, result.err) == (0, "", NOTHING)


@pytest.mark.torch
def test_what_a_profile_sets_on_libraries_that_come_later_is_no_change(process):
    program = "import numpy, torch; assert torch.are_deterministic_algorithms_enabled()"
    result = process("run", "--guard=error", "reproducible", "--", sys.executable, "-c", program)
    assert (result.code, result.out, result.err) == (0, "", NOTHING)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("own", "status"), [("0", 1), ("7", 7)])
def test_with_error_a_program_that_changed_a_switch_fails_unless_it_failed_itself(
    own, status, process, script
):
    result = process("run", "--guard=error", "base", "--", sys.executable, script, own)
    assert (result.code, result.err) == (status, CHANGED)


@pytest.mark.exhaustive
def test_with_error_a_program_that_changes_nothing_succeeds(process):
    result = process("run", "--guard=error", "base", "--", sys.executable, "-c", "1")
    assert (result.code, result.err) == (0, NOTHING)


def test_another_word_than_error_is_refused(process):
    result = process("run", "--guard=loud", "base", "--", "true")
    assert (result.code, result.err) == (
        2,
        (
            "error[usage]: `backendcfg run`: --guard: `loud` is not one of `report`, `error`\n"
            "  state: nothing was changed\n"
            "  help: run `backendcfg run --help` for what it accepts\n"
        ),
    )


@pytest.mark.slow
def test_under_json_standard_output_has_one_document(process, script):
    result = process("run", "--guard", "--json", "base", "--", sys.executable, script)
    assert json.loads(result.out) == {
        "status": 0,
        "processes": 1,
        "changes": [
            {
                "what": {
                    "switch": "NVIDIA_TF32_OVERRIDE",
                    "before": None,
                    "now": "1",
                    "place": "script.py:2",
                    "text": "`NVIDIA_TF32_OVERRIDE` was unset and is 1",
                },
                "processes": 1,
            }
        ],
        "draws": [],
        "applied": [],
        "silent": [],
    }
    assert result.err == f"out []\n{CHANGED}"


@pytest.mark.slow
def test_a_command_without_python_is_told_that_nothing_is_known(process):
    unknown = "guard: no Python with backendcfg ran, so nothing is known of its switches\n"
    result = process("run", "--guard", "base", "--", "echo", "out")
    assert (result.code, result.out, result.err) == (0, "out\n", unknown)
    result = process("run", "--guard=error", "base", "--", "echo", "out")
    assert (result.code, result.out, result.err) == (1, "out\n", unknown)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("end", "status"), [("os._exit(0)", 1), ("os.kill(os.getpid(), 9)", 128 + 9)]
)
def test_a_program_that_ends_without_telling_is_named(end, status, process):
    program = f"import os; {end}"
    result = process("run", "--guard=error", "base", "--", sys.executable, "-c", program)
    assert (result.code, result.err) == (
        status,
        (
            "guard: 1 process told nothing at the end, because of a signal, os._exit or exec\n"
            f"  {sys.executable} -c 'import os; {end}'\n"
        ),
    )


@pytest.mark.exhaustive
def test_a_program_that_becomes_another_python_tells_what_that_one_did(guarded):
    become = f"import os; os.execv({sys.executable!r}, [{sys.executable!r}, '-c', 'print(1)'])"
    result = guarded(become)
    assert (result.code, result.out, result.err) == (0, "1\n", NOTHING)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_several_workers_did_alike_is_said_once(method, project, process):
    script = project / "workers.py"
    script.write_text(
        "import multiprocessing, os\n"
        "def work():\n"
        "    os.environ['NVIDIA_TF32_OVERRIDE'] = '1'\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context({method!r})\n"
        "    workers = [context.Process(target=work) for _ in range(3)]\n"
        "    for worker in workers: worker.start()\n"
        "    for worker in workers: worker.join()\n"
    )
    result = process("run", "--guard", "base", "--", sys.executable, str(script))
    assert (result.code, result.err) == (
        0,
        (
            "guard: the program changed 1 switch\n"
            "  `NVIDIA_TF32_OVERRIDE` was unset and is 1, set at workers.py:3, in 3 processes\n"
        ),
    )


@pytest.mark.exhaustive
def test_workers_of_a_pool_that_is_terminated_are_no_news(project, process):
    script = project / "pool.py"
    script.write_text(
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Pool(2) as pool:\n"
        "        print(pool.map(abs, [-1, -2]))\n"
    )
    result = process("run", "--guard", "base", "--", sys.executable, str(script))
    assert (result.code, result.out, result.err) == (0, "[1, 2]\n", NOTHING)


@pytest.mark.torch
@pytest.mark.sweep(1)
@pytest.mark.parametrize("profile", [["tf32-off"], ["--set", "threads.count=2", "base"]])
def test_the_one_thread_that_pytorch_gives_a_worker_of_a_data_loader_is_no_change(
    project, process, profile
):
    (project / "backendcfg.toml").write_text("")  # MKL may choose its threads under the first
    script = project / "loader.py"
    script.write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader\n"
        "torch.manual_seed(1)\n"
        "if __name__ == '__main__':\n"
        "    for batch in DataLoader([1, 2, 3], num_workers=1):\n"
        "        print(int(batch))\n"
    )
    result = process("run", "--guard", *profile, "--", sys.executable, str(script))
    assert (result.code, result.out, result.err) == (0, "1\n2\n3\n", NOTHING)


@pytest.mark.exhaustive
def test_a_profile_that_the_program_applies_itself_is_named_and_its_switches_are_not(guarded):
    result = guarded("import backendcfg; backendcfg.apply('mine', settings={'threads.count': 2})")
    assert (result.code, result.err) == (
        0,
        f"{NOTHING}guard: the program applied profile `mine` itself\n",
    )


def test_without_a_profile_in_force_the_program_is_guarded_as_it_is(process, script):
    result = process("run", "--guard", "--", sys.executable, script)
    assert (result.code, result.out, result.err) == (
        0,
        "out []\n",
        "no profile is in force; guarded is what the program does by itself\n" + CHANGED,
    )


def test_where_backendcfg_is_turned_off_nothing_is_guarded_and_no_error_passes(process, script):
    command, off = ("base", "--", sys.executable, script), {"BACKENDCFG_DISABLE": "1"}
    result = process("run", "--guard", *command, variables=off)
    assert (result.code, result.out, result.err) == (
        0,
        "out []\n",
        (
            "backendcfg is turned off by BACKENDCFG_DISABLE; running the command alone; nothing is"
            " guarded\n"
        ),
    )
    result = process("run", "--guard=error", *command, variables=off)
    assert (result.code, result.out, result.err) == (
        2,
        "",
        (
            "error[usage]: backendcfg is turned off by BACKENDCFG_DISABLE, so nothing can be guarded\n"
            "  state: nothing was changed\n"
            "  help: run `unset BACKENDCFG_DISABLE`\n"
        ),
    )


@pytest.mark.slow
def test_instances_are_guarded_together(process, script):
    result = process(
        "run", "--guard=error", "--instances", "1", "base", "--", sys.executable, script
    )
    assert (result.code, result.out, result.err) == (1, "out []\n", CHANGED)


@pytest.mark.exhaustive
def test_a_command_that_does_not_exist_is_127(process):
    result = process("run", "--guard", "base", "--", "./no-such-command")
    assert (result.code, result.err) == (
        127,
        (
            "error[command-not-found]: command `./no-such-command` was not found\n"
            "  state: the command was not started\n"
            "  help: check its spelling, or give its whole path\n"
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_for_the_command_reaches_it(number, project):
    ends = (
        "import signal, sys\n"
        f"signal.signal({number:d}, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    words = ["-m", "backendcfg", "run", "--guard", "base", "--", sys.executable, "-c", ends]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C of a terminal would reach both
    ) as started:
        assert started.stdout.readline() == "ready\n"
        started.send_signal(number)
        _, errors = started.communicate()
    assert (started.returncode, errors) == (3, NOTHING)


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True], ids=["group", "as timeout"])
@pytest.mark.parametrize("verb", [("run", "--guard", "base"), ("capture", "--output", "-")])
def test_a_signal_for_the_group_reaches_the_command_once(verb, twice, project):
    counts = (
        "import os, signal\n"
        "both = {signal.SIGINT, signal.SIGUSR1}\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, both)\n"
        "print('ready', flush=True)\n"
        "seen = [int(signal.sigwait(both))]\n"
        "os.kill(os.getppid(), signal.SIGUSR1)\n"  # comes after what the verb passes on
        "while signal.SIGUSR1 not in seen:\n"
        "    seen.append(int(signal.sigwait(both)))\n"
        "print(seen, flush=True)\n"
    )
    words = [sys.executable, "-m", "backendcfg", *verb, "--", sys.executable, "-c", counts]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        assert started.stdout.readline() == "ready\n"
        # As `timeout` does: to its child, and to all of the group.
        for send in (os.kill, os.killpg) if twice else (os.killpg,):
            send(started.pid, signal.SIGINT)
        printed, errors = started.communicate()
    seen = [int(signal.SIGINT), int(signal.SIGUSR1)]
    assert (printed.splitlines()[0], started.returncode) == (str(seen), 0), errors
