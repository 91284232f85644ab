"""Runs of pytest in processes of their own, for tests of the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import backendcfg

SHIM = Path(backendcfg.__file__).parent / "testing" / "entry"
INSTALLED = any(entry.name == "backendcfg" for entry in entry_points(group="pytest11"))

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA"]
# What an editable install of backendcfg has pytest say.
PYTEST += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
PYTEST += ["-p", "no:hypothesispytest"]  # imports Hypothesis into each of a hundred runs: a second


@pytest.fixture(name="installed")
def _installed():
    """For tests of what only an installed backendcfg does."""
    if not INSTALLED:
        pytest.skip("needs backendcfg to be installed")


@pytest.fixture(name="run")
def _run(tmp_path):
    """Write a test module, run pytest on it in a process of its own, give its code and output."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")

    def run(module, *words, code=None, **variables):
        (tmp_path / "test_it.py").write_text(textwrap.dedent(module))
        plugin = [] if INSTALLED else ["-p", "backendcfg_pytest"]
        paths = [str(SHIM), os.environ.get("PYTHONPATH", "")]
        found = {} if INSTALLED else {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(
            [*PYTEST, *plugin, *words],
            cwd=tmp_path,
            env={**os.environ, **found, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        output = done.stdout + done.stderr
        if code is not None:
            assert done.returncode == code, output
        return output

    return run
