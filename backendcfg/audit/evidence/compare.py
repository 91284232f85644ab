"""`backendcfg compare`: a program under two profiles, in turns, and what makes the difference."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backendcfg.audit.evidence import recorded
from backendcfg.audit.evidence.outputs import Distance, distance
from backendcfg.audit.evidence.pairs import ORDER, Ratio, ratio
from backendcfg.audit.evidence.runs import Run, Side, run
from backendcfg.errors import BackendCfgError
from backendcfg.progress import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

LEAST_ROUNDS, MOST_ROUNDS = 2, 30


@dataclass(frozen=True)
class Comparison:
    """What a program does under two sides.

    Attributes:
        a: the first side's name.
        b: the second's.
        rounds: of four runs each, after one run of each side that does not count.
        seconds: how long a run takes.
        processor: seconds of processor time that a run uses.
        memory: the largest resident memory of a run, in bytes.
        output: how far apart they are in what they print.
        records: what they record with `backendcfg.record`.
    """

    a: str
    b: str
    rounds: int
    seconds: Ratio
    processor: Ratio
    memory: Ratio
    output: Distance
    records: recorded.Between


@dataclass(frozen=True)
class Why:
    """Which flags make the difference.

    Attributes:
        worth: by flag, the time of a run without it over that of a run with it.
        untried: why some flag cannot be left out alone, by flag.
        numbers: the fewest flags without which the output of b is that of a; empty where outputs
            do not differ, or where what they depend on was not found.
        because: why nothing is in `numbers` though outputs differ, or "".
    """

    worth: dict[str, Ratio]
    untried: dict[str, str]
    numbers: tuple[str, ...] = ()
    because: str = ""


def turns(command: Sequence[str], a: Side, b: Side, seconds: float) -> list[Run]:
    """Run a program under two sides in turns: whole rounds, after a run of each that warms up.

    Args:
        command: the program and its arguments.
        a: what b is held against.
        b: the other side.
        seconds: how long it may take; two rounds are made in any case.

    Raises:
        BackendCfgError: the program cannot be started, or fails.
    """
    begin = time.monotonic()
    runs: list[Run] = []
    with Step(f"warming up under {a.name}", 0.0) as step:
        run(command, a, counts=False)
        step.at(0.0, f"warming up under {b.name}")
        run(command, b, counts=False)
        warm = time.monotonic()
        for number in range(MOST_ROUNDS):
            each = (time.monotonic() - warm) / max(number, 1)
            if number >= LEAST_ROUNDS and time.monotonic() - begin + each > seconds:
                break
            for place, side in enumerate(ORDER):
                spent = (time.monotonic() - begin) / max(seconds, 1.0)
                least = (len(ORDER) * number + place) / (len(ORDER) * LEAST_ROUNDS)
                step.at(min(spent, least, 1.0), f"round {number + 1}, under {(a, b)[side].name}")
                one = run(command, (a, b)[side])
                # The values of a side's first run say how far apart they are.
                if len(runs) > 1:
                    one = replace(one, records=recorded.without_values(one.records))
                runs.append(one)
    return runs


def compared(a: Side, b: Side, runs: Sequence[Run]) -> Comparison:
    """What runs in turns say."""
    return Comparison(
        a.name,
        b.name,
        len(runs) // len(ORDER),
        ratio([one.seconds for one in runs]),
        ratio([one.processor for one in runs]),
        ratio([one.memory for one in runs]),
        *_apart(_of(runs, 0), _of(runs, 1)),
    )


def _of(runs: Sequence[Run], side: int) -> list[Run]:
    return [one for i, one in enumerate(runs) if ORDER[i % len(ORDER)] == side]


def _apart(a: Sequence[Run], b: Sequence[Run]) -> tuple[Distance, recorded.Between]:
    """How far apart two sides are in what they print, and in what they record."""
    printed = distance([one.whole_text for one in a], [one.whole_text for one in b])
    return printed, recorded.between([one.records for one in a], [one.records for one in b])


def why(
    command: Sequence[str],
    runs: Sequence[Run],
    b: Side,
    flags: Sequence[str],
    without: Callable[[Collection[str]], Side],
    *,
    seconds: float,
) -> Why:
    """Find the flags that make the difference.

    Args:
        command: the program and its arguments.
        runs: as `turns` made them.
        b: the second side of them.
        flags: those in which the sides differ here.
        without: b, but with some flags as the first side has them.
        seconds: how long finding what the flags are worth may take; two rounds for each are made
            in any case.
    """
    worth, untried = {}, {}
    if ratio([one.seconds for one in runs]).verdict:
        for flag in flags:
            try:
                side = without({flag})
            except BackendCfgError as error:
                untried[flag] = error.message
                continue
            found = turns(command, side, b, seconds / len(flags))
            worth[flag] = ratio([one.seconds for one in found])
    of_a = _of(runs, 0)
    printed, records = _apart(of_a, _of(runs, 1))
    if printed.state == "equal" and not records.differing:
        return Why(worth, untried)
    if printed.state == "unsteady":
        return Why(worth, untried, because="the output differs from run to run of one side")

    def is_as_a(some: Collection[str]) -> bool:
        with Step(f"comparing the output without {', '.join(sorted(some))}"):
            try:
                side = without(some)
            except BackendCfgError:
                return False
            printed, records = _apart(of_a, [run(command, side)])
            return printed.state == "equal" and not records.differing

    if not flags or not is_as_a(flags):
        return Why(worth, untried, because="the output differs without these flags, too")
    return Why(worth, untried, smallest(flags, is_as_a))


def smallest(items: Sequence[str], suffices: Callable[[Collection[str]], bool]) -> tuple[str, ...]:
    """A part of a list that suffices, and of which nothing can be left out; the list does suffice.

    Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions
    on Software Engineering 28 (2002).
    """
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        pieces = [kept[i : i + size] for i in range(0, len(kept), size)]
        rests = [[one for one in kept if one not in piece] for piece in pieces]
        enough = next((each for each in pieces if suffices(each)), None)
        if enough is not None:
            kept, parts = enough, 2
        elif (
            len(pieces) > 2 and (rest := next((r for r in rests if suffices(r)), None)) is not None
        ):
            kept, parts = rest, max(parts - 1, 2)
        elif size > 1:
            parts = min(2 * parts, len(kept))
        else:
            break
    return tuple(kept)
