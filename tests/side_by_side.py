"""Processes that run at the same time, as the ranks of a job do."""

from __future__ import annotations

import socket
import subprocess


def run_side_by_side(commands, **options):
    """Run commands at the same time, each of which must exit with 0.

    Args:
        commands: what is run.
        options: of `subprocess.Popen`, for all of them.
    """
    children = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
        for command in commands
    ]
    for child in children:
        printed, _ = child.communicate(timeout=300)
        assert child.returncode == 0, printed


def free_port():
    """A port of this machine that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
