"""The report: one page of HTML that needs nothing else, and no script.

jinja2 fills it in, an extra of this package: `pip install 'backendcfg[report]'`. What programs
print and name is escaped, and a browser is told to run and to load nothing.
"""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

from backendcfg.audit.evidence.prove import also_in, is_loaded
from backendcfg.audit.report import charts, words
from backendcfg.errors import UsageError, visible
from backendcfg.resolve.words import counted, duration, literal, size
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.audit.evidence.prove import Difference, Proof
    from backendcfg.audit.report.data import Found

MARK = b'<meta name="generator" content="backendcfg '
"""What stands in every report, so that another file is not taken for one."""

MOST_RUNS, MOST_COLUMNS, MOST_SWITCHES = 60, 12, 500
"""Of each that many are shown, and the others counted."""

_TEMPLATE = "page.html.jinja"


def is_available() -> bool:
    """Whether jinja2 is installed."""
    return importlib.util.find_spec("jinja2") is not None


def check() -> None:
    """Refuse before anything is run what cannot be written after it.

    Raises:
        UsageError: jinja2 is not installed.
    """
    if not is_available():
        raise UsageError(
            "the report needs jinja2, which is not installed",
            helps=["run `pip install 'backendcfg[report]'`"],
        )


def fragment(found: Found) -> str:
    """The report without the page around it, as a notebook shows it."""
    return _rendered(found, whole=False)


def page(found: Found) -> str:
    """The report as a page of its own."""
    return _rendered(found, whole=True)


def write(found: Any, path: str, template: str = _TEMPLATE) -> None:
    """Write the report; a reader sees the old file or the new one.

    Args:
        found: a `Found`, or what another template shows.
        path: the file.
        template: which one.

    Raises:
        UnreadableFileError: the file cannot be written.
    """
    disk.replace_named(path, _rendered(found, whole=True, template=template).encode())


def _rendered(found: Any, *, whole: bool, template: str = _TEMPLATE) -> str:
    import jinja2

    loader = jinja2.FileSystemLoader(os.path.dirname(__file__))
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        charts=charts,
        words=words,
        counted=counted,
        duration=duration,
        literal=literal,
        size=lambda number: size(round(number)),
        grid=_Grid,
        most_switches=MOST_SWITCHES,
    )
    return environment.get_template(template).render(found=found, whole=whole)


def _shown(value: Any) -> Any:
    """What is filled in, with what no page should obey and no file can hold written as escapes."""
    return visible(value) if type(value) is str else value


class _Grid:
    """Runs by what is observed of them.

    Attributes:
        columns: the titles, the first two of which are the run and its surroundings.
        rows: a cell for each column; None for what is the same, else what is not.
        more: runs and columns that are not shown, in words.
    """

    def __init__(self, proof: Proof) -> None:
        odd = {one.run: one for one in proof.differences}
        named = [*_named(proof)]
        shown = named[:MOST_COLUMNS]
        self.columns = ["run", "with", "printed", *(title for _, _, title in shown)]
        self.rows: list[list[str | None]] = []
        for run in range(1, min(proof.runs, MOST_RUNS) + 1):
            one = odd.get(run)
            load = ["load"] if is_loaded(run - 1) else []
            cells: list[str | None] = [str(run), ", ".join([*load, *also_in(run - 1, proof.also)])]
            if one is None:
                cells += [None] * (1 + len(shown))
            else:
                cells.append("; ".join(one.output.words()) or None)
                cells += [_cell(one, kind, name) for kind, name, _ in shown]
            self.rows.append(cells)
        runs, others = proof.runs - len(self.rows), len(named) - len(shown)
        self.more = [counted(runs, "more run")] if runs else []
        if others:
            self.more.append(counted(others, "more record or file", "more records and files"))


def _named(proof: Proof) -> Iterator[tuple[str, str, str]]:
    """Each record and file that some run has otherwise; or how many there are of each."""
    counts = (("ranks", proof.ranks), ("records", proof.records), ("files", proof.files))
    for kind, number in counts:
        names = dict.fromkeys(one.name for each in proof.differences for one in getattr(each, kind))
        if names:
            yield from ((kind, name, name or "processes") for name in names)
        elif number:
            yield kind, "", counted(number, kind.removesuffix("s"))


def _cell(one: Difference, kind: str, name: str) -> str | None:
    # Each rank may have a record of this name.
    return "; ".join(each.words for each in getattr(one, kind) if each.name == name) or None
