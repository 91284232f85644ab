"""Links in the documentation lead somewhere, and pages are reachable from the README."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGES = [
    *TREE.glob("*.md"),
    *(TREE / "docs").rglob("*.md"),
    *(TREE / "benchmarks").glob("*.md"),
]

pytestmark = pytest.mark.skipif(
    not (TREE / "docs" / "tutorial.md").exists(), reason="needs the source tree"
)
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def links(page):
    """Targets of Markdown links and of images in HTML, without those inside code."""
    text = CODE.sub("", page.read_text())
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r"(?:src|srcset|href)=\"([^\"]+)\"", text
    )


def anchors(page):
    """The anchors that GitHub makes of headings."""
    text = re.sub(r"^(```|~~~).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def broken(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.name}: {link}: no such file"
        elif anchor and anchor not in anchors(target):
            yield f"{page.name}: {link}: no such heading"


def test_every_link_leads_somewhere():
    assert len(PAGES) > 10
    assert [problem for page in PAGES for problem in broken(page)] == []


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [TREE / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in links(page):
            path = (page.parent / link.partition("#")[0]).resolve()
            if not re.match(r"[a-z]+:", link) and path.suffix == ".md" and path.exists():
                waiting.append(path)
    assert set() == {page.relative_to(TREE) for page in PAGES} - {
        page.relative_to(TREE) for page in reached
    }


def test_every_decision_has_the_parts_of_one():
    pages = sorted((TREE / "docs" / "decisions").glob("[0-9]*.md"))
    assert len(pages) >= 8
    numbers = [int(page.name[:4]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert re.match(rf"# {int(page.name[:4])}\. \S", text), page.name
        for part in ("Status:", "Context:", "Decision:", "Costs:", "Rejected:"):
            assert part in text, f"{page.name} has no {part!r}"


def test_the_page_of_errors_is_current():
    """`python docs/generate.py` writes it."""
    spec = importlib.util.spec_from_file_location("generate", TREE / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.page() == (TREE / "docs" / "errors.md").read_text()
