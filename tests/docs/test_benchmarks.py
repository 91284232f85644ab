"""Benchmarks say what they measure, and refuse options that they do not have, before they measure."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(
    path.name for path in BENCHMARKS.glob("*.py") if '__name__ == "__main__"' in path.read_text()
)

pytestmark = pytest.mark.skipif(not SCRIPTS, reason="needs the source tree")


def run(script, *arguments):
    if "\nimport torch\n" in (BENCHMARKS / script).read_text() and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    return subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments],
        # They import each other.
        env={name: text for name, text in os.environ.items() if name != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_scripts_are_found():
    assert {"run.py", "programs.py", "scopes.py", "gpu.py"} < set(SCRIPTS)
    assert "measure.py" not in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_says_what_a_script_measures(script):
    done = run(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    text = ast.get_docstring(ast.parse((BENCHMARKS / script).read_text()))
    assert text in done.stdout
    assert "--quick" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_option_that_a_script_does_not_have_is_refused(script):
    group = ["bare"] if script == "scopes.py" else []
    done = run(script, *group, "--quik")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("error: unrecognized arguments: --quik\n")
