"""What programs recorded with `backendcfg.record`: read from a folder, and compared by name.

Ranks are compared by their numbers, and tasks of pools by theirs: which worker takes which task
says nothing. Other processes, and several of one rank, count in the order in which they began to
record, but for those that recorded exactly what a process of the other run did.
"""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg.audit.evidence.outputs import Deviation
from backendcfg.audit.evidence.record import (
    HEAD,
    LARGEST_KEPT,
    MOST_KEPT,
    MOST_RECORDS,
    SUFFIX,
)
from backendcfg.audit.left import Lines, opened
from backendcfg.probe.launchers import RANK
from backendcfg.probe.limits import MOST_DIGITS
from backendcfg.resolve.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Values = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Record:
    """One value that a program recorded.

    Attributes:
        dtype: the type of its elements.
        shape: () for a number.
        digest: of the bytes of its elements.
        values: these bytes; None where they were not kept.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: int
    values: bytes | None

    @property
    def kind(self) -> str:
        """Type and shape: "float32[2, 3]"; of a number the type alone."""
        return self.dtype + (str(list(self.shape)) if self.shape else "")

    def is_like(self, other: Record) -> bool:
        """Whether the other has the same bits."""
        mine, its = ((one.dtype, one.shape, one.digest) for one in (self, other))
        return mine == its


@dataclass(frozen=True)
class Stream:
    """What one process recorded, in a task of a pool or outside of tasks.

    Attributes:
        number: of the process, from 1, in the order in which those of its rank began to record.
        records: by name, in their order.
        ended: why recording ended early, or "".
        rank: that it belongs to; None for none.
        task: the words of its path, as "pool", "1", "3"; () outside of tasks.
    """

    number: int
    records: Mapping[str, tuple[Record, ...]]
    ended: str = ""
    rank: int | None = None
    task: tuple[str, ...] = ()

    @property
    def key(self) -> frozenset[tuple[Any, ...]]:
        """What is equal for processes that recorded the same."""
        return frozenset(
            (name, tuple((one.dtype, one.shape, one.digest) for one in each))
            for name, each in self.records.items()
        )


MOST_DIMENSIONS = 64
"""Of an array, as NumPy and PyTorch have it."""

_NAME = re.compile(rf"(?:{RANK}([0-9]{{1,{MOST_DIGITS}}})\.)?([0-9]{{1,9}}){re.escape(SUFFIX)}")


def read(folder: str) -> tuple[Stream, ...]:
    """What the processes left in a folder; of a damaged file, the records before the damage."""
    found = []
    for match in filter(None, map(_NAME.fullmatch, os.listdir(folder))):
        rank = None if match[1] is None else int(match[1])
        streams = _streams(os.path.join(folder, match[0]), int(match[2]) + 1)
        found += [replace(stream, rank=rank) for stream in streams]
    return tuple(sorted(found, key=lambda one: (one.rank is not None, one.rank or 0, one.number)))


def _streams(path: str, number: int) -> list[Stream]:
    """What one process recorded, outside of tasks and in each."""
    tasks: dict[tuple[str, ...], dict[str, list[Record]]] = {}
    ended = ""
    with suppress(OSError), opened(path) as file:
        try:
            ended = str(json.loads(file.read(HEAD)))
        except ValueError:
            return [Stream(number, {})]  # the process ended while it began
        lines, left = Lines(file), MOST_KEPT
        for _ in range(MOST_RECORDS):
            about = lines.next()
            if about is None or not _is_record(about):
                break  # the process ended while it wrote
            values = None
            if about["kept"]:
                values = file.read(min(about["bytes"], LARGEST_KEPT, left))
                left -= len(values)
                if len(values) < about["bytes"]:
                    break
            one = Record(about["dtype"], tuple(about["shape"]), about["digest"], values)
            found = tasks.setdefault(tuple(map(str, about.get("task", ()))), {})
            found.setdefault(about["name"], []).append(one)
    return [
        Stream(number, {name: tuple(each) for name, each in found.items()}, ended, task=task)
        for task, found in (tasks or {(): {}}).items()
    ]


def _is_record(about: Mapping[str, Any]) -> bool:
    """Whether a line is one that `record.py` writes."""
    shape = about.get("shape")
    return (
        all(isinstance(about.get(what), str) for what in ("name", "dtype"))
        and isinstance(about.get("kept"), bool)
        and isinstance(shape, list)
        and isinstance(about.get("task", []), list)
        and len(shape) <= MOST_DIMENSIONS
        and all(
            type(one) is int and one >= 0
            for one in (*shape, about.get("digest"), about.get("bytes"))
        )
    )


def number_of(streams: Sequence[Stream]) -> int:
    """How many values were recorded."""
    return sum(len(each) for stream in streams for each in stream.records.values())


def without_values(streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """What says whether others are the same, in less memory."""
    return tuple(
        replace(
            stream,
            records={
                name: tuple(replace(one, values=None) for one in each)
                for name, each in stream.records.items()
            },
        )
        for stream in streams
    )


def obstacles(streams: Sequence[Stream]) -> list[str]:
    """Why not all that was recorded is compared, in words."""
    return [
        f"records of {_who(stream)} after the {ordinal(number_of([stream]))}: {stream.ended}"
        for stream in _by_process(streams)
        if stream.ended
    ]


@dataclass(frozen=True)
class Between:
    """What two sides recorded, each in one run or several.

    Attributes:
        records: how many values of the first side were compared.
        differing: what the second recorded otherwise, in words.
        left_out: the names of what differs from run to run of the same side.
    """

    records: int
    differing: tuple[str, ...]
    left_out: tuple[str, ...]


def between(a: Sequence[Sequence[Stream]], b: Sequence[Sequence[Stream]]) -> Between:
    """Compare what two sides recorded; the values of their first runs are looked at."""
    left_out = dict.fromkeys(
        one.name for side in (a, b) for run in side[1:] for one in differing(side[0], run)
    )
    words = [one.words for one in differing(a[0], b[0]) if one.name not in left_out]
    compared = sum(
        len(each)
        for stream in a[0]
        for name, each in stream.records.items()
        if name not in left_out
    )
    return Between(compared, tuple(words), tuple(filter(None, left_out)))


def differing(a: Sequence[Stream], b: Sequence[Stream]) -> list[Deviation]:
    """What a run recorded otherwise than the first one did.

    Args:
        a: of the first run.
        b: of the other.
    """
    found = []
    if not all(any(one.task for one in run) for run in (a, b)):
        # Under `nothing` nobody numbers tasks: then processes are compared.
        a, b = _by_process(a), _by_process(b)
    runs = [_by_place(run) for run in (a, b)]
    ended = {one.rank for one in (*a, *b) if one.ended}
    for rank, task in sorted({**runs[0], **runs[1]}, key=_in_order):
        mine, its = (run.get((rank, task), []) for run in runs)
        of_rank = "" if rank is None else f" of rank {rank}"
        # Where recording ended early, it may have ended before a task.
        if len(mine) != len(its) and not (task and rank in ended):
            words = f"{counted(len(its), 'process', 'processes')}{of_rank} recorded values"
            in_task = f" in {_named(task)}" if task else ""
            found.append(Deviation("", f"{words}{in_task}, not {len(mine)}"))
        is_one_of = max(len(mine), len(its)) > 1 or bool(task)
        left, right = _unlike(mine, its)
        for one, other in zip(left, right, strict=False):
            who = f"{_who(one, is_one_of=is_one_of)}: " if is_one_of or of_rank else ""
            found += [Deviation(name, who + words) for name, words in _of_streams(one, other)]
    return found


def _by_process(run: Sequence[Stream]) -> list[Stream]:
    """What each process recorded, in tasks or not, in the order of `read`."""
    processes: dict[tuple[int | None, int], Stream] = {}
    for stream in run:
        key = stream.rank, stream.number
        first = processes.get(key)
        records = dict(first.records) if first else {}
        for name, each in stream.records.items():
            records[name] = (*records.get(name, ()), *each)
        processes[key] = replace(stream, records=records, task=())
    return list(processes.values())


def _in_order(place: tuple[int | None, tuple[str, ...]]) -> tuple[Any, ...]:
    """Ranks by number, and in each what is outside of tasks, then tasks by their numbers."""
    rank, task = place
    numbers = [(int(word), "") if word.isdecimal() else (-1, word) for word in task]
    return rank is not None, rank or 0, numbers


def _by_place(run: Sequence[Stream]) -> dict[tuple[int | None, tuple[str, ...]], list[Stream]]:
    """What was recorded by rank and task, in the order of `read`."""
    places: dict[tuple[int | None, tuple[str, ...]], list[Stream]] = {}
    for stream in run:
        places.setdefault((stream.rank, stream.task), []).append(stream)
    return places


def _named(task: Sequence[str]) -> str:
    return "task " + "/".join(task)


def _who(stream: Stream, *, is_one_of: bool = True) -> str:
    """A task, a process, or the rank that it alone is."""
    process = _named(stream.task) if stream.task else f"process {stream.number}"
    if stream.rank is None:
        return process
    return f"{process} of rank {stream.rank}" if is_one_of else f"rank {stream.rank}"


def _unlike(a: Sequence[Stream], b: Sequence[Stream]) -> tuple[list[Stream], list[Stream]]:
    """The processes of each run without one in the other that recorded the same."""
    left, right = [], [(other.key, other) for other in b]
    for one in a:
        key = one.key
        same = next((place for place, (its, _) in enumerate(right) if its == key), None)
        if same is None:
            left.append(one)
        else:
            del right[same]
    return left, [other for _, other in right]


def _of_streams(a: Stream, b: Stream) -> Iterator[tuple[str, str]]:
    is_whole = not (a.ended or b.ended)
    for name in {**a.records, **b.records}:
        one, other = a.records.get(name, ()), b.records.get(name, ())
        if is_whole and not (one and other):
            yield name, f"record `{name}`: only one of them has it"
        elif is_whole and len(one) != len(other):
            yield name, f"record `{name}`: {len(other)} of them, not {len(one)}"
        pairs = list(zip(one, other, strict=False))
        odd = [place for place, (x, y) in enumerate(pairs) if not x.is_like(y)]
        if odd:
            first, apart = _first(*pairs[odd[0]]), _apart([pairs[place] for place in odd])
            if len(pairs) == 1:
                yield name, f"record `{name}` {first}{apart}"
                continue
            which = f"the {ordinal(odd[0] + 1)} of {len(pairs)}"
            words = f"{which} {first}; {len(odd)} of {len(pairs)} differ{apart}"
            yield name, f"record `{name}`: {words}"


def _first(one: Record, other: Record) -> str:
    """What one record has otherwise, in words."""
    if one.kind != other.kind:
        return f"is {other.kind}, not {one.kind}"
    x, y = _values(one), _values(other)
    if x is None or y is None:
        return "has other elements"
    bits = [each.view(np.uint8).reshape(-1, each.itemsize) for each in (x, y)]
    odd = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    if not len(odd):
        return "has another digest"  # of a file that was damaged
    place = int(odd[0])
    was, now = str(x[place]), str(y[place])
    at = ""
    if one.shape:
        at = f" at {[int(each) for each in np.unravel_index(place, one.shape)]}"
    return f"has {now}, not {was}{at}" if was != now else f"has another {was}{at}"


def _apart(pairs: Sequence[tuple[Record, Record]]) -> str:
    """By how much elements are apart, as a part of the larger one, where all of them tell."""
    most = 0.0
    for one, other in pairs:
        x, y = _values(one), _values(other)
        if one.kind != other.kind or x is None or y is None or x.dtype.kind in "mM":
            return ""
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            p, q = x.astype(wide), y.astype(wide)
            same = (p == q) | (np.isnan(p) & np.isnan(q))
            larger = np.maximum(np.abs(p), np.abs(q))
            distances = np.where(same, 0.0, np.abs(p - q) / larger)
        most = max(
            most, float(distances.max(initial=0.0)) if np.isfinite(distances).all() else np.inf
        )
    return f", apart by {most:.1e} at most" if np.isfinite(most) else ""


def _values(record: Record) -> Values | None:
    """The elements of a record as numbers; None where they are not kept, or have no such type."""
    if record.values is None:
        return None
    is_half = record.dtype == "bfloat16"  # the upper half of a float32
    try:
        dtype = np.dtype("uint16" if is_half else record.dtype)
    except (TypeError, ValueError, SyntaxError, OverflowError):
        return None  # of ml_dtypes, or of a file that was damaged
    length = math.prod(record.shape) * dtype.itemsize
    if dtype.kind not in "biufcmM" or len(record.values) != length:
        return None
    values = np.frombuffer(record.values, dtype)
    return (values.astype(np.uint32) << 16).view(np.float32) if is_half else values


def ordinal(number: int) -> str:
    """A number in its place: "3rd"."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number}{ending}"
