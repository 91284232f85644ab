"""How the tests of devices compile what stands for a library."""

from __future__ import annotations

from pathlib import Path

NATIVE = Path(__file__).resolve().parents[3] / "native"
FAKES = NATIVE / "fakes" / "gpu"
FLAGS = ["-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-Wall", "-Wextra", "-Werror"]
