"""docs/traps.md has every trap, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "traps.md"
HELD = ("absent", "refused", "named")

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")


def rows():
    """The cells of each row of the table, by the number of its trap."""
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| T\d+ \|", line)
    ]
    return {row[0]: row[1:] for row in cells}


def every_test():
    """Every test of the tree, by name."""
    found = set()
    for path in (TREE / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


def test_every_trap_has_one_row():
    assert [*rows()] == [f"T{number}" for number in range(1, 46)]
    assert {len(row) for row in rows().values()} == {4}


def test_every_row_says_how_the_trap_is_held_and_where_that_is_tested():
    known = every_test()
    for number, (_, bare, ours, tested) in rows().items():
        assert bare, number
        assert re.match(r"\w+", ours)[0] in HELD or ours.startswith("not held"), number
        named = re.findall(r"`(test_\w+)`", tested)
        assert named or "read, not run" in tested, number
        assert set(named) <= known, number


def test_every_trap_that_is_shown_is_in_the_table():
    shown = {
        int(number)
        for path in Path(__file__).parent.glob("test_traps_*.py")
        for name in re.findall(r"^def (test_t\d\w+)", path.read_text(), re.MULTILINE)
        for number in re.findall(r"t(\d\d)(?=_)", name)
    }
    named = "".join(row[3] for row in rows().values())
    assert len(shown) > 35
    for number in shown:
        assert f"t{number:02}_" in named, number
