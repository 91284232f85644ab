"""Child interpreters: what a profile does to a process is tested in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture(name="python")
def _python(tmp_path):
    """Run a program in a fresh interpreter, in a directory of its own, and give what it printed."""

    def run(program: str, *arguments: str, fails: int = 0, **variables: str) -> str:
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert fails == child.returncode, child.stderr
        return child.stderr if fails else child.stdout

    return run


@pytest.fixture(name="backendcfg")
def _backendcfg(tmp_path):
    """Run the command in a directory of its own, and give what it printed."""

    def run(*words: str, fails: int = 0, **variables: str) -> str:
        child = subprocess.run(
            [sys.executable, "-m", "backendcfg", *words],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert fails == child.returncode, child.stderr
        return child.stderr if fails else child.stdout

    return run
