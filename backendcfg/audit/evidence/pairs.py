"""What runs in turns say of the ratio of two quantities, and what noise alone would say.

Runs are taken in the order A, B, B, A, so that a machine that becomes slower favours nobody. A
round gives two ratios of A to B, and two of a side to itself: those of neighbours.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

DRAWS = 2000
ORDER = (0, 1, 1, 0)
"""Which side each run of a round is of."""

Verdict = Literal["less", "more", ""]


@dataclass(frozen=True)
class Ratio:
    """How two sides compare in one quantity, of which less is better.

    Attributes:
        a: the median of the first side.
        b: the median of the second.
        ratio: the median of a / b over all pairs.
        low: where that median lies in 95 of 100 draws of as many pairs, at least.
        high: at most.
        noise: how far the ratio of a side to itself, taken from as many pairs, is from 1 in 95 of
            100 draws: 0.02 is 2 %.
        verdict: whether b has less or more; "" where that cannot be told from noise.
        pairs: a / b of every pair.
        own: the ratio of a side to itself, of every pair.
    """

    a: float
    b: float
    ratio: float
    low: float
    high: float
    noise: float
    verdict: Verdict
    pairs: tuple[float, ...]
    own: tuple[float, ...]


def ratio(values: Sequence[float]) -> Ratio:
    """Compare the sides of whole rounds.

    Args:
        values: of the runs, in the order in which they were made.
    """
    a, b = ([one for one, side in _sided(values) if side == wanted] for wanted in (0, 1))
    pairs = [_log(one, other) for one, other in zip(a, b, strict=True)]
    own = [
        _log(one, other)
        for (one, side), (other, next_side) in itertools.pairwise(_sided(values))
        if side == next_side
    ]
    draw = random.Random(0)  # noqa: S311 - no secret
    low, high = interval(pairs, draw)
    # Which of two runs of a side comes first means nothing, so each draw may turn it.
    turned = sorted(
        abs(
            statistics.median(draw.choice((-1, 1)) * one for one in draw.choices(own, k=len(pairs)))
        )
        for _ in range(DRAWS)
    )
    middle = statistics.median(pairs)
    noise = turned[-DRAWS // 20 - 1]
    verdict: Verdict = ""
    if abs(middle) > noise:
        verdict = "less" if low > 0 else "more" if high < 0 else ""
    return Ratio(
        statistics.median(a),
        statistics.median(b),
        math.exp(middle),
        math.exp(low),
        math.exp(high),
        math.expm1(noise),
        verdict,
        tuple(map(math.exp, pairs)),
        tuple(map(math.exp, own)),
    )


def interval(values: Sequence[float], draw: random.Random) -> tuple[float, float]:
    """Where the median lies in 95 of 100 draws of as many values, with replacement."""
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    return medians[DRAWS // 40], medians[-DRAWS // 40 - 1]


def _sided(values: Sequence[float]) -> list[tuple[float, int]]:
    return list(zip(values, itertools.cycle(ORDER), strict=False))


def _log(one: float, other: float) -> float:
    # A clock that ticks slowly says 0 of what is short.
    return math.log(max(one, 1e-9) / max(other, 1e-9))
