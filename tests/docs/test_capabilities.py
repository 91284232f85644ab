"""Every entry of docs/capabilities.md prints what stands there; `capabilities.py` says how."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import capabilities

pytestmark = pytest.mark.skipif(not capabilities.PAGE.exists(), reason="needs the source tree")

VERBS = """apply autoload capture completion detect diff doctor env explain history init list off plan purge
recommend run status trust tune undo validate verify"""

ENTRIES = list(capabilities.entries(capabilities.PAGE))


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            entry, id=entry.title, marks=[getattr(pytest.mark, name) for name in entry.needs]
        )
        for entry in ENTRIES
    ],
)
def test_an_entry_prints_what_stands_on_the_page(entry):
    if found := capabilities.differences(entry):
        pytest.fail(
            f"the page says otherwise, see tests/docs/capabilities.py\n{found}", pytrace=False
        )


def test_every_verb_is_shown():
    typed = "\n".join(
        example.typed
        for entry in ENTRIES
        for block in entry.blocks
        for example in block.examples()
        if block.kind == "console"
    )
    assert [verb for verb in VERBS.split() if f"backendcfg {verb}" not in typed] == []


def test_every_entry_begins_with_a_sentence_and_shows_something():
    for entry in ENTRIES:
        assert entry.text.strip()[0] not in "`*" or entry.text.strip()[:3] != "```", entry.title
        assert any(block.kind in ("console", "pycon") for block in entry.blocks), entry.title


def test_what_was_written_for_any_text_stays_when_words_change():
    page = ["host  ..., 2 of ... processors", "...", "knob    wanted", "ok      1"]
    printed = ["host  AMD, 2 of 4 processors", "a", "b", "switch  wanted", "ok      1"]
    assert capabilities.rewritten(page, printed) == [*page[:2], "switch  wanted", "ok      1"]
    line = capabilities.rewritten(["a knob of ... reads 2"], ["a switch of numpy reads 2"])
    assert line == ["a switch of ... reads 2"]
    line = capabilities.rewritten(["state  knob ...wanted"], ["state  switch      wanted"])
    assert line == ["state  switch...wanted"]
    assert capabilities.same(page, printed) is False
    assert capabilities.same(["a", "...", "c"], ["a", "b1", "b2", "c"])
