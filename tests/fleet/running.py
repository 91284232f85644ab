"""Programs that a test writes and runs, under a profile or without."""

from __future__ import annotations

import os
import subprocess
import sys


def run_program(folder, text, *words, under="", **environment):
    """Run a Python program, which must exit with 0, and give what it and its children printed.

    Args:
        folder: where it is written, as `program.py`, and run.
        text: the program.
        words: its arguments.
        under: the profile that `backendcfg run` starts it under; "" for none.
        environment: variables beside those of the test.
    """
    (folder / "program.py").write_text(text)
    command = [sys.executable, "program.py", *words]
    if under:
        command = [sys.executable, "-m", "backendcfg", "run", under, "--", *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
