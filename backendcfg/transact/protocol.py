"""A switch: one real setting in somebody's library.

Apart from `switch.py`, because a process that starts needs none of this at run time and `typing` is
slow to import.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

Reach = Literal["process", "thread", "call"]
"""Whom a write affects."""

Latch = Literal[
    "anytime", "each-thread", "before-first-use", "before-import", "before-process", "at-compile"
]
"""Until when a switch can be set."""


@runtime_checkable
class Switch(Protocol):
    """How to read and write one switch.

    Six further methods are optional, each answering "" where it has nothing to say: `dormant()`,
    why nothing in this process reads the switch; `unsupported()`, why this build or version of the
    library cannot take the value wanted; it is not written in either case. `overridden()`, which
    variable or context outranks the switch in whoever reads it; `writer()`, who probably wrote a
    value that is not the one wanted; `lasting()`, why what was made of the value stays when it is
    given back, which is then done whatever `too_late` says; `kept()`, why it is not given back.

    A switch that can take its value from elsewhere, and whose own value says less than what holds,
    tells what holds by `in_force()`; that is what `verify`, `capture` and the token look at.

    A switch whose library takes its first value from variables names them in `reads`, and
    `afresh(variables)` tells what it would hold had the library found those texts, None for unset;
    it raises anything where that cannot be known. `begins(variables)`, for a switch of threads,
    tells what one that starts would hold; there is none where it gets what was set last.

    A switch with `follows = False` is set by an apply alone, and not where a later import finds it.
    One with `is_numeric = False` decides no number: guards and captures pass over it.
    One with `stays = True` need not be put back: a scope writes it where it first finds it, and
    leaves it so.

    Attributes:
        name: unique in the process: "openblas[numpy].threads".
        reach: whom a write affects.
        latch: until when it can be set.
        reversible: whether the value read can be written back.
    """

    @property
    def name(self) -> str: ...
    @property
    def reach(self) -> Reach: ...
    @property
    def latch(self) -> Latch: ...
    @property
    def reversible(self) -> bool: ...

    def read(self) -> Any:
        """The value now. Raises anything when it cannot be read; it is then not written."""
        ...

    def write(self, value: Any) -> None:
        """Set it. Raises anything on failure; the journal undoes."""
        ...

    def too_late(self) -> str:
        """Why the latch has passed in this process, or "" while it can be set.

        A switch that already reads the wanted value is as wanted, whatever this says.
        """
        ...
