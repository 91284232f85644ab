"""`with ops.trace() as calls:` lists every call of this context, with its provider and the reason.

A trace costs nothing where none is open in the process: products look at one number. While one is
open anywhere, every call in the process calls into Python, and those of other contexts are passed
over there.
"""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops.serving import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        calls = self.calls
        rows = [
            (one.operation, "x".join(map(str, one.sizes)), one.dtype, one.provider or "-")
            for one in calls
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True))
            + f"  {one.because}"
            for row, one in zip(rows, calls, strict=True)
        ]
        if self.left_out:
            lines.append(f"and {self.left_out} more, which were not kept")
        return "\n".join(lines) if lines else "nothing was called"


_open: ContextVar[tuple[Trace, ...]] = ContextVar("backendcfg_traces", default=())
_lock = threading.Lock()
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
    with _lock:
        _number += more
        _native.set_tracing(_number > 0)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
