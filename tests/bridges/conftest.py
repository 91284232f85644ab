"""Libraries compiled on the spot, and child interpreters that see this package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from once import once

import backendcfg

FAKES = Path(__file__).parents[2] / "native" / "fakes"
PACKAGE = Path(backendcfg.__file__).parent


@pytest.fixture(scope="session", name="build")
def build_fixture(tmp_path_factory):
    """`build("pool_mkl", "CORES=4", name="x.so")` compiles a fake and returns its path."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("the tests of the bridges need a C compiler")

    def build(fake: str, *macros: str, name: str = "") -> str:
        defines = [f"-D{macro}" for macro in macros]
        command = [compiler, "-shared", "-fPIC", "-O1", *defines, str(FAKES / f"{fake}.c")]

        def make(folder):
            subprocess.run([*command, "-o", str(folder / "it.so")], check=True)

        # A file of its own each time, which the loader takes for another library.
        path = tmp_path_factory.mktemp(fake) / (name or f"{fake}.so")
        shutil.copy(once(repr(command), make) / "it.so", path)
        return str(path)

    return build


@pytest.fixture(name="child")
def child_fixture():
    """`child(code, **variables)` runs Python with this package and returns what it prints."""

    def child(code: str, *options: str, cwd=None, **variables: str) -> subprocess.CompletedProcess:
        environment = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("BACKENDCFG_", "PYTHON")) or name.endswith("_DIR")
        }
        environment |= {
            "PYTHONPATH": str(PACKAGE.parent),
            # Not the sources of a checkout in which the tests are run.
            "PYTHONSAFEPATH": "1",
            "BACKENDCFG_DISABLE": "1",
            **variables,
        }
        return subprocess.run(
            [sys.executable, *options, "-c", code],
            env=environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return child


@pytest.fixture(name="answer")
def answer_fixture(child):
    """`answer(code, **variables)`: what a child that must succeed prints as JSON."""

    def answer(code: str, **variables: str):
        # What a profile wants that this process is too late for is told elsewhere: by its message,
        # since no class of ours can be named before the interpreter has started.
        done = child(code, PYTHONWARNINGS="ignore:the tier", **variables)
        # The end, which says what was raised.
        assert (done.returncode, done.stderr[-2000:]) == (0, "")
        return json.loads(done.stdout)

    return answer


@pytest.fixture(name="program")
def program_fixture(child, tmp_path):
    """`program(code, **variables)`: what a program that uses backendcfg prints last, as JSON."""
    names = [f"BACKENDCFG_{name}_DIR" for name in ("CONFIG", "SYSTEM", "STATE", "CACHE")]

    def program(code: str, **variables: str):
        own = {"BACKENDCFG_DISABLE": "0", **{name: os.environ[name] for name in names}}
        done = child(code, cwd=tmp_path, **{**own, **variables})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return program


@pytest.fixture(name="routed")
def routed_fixture(tmp_path):
    """`routed(route)` writes a profile `routed` with this route, which `program` finds."""

    def routed(route: str) -> None:
        (tmp_path / "profiles").mkdir()
        (tmp_path / "backendcfg.toml").write_text("schema = 1\n")
        text = f"schema = 1\n[route]\n{route}\n"
        (tmp_path / "profiles" / "routed.toml").write_text(text)

    return routed
