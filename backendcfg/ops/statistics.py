"""What served the calls."""

from __future__ import annotations

from dataclasses import dataclass

from backendcfg import _native


@dataclass(frozen=True)
class Served:
    """What one open library has served.

    Attributes:
        provider: its name.
        path: its file; "" for the reference, which is compiled in.
        calls: calls into it by operation, those at 0 left out: `{"dgemm": 12}`. A batch counts
            one for each of its matrices.
    """

    provider: str
    path: str
    calls: dict[str, int]


def stats() -> tuple[Served, ...]:
    """What every open library has served since the start or the last `reset_stats`."""
    return tuple(Served(name, path, calls) for name, path, _, calls in _native.stats())


def reset_stats() -> None:
    """Set every counter to zero."""
    _native.reset_stats()
