"""Each trap is played twice: by the framework alone, and with backendcfg in the process.

`bare("t01")` is what the scene `bare_t01` of the test's file returned, `held("t01")` the same of
`held_t01`. All bare scenes of a file share one import of the framework, and so do all held ones;
see stage.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STAGE = Path(__file__).with_name("stage.py")


def _scenes(request, tmp_path_factory, kind):
    played = subprocess.run(
        [sys.executable, str(STAGE), str(request.path), kind],
        cwd=tmp_path_factory.mktemp(kind),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    answers = json.loads(played.stdout.splitlines()[-1])

    def seen(trap):
        answer = answers[trap]
        assert "error" not in answer, answer["error"]
        return answer["value"]

    return seen


@pytest.fixture(scope="module", name="bare")
def _bare(request, tmp_path_factory):
    return _scenes(request, tmp_path_factory, "bare")


@pytest.fixture(scope="module", name="held")
def _held(request, tmp_path_factory):
    return _scenes(request, tmp_path_factory, "held")


@pytest.fixture(name="python")
def _python(tmp_path):
    """`python(code, OMP_NUM_THREADS="1")` runs code in a fresh interpreter: (status, out, err)."""

    def run(code, *words, **variables):
        done = subprocess.run(
            [sys.executable, *words, "-c", code],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(name="backendcfg")
def _backendcfg(tmp_path):
    """`backendcfg("run", "fast", "--", "python", ...)`: (status, out, err) of the command."""

    def run(*words, **variables):
        done = subprocess.run(
            [sys.executable, "-m", "backendcfg", *words],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(name="printed")
def _printed(python):
    """`printed(code, NAME="value")`: what a program that must succeed prints."""

    def run(code, **variables):
        status, out, err = python(code, **variables)
        assert status == 0, err
        return out

    return run


@pytest.fixture(name="under")
def _under(backendcfg):
    """`under("reproducible", code, NAME="value")`: what it prints under `backendcfg run`."""

    def run(profile, code, **variables):
        status, out, err = backendcfg("run", profile, "--", sys.executable, "-c", code, **variables)
        assert status == 0, err
        return out

    return run


@pytest.fixture(name="several_processors")
def _several_processors():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("hardware: one processor computes with one thread whatever anybody asks")
