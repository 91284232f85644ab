"""Programs that tests of devices run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def run(program, *arguments):
    """What a program prints, which must end well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
