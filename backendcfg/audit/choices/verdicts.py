"""What runs in turns say of each choice: how fast it is, whether that is noise, what it prints."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from backendcfg.audit.evidence import recorded
from backendcfg.audit.evidence.outputs import Distance, distance
from backendcfg.audit.evidence.pairs import interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backendcfg.audit.choices.turns import Contender, Rounds
    from backendcfg.audit.evidence.runs import Run

Verdict = Literal["faster", "slower", "noise", "failed"]

LEAST_FLOOR = 1.02
"""What is less than this apart is noise, however quiet a few runs were."""

LEAST_ROUNDS = 3
"""Rounds from which on there is an interval, and a choice is called faster or slower."""


@dataclass(frozen=True)
class Measured:
    """What a program does under a choice, as against the base.

    Attributes:
        name: of the choice.
        flags: what it sets over the base.
        verdict: the word for it.
        because: why it failed, or was ended; "" where all its runs ended by themselves.
        speed: the base's time over its own, the median of all rounds; 0 where no run ended.
        low: where that median lies at least, or the least of too few rounds for that.
        high: at most, or the largest.
        processor: its processor time over the base's.
        memory: its largest memory over the base's.
        output: how far apart they are in what they print; None where no run ended.
        records: what it records otherwise with `backendcfg.record`, in words.
        rounds: how many it was in.
    """

    name: str
    flags: Mapping[str, Any]
    verdict: Verdict
    because: str = ""
    speed: float = 0.0
    low: float = 0.0
    high: float = 0.0
    processor: float = 0.0
    memory: float = 0.0
    output: Distance | None = None
    records: tuple[str, ...] = field(default=())
    rounds: int = 0

    @property
    def prints_the_same(self) -> bool:
        """Whether nothing that it prints or records is known to be other than under the base.

        Where what the base prints changes from run to run by itself, nothing is known.
        """
        if self.output is None or self.records:
            return False
        return self.output.state == "equal" or 0 in self.output.changing


def floor(base: Sequence[tuple[Run, Run]]) -> float:
    """The largest ratio of two runs of the base in one round."""
    ratios = [_ratio(first.seconds, last.seconds) for first, last in base]
    return max([LEAST_FLOOR, *ratios, *(1 / one for one in ratios)])


def judged(contenders: Sequence[Contender], rounds: Rounds) -> list[Measured]:
    """What whole rounds say of each contender."""
    noise = floor(rounds.base)
    return [_judged(one, rounds, noise) for one in contenders]


def _judged(contender: Contender, rounds: Rounds, noise: float) -> Measured:
    name, flags = contender.name, dict(contender.flags)
    runs = rounds.runs[name]
    verdict: Verdict
    if because := rounds.failed.get(name, ""):
        verdict = "slower" if name in rounds.stopped else "failed"
        return Measured(name, flags, verdict, because, rounds=len(runs))

    def relative(of: Callable[[Run], float]) -> list[float]:
        """The base's over its own, of each round."""
        return [
            _ratio((of(first) + of(last)) / 2, of(own))
            for (first, last), own in zip(rounds.base, runs, strict=True)
        ]

    speeds = relative(lambda one: one.seconds)
    low, high, verdict = min(speeds), max(speeds), "noise"
    if len(speeds) >= LEAST_ROUNDS:
        low, high = interval(speeds, random.Random(0))  # noqa: S311 - no secret
        verdict = "faster" if low > noise else "slower" if high < 1 / noise else "noise"
    of_base = [one for pair in rounds.base for one in pair]
    return Measured(
        name,
        flags,
        verdict,
        speed=statistics.median(speeds),
        low=low,
        high=high,
        processor=1 / statistics.median(relative(lambda one: one.processor)),
        memory=1 / statistics.median(relative(lambda one: one.memory)),
        output=distance([one.whole_text for one in of_base], [one.whole_text for one in runs]),
        records=recorded.between(
            [one.records for one in of_base], [one.records for one in runs]
        ).differing,
        rounds=len(runs),
    )


def _ratio(one: float, other: float) -> float:
    # A clock that ticks slowly says 0 of what is short.
    return max(one, 1e-9) / max(other, 1e-9)


def winners(found: Sequence[Measured]) -> list[Measured]:
    """The choices that are faster and print the same, the fastest first, one for each flag."""
    won: dict[str, Measured] = {}
    for one in sorted(found, key=lambda one: -one.speed):
        if one.flags and one.verdict == "faster" and one.prints_the_same:
            won.setdefault(" ".join(sorted(one.flags)), one)
    return list(won.values())


def best(won: Sequence[Measured], together: Measured | None) -> Measured | None:
    """What to write: all winners together, if that was measured to be worth more than the best one.

    Args:
        won: the winners, the fastest first.
        together: all of them as one choice; None where that was not measured.
    """
    if together is not None and winners([together]) and together.speed > won[0].speed:
        return together
    return won[0] if won else None
