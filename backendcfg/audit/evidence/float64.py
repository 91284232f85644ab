"""How exact operations are under two profiles: each is held against the same one in float64."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from backendcfg import childprocess
from backendcfg.audit.evidence.prove import HASH_SEED, PADDING, traced
from backendcfg.audit.trace.again import FLOAT64
from backendcfg.audit.trace.streams import Wanted
from backendcfg.progress import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.audit.evidence.runs import Side
    from backendcfg.audit.trace.again import Exactness

TELLING = 2
"""Bits by which an operation is less exact under one side, at least: other inputs make one."""

AS_IS = dict.fromkeys((PADDING, HASH_SEED))
"""Nothing of the surroundings is varied."""


@dataclass(frozen=True)
class Bits:
    """How exact an operation is in one run.

    Attributes:
        calls: how many were run in float64, too.
        median: bits of a result that are right: -log2 of its distance to that in float64, as a part
            of the latter, in the 2-norm. The lower median of all calls.
        least: of the call with the fewest; 0 also where a result is not finite.
        place: where the program makes that call.
        failed: how many calls do not run in float64.
    """

    calls: int
    median: int
    least: int
    place: str
    failed: int


NONE = Bits(0, 0, 0, "", 0)


@dataclass(frozen=True)
class Float64:
    """How exact operations are under two sides.

    Attributes:
        a: under the first, by operation.
        b: under the second.
    """

    a: dict[str, Bits]
    b: dict[str, Bits]

    @property
    def compared(self) -> list[str]:
        """The operations of which something is known under both."""
        return [name for name, one in self.a.items() if one.calls and self.b.get(name, NONE).calls]

    @property
    def telling(self) -> list[str]:
        """Those that are less exact under one of the sides, those first that differ most."""
        apart = {name: abs(self.a[name].median - self.b[name].median) for name in self.compared}
        found = [name for name, bits in apart.items() if bits >= TELLING]
        return sorted(found, key=lambda name: -apart[name])

    @property
    def failed(self) -> list[str]:
        """Those that do not run in float64."""
        both = (self.a, self.b)
        return sorted({name for side in both for name, one in side.items() if one.failed})


def float64(command: Sequence[str], sides: Mapping[str, Side]) -> Float64:
    """Run a program once under each of two sides, with its operations in float64, too.

    Args:
        command: the program and its arguments.
        sides: under which operations can be recorded, by name.

    Raises:
        BackendCfgError: the program cannot be started, or fails.
    """
    found = []
    for name, side in sides.items():
        with (
            childprocess.scratch() as folder,
            Step(f"running each operation in float64, too, under {name}"),
        ):
            streams = traced(command, side, AS_IS, 0, folder=folder, wanted=Wanted(again=FLOAT64))
        found.append(bits([one.exactness for one in streams]))
    return Float64(*found)


def bits(streams: Sequence[Mapping[str, Exactness]]) -> dict[str, Bits]:
    """What all streams of a run say of each operation."""
    by_name: dict[str, list[Exactness]] = defaultdict(list)
    for stream in streams:
        for name, one in stream.items():
            by_name[name].append(one)
    return {name: _together(each) for name, each in sorted(by_name.items())}


def _together(of: Sequence[Exactness]) -> Bits:
    by_bits = [sum(calls) for calls in zip(*(one.calls for one in of), strict=True)]
    calls, failed = sum(by_bits), sum(one.failed for one in of)
    if not calls:
        return replace(NONE, failed=failed)
    least = next(bits for bits, number in enumerate(by_bits) if number)
    median = bisect_left([*accumulate(by_bits)], (calls + 1) // 2)
    place = next(one.place for one in of if one.calls[least])
    return Bits(calls, median, least, place, failed)
