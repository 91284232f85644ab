"""What every test gets: its own directories, and an environment without anybody's overrides.

And how long a run takes: which tests are `exhaustive` is in exhaustive.py, and a run of all tests has
two workers.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from importlib.util import find_spec

import exhaustive
import once
import pytest

# PYTHONHASHSEED among them: under an active profile the start-up file starts pytest anew with it.
OVERRIDES = ("OPENBLAS_", "GOTO_", "OMP_", "MKL_", "BLIS_", "KMP_", "BACKENDCFG_", "NVIDIA_TF32")
OVERRIDES += ("PYTHONHASHSEED",)


# A shell without job control starts background jobs with Ctrl-C ignored, and so would every child that
# a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting already imports backendcfg, which applies what is active for whoever runs the tests, and
# NumPy, whose OpenBLAS reads its variables when it is loaded.
_WORLD = tempfile.TemporaryDirectory()
for _name in [name for name in os.environ if name.startswith(OVERRIDES)]:
    del os.environ[_name]
# What is tested is what is installed, or on PYTHONPATH, also by children that start in a checkout
# or in another directory.
os.environ["PYTHONSAFEPATH"] = "1"
# What the workers of this run share, such as compiled libraries: see once.py.
os.environ.setdefault("TESTS_OF_THIS_RUN", os.path.join(_WORLD.name, "shared"))
# Nor do the options of this run concern the runs of pytest that tests start.
os.environ.pop("PYTEST_ADDOPTS", None)
if "PYTHONPATH" in os.environ:
    _entries = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, _entries)))
for _name in ("CONFIG", "SYSTEM", "STATE", "CACHE"):
    os.environ[f"BACKENDCFG_{_name}_DIR"] = os.path.join(_WORLD.name, _name.lower())


def pytest_addoption(parser):
    exhaustive.add_option(parser)


def pytest_configure(config):
    exhaustive.configure(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    exhaustive.select(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Leave what collecting makes out of garbage collection, which tests ask for hundreds of times."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Share all tests out to two workers, where pytest-xdist is installed.

    Tests wait for child processes for much of the time. Somebody who names tests, asks for a number
    of workers (`-n 0`) or debugs gets what pytest does.
    """
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if (
        everything
        and config.pluginmanager.hasplugin("xdist")
        and config.option.numprocesses is None
        and config.option.dist == "no"
        and not config.option.usepdb
        and "PYTEST_XDIST_WORKER" not in os.environ
    ):
        config.option.numprocesses = 2
        config.option.dist = "worksteal"


def pytest_runtest_setup(item):
    """Skip what needs a library that is not here, without importing it.

    An imported PyTorch would answer for us in the other tests of this process.
    """
    for name in ("torch", "jax", "tensorflow"):
        if item.get_closest_marker(name) is not None and find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


_NUMBERS = itertools.count()


@pytest.fixture(scope="session", name="known_libraries")
def _known_libraries():
    """What the libraries of this environment answer. They are asked once in a run, which takes a second."""
    asked = "from backendcfg.probe.host import detect; detect()"

    def ask(folder):
        variables = {**os.environ, "BACKENDCFG_CACHE_DIR": str(folder)}
        subprocess.run([sys.executable, "-c", asked], env=variables, check=True, timeout=120)

    return (once.once(f"{asked} {sys.prefix}", ask) / "libraries.json").read_bytes()


@pytest.fixture
def _world(tmp_path_factory):
    # pytest's own numbering looks through all directories of earlier tests.
    world = tmp_path_factory.getbasetemp() / f"world{next(_NUMBERS)}"
    world.mkdir()
    yield world
    shutil.rmtree(world)


@pytest.fixture(autouse=True)
def _own_world(_world, known_libraries, monkeypatch):
    """Directories of its own for configuration, state and cache; no preset numeric variables.

    Interpreters that a test starts have no profile before they import backendcfg, as after
    `backendcfg autoload off --user`. Tests of the start-up file remove what says so. The cache has the
    answers of the libraries that are installed.
    """
    for name in list(os.environ):
        if name.startswith(OVERRIDES):
            monkeypatch.delenv(name)
    for name in ("CONFIG", "SYSTEM", "STATE", "CACHE"):
        monkeypatch.setenv(f"BACKENDCFG_{name}_DIR", str(_world / name.lower()))
    (_world / "state").mkdir()
    (_world / "state" / "autoload-off").touch()
    (_world / "cache").mkdir(mode=0o700)
    (_world / "cache" / "libraries.json").write_bytes(known_libraries)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(name="give_away")
def _give_away(monkeypatch):
    """Have a file or folder be another user's: root's is given away, else this one is another."""

    def give(path: os.PathLike[str]) -> None:
        if os.geteuid() == 0:
            os.chown(path, 4321, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 4321)

    return give


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
            timeout=300,
        )
        assert fails == child.returncode, child.stderr
        return child.stderr if fails else child.stdout

    return run


@pytest.fixture(name="lines")
def _lines(tmp_path):
    """Run a script, which processes that it spawns can import, and give its lines, read as JSON."""

    def run(program: str, **variables: str) -> list:
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(program))
        child = subprocess.run(
            [sys.executable, str(file)],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert child.returncode == 0, child.stderr
        return [json.loads(line) for line in child.stdout.splitlines()]

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


@pytest.fixture
def idle(monkeypatch):
    """Leave the processors alone in every run of a proof, where the load parts nothing.

    It makes the runs, and the tests beside them, take two to three times as long.
    """
    from backendcfg.audit.evidence import prove

    monkeypatch.setattr(prove, "_load", lambda processors: contextlib.nullcontext())
