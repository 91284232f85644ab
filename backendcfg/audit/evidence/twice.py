"""Each operation of a run a second time, with the same arguments: many samples of rare races."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg import childprocess
from backendcfg.audit.evidence.prove import traced
from backendcfg.audit.trace.again import TWICE
from backendcfg.audit.trace.streams import Wanted
from backendcfg.progress import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.audit.evidence.runs import Side

LOADED = 1
"""The number of a run that finds all processors busy, which makes races show."""


@dataclass(frozen=True)
class Unlike:
    """An operation that computed something else the second time.

    Attributes:
        operation: its name.
        index: its number in the stream of its thread, from 0.
        place: where the program calls it.
        shapes: of what it computes.
    """

    operation: str
    index: int
    place: str
    shapes: tuple[str, ...]


@dataclass(frozen=True)
class Twice:
    """What a run showed whose operations were run twice.

    Attributes:
        operations: how many were; left out are those that draw, and those of PyTorch that write to
            an argument.
        unlike: those that computed something else, in their order in each thread.
        bound: an operation that computes something else in this part of its calls, or more often,
            would have shown in 95 of 100 such runs; None where none was run twice.
    """

    operations: int
    unlike: tuple[Unlike, ...]
    bound: float | None


def twice(command: Sequence[str], side: Side, held: Mapping[str, str | None]) -> Twice:
    """Run a program with all processors busy, and each of its operations twice.

    Args:
        command: the program and its arguments.
        side: what it is started under.
        held: the variables that the profile sets, which are not varied.

    Raises:
        BackendCfgError: the program cannot be started, or fails.
    """
    with (
        childprocess.scratch() as folder,
        Step("running each operation twice"),
    ):
        found = traced(command, side, held, LOADED, folder=folder, wanted=Wanted(again=TWICE))
    operations = sum(one.repeated for one in found)
    unlike = tuple(
        Unlike(about["name"], index, about["place"], tuple(about["outputs"]))
        for one in found
        for index, about in sorted(one.details.items())
        if about.get("unlike")
    )
    bound = 1 - 0.05 ** (1 / operations) if operations else None
    return Twice(operations, unlike, bound)
