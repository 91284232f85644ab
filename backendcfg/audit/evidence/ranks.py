"""What the ranks of a program print, each in a file of its own.

Ranks share the standard output of their launcher, and which of them writes first differs from run
to run.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.audit.evidence.outputs import Deviation, distance
from backendcfg.audit.left import opened
from backendcfg.probe import text_of
from backendcfg.probe.limits import rank_of_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.audit.evidence.outputs import Part

OUTPUT = "out"
"""The file that a command prints to, beside the folder of its records."""

_NAME = re.compile(r"rank-([0-9]{1,9})")

# What starts ranks of MPI and Slurm. They read what a rank prints from a pipe, and pass it on.
_STARTERS = (
    *("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "orted", "prterun", "prte", "prted"),
    *("hydra_pmi_proxy", "hydra_bstrap_pr", "slurmstepd"),
)


def print_apart(folder: str) -> None:
    """Have this process print into a file of its own, if it is a rank whose output is compared.

    What it starts inherits that, unless it gives it another output.

    Args:
        folder: that of its records.
    """
    rank = rank_of_job(environ.current())
    if rank is None or not (_prints_to(folder) or _is_started_by_launcher()):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        handle = os.open(os.path.join(folder, f"rank-{rank.number}"), flags, 0o600)
    except OSError:
        return  # the command that asked for it has ended, or its disk is full
    os.dup2(handle, 1)
    os.close(handle)


def _prints_to(folder: str) -> bool:
    """Whether this process prints where the command does that is compared."""
    try:
        there = os.stat(os.path.join(os.path.dirname(folder), OUTPUT))
        return os.path.samestat(os.fstat(1), there)
    except OSError:
        return False


def _is_started_by_launcher() -> bool:
    return text_of(f"/proc/{os.getppid()}/comm").strip() in _STARTERS


def read(folder: str, most: int) -> dict[int, str]:
    """What each rank printed, in the order of their numbers.

    Args:
        folder: that of the records.
        most: bytes that are looked at of each.
    """
    found = {}
    for name in os.listdir(folder):
        if (match := _NAME.fullmatch(name)) is None:
            continue
        try:
            with opened(os.path.join(folder, name)) as file:
                found[int(match[1])] = file.read(most).decode(errors="replace")
        except OSError:
            continue  # the program put something else there
    return dict(sorted(found.items()))


def differing(a: Mapping[int, str], b: Mapping[int, str]) -> tuple[list[Deviation], list[Part]]:
    """What ranks of a run printed otherwise than those of the first, and times that differ.

    Args:
        a: what each rank printed in the first run.
        b: the same of the other run.
    """
    found, left_out = [], []
    for rank in sorted({*a, *b}):
        who = f"rank {rank}"
        apart = distance([a.get(rank, "")], [b.get(rank, "")])
        left_out += [replace(part, rank=rank) for part in apart.left_out]
        if words := apart.words():
            found.append(Deviation(who, f"{who}: {'; '.join(words)}"))
    return found, left_out


def numbers(texts: Mapping[int, str]) -> int:
    """How many numbers the ranks printed."""
    return sum(distance([text], [text]).numbers for text in texts.values())
