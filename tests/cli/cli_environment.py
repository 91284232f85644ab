"""The environment of processes that the tests of the command line start."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def child_environment(variables=None):
    """This environment, in which every process finds the package, with some variables more."""
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    entries = [str(ROOT), *(entry for entry in path if os.path.isabs(entry))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entries), **(variables or {})}
