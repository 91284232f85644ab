"""Measuring who is the fastest: every provider in a process of its own, in turns, warm, by medians.

Two libraries with threads in one process would slow each other down, and a library that crashes
ends only its own process. Turns let a change of clock speed or a neighbour's load meet everybody.
"""

from __future__ import annotations

import time

from backendcfg.dispatch import speed
from backendcfg.dispatch.calibration import Measured
from backendcfg.native import FACTORISATIONS
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    class Contender(Protocol):
        """Somebody to measure; `serial` says that it has no threads."""

        name: str
        serial: bool

        def take(self, case: Case) -> float | None:
            """Seconds of one call, from one turn of many; None where it has no such operation.

            Raises:
                ContenderLostError: it cannot compute any more.
            """


SIZES = {
    "gemm": (4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "gemv": (16, 64, 256, 1024),
    **dict.fromkeys(("getrf", "potrf", "geqrf"), (64, 256, 512)),
    **dict.fromkeys(("syevd", "heevd", "gesdd"), (64, 256)),
}
TURNS, LINEAR_TURNS = 7, 3
"""How often everything is measured: factorisations take long enough to vary little."""

HOPELESS = 4.0
"""A serial one that is this many times slower than the fastest is not asked for larger sizes."""


class ContenderLostError(Exception):
    """A process that measures ended, or its library refused."""


@record(frozen=True)
class Outcome:
    """What was measured.

    Attributes:
        times: `{operation: {size class: {provider: Measured}}}`.
        lost: why providers could not go on, by name.
        complete: whether every turn was taken before the time was up.
    """

    times: dict[str, dict[int, dict[str, Measured]]]
    lost: dict[str, str]
    complete: bool

    @property
    def noise(self) -> float:
        """How much turns differ, as a part of what they take: the median over all cases."""
        from statistics import median

        rows = [row for sizes in self.times.values() for row in sizes.values()]
        return median([one.spread for row in rows for one in row.values()] or [0.0])


@record(frozen=True)
class Case:
    """One product or factorisation to measure.

    Attributes:
        operation: "sgemm", "dgetrf".
        m, n, k: its sizes; of a square matrix all are the same.
    """

    operation: str
    m: int
    n: int
    k: int

    @property
    def size_class(self) -> int:
        """As the choice counts it: `bcfg_size_class`."""
        return (self.m * self.n * self.k).bit_length() - 1

    @property
    def turns(self) -> int:
        """How often it is measured."""
        return LINEAR_TURNS if self.operation in FACTORISATIONS else TURNS

    @property
    def is_parallel(self) -> bool:
        """Whether libraries may use their threads for it."""
        return speed.is_parallel(self.operation, self.size_class)


def cases(letters: str = "sdcz") -> tuple[Case, ...]:
    """Everything that is measured, the least work first."""
    found = [
        Case(operation, size, 1 if operation.endswith("gemv") else size, size)
        for operation in speed.MEASURED
        if operation[0] in letters
        for size in SIZES[operation[1:]]
    ]
    return tuple(sorted(found, key=lambda case: (case.size_class, case.operation)))


def measure(
    contenders: Sequence[Contender],
    limit: float,
    *,
    measured: Sequence[Case] | None = None,
    progress: Callable[[float, str], None] = lambda done, what: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """What each provider takes for each case, as far as the time allows.

    Args:
        contenders: the providers, the preferred one first.
        limit: seconds after which no turn begins any more.
        measured: the cases, instead of `cases()`.
        progress: hears what part is done, and what comes.
        clock: seconds.
    """
    all_cases = tuple(measured) if measured is not None else cases()
    turns: dict[Case, dict[str, list[float]]] = {case: {} for case in all_cases}
    slow: dict[tuple[str, str], int] = {}
    lost: dict[str, str] = {}
    complete = False
    begin = clock()
    for done, case in _schedule(all_cases):
        elapsed = clock() - begin
        if elapsed >= limit:
            break
        progress(max(elapsed / limit, done), case.operation)
        for contender in contenders:
            key = (contender.name, case.operation)
            if contender.name in lost or case.size_class > slow.get(key, case.size_class):
                continue
            try:
                seconds = contender.take(case)
            except ContenderLostError as error:
                lost[contender.name] = str(error)
                continue
            if seconds is None:
                continue
            turns[case].setdefault(contender.name, []).append(seconds)
        best = min((min(seconds) for seconds in turns[case].values()), default=0.0)
        for contender in contenders:
            mine = turns[case].get(contender.name, [])
            if contender.serial and mine and min(mine) > HOPELESS * best:
                key = (contender.name, case.operation)
                slow[key] = min(case.size_class, slow.get(key, case.size_class))
    else:
        complete = True
    progress(1.0, "")
    return Outcome(_medians(turns, lost), lost, complete)


def _schedule(all_cases: Sequence[Case]) -> Iterator[tuple[float, Case]]:
    """Each turn goes through every case, so that whenever time is up most of them are measured."""
    most = max((case.turns for case in all_cases), default=0)
    order = [case for turn in range(most) for case in all_cases if turn < case.turns]
    for number, case in enumerate(order):
        yield number / len(order), case


def _medians(
    turns: dict[Case, dict[str, list[float]]], lost: dict[str, str]
) -> dict[str, dict[int, dict[str, Measured]]]:
    from statistics import median

    found: dict[str, dict[int, dict[str, Measured]]] = {}
    for case, row in turns.items():
        for name, seconds in row.items():
            if name in lost:
                continue
            middle = median(seconds)
            spread = median(abs(each - middle) for each in seconds) / middle if middle else 0.0
            # A turn or two say little of how turns vary.
            spread = spread if len(seconds) > 2 else max(spread, 0.25)
            about = Measured(middle, spread, len(seconds))
            found.setdefault(case.operation, {}).setdefault(case.size_class, {})[name] = about
    return found
