"""A process that starts loads these modules of the standard library, and no others."""

from __future__ import annotations

import os
import subprocess
import sys

from test_architecture_imports import LATE

NOTHING_ACTIVE = {"__future__", "errno"}
"""Beside what a bare interpreter loads."""

ACTIVE = NOTHING_ACTIVE | {"_json", "_sha1"}
"""To read the plan, and to find it. Neither `threading` nor `functools`, `re`, `enum`, `signal` or
`importlib`: each brings others, and a start has little time."""

LATER = {
    "backendcfg.bridges.afresh",
    "backendcfg.bridges.entropy",
    "backendcfg.bridges.generators",
    "backendcfg.bridges.pool_calls",
    "backendcfg.bridges.pools",
    "backendcfg.bridges.seeds",
    "backendcfg.bridges.verbose",
    "backendcfg.session.tasks",
}
"""What is loaded when a library, a generator or `multiprocessing` is there."""


def modules(tmp_path, code, told="", **variables):
    """Every module of a fresh interpreter that ran some code, where it is told what begins so."""
    done = subprocess.run(
        [sys.executable, "-c", f'import sys\n{code}\nprint(*sys.modules, sep="\\n")'],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert [line[: len(told)] for line in done.stderr.splitlines()] == [told] * bool(told)
    return set(done.stdout.split("\n")) - {""}


def brought(tmp_path, code="import backendcfg", told="", **variables):
    """The modules that some code brings into a bare interpreter: ours, and the others."""
    found = modules(tmp_path, code, told, **variables) - modules(tmp_path, "", **variables)
    ours = {name for name in found if name.partition(".")[0] == "backendcfg"}
    return ours, found - ours


def command(tmp_path, *words):
    subprocess.run(
        [sys.executable, "-m", "backendcfg", *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


def test_a_start_with_nothing_active_loads_next_to_nothing(tmp_path):
    ours, others = brought(tmp_path)
    assert "backendcfg.session.start" in ours
    assert "backendcfg.session.process" not in ours
    assert others - NOTHING_ACTIVE == set()


def test_a_start_under_an_active_generation_loads_only_what_it_uses(tmp_path):
    command(tmp_path, "apply", "reproducible")
    ours, others = brought(tmp_path, told=LATE)
    assert "backendcfg.session.process" in ours
    assert ours & LATER == set()
    assert others - ACTIVE == set()


def test_a_start_under_a_profile_from_the_environment_loads_only_what_it_uses(tmp_path):
    modules(tmp_path, "import backendcfg", LATE, BACKENDCFG_PROFILE="reproducible")
    ours, others = brought(tmp_path, told=LATE, BACKENDCFG_PROFILE="reproducible")
    assert "backendcfg.session.process" in ours
    assert ours & LATER == set()
    assert others - ACTIVE == set()


def test_the_check_sees_a_module_that_loads_too_much(tmp_path):
    ours, others = brought(tmp_path, "import dataclasses, tomllib")
    assert ours == set()
    assert {"dataclasses", "inspect", "tomllib"} <= others - ACTIVE
