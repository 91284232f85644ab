"""What a conflict is, and which of them happen on a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from backendcfg.resolve.ground import Ground, Subject


@dataclass(frozen=True)
class Conflict:
    """Two subjects that cannot both hold.

    Attributes:
        name: stable, for tests and documents.
        left, right: flags, or variables as `environment.NAME`; the first pair that clashes is
            shown. One that nothing on the host reads, or that nobody sets, takes no part.
        clash: whether these two values exclude each other here.
        note: why they do.
        cure: what to do, after "in FILE, ".
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    clash: Callable[[Any, Any, Ground], bool]
    note: str
    cure: str


@dataclass(frozen=True)
class Clash:
    """A conflict that happened, with both sides as they are set."""

    conflict: Conflict
    left: Subject
    right: Subject


def clashes(table: Iterable[Conflict], ground: Ground) -> Iterator[Clash]:
    """Every conflict of a profile on its host, in the order of the table."""
    for conflict in table:
        found = next(_pairs(conflict, ground), None)
        if found is not None:
            yield Clash(conflict, *found)


def _pairs(conflict: Conflict, ground: Ground) -> Iterator[tuple[Subject, Subject]]:
    for left in map(ground.subject, conflict.left):
        for right in map(ground.subject, conflict.right):
            if left is None or right is None or not (left.asked or right.asked):
                continue
            if conflict.clash(left.value, right.value, ground):
                yield left, right
