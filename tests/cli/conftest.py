"""Runs commands through `main`, here or as a process; a project and a host to run on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from backendcfg.cli.main import main

BASE = """\
schema = 1
description = "One thread"

[threads]
count = 1
interop = 1

[[when]]
cpu.vendor = "amd"
[when.flags.threads]
interop = 3
"""

MINE = """\
schema = 1
description = "As many threads as there are"
extends = "base"
drop = ["threads.interop"]

[requires]
os = "linux"

[threads]
count = "auto"

[python]
hash_seed = 0
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture(name="call")
def _call(capsys):
    """Run words through `main` in this process."""
    logger = logging.getLogger("backendcfg")
    level = logger.level

    def call(*words):
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    yield call
    logger.setLevel(level)  # what BACKENDCFG_LOG_LEVEL asked for ends with the test


@pytest.fixture(name="process")
def _process(project):
    """Run words as a real process, in the project."""

    def process(*words, variables=None, **options):
        done = subprocess.run(
            [sys.executable, "-m", "backendcfg", *words],
            env={**os.environ, **(variables or {})},
            cwd=options.pop("cwd", project),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **options,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return process


@pytest.fixture(name="project")
def _project(tmp_path, monkeypatch):
    """A project with two profiles, as the current directory."""
    root = tmp_path / "project"
    (root / "profiles").mkdir(parents=True)
    (root / "backendcfg.toml").write_text("[threads]\ndynamic = false\n")
    (root / "profiles" / "base.toml").write_text(BASE)
    (root / "profiles" / "mine.toml").write_text(MINE)
    monkeypatch.chdir(root)
    return root


@pytest.fixture(name="host")
def _host(tmp_path):
    """A file with a host without a GPU, where four of eight processors may be used."""
    from backendcfg.schema.host import Cpu, Host, Interpreter, Library, Memory, System

    host = Host(
        system=System(os="linux", release="6.1", distribution="Debian", libc="glibc 2.36"),
        python=Interpreter(version="3.11.7"),
        cpu=Cpu(
            vendor="amd",
            name="AMD EPYC",
            architecture="x86_64",
            microarchitecture="zen4",
            lineage=("zen4", "zen3", "zen2", "zen", "x86_64_v3", "x86_64_v2", "x86_64"),
            features=("avx2", "fma"),
            logical=8,
            physical=4,
            usable=4,
            limits=("affinity: 4 of 8",),
        ),
        memory=Memory(total=8 << 30),
        libraries=(
            Library(
                kind="openblas",
                provider="openblas",
                owner="numpy",
                path="/env/numpy.libs/libscipy_openblas64_.so",
                version="0.3.31",
                interface="ilp64",
                prefix="scipy_",
                suffix="64_",
                threading="pthreads",
                core_type="Zen",
            ),
        ),
        packages={"numpy": "2.4.6"},
    )
    path = tmp_path / "host.json"
    path.write_text(host.model_dump_json(by_alias=True))
    return str(path)
