"""The README has the two commands and every profile; test_docs_commands.py runs its examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
README = TREE / "README.md"

pytestmark = pytest.mark.skipif(
    not (TREE / "docs" / "tutorial.md").exists(), reason="needs the source tree"
)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_table_of_profiles_is_the_shipped_ones():
    named = re.findall(r"^\| `([a-z0-9-]+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (TREE / "profiles").glob("*.toml"))


def test_the_first_block_is_the_two_commands_that_ci_runs():
    first = blocks("sh")[0].splitlines()
    assert len(first) == 2
    assert first[0].endswith("&& backendcfg apply reproducible")
    assert first[1].endswith("&& pytest")
