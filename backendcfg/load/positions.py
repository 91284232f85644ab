"""Where every key and value of a TOML text stands, which tomllib does not say.

The scanner reads text that tomllib has already accepted, so it need not judge it. It is also run
over text that tomllib refused for a duplicate, to find both places of the duplicate; there it
stops at the first thing that it does not understand and keeps what it has found.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

Path = tuple[str | int, ...]
"""The way to a value: keys, and indices of arrays."""

BLANK = re.compile(r"[ \t\n]*+(?:#[^\n]*+[ \t\n]*+)*+")
SPACE = re.compile(r"[ \t]*+")
KEY = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
STRING = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}'''
    r"""|'''(?:[^']|'(?!''))*+'{3,5}"""
    r'''|"(?:[^"\\\n]|\\.)*+"'''
    r"""|'[^'\n]*+'""",
    re.DOTALL,
)
PLAIN = re.compile(r"[^\n,\]}#]*+")  # numbers, booleans, dates; a date may hold a space


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of one line: 1-based line and column, and a length in characters."""

    line: int
    column: int
    length: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a key and its value stand; a table's value is its header."""

    key: Mark
    value: Mark


@dataclass(frozen=True)
class Positions:
    """Every path of a text with its place.

    Attributes:
        entries: in the order of the text.
        duplicate: the first path that is defined twice, with both places, if there is one.
    """

    entries: dict[Path, Entry] = field(default_factory=dict)
    duplicate: tuple[Path, Mark, Mark] | None = None

    def find(self, path: Path) -> Entry | None:
        """The entry of a path, or of its nearest ancestor that has a place."""
        for end in range(len(path), 0, -1):
            if entry := self.entries.get(path[:end]):
                return entry
        return None


def locate(text: str) -> Positions:
    """Every key path of a TOML text, with the places of its key and of its value.

    Lines end in a newline alone; tomllib replaces CRLF the same way before it counts.
    """
    scanner = _Scanner(text)
    with contextlib.suppress(_LostError, RecursionError):
        scanner.document()
    return Positions(scanner.entries, scanner.duplicate)


class _LostError(Exception):
    """The text is not what tomllib accepts."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.entries: dict[Path, Entry] = {}
        self.kinds: dict[Path, tuple[str, Mark]] = {}
        self.elements: dict[Path, int] = {}  # arrays of tables, with their length so far
        self.duplicate: tuple[Path, Mark, Mark] | None = None

    def document(self) -> None:
        table: Path = ()
        while True:
            self.skip(BLANK)
            if self.at >= len(self.text):
                return
            if self.text.startswith("[[", self.at):
                table = self.header("[[", "]]")
            elif self.text[self.at] == "[":
                table = self.header("[", "]")
            else:
                self.pair(table)

    def header(self, opening: str, closing: str) -> Path:
        start = self.at
        self.at += len(opening)
        self.skip(SPACE)
        parts = self.key()
        self.expect(closing)
        whole = self.mark(start, self.at)
        path: Path = ()
        for index, (name, mark) in enumerate(parts):
            path = (*path, name)
            self.entries.setdefault(path, Entry(mark, whole))
            if index < len(parts) - 1:
                self.define(path, mark, "implied", ("implied", "dotted", "table", "array"))
                if path in self.elements:
                    path = (*path, self.elements[path] - 1)
        if opening == "[[":
            self.define(path, parts[-1][1], "array", ("array",))
            self.elements[path] = self.elements.get(path, 0) + 1
            path = (*path, self.elements[path] - 1)
            self.entries[path] = Entry(whole, whole)
        else:
            self.define(path, parts[-1][1], "table", ("implied",))
            self.kinds[path] = ("table", parts[-1][1])
        return path

    def pair(self, table: Path) -> None:
        parts = self.key()
        self.expect("=")
        self.skip(SPACE)
        path = table
        for name, mark in parts[:-1]:
            path = (*path, name)
            self.entries.setdefault(path, Entry(mark, mark))
            self.define(path, mark, "dotted", ("dotted", "implied"))
        name, mark = parts[-1]
        path = (*path, name)
        self.define(path, mark, "value", ())
        # A placeholder keeps an inline table before its keys, in the order of the file.
        self.entries[path] = Entry(mark, mark)
        self.entries[path] = Entry(mark, self.value(path))

    def key(self) -> list[tuple[str, Mark]]:
        parts = []
        while True:
            match = KEY.match(self.text, self.at)
            if not match:
                raise _LostError
            parts.append((_decoded(match.group()), self.mark(match.start(), match.end())))
            self.at = match.end()
            self.skip(SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1
            self.skip(SPACE)

    def value(self, path: Path) -> Mark:
        start = self.at
        if string := STRING.match(self.text, self.at):
            self.at = string.end()
        elif self.text.startswith("[", self.at):
            self.array(path)
        elif self.text.startswith("{", self.at):
            self.inline_table(path)
        else:
            plain = PLAIN.match(self.text, self.at)
            self.at += len(plain.group().rstrip()) if plain else 0
            if self.at == start:
                raise _LostError
        return self.mark(start, self.at)

    def array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self.skip(BLANK)
            if self.text.startswith("]", self.at):
                self.at += 1
                return
            element = (*path, index)
            here = self.mark(self.at, self.at + 1)
            self.entries[element] = Entry(here, here)
            mark = self.value(element)
            self.entries[element] = Entry(mark, mark)
            index += 1
            self.skip(BLANK)
            if self.text.startswith(",", self.at):
                self.at += 1
            elif not self.text.startswith("]", self.at):
                raise _LostError

    def inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self.skip(BLANK)  # TOML 1.1 allows newlines here, 1.0 only spaces
            if self.text.startswith("}", self.at):
                self.at += 1
                return
            self.pair(path)
            self.skip(BLANK)
            if self.text.startswith(",", self.at):
                self.at += 1
            elif not self.text.startswith("}", self.at):
                raise _LostError

    def define(self, path: Path, mark: Mark, kind: str, besides: tuple[str, ...]) -> None:
        """Note that `path` is defined here; what it was before must be one of `besides`."""
        before, where = self.kinds.setdefault(path, (kind, mark))
        if self.duplicate is None and where is not mark and before not in besides:
            self.duplicate = (path, where, mark)

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def expect(self, text: str) -> None:
        if not self.text.startswith(text, self.at):
            raise _LostError
        self.at += len(text)

    def mark(self, start: int, end: int) -> Mark:
        """The piece from `start` to `end`, cut at the end of its first line."""
        line = bisect_right(self.starts, start)
        stop = min(end, self.starts[line] - 1) if line < len(self.starts) else end
        return Mark(line, start - self.starts[line - 1] + 1, max(1, stop - start))


def _decoded(key: str) -> str:
    """The name that a key stands for, quotes and escapes resolved."""
    if key[0] not in "\"'":
        return key
    if key[0] == "'" or "\\" not in key:
        return key[1:-1]
    try:
        value: str = tomllib.loads(f"key = {key}")["key"]
    except tomllib.TOMLDecodeError:
        raise _LostError from None
    return value
