"""Programs whose operations are recorded, and the search for why two runs differ."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from backendcfg.audit.evidence.sides import held, plan_of, side_of
from backendcfg.audit.evidence.why import search
from backendcfg.audit.trace.reading import read
from backendcfg.audit.trace.streams import Wanted, want


@pytest.fixture(name="recorded")
def _recorded(tmp_path):
    """Run a script under a profile that sets nothing, and give its streams and what it printed."""
    profile = tmp_path / "empty.toml"
    profile.write_text("schema = 1\n")
    plan = plan_of(str(profile))
    runs = iter(range(100))

    def run(program, *, script="script.py", **wanted):
        (tmp_path / script).write_text(program)
        folder = tmp_path / f"trace-{next(runs)}"
        folder.mkdir()
        want(str(folder), Wanted(**wanted))
        environment = {**side_of("empty", plan).environment, "BACKENDCFG_TRACE": str(folder)}
        done = subprocess.run(
            [sys.executable, script],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return read(str(folder)), done.stdout

    return run


@pytest.fixture
def names():
    """The names of the operations of a stream."""
    return lambda stream: [stream.names[number] for number in stream.records["name"]]


# The second run has this variable with a text in it, the other one an empty one.
ODD = 'odd = int(len(__import__("os").environ["SURROUNDINGS"]) > 0)\n'


@pytest.fixture(name="searched")
def _searched(tmp_path, monkeypatch):
    """Search for why two runs of a script differ, which is dedented and has `odd` in one of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.toml").write_text("schema = 1\n")
    plan = plan_of("empty.toml")

    def search_script(script):
        (tmp_path / "script.py").write_text(ODD + textwrap.dedent(script).removeprefix("\n"))
        side = side_of("empty", plan)
        words = [sys.executable, "script.py"]
        return search(words, {}, lambda _: (side, held(plan)), lambda _: False, odd=1)

    return search_script
