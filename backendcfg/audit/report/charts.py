"""Where the marks of the report's drawings stand; the template draws them.

Every drawing is WIDTH wide in its own units, and as wide as the page allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg.audit.evidence.probes import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backendcfg.audit.evidence.measure import Measured
    from backendcfg.audit.evidence.pairs import Ratio
    from backendcfg.audit.evidence.why import Parted
    from backendcfg.audit.trace.reading import Followed

WIDTH = 720
LEFT, RIGHT = 96, 16
"""Units beside what is drawn: labels on the left."""


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Bar:
    """A row of a drawing.

    Attributes:
        label: what it is about.
        dots: where each pair stands.
        low: where the interval begins.
        middle: where the ratio stands.
        high: where the interval ends.
        quiet: from where to where noise alone leads.
        told: whether it is more than noise.
        words: the same in words.
    """

    label: str
    dots: tuple[float, ...]
    low: float
    middle: float
    high: float
    quiet: tuple[float, float]
    told: bool
    words: str


@dataclass(frozen=True)
class Ratios:
    """Ratios on one logarithmic axis, with 1 marked."""

    ticks: tuple[Tick, ...]
    one: float
    bars: tuple[Bar, ...]


def ratios(named: Sequence[tuple[str, Ratio]]) -> Ratios:
    """The ratios of two sides, one row for each quantity."""
    every = [1.0]
    for _, of in named:
        every += [*of.pairs, of.low, of.high, 1 + of.noise, 1 / (1 + of.noise)]
    place = _axis(math.log(min(every)), math.log(max(every)))

    def at(ratio: float) -> float:
        return place(math.log(ratio))

    bars = [
        Bar(
            label,
            tuple(map(at, of.pairs)),
            at(of.low),
            at(of.ratio),
            at(of.high),
            (at(1 / (1 + of.noise)), at(1 + of.noise)),
            bool(of.verdict),
            f"{of.ratio:.2f} ({of.low:.2f} to {of.high:.2f})",
        )
        for label, of in named
    ]
    ticks = [Tick(at(n), f"{n:g}") for n in _round_ratios(min(every), max(every))]
    return Ratios(tuple(ticks), at(1.0), tuple(bars))


def _round_ratios(low: float, high: float) -> list[float]:
    """Ratios with few digits between two, 1 among them, from six to ten of them at most."""
    for steps in (
        (0.98, 0.99, 1, 1.01, 1.02),
        (0.9, 0.95, 1, 1.05, 1.1),
        (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5),
        (0.25, 0.5, 1, 2, 4),
        (0.01, 0.1, 1, 10, 100),
    ):
        if steps[0] <= low and high <= steps[-1]:
            return [one for one in steps if low <= one <= high]
    return [1]


@dataclass(frozen=True)
class Growth:
    """Distances over operations, on a logarithmic axis.

    Attributes:
        ticks: powers of ten, by height.
        points: each operation: across, height, and the words that name it.
        none: the height of operations that are the same.
        first: the number of the first operation, and of the last.
    """

    ticks: tuple[Tick, ...]
    points: tuple[tuple[float, float, str], ...]
    none: float
    first: int
    last: int


HEIGHT = 220
"""Of the drawing of distances; the lowest line is of operations that are the same."""

_INFINITE, _TOP, _LOWEST, _NONE = 8.0, 24.0, 170.0, 190.0


def growth(followed: Sequence[Followed]) -> Growth | None:
    """How far apart two runs are, operation by operation; None for less than two."""
    if len(followed) < 2:
        return None
    far = [one.apart for one in followed if one.apart]
    bottom = math.floor(math.log10(min(far, default=0.1)))
    top = max(math.ceil(math.log10(max(far, default=1.0))), bottom + 1)
    across = _axis(followed[0].index, followed[-1].index)

    def height(apart: float | None) -> float:
        if apart is None:
            return _INFINITE
        if not apart:
            return _NONE
        return _LOWEST - (math.log10(apart) - bottom) / (top - bottom) * (_LOWEST - _TOP)

    points = [
        (
            across(one.index),
            height(one.apart),
            f"op {one.index} {one.operation}: "
            + ("not finite" if one.apart is None else f"{one.apart:.1e}"),
        )
        for one in followed
    ]
    step = -(-(top - bottom) // 6)
    ticks = [Tick(height(10.0**n), f"1e{n:+03d}") for n in range(bottom, top + 1, step)]
    return Growth(tuple(ticks), tuple(points), _NONE, followed[0].index, followed[-1].index)


def operations(steps: Sequence[Parted]) -> list[Tick]:
    """Where runs part, on the line of all operations of the first one's stream."""
    length = max((one.length for one in steps), default=0)
    place = _axis(0, max(length - 1, 1))
    return [Tick(place(min(one.index, length)), f"op {one.index}") for one in steps]


BITS = {"float64": 52, "float32": 23, "TF32, float16": 10, "bfloat16": 7}
"""Bits of the fraction of each type that is marked."""


@dataclass(frozen=True)
class Kept:
    """The bits that one operation keeps: of those of its type, how many, and of those granted."""

    label: str
    kept: float
    whole: float
    granted: float
    state: str
    words: str


def bits(measured: Sequence[Measured]) -> list[Kept]:
    """A row for each operation that was measured."""
    place = _axis(0, BITS["float64"])
    rows = []
    for one in measured:
        if one.precision is None:
            continue
        whole, kept = FORMATS[one.dtype].fraction, one.precision.operands
        words = f"{kept} of {whole} bits, {one.granted} granted"
        if one.precision.accumulator is not None:
            words += f"; sums {one.precision.accumulator}"
        if one.served is not None:
            words += f"; served by {one.served.library}"
        label = one.operation + ("" if one.device == "cpu" else f" on {one.device}")
        label += f" ({one.dtype})"
        at = place(kept), place(whole), place(one.granted)
        rows.append(Kept(label, *at, one.state, words))
    return rows


def marked_bits() -> list[Tick]:
    """The types of `BITS` on the axis of `bits`."""
    place = _axis(0, BITS["float64"])
    return [Tick(place(n), f"{n}") for n in BITS.values()]


def _axis(low: float, high: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: round(LEFT + (value - low) / span * (WIDTH - LEFT - RIGHT), 1)
