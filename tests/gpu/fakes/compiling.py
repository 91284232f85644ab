"""How the tests of devices compile what stands for a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# A program of its own has only its own directory in its path.
sys.path.append(next(str(p) for p in Path(__file__).resolve().parents if (p / "once.py").exists()))
from once import once

__all__ = ["FAKES", "FLAGS", "NATIVE", "includes", "once"]

NATIVE = Path(__file__).resolve().parents[3] / "native"
FAKES = NATIVE / "fakes" / "gpu"
FLAGS = ["-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-Wall", "-Wextra", "-Werror"]


def includes() -> list[str]:
    """The options by which a fake finds our declarations, in C and of what Python calls."""

    def make(folder: Path) -> None:
        check = NATIVE / "abi" / "check.py"
        subprocess.run([sys.executable, "-I", check, "--declare", folder], check=True)

    return [f"-I{NATIVE / 'include'}", f"-I{once('declared', make)}"]
