"""What a command prints: data on standard output, everything else on standard error.

Standard output holds text for people or, under `--json`, exactly one document. Colour only adds:
every line is complete without it.

Lines fit a terminal. Widths count what it shows: two columns for a wide character of East Asia,
none for one that combines with the one before, none for colour.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TextIO

import click

from backendcfg.errors import StateUnwritableError, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


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


Colour = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

LABEL_WIDTH = 10
_GLUE = "\N{NO-BREAK SPACE}"


class OutputLostError(StateUnwritableError):
    """What was printed cannot be delivered: the disk is full, the terminal is gone."""


@dataclass
class Output:
    """How this command prints.

    Attributes:
        as_json: one JSON document instead of text.
        no_color: never colour.
        traceback: show the traceback of a bug.
        interrupted: what to say of the state when the verb is interrupted, or ends in a bug.
    """

    as_json: bool = False
    no_color: bool = False
    traceback: bool = False
    interrupted: str = "nothing was changed"

    @classmethod
    def for_words(cls, words: Sequence[str]) -> Output:
        """Read the common options before parsing, so that errors of parsing obey them too."""
        # Everything after `run`'s profile belongs to the child, and what `capture` runs, too;
        # parsing corrects what this misses.
        mine = words[: words.index("--")] if "--" in words else words
        if mine[:1] in (["run"], ["capture"]):
            mine = mine[:2]
        return cls("--json" in mine, "--no-color" in mine, "--traceback" in mine)

    def colours(self, stream: TextIO) -> bool:
        """Whether `stream` is coloured: NO_COLOR wins over FORCE_COLOR, which wins over it all."""
        from backendcfg import environ

        set_here = environ.foreign(("NO_COLOR", "FORCE_COLOR", "TERM"))
        if self.no_color or "NO_COLOR" in set_here:
            return False
        return "FORCE_COLOR" in set_here or (stream.isatty() and set_here.get("TERM") != "dumb")

    def paint(self, text: str, *colours: Colour, stream: TextIO | None = None) -> str:
        """`text` in colours if the stream (standard output unless given) shows them."""
        if not text or not colours or not self.colours(stream or sys.stdout):
            return text
        codes = ";".join(_CODES[colour] for colour in colours)
        return f"{ESCAPE}[{codes}m{text}{ESCAPE}[0m"

    def answer(self, data: Any, lines: Iterable[str], *, exact: bool = False) -> None:
        """Print `data` as JSON or, for people, the lines; the lines are not made under --json.

        Lines are made to fit a terminal unless they are `exact`: TOML, or what a shell reads. On a
        terminal, where no shell reads them, these too show control characters as escapes.
        """
        if self.as_json:
            write_exactly(document(data))
        elif exact and not sys.stdout.isatty():
            for line in lines:
                write_exactly(line)
        else:
            columns = None if exact else terminal_width(sys.stdout)
            for line in lines:
                for piece in fitted(line, columns):
                    write(piece)

    def note(self, text: str) -> None:
        """Say something beside the data, on standard error, after what was printed before."""
        flush()
        for line in fitted(text, terminal_width(sys.stderr)):
            write(line, sys.stderr)


def current() -> Output:
    """The output of the command that runs."""
    found = click.get_current_context().find_object(Output)
    return found if found is not None else Output()


def says_no() -> NoReturn:
    """Leave with 1: the command did its work, and the answer is no."""
    raise click.exceptions.Exit(1)


def document(data: Any) -> str:
    """JSON that standard output can carry whatever its encoding."""
    encoding = (sys.stdout.encoding or "utf-8").replace("-", "").lower()
    return json.dumps(data, indent=2, ensure_ascii=encoding != "utf8")


def write(line: str, stream: TextIO | None = None) -> None:
    """One line, with all that a terminal would obey written as escapes, but for our own colours.

    Every text that a command prints for people goes through here.
    """
    kept, at = [], 0
    for found in COLOUR.finditer(line):
        kept += [visible(line[at : found.start()]), "\x1b", found[1]]
        at = found.end()
    write_exactly("".join([*kept, visible(line[at:])]), stream)


def write_exactly(text: str, stream: TextIO | None = None) -> None:
    """Text as it is, for programs, with what the stream's encoding lacks written as escapes."""
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding) + "\n"
    if stream is not sys.stderr:
        with delivering():
            stream.write(text)
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError:  # there is nowhere left to say it
        give_up_on(stream)


