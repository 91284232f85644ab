"""What every test gets: its own directories, and an environment without anybody's overrides."""

from __future__ import annotations

import os
import tempfile

import pytest

OVERRIDES = ("OPENBLAS_", "GOTO_", "OMP_", "MKL_", "BLIS_", "KMP_", "BACKENDCFG_", "NVIDIA_TF32")


# Collecting already imports backendcfg, which applies what is active for whoever runs the tests, and
# NumPy, whose OpenBLAS reads its variables when it is loaded.
_WORLD = tempfile.TemporaryDirectory()
for _name in [name for name in os.environ if name.startswith(OVERRIDES)]:
    del os.environ[_name]
# What is tested is what is installed, or on PYTHONPATH, also by children that start in a checkout
# or in another directory.
os.environ["PYTHONSAFEPATH"] = "1"
if "PYTHONPATH" in os.environ:
    _entries = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, _entries)))
for _name in ("CONFIG", "SYSTEM", "STATE", "CACHE"):
    os.environ[f"BACKENDCFG_{_name}_DIR"] = os.path.join(_WORLD.name, _name.lower())


@pytest.fixture(autouse=True)
def _own_world(tmp_path_factory, monkeypatch):
    """Directories of its own for configuration, state and cache; no preset numeric variables."""
    for name in list(os.environ):
        if name.startswith(OVERRIDES):
            monkeypatch.delenv(name)
    world = tmp_path_factory.mktemp("world")
    for name in ("CONFIG", "SYSTEM", "STATE", "CACHE"):
        monkeypatch.setenv(f"BACKENDCFG_{name}_DIR", str(world / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
