"""What served the calls, how often, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from backendcfg import _native
from backendcfg.ops.serving import WORDS, counted


@dataclass(frozen=True)
class Served:
    """What one open library has served.

    Attributes:
        provider: its name.
        path: its file; "" for the reference, which is compiled in. A library of devices is listed
            once for each way in which it is called.
        calls: calls into it by operation, those at 0 left out: `{"dgemm": 12}`. A batch counts
            one for each of its matrices.
    """

    provider: str
    path: str
    calls: dict[str, int]


@dataclass(frozen=True)
class Record:
    """How often a provider served an operation for one reason.

    Attributes:
        operation: "dgemm", "scaled_dot_product_attention".
        provider: who served.
        because: why that one.
        calls: how often; a batch of products counts one for each of its matrices.
    """

    operation: str
    provider: str
    because: str
    calls: int


@dataclass(frozen=True)
class Statistics(Sequence[Served]):
    """What was served since the start or the last `reset_stats`; printed as a table.

    As a sequence it is the open libraries.

    Attributes:
        libraries: each with its calls.
        operations: who served what and why, the most frequent first.
    """

    libraries: tuple[Served, ...]
    operations: tuple[Record, ...]

    @overload
    def __getitem__(self, index: int) -> Served: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Served, ...]: ...
    def __getitem__(self, index: int | slice) -> Served | tuple[Served, ...]:
        return self.libraries[index]

    def __len__(self) -> int:
        return len(self.libraries)

    def __iter__(self) -> Iterator[Served]:
        return iter(self.libraries)

    def __str__(self) -> str:
        if not self.operations:
            return "nothing was served"
        rows = [(one.operation, one.provider, str(one.calls)) for one in self.operations]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {one.because}"
            for row, one in zip(rows, self.operations, strict=True)
        )


def stats() -> Statistics:
    """Who served what since the start or the last `reset_stats`, how often, and why."""
    libraries, calls = [], Counter[tuple[str, str, str]](counted())
    for name, path, _, total, by_speed, by_need in _native.stats():
        libraries.append(Served(name, path, total))
        for operation, count in total.items():
            fast, able = by_speed.get(operation, 0), by_need.get(operation, 0)
            for reason, part in (("first", count - fast - able), ("fastest", fast), ("able", able)):
                # Another thread may have counted between one counter and the next.
                if part > 0:
                    calls[operation, name, WORDS[reason]] += part
    for operation, name, path, reason, count in _native.device_recipes():
        if count:
            libraries.append(Served(name, path, {operation: count}))
            calls[operation, name, WORDS[reason]] += count
    records = [Record(*key, count) for key, count in calls.most_common()]
    return Statistics(tuple(libraries), tuple(records))


def reset_stats() -> None:
    """Set every counter to zero."""
    _native.reset_stats()
