"""How far apart two texts are that a program printed: words, numbers and times in them."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from backendcfg.errors import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal["text", "number", "time"]
State = Literal["equal", "numbers differ", "text differs", "unsteady"]

_VALUE = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)\b)"
_NUMBER = re.compile(rf"(?<!\w){_VALUE}")
"""A number, that a unit may follow. Digits within a word are part of the word."""

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
# After "norm 0.5 seconds 3" the word belongs to what follows.
_UNIT = (
    r"(?:[mun\u00b5]?s|secs?|seconds?(?!\s*+[:=]?\s*+\d)|mins?|minutes?|hours?|h|\w+/s(?:ec)?)\b"
)
# What must follow, looked for once: else every digit of a number would be tried as its last one.
_WITH_UNIT = (
    r"(?=[-+]?(?:\d*+\.?\d*+(?:e[-+]?\d++)?+|nan|inf)"
    rf"(?: ?{_UNIT}|\w*+/s(?:ec)?\b))"
)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:{_MONTH} +\d+|\d+ +{_MONTH})(?: \d{{4}}\b)?"
    r"|(?<!\w)\d+:\d\d(?::\d\d(?:\.\d+)?)?"
    rf"|(?<!\w){_WITH_UNIT}{_VALUE} ?{_UNIT}"
    r"|(?<![^\W_])(?:time|took|elapsed|duration|seconds|eta|speed|throughput)\b[^\d\n]{0,20}"
    rf"{_NUMBER.pattern}",
    re.IGNORECASE,
)
"""What reads as a date, a duration or a rate."""


@dataclass(frozen=True)
class Deviation:
    """What a run produced otherwise than another one.

    Attributes:
        name: the file, the record or the rank; "" for another number of processes.
        words: what is otherwise, with that name.
    """

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text that was not compared.

    Attributes:
        kind: a number or a time.
        text: what stands there.
        line: where it begins, from 1.
        rank: whose output it is in, where ranks printed it.
    """

    kind: Kind
    text: str
    line: int
    rank: int | None = None


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
        first: the first number that differs, of each side; for a text that differs, what stands
            where they part, quoted.
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

    def words(self) -> list[str]:
        """What the second side printed otherwise; nothing where it is the same or unsteady."""
        if self.state not in ("text differs", "numbers differ"):
            return []
        first, other = self.first
        if self.state == "text differs":
            shown = f": {other}, not {first}" if other != first else ""
            return [f"another text from line {self.line} on{shown}"]
        apart = "" if self.apart is None else f", apart by {self.apart:.1e} at most"
        return [
            f"line {self.line} has {other}, not {first}",
            f"{self.differing} of {self.numbers} numbers differ{apart}",
        ]


_SHOWN = 40
"""So many characters of a line are shown."""


def _quoted(line: str, other: str) -> str:
    """A line, or what stands around the place where another one parts from it."""
    if not line:
        return "nothing"
    at = len(os.path.commonprefix([line, other]))  # noqa: RUF071 - of characters
    begin = at - 10 if at > _SHOWN // 2 else 0
    text = line[begin : begin + _SHOWN]
    before, after = "..." * (begin > 0), "..." * (begin + _SHOWN < len(line))
    return visible(json.dumps(f"{before}{text}{after}", ensure_ascii=False))


def parts(text: str) -> Iterator[tuple[Kind, str]]:
    """Numbers, times, and what stands between them; the numbers of a time are none of their own."""
    end = 0
    for time in _TIME.finditer(text):
        yield from _numbers(text[end : time.start()])
        yield "time", time.group()
        end = time.end()
    yield from _numbers(text[end:])


def _numbers(text: str) -> Iterator[tuple[Kind, str]]:
    end = 0
    for number in _NUMBER.finditer(text):
        begin, after = number.span()
        if end < begin:
            yield "text", text[end:begin]
        yield "number", text[begin:after]
        end = after
    if end < len(text):
        yield "text", text[end:]


def distance(a: Sequence[str], b: Sequence[str]) -> Distance:
    """Compare what two sides printed, each in one run or several."""
    # A text is never held in parts, of which it may have a million: all texts are read at once.
    sides = [[*dict.fromkeys(side)] for side in (a, b)]
    if sides[0] == sides[1] and len(sides[0]) == 1:
        return Distance("equal", sum(kind != "text" for kind, _ in parts(a[0])))
    length = len(sides[0])
    left, compared, line = [], 0, 1
    differing, most, first, place = 0, 0.0, ("", ""), 0
    for row in itertools.zip_longest(*(parts(text) for side in sides for text in side)):
        one, other = row[0], row[length]
        is_same = row.count(one) == len(row)
        if not is_same and not _is_matched(row):
            return _unmatched(*sides)
        kind, text = one
        if kind == "text":
            line += text.count("\n")
        elif is_same:
            compared += 1
        elif kind == "time" or {*row[:length]} != {one} or {*row[length:]} != {other}:
            left.append(Part(kind, text, line))
        else:
            compared += 1
            if not differing:
                first, place = (text, other[1]), line
            differing += 1
            most = max(most, _apart(text, other[1]))
    if not differing:
        return Distance("equal", compared, tuple(left))
    apart = most if math.isfinite(most) else None
    return Distance("numbers differ", compared, tuple(left), differing, apart, first, place)


def _is_matched(row: Sequence[tuple[Kind, str] | None]) -> bool:
    """Whether parts that are not the same are numbers, or times, of every text."""
    kinds = {one and one[0] for one in row}
    return kinds in ({"number"}, {"time"})


def _unmatched(a: Sequence[str], b: Sequence[str]) -> Distance:
    """Where texts part whose numbers cannot be matched."""
    partings = [
        next(filter(None, (_parting(side[0], text) for text in side[1:])), 0) for side in (a, b)
    ]
    changing = tuple(i for i, line in enumerate(partings) if line)
    if changing:
        return Distance("unsteady", line=partings[changing[0]], changing=changing)
    line = _parting(a[0], b[0])
    one, other = _line(a[0], line), _line(b[0], line)
    return Distance("text differs", first=(_quoted(one, other), _quoted(other, one)), line=line)


def _line(text: str, number: int) -> str:
    begin = 0
    for _ in range(number - 1):
        begin = text.index("\n", begin) + 1
    end = text.find("\n", begin)
    return text[begin:] if end < 0 else text[begin:end]


def _parting(one: str, other: str) -> int:
    """The line in which two texts part, numbers and times aside; 0 where they do not."""
    line = 1
    for left, right in itertools.zip_longest(parts(one), parts(other)):
        if left is None or right is None or left[0] != right[0]:
            return line
        if left[0] == "text":
            same = left[1]
            if same != right[1]:
                same = os.path.commonprefix([same, right[1]])  # noqa: RUF071 - of characters
                return line + same.count("\n")
            line += same.count("\n")
    return 0


def _apart(one: str, other: str) -> float:
    x, y = float(one), float(other)
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.inf
    return abs(x - y) / max(abs(x), abs(y))
