"""What the Python processes of a command did to numeric switches, from the files they left."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.audit.recording import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Found:
    """One thing that processes of the command did alike.

    Attributes:
        what: it as JSON data; `text` has it in words.
        processes: how many of them did it.
    """

    what: dict[str, Any]
    processes: int


@dataclass(frozen=True)
class Guarded:
    """What the Python processes of a command did.

    Attributes:
        processes: how many told.
        changes: the switches that they left changed.
        draws: what they drew that no seed governs.
        applied: the profiles that they applied themselves and did not take back.
        silent: the commands of those that began and did not tell how they ended.
    """

    processes: int
    changes: tuple[Found, ...]
    draws: tuple[Found, ...]
    applied: tuple[str, ...]
    silent: tuple[tuple[str, ...], ...]


def read(folder: str) -> Guarded:
    """What the processes left in a folder, in the order in which they began."""
    by_process: dict[str, list[list[dict[str, Any]]]] = {}
    names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    for name in sorted(names, key=lambda name: int(name.removesuffix(SUFFIX).split("-")[1])):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            entries = [_entry(line) for line in file]
        by_process.setdefault(name.split("-")[0], []).append(entries)
    # A process that became another program has a file for each; what it was before is gone.
    last = [files[-1] for files in by_process.values()]
    told = [entries for entries in last if any("changes" in entry for entry in entries)]
    entries = [entry for entries in last for entry in entries]
    return Guarded(
        len(told),
        _alike(change for entry in entries for change in entry.get("changes", ())),
        _alike(draw for entry in entries for draw in entry.get("draws", ())),
        tuple(dict.fromkeys(entry["applied"] for entry in entries if entry.get("applied"))),
        tuple(
            tuple(entry["began"])
            for entries in last
            if entries not in told
            for entry in entries
            if "began" in entry
        ),
    )


def _entry(line: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}  # the process ended while it wrote
    return entry


def _alike(found: Iterable[dict[str, Any]]) -> tuple[Found, ...]:
    counts: dict[str, list[dict[str, Any]]] = {}
    for what in found:
        counts.setdefault(json.dumps(what, sort_keys=True), []).append(what)
    return tuple(Found(same[0], len(same)) for same in counts.values())
