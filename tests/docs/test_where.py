"""docs/where-would-i-change.md names files and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = TREE / "docs" / "where-would-i-change.md"
FOREIGN = {"DataLoader"}
"""Names on the page that are somebody else's."""

pytestmark = pytest.mark.skipif(
    not (TREE / "backendcfg" / "__init__.py").exists(), reason="needs the source tree"
)


def answers():
    """Each answer of the page by its question, with the code that it spells."""
    _, *parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {
        question: re.findall(r"`([^`\n]+)`", answer)
        for question, answer in zip(parts[::2], parts[1::2], strict=True)
    }


def text_of(path):
    """The text of a file, or of all files of a directory."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return "\n".join(file.read_text() for file in files)


def missing(spelled):
    """What an answer names and is not there: files, and functions and constants in its files."""
    paths = [TREE / word for code in spelled for word in code.split() if "/" in word]
    yield from (f"{path}: no such file" for path in paths if not path.exists())
    text = "\n".join(text_of(path) for path in paths if path.exists())
    for code in spelled:
        if re.fullmatch(r"\w+\(\)", code):
            name = code.removesuffix("()")
            # A function of Python, or one of C, whose declaration begins its line.
            there = rf"^(def {name}\(|\w[\w *]*\b{name}\()"
        elif re.fullmatch(r"[A-Z_]{4,}|[A-Z][a-z]\w+", code) and code not in FOREIGN:
            there = rf"^(class )?{code}\b"
        else:
            continue
        if not re.search(there, text, re.MULTILINE):
            yield f"{code}: not in {[path.name for path in paths]}"


def test_there_are_ten_questions_with_answers():
    assert len(answers()) == 10
    assert [question for question, spelled in answers().items() if not spelled] == []


@pytest.mark.parametrize("question", answers() if PAGE.exists() else ())
def test_what_an_answer_names_is_there(question):
    assert list(missing(answers()[question])) == []


def test_a_name_that_is_gone_is_seen():
    path = "backendcfg/transact/disk.py"
    assert list(missing([path, "replace()", "WAIT_SECONDS"])) == []
    assert list(missing([path, "gone()", "GONE_SECONDS", "Gone", "no/such.py"])) == [
        f"{TREE / 'no/such.py'}: no such file",
        "gone(): not in ['disk.py', 'such.py']",
        "GONE_SECONDS: not in ['disk.py', 'such.py']",
        "Gone: not in ['disk.py', 'such.py']",
    ]
