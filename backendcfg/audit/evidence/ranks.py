"""What the ranks of a program print, each in a file of its own.

Ranks share the standard output of their launcher, and which of them writes first differs from run
to run.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from backendcfg.audit.evidence.outputs import Deviation, distance
from backendcfg.audit.left import opened
from backendcfg.probe.launchers import RANK, above
from backendcfg.probe.limits import MOST_DIGITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.audit.evidence.outputs import Part

OUTPUT = "out"
"""The file that a command prints to, beside the folder of its records."""

_NAME = re.compile(rf"{RANK}([0-9]{{1,{MOST_DIGITS}}})")


def print_apart(folder: str, rank: int) -> None:
    """Have this process, which is a rank, print into a file of its own, if its output is compared.

    What it starts inherits that, unless it gives it another output.

    Args:
        folder: that of its records.
        rank: its number.
    """
    if not _is_compared(folder):
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(os.path.join(folder, f"{RANK}{rank}"), flags, 0o600)
    except OSError:
        return  # the command that asked for it has ended, or its disk is full
    os.dup2(handle, 1)
    os.close(handle)


def _is_compared(folder: str) -> bool:
    """Whether the output of this process is that of the command, or reaches it by launchers alone.

    What a program pipes, redirects or captures is the program's.
    """
    output = os.path.join(os.path.dirname(folder), OUTPUT)
    try:
        if _is_same("/proc/self/fd/1", output):
            return True
        path = os.readlink("/proc/self/fd/1")
        if _NAME.fullmatch(os.path.basename(path)) and _is_same(os.path.dirname(path), folder):
            return True  # of a rank that is a launcher, too
        return not stat.S_ISREG(os.fstat(1).st_mode) and any(
            _is_same(f"/proc/{launcher}/fd/1", output) for launcher in above()
        )
    except OSError:
        return False


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False  # such as another user's


def read(folder: str, most: int) -> dict[int, str]:
    """What each rank printed, in the order of their numbers.

    Args:
        folder: that of the records.
        most: bytes that are looked at of all together.
    """
    found = {}
    matches = [*filter(None, map(_NAME.fullmatch, os.listdir(folder)))]
    for match in matches:
        try:
            with opened(os.path.join(folder, match[0])) as file:
                text = file.read(most // len(matches)).decode(errors="replace")
                found[int(match[1])] = text
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
        if rank not in a or rank not in b:
            found.append(Deviation(who, f"{who}: only one of them has it"))
            continue
        apart = distance([a[rank]], [b[rank]])
        left_out += [replace(part, rank=rank) for part in apart.left_out]
        if words := apart.words():
            found.append(Deviation(who, f"{who}: {'; '.join(words)}"))
    return found, left_out


def numbers(texts: Mapping[int, str]) -> int:
    """How many numbers the ranks printed."""
    return sum(distance([text], [text]).numbers for text in texts.values())
