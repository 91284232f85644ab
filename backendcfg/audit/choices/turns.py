"""Runs of a program in turns: under a profile, under choices over it, and under nothing.

Each round has every contender once, in an order of its own, between two runs of the base. So a
machine that becomes slower favours nobody, and each round says what noise alone does.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backendcfg import childprocess
from backendcfg.audit.evidence import recorded
from backendcfg.audit.evidence.runs import TookTooLongError, run
from backendcfg.errors import CommandFailedError, UsageError
from backendcfg.progress import Step
from backendcfg.resolve.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backendcfg.audit.evidence.runs import Run, Side

TIMES_AS_LONG = 10
LEAST_LIMIT = 10.0
"""A run is ended after so many times what the first one took, and not before so many seconds."""


@dataclass(frozen=True)
class Contender:
    """What the base is held against.

    Attributes:
        name: `threads.count = 1`; "nothing" for no profile.
        side: what the program is started under.
        flags: what it sets over the base.
    """

    name: str
    side: Side
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Rounds:
    """The runs of whole rounds.

    Attributes:
        base: the first and the last run of each.
        runs: by name of a contender, its run of each; fewer of one that failed or took too long.
        failed: why a contender is in no further round, by its name.
        stopped: those of them that took too long.
    """

    base: list[tuple[Run, Run]] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)


def prepare(side: Side) -> None:
    """Let an interpreter start once, which makes the plan that later ones find."""
    childprocess.run(["-c", ""], side.environment, alone=True)


@dataclass
class Program:
    """A program that is measured, and the time that there is.

    Attributes:
        command: the program and its arguments.
        base: what it is started under.
        seconds: how long all may take.
        start: runs it once.
        prepare: is called for each side before its first run.
        clock: the seconds that passed.
    """

    command: Sequence[str]
    base: Side
    seconds: float
    start: Callable[..., Run] = run
    clock: Callable[[], float] = time.monotonic
    prepare: Callable[[Side], None] = prepare

    def __post_init__(self) -> None:
        self._begin = self.clock()
        self.first = 0.0

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.seconds - (self.clock() - self._begin)

    def warm_up(self) -> None:
        """Run it once under the base, which fills caches; how long that took is in `first`.

        Raises:
            CommandNotFoundError, CommandNotExecutableError: it cannot be started.
            CommandFailedError: it did not exit with 0.
            UsageError: the time is up.
        """
        with Step(f"warming up under {self.base.name}"):
            self.prepare(self.base)
            try:
                found = self.start(self.command, self.base, seconds=max(self.left, 1.0))
            except TookTooLongError:
                raise UsageError(
                    f"the command takes longer than the {self.seconds:g} s of `--seconds`",
                    state=_STATE,
                    helps=_SHORTER,
                ) from None
        self.first = found.seconds

    def refuse_unless_fits(self, contenders: Sequence[Contender]) -> None:
        """Refuse to begin where one round would not end in time.

        Raises:
            UsageError: it would not.
        """
        runs = len(contenders) + 2
        if (needed := runs * self.first) > self.left:
            raise UsageError(
                f"one round of {counted(runs, 'run')} takes about {needed:.0f} s, more than is left"
                f" of the {self.seconds:g} s of `--seconds`",
                state=_STATE,
                helps=_SHORTER,
            )

    def rounds(self, contenders: Sequence[Contender], most: int, *, seed: int = 0) -> Rounds:
        """Measure whole rounds, as many as fit in the time.

        Args:
            contenders: whom to hold against the base.
            most: rounds at most.
            seed: of the order in each round.

        Raises:
            CommandFailedError: it did not exit with 0 under the base.
        """
        found = Rounds(runs={one.name: [] for one in contenders})
        limit = max(TIMES_AS_LONG * self.first, LEAST_LIMIT)
        with Step("preparing", 0.0) as step:
            for contender in contenders:
                self.prepare(contender.side)
            for number in range(most):
                left = [one for one in contenders if one.name not in found.failed]
                if not left or (number and not self._fits(found)):
                    break
                random.Random(1000 * seed + number).shuffle(left)  # noqa: S311 - no secret

                def at(
                    turn: int, name: str, number: int = number, runs: int = len(left) + 2
                ) -> None:
                    step.at((number + turn / runs) / most, f"round {number + 1} of {most}, {name}")

                self._round(left, found, limit, at)
        return found

    def _fits(self, found: Rounds) -> bool:
        """Whether one more round like those before ends in time."""
        of_base = [one.seconds for pair in found.base for one in pair]
        lasting = [runs for name, runs in found.runs.items() if name not in found.failed]
        of_others = [one.seconds for runs in lasting for one in runs]
        return (sum(of_base) + sum(of_others)) / len(found.base) <= self.left

    def _round(
        self,
        contenders: Sequence[Contender],
        found: Rounds,
        limit: float,
        at: Callable[[int, str], None],
    ) -> None:
        is_first = not found.base
        at(0, self.base.name)
        before = self._base(limit, is_first=is_first)
        made: dict[str, Run] = {}
        for turn, contender in enumerate(contenders, 1):
            at(turn, contender.name)
            try:
                one = self.start(self.command, contender.side, seconds=limit)
            except CommandFailedError as error:
                found.failed[contender.name] = " ".join([f"{error.message}:", *error.notes[-1:]])
            except TookTooLongError as error:
                found.failed[contender.name] = str(error)
                found.stopped.add(contender.name)
            else:
                made[contender.name] = one if is_first else _kept(one)
        at(len(contenders) + 1, self.base.name)
        found.base.append((before, self._base(limit)))
        for name, one in made.items():
            found.runs[name].append(one)

    def _base(self, limit: float, *, is_first: bool = False) -> Run:
        try:
            found = self.start(self.command, self.base, seconds=limit)
        except TookTooLongError as error:
            raise CommandFailedError(
                f"the command {error} under {self.base.name}",
                notes=[f"the first run took {self.first:.1f} s"],
                state=_STATE,
                helps=["measure again when no other program computes"],
            ) from None
        return found if is_first else _kept(found)


_STATE = "nothing was written"
_SHORTER = [
    "give the command less to do: fewer steps, or fewer data",
    "or more time, as `--seconds 3600`",
]


def _kept(one: Run) -> Run:
    """A run without the values that it recorded; those of a side's first run are enough."""
    return replace(one, records=recorded.without_values(one.records))
