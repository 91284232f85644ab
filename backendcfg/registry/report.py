"""Who owns what now, for messages and for `verify`."""

from __future__ import annotations

from backendcfg.records import record
from backendcfg.registry import owners, restoring, scopes
from backendcfg.registry.busy import thread_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.registry.owners import Cell
    from backendcfg.registry.restoring import Stuck


@record(frozen=True)
class Holder:
    """One open scope that holds a switch: its profile, the thread that opened it, the value."""

    profile: str
    thread: str
    wanted: Any


@record(frozen=True)
class Holding:
    """One switch that open scopes hold.

    Attributes:
        switch: its name.
        now: the value in force.
        base: the value that it returns to.
        holders: the scopes, in the order in which they were entered; the last decides.
    """

    switch: str
    now: Any
    base: Any
    holders: tuple[Holder, ...]


def holdings() -> tuple[Holding, ...]:
    """Every switch that an open scope holds; of per-thread switches the calling thread's."""
    with owners.LOCK:
        cells = [*owners.CELLS.values(), *owners.this_thread().cells.values()]
        found = tuple(_holding(cell) for cell in cells if cell.claims)
    scopes.give_back_deferred()
    return found


def _holding(cell: Cell) -> Holding:
    return Holding(
        cell.switch.name,
        cell.now(),
        cell.base,
        tuple(
            Holder(held.claim.prepared.name, thread_name(held.claim.ident), held.wanted)
            for held in cell.holders()
        ),
    )


def stuck() -> tuple[Stuck, ...]:
    """Switches that could not be put back when a scope was left, and have not been since."""
    with owners.LOCK:
        return tuple(restoring.STUCK.values())
