"""How far apart two texts are that a program printed: words, numbers and times in them."""

from __future__ import annotations

import itertools
import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["text", "number", "time"]
State = Literal["equal", "numbers differ", "text differs", "unsteady"]

_NUMBER = re.compile(r"(?<!\w)[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)\b)")
"""A number, that a unit may follow. Digits within a word are part of the word."""

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
# After "norm 0.5 seconds 3" the word belongs to what follows.
_UNIT = r"(?:[mun\u00b5]?s|secs?|seconds?(?!\s*[:=]?\s*\d)|mins?|minutes?|hours?|h|\w+/s(?:ec)?)\b"
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:{_MONTH} +\d+|\d+ +{_MONTH})(?: \d{{4}}\b)?"
    r"|(?<!\w)\d+:\d\d(?::\d\d(?:\.\d+)?)?"
    rf"|{_NUMBER.pattern} ?{_UNIT}"
    r"|(?<![^\W_])(?:time|took|elapsed|duration|seconds|eta|speed|throughput)\b[^\d\n]{0,20}"
    rf"{_NUMBER.pattern}",
    re.IGNORECASE,
)
"""What reads as a date, a duration or a rate."""


@dataclass(frozen=True)
class Deviation:
    """What a run produced otherwise than another one.

    Attributes:
        name: the file or the record; "" for another number of processes.
        words: what is otherwise, with that name.
    """

    name: str
    words: str


@dataclass(frozen=True)
class Part:
    """A part of a text: a number, a time, or what stands between them.

    Attributes:
        kind: which of them.
        text: what stands there.
        line: where it begins, from 1.
    """

    kind: Kind
    text: str
    line: int


@dataclass(frozen=True)
class Distance:
    """What two sides printed.

    Attributes:
        state: equal; numbers differ; text differs, so that numbers cannot be matched; unsteady:
            what a side prints differs from run to run in more than its numbers.
        numbers: how many numbers and times were compared.
        left_out: those that were not: times that differ, and numbers that differ from run to run
            of the same side.
        differing: how many of those compared differ.
        apart: by how much at most, as a part of the larger one; None where one is not finite.
        first: the first that differs, of each side.
        line: the first line that differs, from 1; 0 where none does.
        changing: for `unsteady`, which sides change, the first one being 0.
    """

    state: State
    numbers: int = 0
    left_out: tuple[Part, ...] = ()
    differing: int = 0
    apart: float | None = 0.0
    first: tuple[str, ...] = ()
    line: int = 0
    changing: tuple[int, ...] = ()


def parts(text: str) -> list[Part]:
    """A text in parts; the numbers of a time are none of their own."""
    found: list[Part] = []
    line, end = 1, 0

    def add(kind: Kind, piece: str) -> None:
        nonlocal line
        if piece:
            found.append(Part(kind, piece, line))
            line += piece.count("\n")

    def add_numbers(piece: str) -> None:
        last = 0
        for number in _NUMBER.finditer(piece):
            add("text", piece[last : number.start()])
            add("number", number.group())
            last = number.end()
        add("text", piece[last:])

    for time in _TIME.finditer(text):
        add_numbers(text[end : time.start()])
        add("time", time.group())
        end = time.end()
    add_numbers(text[end:])
    return found


def distance(a: Sequence[str], b: Sequence[str]) -> Distance:
    """Compare what two sides printed, each in one run or several."""
    sides = [[parts(text) for text in side] for side in (a, b)]
    changing = [
        i for i, side in enumerate(sides) if any(_frame(one) != _frame(side[0]) for one in side)
    ]
    if changing:
        side = sides[changing[0]]
        odd = next(each for each in side if _frame(each) != _frame(side[0]))
        return Distance("unsteady", line=_parting(side[0], odd), changing=tuple(changing))
    first, second = sides[0][0], sides[1][0]
    if _frame(first) != _frame(second):
        return Distance("text differs", line=_parting(first, second))
    left, differing, compared = [], [], 0
    for i, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.kind == "text":
            continue
        steady = all(run[i].text == side[0][i].text for side in sides for run in side)
        if not steady or (one.kind == "time" and one.text != other.text):
            left.append(one)
            continue
        compared += 1
        if one.text != other.text:
            differing.append((one, other))
    if not differing:
        return Distance("equal", compared, tuple(left))
    apart = max(_apart(one.text, other.text) for one, other in differing)
    return Distance(
        "numbers differ",
        compared,
        tuple(left),
        len(differing),
        apart if math.isfinite(apart) else None,
        tuple(each.text for each in differing[0]),
        differing[0][0].line,
    )


def _frame(found: Sequence[Part]) -> list[tuple[Kind, str]]:
    """What must be the same for numbers to be matched."""
    return [(one.kind, one.text if one.kind == "text" else "") for one in found]


def _parting(one: Sequence[Part], other: Sequence[Part]) -> int:
    """The line in which the frames of two texts part."""
    frames = zip(_frame(one), _frame(other), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], frames))
    if same == min(len(one), len(other)):
        longer = max(one, other, key=len)
        return longer[same].line
    left, right = one[same], other[same]
    if left.kind != right.kind:
        return left.line
    common = os.path.commonprefix([left.text, right.text])  # noqa: RUF071 - of characters
    return left.line + common.count("\n")


def _apart(one: str, other: str) -> float:
    x, y = float(one), float(other)
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.inf
    return abs(x - y) / max(abs(x), abs(y))
