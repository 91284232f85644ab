"""Every test starts and ends with nothing in force; programs run in interpreters of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from backendcfg import _native, session
from backendcfg.backends import base
from backendcfg.session import adjust, installed


@pytest.fixture(autouse=True)
def _nothing_in_force(monkeypatch):
    adjust.forget()
    monkeypatch.setattr(base, "_frozen", False)
    assert _native.current() is None
    yield
    while installed.prepared() is not None:
        session.undo()
    adjust.forget()
    assert _native.chain() == ()


@pytest.fixture(name="python")
def _python(tmp_path):
    """Run a program in a fresh interpreter, in a directory of its own, and give what it printed."""

    def run(program: str, **variables: str) -> str:
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert child.returncode == 0, child.stderr
        return child.stdout

    return run
