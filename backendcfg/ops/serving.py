"""Who served a call, and why: counted for `stats`, and told to the traces that are open.

    served("scaled_dot_product_attention", "flash", "the first of the order", (1, 8, 1024, 64))

Operations that are written in Python call `served` once for each call that they served, after it
succeeded, with what `trace` shows: its sizes and, as a fifth argument, its dtype. The reason is one
of a few texts, without numbers of this call in it, because each is counted by itself. Products
count in C instead.

A trace costs nothing where none is open in the process: products look at one number. While one is
open anywhere, every call in the process calls into Python, and those of other contexts are passed
over there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self, overload

from backendcfg import _native
from backendcfg._native import served, served_counts
from backendcfg.errors import InvalidArgumentError
from backendcfg.locks import ProcessLock
from backendcfg.tables import MOST_ROWS, aligned, html

__all__ = [
    "WORDS",
    "Call",
    "Record",
    "Served",
    "Statistics",
    "Trace",
    "counted",
    "reset_stats",
    "served",
    "stats",
    "trace",
]

WORDS = {
    "first": "the first of the order",
    "fastest": "measured to be the fastest for its size",
    "able": "those before it in the order cannot",
    "empty": "there is nothing to multiply",
    "small": "our own code is faster for matrices this small",
    "steady": "its bits do not depend on threads, as `determinism.tier` promises",
}
"""The reasons that C gives, in words."""


def counted() -> dict[tuple[str, str, str], int]:
    """Calls by (operation, provider, because) since the start or the last `reset_stats`."""
    return {(o, p, WORDS.get(why, why)): count for (o, p, why), count in served_counts().items()}


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


@dataclass(frozen=True, repr=False)
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
        return "\n".join(aligned(self._rows()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html("served", ("operation", "provider", "calls", "because"), self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        wide = max((len(str(one.calls)) for one in self.operations), default=0)
        return [
            (one.operation, one.provider, str(one.calls).rjust(wide), one.because)
            for one in self.operations
        ]


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


MOST = 100_000
"""Calls that a trace keeps unless told otherwise; each takes about 200 bytes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was served.

    Attributes:
        operation: "matmul", "scaled_dot_product_attention".
        sizes: of the call: for a product the batch, then m, n and k.
        dtype: of the elements; "" where the operation does not say.
        provider: who served; "" where there was nothing to compute.
        because: why that one.
    """

    operation: str
    sizes: tuple[int, ...]
    dtype: str
    provider: str
    because: str


class Trace:
    """The calls of one context, in the order in which they ended; printed as a table.

    Attributes:
        left_out: how many came after it was full.
    """

    def __init__(self, most: int = MOST) -> None:
        self.left_out = 0
        # As they come: whoever looks at them has more time than whoever makes them.
        self._calls: list[tuple[str, tuple[int, ...], str, str, str]] = []
        self._most = most
        self._is_open = False

    @property
    def calls(self) -> tuple[Call, ...]:
        """Those that were kept."""
        return tuple(
            Call(operation, sizes, dtype, provider, WORDS.get(because, because))
            for operation, sizes, dtype, provider, because in self._calls
        )

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __enter__(self) -> Self:
        if self._is_open:
            raise InvalidArgumentError(
                "trace: this trace is open already", helps=["open another: `ops.trace()`"]
            )
        self._is_open = True
        _open.set((*_open.get(), self))
        _count(1)
        return self

    def __exit__(self, *exception: object) -> None:
        # Where it is left in another context, that one goes on seeing it, and it takes no more.
        self._is_open = False
        _open.set(tuple(trace for trace in _open.get() if trace is not self))
        _count(-1)

    def __str__(self) -> str:
        rows = self._rows(self.calls)
        return "\n".join([*aligned(rows), *self._unkept()]) if rows else "nothing was called"

    def __repr__(self) -> str:
        """What a session shows: the first calls, as there may be very many."""
        if len(self) <= MOST_ROWS:
            return str(self)
        more = f"and {len(self) - MOST_ROWS} more; `print` shows all of them"
        return "\n".join([*aligned(self._rows(self.calls[:MOST_ROWS])), more, *self._unkept()])

    def _repr_html_(self) -> str:
        head = ("operation", "sizes", "type", "provider", "because")
        return html("calls", head, self._rows(self.calls), self._unkept())

    @staticmethod
    def _rows(calls: Sequence[Call]) -> list[tuple[str, ...]]:
        return [
            (
                one.operation,
                "x".join(map(str, one.sizes)),
                one.dtype,
                one.provider or "-",
                one.because,
            )
            for one in calls
        ]

    def _unkept(self) -> list[str]:
        return [f"and {self.left_out} more, which were not kept"] if self.left_out else []


_open: ContextVar[tuple[Trace, ...]] = ContextVar("backendcfg_traces", default=())
_process = ProcessLock()
_number = 0


def trace(*, most: int = MOST) -> Trace:
    """List every call of our operations in this context, for `with`.

    Other threads are not seen, unless they run in a copy of this context, and asyncio tasks only
    where they start inside it. Traces nest: a call is in each that is open.

    Args:
        most: calls to keep; the others are counted in `left_out`.

    Raises:
        InvalidArgumentError: `most` is negative or no number.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise InvalidArgumentError(f"trace: `most` must be a number of calls, not {most!r}")
    return Trace(most)


def traced(operation: str, provider: str, because: str, sizes: tuple[int, ...], dtype: str) -> None:
    """What C calls for every call while a trace is open anywhere."""
    for one in _open.get():
        if not one._is_open:
            continue
        if len(one._calls) < one._most:
            one._calls.append((operation, sizes, dtype, provider, because))
        else:
            one.left_out += 1


def _count(more: int) -> None:
    """Tell C whether a trace is open anywhere."""
    global _number
    with _process.lock:
        _number += more
        _native.set_tracing(_number > 0)
