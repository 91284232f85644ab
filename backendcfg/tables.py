"""Rows of text as a table: lines for a terminal, HTML for a notebook."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_ROWS = 60
"""Rows of one table that a notebook shows."""


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row with its cells in columns; the last one runs free."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip()  # stops at the last width
        for row in rows
    ]


def html(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Iterable[str] = ()
) -> str:
    """A table with a title, and paragraphs below it; every text is escaped."""
    from html import escape

    shown = rows[:MOST_ROWS]
    more = [f"and {len(rows) - len(shown)} more"] if len(rows) > len(shown) else []
    lines = ["<table>", f"<caption>{escape(title)}</caption>"]
    for cell, row in [("th", head), *(("td", row) for row in shown)] if shown else []:
        cells = (f'<{cell} style="text-align: left">{escape(text)}</{cell}>' for text in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>", *(f"<p>{escape(note)}</p>" for note in [*more, *notes])])
