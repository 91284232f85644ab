"""How the tests of devices compile what stands for a library."""

from __future__ import annotations

import sys
from pathlib import Path

# A program of its own has only its own directory in its path.
sys.path.append(next(str(p) for p in Path(__file__).resolve().parents if (p / "once.py").exists()))
from once import once

__all__ = ["FAKES", "FLAGS", "NATIVE", "once"]

NATIVE = Path(__file__).resolve().parents[3] / "native"
FAKES = NATIVE / "fakes" / "gpu"
FLAGS = ["-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-Wall", "-Wextra", "-Werror"]
