"""Streams as they were written, and the first operation that two runs do not have alike."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.audit.trace.streams import LINES, RECORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORD = np.dtype([("name", "<u4"), ("digest", "<u8")])


@dataclass(frozen=True)
class Read:
    """A stream as it was written.

    Attributes:
        key: its name.
        about: what it is: thread, process, argv, python.
        names: of operations, by number.
        records: the operations, an array of RECORD.
        details: more of some, by index.
        capped: the operations from which on nothing was written down, None when all were.
        repeated: how many operations were run a second time.
    """

    key: str
    about: dict[str, Any]
    names: list[str]
    records: np.ndarray[Any, Any]
    details: dict[int, dict[str, Any]]
    capped: int | None
    repeated: int = 0


def read(folder: str) -> list[Read]:
    """The streams in a folder, those of the first process first."""
    keys = [name.removesuffix(LINES) for name in os.listdir(folder) if name.endswith(LINES)]
    return [_read(folder, key) for key in sorted(keys, key=_order)]


def _order(key: str) -> tuple[list[int], int]:
    process, _, thread = key.rpartition("-")
    return [int(part) for part in process.split(".")], int(thread)


def _read(folder: str, key: str) -> Read:
    path = os.path.join(folder, key)
    found = Read(key, {}, [], np.empty(0, RECORD), {}, None)
    capped, repeated = None, 0
    with open(path + LINES, "rb") as file:
        for line in file:
            try:
                document = json.loads(line)
            except ValueError:
                break  # the process ended while it wrote
            if "stream" in document:
                found.about.update(document)
            elif "index" in document:
                found.details[document["index"]] = document
            elif "name" in document:
                found.names.append(document["name"])
            elif "capped" in document:
                capped = document["capped"]
            elif "repeated" in document:
                repeated = document["repeated"]
    try:
        with open(path + RECORDS, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        data = b""
    records = np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)
    # Names are written before the records that have them, unless the process ended between.
    if (nameless := records["name"] >= len(found.names)).any():
        records = records[: int(np.argmax(nameless))]
    return Read(key, found.about, found.names, records, found.details, capped, repeated)


@dataclass(frozen=True)
class Parting:
    """The first operation of a stream that two runs do not have alike.

    Attributes:
        stream: its key.
        index: the operation's number, from 0.
        name: the operation in the first run; "" where its stream has ended.
        other: the one in the second run; the same name where only what it computed differs.
    """

    stream: str
    index: int
    name: str
    other: str


def partings(a: Sequence[Read], b: Sequence[Read]) -> list[Parting]:
    """Where the streams of two runs part, in the order of the first run; empty for equal runs."""
    others = {one.key: one for one in b}
    found = []
    for one in a:
        other = others.pop(one.key, None)
        parting = _parting(one, other) if other is not None else _only(one, first=True)
        if parting is not None:
            found.append(parting)
    return found + [parting for one in others.values() if (parting := _only(one, first=False))]


def _only(one: Read, *, first: bool) -> Parting | None:
    """The start of a stream that only one of the runs has."""
    if not len(one.records):
        return None
    name = one.names[one.records["name"][0]]
    return Parting(one.key, 0, name if first else "", "" if first else name)


def _parting(one: Read, other: Read) -> Parting | None:
    numbers = {name: number for number, name in enumerate(one.names)}
    there = np.array([numbers.get(name, -1) for name in other.names], np.int64)
    length = min(len(one.records), len(other.records))
    mine, its = one.records[:length], other.records[:length]
    same = (there[its["name"]] == mine["name"]) & (its["digest"] == mine["digest"])
    index = length if same.all() else int(np.argmin(same))
    names = [
        run.names[run.records["name"][index]] if index < len(run.records) else ""
        for run in (one, other)
    ]
    return Parting(one.key, index, *names) if any(names) else None
