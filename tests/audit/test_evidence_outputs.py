"""Texts are compared in one reading and in little memory, with the results of the plain way to do it."""

from __future__ import annotations

import itertools
import re
import tracemalloc

import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg.audit.evidence.outputs import Distance, Part, _apart, _quoted, distance, parts

NUMBER = r"(?<!\w)[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)\b)"
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
UNIT = r"(?:[mun\u00b5]?s|secs?|seconds?(?!\s*[:=]?\s*\d)|mins?|minutes?|hours?|h|\w+/s(?:ec)?)\b"
TIME = (
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
    rf"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +(?:{MONTH} +\d+|\d+ +{MONTH})(?: \d{{4}}\b)?"
    r"|(?<!\w)\d+:\d\d(?::\d\d(?:\.\d+)?)?"
    rf"|{NUMBER} ?{UNIT}"
    r"|(?<![^\W_])(?:time|took|elapsed|duration|seconds|eta|speed|throughput)\b[^\d\n]{0,20}"
    rf"{NUMBER}"
)
"""Times as they are meant; as such this takes time that grows with the square of the digits."""


def in_parts(text):
    found, end = [], 0
    for time in [*re.finditer(TIME, text, re.IGNORECASE), None]:
        between, last = text[end : time and time.start()], 0
        for number in re.finditer(NUMBER, between):
            found += [("text", between[last : number.start()]), ("number", number.group())]
            last = number.end()
        found.append(("text", between[last:]))
        if time:
            found.append(("time", time.group()))
            end = time.end()
    return [one for one in found if one[1]]


def plainly(a, b):
    """How far apart two sides are, told from lists of all of their parts."""
    sides = [[in_parts(text) for text in side] for side in (a, b)]

    def frame(run):
        return [(kind, text if kind == "text" else "") for kind, text in run]

    def line(run, place):
        return 1 + "".join(text for _, text in run[:place]).count("\n")

    def parting(one, other):
        frames = zip(frame(one), frame(other), strict=False)
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], frames))
        if same == min(len(one), len(other)) or one[same][0] != other[same][0]:
            return line(one, same)
        both = zip(one[same][1], other[same][1], strict=False)
        common = itertools.takewhile(lambda pair: pair[0] == pair[1], both)
        return line(one, same) + sum(one == "\n" for one, _ in common)

    odd = {
        i: run
        for i, side in enumerate(sides)
        for run in reversed(side)
        if frame(run) != frame(side[0])
    }
    if odd:
        side = min(odd)
        return Distance(
            "unsteady", line=parting(sides[side][0], odd[side]), changing=(*sorted(odd),)
        )
    one, other = sides[0][0], sides[1][0]
    if frame(one) != frame(other):
        at = parting(one, other)
        here, there = (side[0].split("\n")[at - 1] for side in (a, b))
        return Distance("text differs", first=(_quoted(here, there), _quoted(there, here)), line=at)
    left, compared = [], []
    for place, (mine, its) in enumerate(zip(one, other, strict=True)):
        steady = all(run[place] == side[0][place] for side in sides for run in side)
        if mine[0] != "text" and steady and (mine[0] == "number" or mine == its):
            compared.append(place)
        elif mine[0] != "text":
            left.append(Part(*mine, line(one, place)))
    places = [place for place in compared if one[place] != other[place]]
    if not places:
        return Distance("equal", len(compared), (*left,))
    apart = max(_apart(one[place][1], other[place][1]) for place in places)
    first = one[places[0]][1], other[places[0]][1]
    apart = None if apart == float("inf") else apart
    return Distance(
        "numbers differ", len(compared), (*left,), len(places), apart, first, line(one, places[0])
    )


SIGNS = [*"0159.-+eE:/,_ \n\t", "  ", "s", "x", "\u017f", "\u00b5", "\u0131", "\u0663", "=", "T"]
WORDS = "nan inf ms us secs second seconds min minutes hour h it/s sec/s 0.5 12.25 1e-05 -3e7 3.25s 00:12"
WORDS += (
    " 2026-11-24 Mon Tue, Nov 24 2026 time took elapsed_ eta loss .5 5. 1_0 12/s 1.5/sec 3e56/s NaN"
)
texts = st.lists(st.sampled_from(SIGNS) | st.sampled_from(WORDS.split()), max_size=24).map("".join)


@settings(max_examples=examples(1500), deadline=None)
@given(texts)
def test_a_text_has_the_parts_that_are_meant(text):
    assert [*parts(text)] == in_parts(text)


@st.composite
def sides(draw):
    """Runs that print one text, with a little of it changed in some of them."""
    text = draw(texts)

    def run():
        if draw(st.booleans()):
            return text
        place = draw(st.integers(0, len(text)))
        return text[:place] + draw(texts)[:3] + text[place + draw(st.integers(0, 2)) :]

    return [[run() for _ in range(draw(st.integers(1, 3)))] for _ in range(2)]


@settings(max_examples=examples(1500), deadline=None)
@given(sides())
def test_texts_are_as_far_apart_as_lists_of_their_parts(both):
    assert distance(*both) == plainly(*both)


def test_a_number_of_many_digits_and_much_space_are_read_in_one_pass():
    """Which takes hours where each digit or space is tried as the last one."""
    text = f"{'7' * 300_000} 3 seconds{' ' * 300_000}.{'.' * 300_000}"
    assert distance([text], [text]) == Distance("equal", numbers=2)


@pytest.mark.slow
def test_what_is_printed_is_never_held_in_parts():
    text = "0.25 0.5\n" * 50_000
    tracemalloc.start()
    try:
        found = distance([text], [f"{text[:-2]}25\n"])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == Distance("numbers differ", 100_000, (), 1, 0.5, ("0.5", "0.25"), 50_000)
    assert most < 4 * len(text)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("loss\nnone\n", "loss\n1\n", 'another text from line 2 on: "1", not "none"'),
        ("a\n", "a\nmore\n", 'another text from line 2 on: "more", not nothing'),
        ("", "x", 'another text from line 1 on: "x", not nothing'),
        ("a", "a\n", "another text from line 1 on"),
        ("a\r1", "a\rb\x1b", 'another text from line 1 on: "a\\rb\\u001b", not "a\\r1"'),
        (
            "x" * 60 + "old",
            "x" * 60 + "new" + "!" * 60,
            f'another text from line 1 on: "...{"x" * 10}new{"!" * 27}...", not "...{"x" * 10}old"',
        ),
    ],
)
def test_where_texts_part_both_lines_are_shown(one, other, words):
    assert distance([one], [other]).words() == [words]