def give_up_on(stream: TextIO) -> None:
    """Let a stream lead nowhere: the interpreter flushes it at exit and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed_streams() -> None:
    """Let streams that the process was started without lead nowhere.

    Their descriptors are taken, too, so that no file which is opened later gets what is printed.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            os.fstat(number)  # somebody else's file by now, or the one just opened
        except OSError:
            os.dup2(nowhere, number)
        setattr(sys, name, open(nowhere, mode, encoding="utf-8"))  # noqa: SIM115


def flush() -> None:
    """Deliver what was printed.

    Raises:
        BrokenPipeError: nobody reads it any more.
        OutputLostError: it cannot be written.
    """
    with delivering():
        sys.stdout.flush()


@contextmanager
def delivering() -> Iterator[None]:
    """What is written to standard output inside is delivered, or OutputLostError says why not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLostError(
            f"cannot write the output: {os.strerror(error.errno or 0)}",
            state="the command did its work; what it had to say is lost in part",
            helps=["make room where standard output goes, and run it again"],
        ) from error


def block(
    label: str, paragraphs: Iterable[str], *colours: Colour, label_width: int = LABEL_WIDTH
) -> list[str]:
    """Paragraphs beside a label, wrapped; nothing when there are none."""
    terminal = terminal_width(sys.stdout)
    columns = (terminal or PLAIN_WIDTH) - label_width
    lines = [
        line
        for paragraph in paragraphs
        for line in wrapped(paragraph, columns, whole_words=terminal is None)
    ]
    head = current().paint(label, *colours) + " " * max(1, label_width - len(label))
    return [
        (head if number == 0 else " " * label_width) + line for number, line in enumerate(lines)
    ]


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> list[str]:
    """Columns aligned by their widest cells, in bold those of the head; see `table_rows`."""
    lines = table_rows([list(head), *rows] if head else rows)
    if head:
        lines[0] = [current().paint(line, "bold") for line in lines[0]]
    return [line for row in lines for line in row]


def table_rows(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The lines of each row: wrapped to fit a terminal, else as wide as they are."""
    return arranged(rows, terminal_width(sys.stdout))


def _room() -> int:
    """Columns beside a label."""
    return (terminal_width(sys.stdout) or PLAIN_WIDTH) - LABEL_WIDTH


def one_line(text: str) -> str:
    """As much of a list in words as fits beside a label, cut between two items."""
    if size(text) <= _room():
        return text
    return text[: _room() - 5].rpartition(", ")[0] + ", ..."


def listing(label: str, items: Sequence[str], *colours: Colour, most: int, see: str) -> list[str]:
    """Items with commas beside a label, in at most so many lines; the rest is where `see` says.

    A line ends between two items where one fits on it.
    """
    whole = [_glued(item) for item in items]
    for kept in range(len(items), 0, -1):
        shown = ", ".join(whole[:kept])
        if kept < len(items):
            shown += f", and {len(items) - kept} more, see {_glued(f'`{see}`')}"
        lines = [line.replace(_GLUE, " ") for line in block(label, [shown], *colours)]
        if len(lines) <= most:
            return lines
    return block(label, [f"{len(items)}, see `{see}`"] if items else [], *colours)


def _glued(text: str) -> str:
    """Text that is wrapped as one word, unless it is too long for a line."""
    return text.replace(" ", _GLUE) if size(text) < _room() else text


def limited(
    label: str, paragraphs: Sequence[str], *colours: Colour, most: int, see: str
) -> list[str]:
    """Paragraphs beside a label in at most so many lines, at least two; each in at most two."""
    shortened = [_shortened(paragraph, 2 * _room() - 20) for paragraph in paragraphs]
    for kept in range(len(shortened), -1, -1):
        rest = [f"{len(shortened) - kept} more, see `{see}`"] if kept < len(shortened) else []
        lines = block(label, [*shortened[:kept], *rest], *colours)
        if len(lines) <= most:
            return lines
    return lines


def _shortened(text: str, columns: int) -> str:
    """The first words of a text that is longer than so many columns."""
    if size(text) <= columns:
        return text
    return wrapped(text, columns - 4, whole_words=True)[0] + " ..."
