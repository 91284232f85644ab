"""The performance page holds measured numbers, and explains each target that was missed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")

TARGETS = ("<= 270 ns", "<= 0.6", "<= 0.5", "<= +10 ms", "<= +25 ms", "<= 120 ms", "<= 300 ms")


def rows():
    block = re.search(
        r"<!-- measured: begin -->(.*)<!-- measured: end -->", PAGE.read_text(), re.DOTALL
    )[1]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in block.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    return [row for row in cells if row[0] != "what"]


def test_every_target_was_measured_and_says_whether_it_is_met():
    found = {row[4]: row[5] for row in rows()}
    assert [target for target in TARGETS if target not in found] == []
    assert {row[5] for row in rows() if row[4]} <= {"met", "missed"}


def test_the_machine_is_described():
    assert re.search(r"processors usable\n- Linux .*\n- Python 3\.", PAGE.read_text())


def test_every_target_that_was_missed_is_explained():
    explained = PAGE.read_text().partition("## What falls short, and why")[2]
    assert [row[0] for row in rows() if row[5] == "missed" and row[0] not in explained] == []
