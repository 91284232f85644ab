"""How text fits a terminal: its width, where its lines break, how wide columns are.

Widths count what a terminal shows: two columns for a wide character of East Asia, none for one that
combines with the one before, none for colour.
"""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

PLAIN_WIDTH = 100
"""Columns of paragraphs where nothing is a terminal, so that what is piped depends on none."""

LEAST_WIDTH = 40
"""Columns that are filled even where a terminal has fewer."""

LEAST_TEXT = 36
"""Columns below which the last cell of a row stands under the row instead."""

GAP = 2
ESCAPE = "\udc1b"
"""Stands for ESC in our own colours until a line is written, so that nobody else's text has any."""
COLOUR = re.compile(ESCAPE + r"(\[[0-9;]*m)")


def terminal_width(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream is, at least 40; None where it is none."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(columns or PLAIN_WIDTH, LEAST_WIDTH)


def size(text: str) -> int:
    """Columns that a terminal needs for a text."""
    if ESCAPE in text:
        text = COLOUR.sub("", text)
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, columns: int) -> str:
    """A text with the spaces after it that fill so many columns."""
    return text + " " * (columns - size(text))


def wrapped(text: str, columns: int, *, whole_words: bool = False) -> list[str]:
    """The lines of a text, broken at spaces.

    Args:
        text: one paragraph; a no-break space is not broken at.
        columns: the width of a line.
        whole_words: a word that is longer than a line stands out; else it is broken, too.
    """
    lines: list[str] = []
    line = ""
    for word in re.split(r"[ \n\t]", text):
        joined = f"{line} {word}" if line else word
        if size(joined) <= columns:
            line = joined
            continue
        if line.strip():
            lines.append(line.rstrip())
        pieces = [word] if whole_words else list(_pieces(word, columns))
        lines += pieces[:-1]
        line = pieces[-1]
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _pieces(word: str, columns: int) -> Iterator[str]:
    """A word in pieces that fit; in two where a sign in it lets it, such as a hyphen."""
    while size(word) > columns:
        end = _fits(word, columns)
        sign = max(word.rfind(character, 0, end) + 1 for character in "-/._,:=")
        end = sign if sign > end // 2 else end
        yield word[:end]
        word = word[end:]
    yield word


def _fits(text: str, columns: int) -> int:
    """How many characters of a text, at least one, fit in so many columns."""
    used = end = 0
    for part in re.findall(rf"{ESCAPE}\[[0-9;]*m|.", text):
        used += size(part)
        if used > columns and end:
            break
        end += len(part)
    return end


def fitted(line: str, columns: int | None) -> list[str]:
    """A finished line as lines that fit; those after the first are indented two columns more."""
    if columns is None or size(line) <= columns:
        return [line]
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    first, *rest = wrapped(text, columns - len(indent) - 2)
    return [indent + first, *(f"{indent}  {each}" for each in rest)]


def arranged(rows: Sequence[Sequence[str]], columns: int | None) -> list[list[str]]:
    """Each row as lines with its cells in columns.

    As wide as the widest cells where there are no `columns` to fit. Else the widest columns are cut
    and their cells wrapped; where that leaves too little for the last cell, it stands under the
    row.
    """
    if not rows:
        return []
    natural = [max(size(row[column]) for row in rows) for column in range(len(rows[0]))]
    if columns is None or sum(natural) + GAP * (len(natural) - 1) <= columns:
        return [list(_row(row, natural)) for row in rows]
    widths = _cut(natural, columns)
    if len(natural) == 1 or widths[-1] >= min(natural[-1], LEAST_TEXT):
        return [list(_row(row, widths)) for row in rows]
    widths = _cut(natural[:-1], columns)
    return [[*_row(row[:-1], widths), *_under(row[-1], columns)] for row in rows]


def _row(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [
        [cell] if size(cell) <= width else wrapped(cell, width)
        for cell, width in zip(row, widths, strict=True)
    ]
    for number in range(max(map(len, cells))):
        line = (cell[number] if number < len(cell) else "" for cell in cells)
        joined = (padded(text, width) for text, width in zip(line, widths, strict=True))
        yield (" " * GAP).join(joined).rstrip()


def _under(cell: str, columns: int) -> list[str]:
    return [f"    {line}" for line in wrapped(cell, columns - 4)] if cell else []


def _cut(natural: Sequence[int], columns: int) -> list[int]:
    """Widths that fit: the widest columns give up as much as it takes, down to one width."""
    room = columns - GAP * (len(natural) - 1)
    most = max(natural)
    while most > 1 and sum(min(width, most) for width in natural) > room:
        most -= 1
    return [min(width, most) for width in natural]
