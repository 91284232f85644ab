"""A commit that is killed at any file-system call leaves the old generation or the new one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from generation_fixtures import commit, named

from backendcfg.transact import generations

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "native" / "fakes" / "kill_at_call.c"
ROOT = HERE.parents[1]


@pytest.fixture(scope="session", name="library")
def _library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed to build native/fakes/kill_at_call.c"
    path = tmp_path_factory.mktemp("kill") / "kill_at_call.so"
    subprocess.run(
        [
            compiler,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-shared",
            "-fPIC",
            SOURCE,
            "-ldl",
            "-o",
            path,
        ],
        check=True,
    )
    return path


def child(arguments, state, **environment):
    """Run `commit_child.py`; `-S` and `-E` keep everything but the store out of it."""
    return subprocess.Popen(
        [sys.executable, "-c", BOOT, str(ROOT), str(HERE), *map(str, arguments)],
        env={
            "PATH": os.environ["PATH"],
            "BACKENDCFG_STATE_DIR": str(state),
            "BACKENDCFG_DISABLE": "1",
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


BOOT = (
    "import sys; root, here = sys.argv[1:3]; del sys.argv[1:3]; sys.path[:0] = [root, here]; "
    "import commit_child"
)


def killed(library, state, at, how):
    """Commit "new" in a process that is killed at call `at`; the exit status."""
    process = child(
        ["/project", "new", 1],
        state,
        LD_PRELOAD=str(library),
        KILL_UNDER=str(state),
        KILL_AT=str(at),
        KILL_HOW=how,
    )
    _, errors = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["before", "after", "half"])
@pytest.mark.parametrize("existing", [True, False], ids=["with-old", "from-nothing"])
def test_a_killed_commit_leaves_the_old_or_the_new_state(
    library, how, existing, tmp_path, monkeypatch
):
    calls = seen_old = seen_new = 0
    at = 1
    while True:
        state = tmp_path / str(at)
        monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(state))
        if existing:
            commit(None, "other")
            commit("/project", "old")
        survived = killed(library, state, at, how) == 0
        now = generations.current("/project")
        new_number = 2 if existing else 1
        assert named(now) in ((1, "old") if existing else None, (new_number, "new"))
        assert named(generations.active("/project/deep/below")) == named(now)
        seen_new += named(now) == (new_number, "new")
        seen_old += named(now) != (new_number, "new")
        if existing:
            assert named(generations.current(None)) == (1, "other")
        before = now.number if now else 0
        assert commit("/project", "next") == before + 1
        assert named(generations.current("/project")) == (before + 1, "next")
        assert named(generations.undo("/project")) == named(now)
        assert len(generations.history("/project")) == before + 1
        if survived:
            break
        calls, at = calls + 1, at + 1
    assert calls >= 15
    assert seen_old >= 8
    assert seen_new >= 3


def test_the_stepping_harness_counts_every_call_of_a_commit(library, tmp_path, monkeypatch):
    log = tmp_path / "calls"
    process = child(
        ["/project", "new", 1],
        tmp_path / "state",
        LD_PRELOAD=str(library),
        KILL_UNDER=str(tmp_path / "state"),
        KILL_LOG=str(log),
    )
    process.communicate()
    calls = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    kinds = [call.split(" ")[0] for call in calls]
    assert set(kinds) == {"mkdir", "open", "fsync", "close", "flock", "write", "rename"}
    assert calls.index("rename 1.json") < calls.index("rename active")
    # Nothing gets its name before its content is on the disk, and the directory is flushed after.
    for at, kind in enumerate(kinds):
        if kind == "rename":
            assert kinds[at - 3 : at + 4] == [
                "write", "fsync", "close", "rename", "open", "fsync", "close",
            ]  # fmt: skip


def test_two_processes_that_commit_at_once_take_turns(tmp_path, monkeypatch):
    state = tmp_path / "state"
    monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(state))
    processes = [child(["/project", name, 25], state) for name in ("a", "b")]
    printed = []
    for process in processes:
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        printed.append([int(line) for line in out.split()])
    assert sorted(printed[0] + printed[1]) == list(range(1, 51))
    assert printed[0] == sorted(printed[0])
    history = generations.history("/project")
    assert [generation.number for generation in history] == list(range(50, 0, -1))
    assert [generation.parent for generation in history] == list(range(49, -1, -1))
    assert {generation.name for generation in history} == {
        f"{name}-{number}" for name in "ab" for number in range(25)
    }


def test_a_lock_whose_holder_was_killed_blocks_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKENDCFG_STATE_DIR", str(tmp_path))
    commit(None, "old")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from backendcfg.transact import disk\n"
        "with disk.writing(sys.argv[2]): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT), os.path.join(generations.directory(), "lock")],
        env={**os.environ, "BACKENDCFG_DISABLE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    assert commit(None, "new") == 2
