"""`reproducible` is in force, and every command agrees, whatever the environment has installed.

Each case is a virtual environment of its own with backendcfg and some frameworks, which are linked
to from the environment that the tests run in: nothing else can be imported there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROGRAM = Path(__file__).with_name("drawn_and_computed.py")
OURS = ("backendcfg", "pytest")
ENVIRONMENTS = {
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "torch without opt_einsum": ("torch", "numpy"),
    "torch with opt_einsum": ("torch", "numpy", "opt_einsum"),
    "jax": ("jax",),
    "tensorflow": ("tensorflow",),
    "all": ("scipy", "torch", "opt_einsum", "jax", "tensorflow"),
}


def with_requirements(names):
    """The distributions of these names and all that they require here, by name."""
    found, waiting = {}, list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                waiting.append(wanted.name)
    return found


def environment(folder, names):
    """The interpreter of a new environment that has these distributions and what they require."""
    venv.create(folder)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for distribution in with_requirements([*OURS, *names]).values():
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    return folder / "bin" / "python"


@pytest.fixture(name="run")
def run_fixture(request, tmp_path, monkeypatch):
    """`run(*words)` runs Python in the environment of the case and gives what it printed."""
    try:
        python = environment(tmp_path / "environment", ENVIRONMENTS[request.param])
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed")
    # What a user has who never said `autoload off`.
    Path(os.environ["BACKENDCFG_STATE_DIR"], "autoload-off").unlink()
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def run(*words, **variables):
        done = subprocess.run(
            [python, *words],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


MARKS = {"torch": pytest.mark.torch, "jax": pytest.mark.jax, "tensorflow": pytest.mark.tensorflow}


def marks(names):
    # SciPy is also in the environment that has all of them.
    alone = [pytest.mark.exhaustive] if names == ("scipy",) else []
    return [mark for name, mark in MARKS.items() if name in names] + alone


@pytest.mark.parametrize(
    "run",
    [pytest.param(case, id=case, marks=marks(names)) for case, names in ENVIRONMENTS.items()],
    indirect=True,
)
def test_reproducible_is_in_force_and_gives_equal_bits(run, tmp_path):
    run("-m", "backendcfg", "apply", "reproducible")

    assert json.loads(run("-m", "backendcfg", "status", "--json"))["tier"] == "run-to-run"
    best, *_ = json.loads(run("-m", "backendcfg", "recommend", "--for", "papers", "--json"))
    assert best["name"] == "reproducible"
    assert best["reasons"][0] == "it keeps its tier here: `run-to-run`"
    assert run("-m", "backendcfg", "verify").endswith("\nthe tier `run-to-run` is in force\n")
    header = "backendcfg: profile reproducible (run-to-run, in force), by generation 1 of the user"
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    assert header in run("-m", "pytest", "-p", "no:cacheprovider", "test_it.py").splitlines()

    first = run(PROGRAM)
    assert run(PROGRAM, OMP_NUM_THREADS="1", PYTHONHASHSEED="7") == first
    without = run(PROGRAM, BACKENDCFG_DISABLE="1")
    both = [line.split() for line in (first + without).splitlines()]
    assert len({digest for _, digest in both}) == len(both) == 2 * len({title for title, _ in both})
