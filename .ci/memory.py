"""Run a command, and fail when it and its children had more memory at a time than they may have.

    python memory.py MEGABYTES COMMAND...

Memory that processes share is counted once, by halves, thirds and so on (`Pss`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SECONDS = 1.0  # from look to look


def family(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            # The name of the program stands in parentheses and may hold anything.
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            parents[int(entry)] = int(fields[1])
    found, before = {root}, set()
    while found != before:
        before = set(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found


def megabytes(process: int) -> float:
    """What a process has now; 0 for one that has ended."""
    with suppress(OSError):
        for line in Path("/proc", str(process), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main(limit: int, command: list[str]) -> int:
    """The status of the command, or 1 where it went beyond the limit."""
    most = 0.0
    with subprocess.Popen(command) as running:
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = running.wait(SECONDS)
                break
            most = max(most, sum(map(megabytes, family(running.pid))))
    print(f"{most:.0f} MB of memory at most, of {limit} MB")
    return status or int(most > limit)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
