"""Streams as they were written, and the first operation that two runs do not have alike."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.audit.left import Lines, opened
from backendcfg.audit.trace.again import MOST_BITS, Exactness
from backendcfg.audit.trace.streams import LINES, RECORDS, SAMPLE, SAMPLES
from backendcfg.probe.launchers import RANK
from backendcfg.probe.limits import MOST_DIGITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Numbers = np.ndarray[Any, np.dtype[np.float64]]

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
        samples: numbers that some computed, by index.
        exactness: by operation, how many bits of its results are right.
    """

    key: str
    about: dict[str, Any]
    names: list[str]
    records: np.ndarray[Any, Any]
    details: dict[int, dict[str, Any]]
    capped: int | None
    repeated: int = 0
    samples: dict[int, Numbers] = field(default_factory=dict)
    exactness: dict[str, Exactness] = field(default_factory=dict)

    def name(self, index: int) -> str:
        """The name of an operation; "" where the stream has ended before it."""
        return self.names[self.records["name"][index]] if index < len(self.records) else ""


MOST_BYTES = 320 << 20
"""Of records, or of samples, of one stream: more than a stream ever writes."""

MOST_SAMPLES = 100_000
"""Operations of one stream that are sampled, likewise."""

_COUNTS = ({"capped"}, {"repeated"})

_NUMBERS = r"([0-9]{1,9}(?:\.[0-9]{1,9})*)"
_KEY = re.compile(rf"(?:{RANK}([0-9]{{1,{MOST_DIGITS}}})\.)?{_NUMBERS}-{_NUMBERS}")


def read(folder: str) -> list[Read]:
    """The streams in a folder, those of the first process first; of a damaged one its beginning."""
    keys = [name.removesuffix(LINES) for name in os.listdir(folder) if name.endswith(LINES)]
    matches = filter(None, map(_KEY.fullmatch, keys))
    return [_read(folder, match[0]) for match in sorted(matches, key=_order)]


def _order(match: re.Match[str]) -> list[list[int]]:
    rank = [] if match[1] is None else [int(match[1])]
    return [rank, *([int(number) for number in part.split(".")] for part in match.groups()[1:])]


def rank_of(key: str) -> int | None:
    """The rank that a stream belongs to; None for none."""
    match = _KEY.fullmatch(key)
    return int(match[1]) if match is not None and match[1] is not None else None


def _read(folder: str, key: str) -> Read:
    path = os.path.join(folder, key)
    found = Read(key, {}, [], np.empty(0, RECORD), {}, None)
    numbers: dict[str, int] = {}
    counts: dict[str, int] = {}
    with suppress(OSError), opened(path + LINES) as file:
        lines = Lines(file)
        # None where the process ended while it wrote.
        while (document := lines.next()) is not None:
            if all(isinstance(document.get(what), str) for what in ("stream", "python")):
                found.about.update(document)
            elif not found.about:
                break
            elif "index" in document:
                if _is_detail(document, folder):
                    found.details[document["index"]] = {"inputs": [], **document}
            elif isinstance(name := document.get("name"), str) and name not in numbers:
                numbers[name] = len(numbers)
            elif "exact" in document:
                if _is_exactness(document):
                    name = document.pop("exact")
                    found.exactness[name] = Exactness(**document)
            elif document.keys() in _COUNTS and all(map(_is_count, document.values())):
                counts.update(document)
            else:
                break
    found.names.extend(numbers)
    data = _bytes(path + RECORDS)
    records = np.frombuffer(data, RECORD, len(data) // RECORD.itemsize)
    # Names are written before the records that have them, unless the process ended between.
    if (nameless := records["name"] >= len(found.names)).any():
        records = records[: int(np.argmax(nameless))]
    samples = _samples(_bytes(path + SAMPLES))
    capped, repeated = counts.get("capped"), counts.get("repeated", 0)
    return replace(found, records=records, capped=capped, repeated=repeated, samples=samples)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_detail(document: Mapping[str, Any], folder: str) -> bool:
    """Whether a detail has what its readers look at, and names no file but of its folder."""
    inputs = document.get("inputs", [])
    kept = document.get("kept", {"path": "", "obstacle": ""})
    return (
        _is_count(document["index"])
        and all(isinstance(document.get(what), str) for what in ("name", "place"))
        and _is_list(document.get("outputs"), str)
        and _is_list(inputs, dict)
        and all(isinstance(one.get("what"), str) and _is_count(one.get("digest")) for one in inputs)
        and isinstance(document.get("settings", {}), dict)
        and isinstance(kept, dict)
        and all(isinstance(kept.get(what), str) for what in ("path", "obstacle"))
        and os.path.dirname(kept["path"]) in ("", folder)
    )


def _is_exactness(document: Mapping[str, Any]) -> bool:
    calls = document.get("calls")
    return (
        document.keys() == {"exact", "calls", "place", "failed"}
        and all(isinstance(document[what], str) for what in ("exact", "place"))
        and isinstance(calls, list)
        and len(calls) == MOST_BITS + 1
        and all(map(_is_count, [*calls, document["failed"]]))
    )


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


def _bytes(path: str) -> bytes:
    with suppress(OSError), opened(path) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, MOST_BYTES))
    return b""


def _samples(data: bytes) -> dict[int, Numbers]:
    found: dict[int, Numbers] = {}
    at = 0
    while at + SAMPLE.size <= len(data):
        index, count = SAMPLE.unpack_from(data, at)
        at += SAMPLE.size
        if at + 8 * count > len(data) or index in found or len(found) == MOST_SAMPLES:
            break  # the process ended while it wrote
        found[index] = np.frombuffer(data, np.float64, count, at)
        at += 8 * count
    return found


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
    name = one.name(0)
    return Parting(one.key, 0, name if first else "", "" if first else name)


def _parting(one: Read, other: Read) -> Parting | None:
    numbers = {name: number for number, name in enumerate(one.names)}
    there = np.array([numbers.get(name, -1) for name in other.names], np.int64)
    length = min(len(one.records), len(other.records))
    mine, its = one.records[:length], other.records[:length]
    same = (there[its["name"]] == mine["name"]) & (its["digest"] == mine["digest"])
    index = length if same.all() else int(np.argmin(same))
    names = [run.name(index) for run in (one, other)]
    return Parting(one.key, index, *names) if any(names) else None


@dataclass(frozen=True)
class Followed:
    """How far apart two runs are in what one operation computes.

    Attributes:
        index: its number in its stream, from 0.
        operation: its name.
        apart: the largest distance among the numbers looked at, as a part of the largest number;
            None where one is not finite.
    """

    index: int
    operation: str
    apart: float | None


def followed(one: Read, other: Read) -> list[Followed]:
    """The operations that two runs of a stream sampled, until they have another one there."""
    found = []
    for index, mine in sorted(one.samples.items()):
        its = other.samples.get(index)
        if its is None or len(its) != len(mine) or one.name(index) != other.name(index):
            break
        found.append(Followed(index, one.name(index), _distance(mine, its)))
    return found


def _distance(one: Numbers, other: Numbers) -> float | None:
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    if same.all():
        return 0.0
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(one), np.abs(other)).max()
        apart = np.where(same, 0.0, np.abs(one - other)).max() / scale
    return float(apart) if np.isfinite(apart) else None
