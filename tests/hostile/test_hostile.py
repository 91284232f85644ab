"""No file, state or environment makes a command hang, crash, mislead, or lose what is the user's.

The worlds are in `worlds.py`. Each of them meets one verb and every tenth one also a program that
imports backendcfg; what must hold is the same for all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fuzzing
import pytest
import worlds

from backendcfg.dispatch import calibration

STEWARD = Path(__file__).with_name("steward.py")
VERBS = (
    ["status"],
    ["status", "--json"],
    ["list"],
    ["history", "--user"],
    ["validate"],
    ["validate", "../elsewhere/precious"],
    ["trust", "--list"],
    ["plan", "--toml"],
    ["explain", "threads.count"],
    ["env"],
    ["off"],
    ["off", "--user"],
    ["undo", "--user"],
    ["purge"],
    ["autoload", "status"],
)
CODES = {0, 1, 2, 3, 4, 5}
LONGEST = 8000
"""Characters that a complaint may have."""

PROGRAM = "import backendcfg; print(1)"
# A program that imports backendcfg needs no trust, so it may have another reason to have no profile.
ONE_LINE = re.compile(
    r"(note: this Python starts without a profile, because you do not trust .*\n)?(.*\n)?"
)
BATCH = 20


@pytest.fixture(name="template", scope="session")
def _template(tmp_path_factory):
    """A whole world, in which every file is there that a user may have."""
    folder = tmp_path_factory.mktemp("template")
    for path, text in {
        "project/backendcfg.toml": worlds.SETTINGS,
        "project/pyproject.toml": "[project]\nname = 'theirs'\n",
        "project/profiles/mine.toml": worlds.MINE,
        "project/profiles/other.toml": 'schema = 1\nextends = "mine"\n',
        "home/config/config.toml": "schema = 1\n",
        "elsewhere/precious": "schema = 1\n# the user's\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    world = worlds.World(folder)
    # Of the threads that `mine` wants, so that its plans look at it.
    table = folder / "home" / "cache" / "calibration" / Path(calibration.path(1)).name
    table.parent.mkdir(parents=True)
    table.write_bytes(next(data for data in fuzzing.inputs("table") if b'"processor"' in data))
    for words in (["apply", "--user", "tf32-off"], ["trust"], ["status"]):
        subprocess.run(
            [sys.executable, "-P", "-m", "backendcfg", *words],
            cwd=folder / "project",
            env=world.variables(),
            check=True,
            capture_output=True,
        )
    started = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        cwd=folder / "project",
        env=world.variables(),
        check=True,
        capture_output=True,
    )
    assert (started.stdout, started.stderr) == (b"1\n", b"")
    return folder


@pytest.fixture(name="steward", scope="module")
def _steward():
    """`steward(world, words)` runs a verb in a world."""
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("BACKENDCFG_")
    }
    with subprocess.Popen(
        [sys.executable, "-P", str(STEWARD)],
        env={**environment, "BACKENDCFG_DISABLE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:

        def run(world, words):
            request = [str(world.folder / "project"), world.variables(), world.descriptors, words]
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        yield run


def _faults(world, before, status, printed, said):
    """What is wrong with how a verb behaved, in words."""
    if status is None:
        yield "it hung"
    elif status not in CODES:
        yield f"exit status {status}"
    if "Traceback" in printed + said or "error[internal]" in printed + said:
        yield "a traceback"
    if re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said):
        yield "control characters on standard error"
    if len(said) > LONGEST:
        yield f"{len(said)} characters on standard error"
    if status and status > 1 and "error[" not in printed + said and '"error"' not in printed:
        yield "no message"
    # An odd environment or few descriptors may be what a message is about.
    whole = not world.environment and not world.descriptors
    if (
        whole
        and status
        and status > 1
        and not any(path.name in said + printed for path in world.damaged)
    ):
        yield "the message names no damaged file"
    if world.precious() != before:
        yield "the user's files changed"


@pytest.mark.slow
@pytest.mark.parametrize(
    "batch",
    [
        *range(3),
        *[pytest.param(number, marks=pytest.mark.exhaustive) for number in range(3, 100)],
    ],
)
def test_whatever_a_machine_or_a_repository_does_a_verb_answers(batch, template, steward, tmp_path):
    wrong = {}
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        world = worlds.make(number, template, tmp_path / str(number))
        words = VERBS[number % len(VERBS)]
        before = world.precious()
        status, printed, said, _ = steward(world, words)
        faults = list(_faults(world, before, status, printed, said))
        if number % 10 == 0:
            faults += _started(world)
        if faults:
            damage = {
                str(path.relative_to(world.folder)): how for path, how in world.damaged.items()
            }
            wrong[number] = (words, damage, world.environment, faults, said[-600:])
        else:
            shutil.rmtree(world.folder)
    assert wrong == {}


def _started(world):
    """What is wrong with how a program starts that imports backendcfg."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        cwd=world.folder / "project",
        env=world.variables(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=20,
        check=False,
    )
    if (done.stdout, done.returncode) != ("1\n", 0):
        yield f"a program: exit status {done.returncode}, {done.stderr[-300:]!r}"
    elif not ONE_LINE.fullmatch(done.stderr):
        yield f"a program: more than one line, {done.stderr!r}"
