"""What README.md and docs/ show is run, and prints what stands there; `capabilities.py` says how."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import capabilities

TREE = capabilities.TREE

pytestmark = pytest.mark.skipif(not capabilities.PAGE.exists(), reason="needs the source tree")

ELSEWHERE = {
    "docs/capabilities.md": "tests/docs/test_capabilities.py",
    "docs/adding-a-flag.md": "tests/docs/test_adding.py",
    "docs/adding-a-framework.md": "tests/docs/test_adding.py",
    "docs/adding-a-provider.md": "tests/docs/test_adding.py",
    "docs/adding-a-verb.md": "tests/docs/test_adding.py",
    "docs/adding-an-operation.md": "tests/docs/test_adding.py",
    "docs/recipes/checks.md": "tests/docs/test_recipes.py",
    "docs/recipes/docker.md": "tests/docs/test_recipes.py",
    "docs/recipes/hydra.md": "tests/docs/test_recipes.py",
    "docs/recipes/jupyter.md": "tests/docs/test_recipes.py",
    "docs/recipes/kubernetes.md": "tests/docs/test_recipes.py",
    "docs/recipes/pytest.md": "tests/docs/test_recipes.py",
    "docs/recipes/slurm.md": "tests/docs/test_recipes.py",
    "docs/recipes/torchrun.md": "tests/docs/test_recipes.py",
}
"""Pages whose blocks another test runs."""

REASONS = (
    ".ci/run runs it",
    "needs a GPU",
    "needs a network",
    "prints what it measures",
    "needs an editor's tool",
)
"""Why a block is not run: what may stand in `<!-- not run: REASON -->`."""

PAGES = [
    page
    for page in [TREE / "README.md", *sorted((TREE / "docs").rglob("*.md"))]
    if str(page.relative_to(TREE)) not in ELSEWHERE
]
ENTRIES = [entry for page in PAGES for entry in capabilities.entries(page)]
MARKS = ("torch", "jax", "exhaustive")
PROCESSORS = "2 processors"
OPTIONAL = ("distributed", "lightning", "ray")
"""Packages without a mark that a block may need."""


def is_run(entry):
    return any(
        not block.not_run and not block.file and block.kind != "toml" for block in entry.blocks
    )


def parameter(entry):
    marks = [getattr(pytest.mark, name) for name in entry.needs if name in MARKS]
    for name in OPTIONAL:
        if name in entry.needs:
            missing = importlib.util.find_spec(name) is None
            marks.append(pytest.mark.skipif(missing, reason=f"{name} is not installed"))
    if PROCESSORS in entry.needs:
        few = len(os.sched_getaffinity(0)) < 2
        marks.append(pytest.mark.skipif(few, reason="hardware: one processor has one thread"))
    place = f"{entry.page.relative_to(TREE)}: {entry.title}"
    return pytest.param(entry, id=place, marks=marks)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("entry", [parameter(entry) for entry in ENTRIES if is_run(entry)])
def test_what_a_page_shows_prints_what_stands_there(entry):
    if found := capabilities.differences(entry):
        pytest.fail(
            f"the page says otherwise, see tests/docs/capabilities.py\n{found}", pytrace=False
        )


def test_every_block_is_run_or_says_why_not():
    fence = re.compile(
        r"^ *(?:```|~~~) *\{?(console|pycon|sh|bash|shell|python|py)\b", re.MULTILINE
    )
    prompt = re.compile(r"^ *(?:```|~~~) *(?:text)?\n *(?:\$|>>>) ", re.MULTILINE)
    unseen = []
    for page in PAGES:
        text = page.read_text()
        seen = {
            text.rindex("\n", 0, block.start - 1) + 1
            for entry in capabilities.entries(page)
            for block in entry.blocks
        }
        for found in [*fence.finditer(text), *prompt.finditer(text)]:
            if found.start() not in seen:
                line = text.count("\n", 0, found.start()) + 1
                unseen.append(f"{page.relative_to(TREE)}:{line}: {found[0].strip()}")
    assert unseen == []


def test_what_is_not_run_has_one_of_the_reasons_and_each_is_needed():
    said = [block.not_run for entry in ENTRIES for block in entry.blocks if block.not_run]
    assert sorted(set(said)) == sorted(REASONS)
    written = sum(page.read_text().count("<!-- not run: ") for page in PAGES)
    assert written == len(said)


def test_needs_are_known_and_hold_for_something():
    known = {*MARKS, *OPTIONAL, PROCESSORS}
    assert [entry.title for entry in ENTRIES if not known.issuperset(entry.needs)] == []
    marked = sum(page.read_text().count("<!-- needs: ") for page in PAGES)
    assert marked == sum(bool(entry.needs) and is_run(entry) for entry in ENTRIES)


def test_pages_that_other_tests_run_have_blocks_there():
    for page, test in ELSEWHERE.items():
        assert "```" in (TREE / page).read_text(), page
        assert (TREE / test).exists(), test


def test_the_scripts_of_the_tutorials_do_not_know_backendcfg():
    for script in (TREE / "docs" / "tutorial").glob("*.py"):
        assert "backendcfg" not in script.read_text(), script
