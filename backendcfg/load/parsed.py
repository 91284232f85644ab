"""Parse TOML text into data that knows the place of every key and value, or say what is wrong.

tomllib does not say where anything stands, so a scanner finds the places. It reads text that
tomllib has already accepted, so it need not judge it. It is also run over text that tomllib refused
for a duplicate, to find both places of the duplicate; there it stops at the first thing that it
does not understand and keeps what it has found.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import tomllib
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from backendcfg.errors import Span, TomlSyntaxError, shown_path
from backendcfg.load.text import MOST_KEYS, has_long_key, has_too_many_keys
from backendcfg.records import field, record
from backendcfg.schema import describe
from backendcfg.schema.profile import Place

if TYPE_CHECKING:
    from backendcfg.load.text import Text


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


@record(frozen=True)
class Mark:
    """A piece of one line: 1-based line and column, and a length in characters."""

    line: int
    column: int
    length: int


@record(frozen=True)
class Entry:
    """Where a key and its value stand; a table's value is its header."""

    key: Mark
    value: Mark


@record(frozen=True)
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


DEEPEST = 32
"""Nested tables and arrays that a file may have; a real one has five."""

INTEGERS = range(-(2**63), 2**63)

NOT_JSON: dict[str, Any] = {"\0": {"\0": {}}}
"""Stands in the JSON for a date, a nan or a huge integer: no key accepts it."""


@record(frozen=True)
class Parsed:
    """A TOML file's data with the place of everything in it.

    Attributes:
        file: where it was read.
        root: the table in it that is ours: `()`, or `("tool", "backendcfg")` in pyproject.toml.
        data: what that table holds.
        positions: of the whole file.
        lines: of the whole file.
        shipped: whether it came with backendcfg.
    """

    file: Text
    root: Path
    data: dict[str, Any]
    positions: Positions
    lines: list[str] = field(repr=False)
    shipped: bool = False

    @property
    def path(self) -> str:
        """The file."""
        return self.file.path

    def mark(self, path: Path, on: str = "value") -> Mark:
        """Where the key or the value at `path` (below the root) stands."""
        entry = self.positions.find((*self.root, *path))
        if entry is None:
            return Mark(1, 1, 1)
        return entry.value if on == "value" else entry.key

    def span(self, path: Path, label: str = "", on: str = "value") -> Span:
        """The place for a message."""
        mark = self.mark(path, on)
        source = self.lines[mark.line - 1]
        return Span(self.path, mark.line, mark.column, mark.length, source, label)

    def place(self, path: Path, on: str = "value") -> Place:
        """The place for an assignment."""
        mark = self.mark(path, on)
        return Place(
            path=self.path,
            line=mark.line,
            column=mark.column,
            length=mark.length,
            source=self.lines[mark.line - 1],
            shipped=self.shipped,
        )

    def value(self, path: Path) -> Any:
        """What stands at a path."""
        node: Any = self.data
        for part in path:
            node = node[part]
        return node

    def json(self) -> str:
        """The data as JSON; what JSON cannot say becomes what no key accepts."""
        return json.dumps(_json_ready(self.data))


def parse(file: Text, root: Path = (), *, shipped: bool = False) -> Parsed:
    """The data of a TOML file, with places.

    Raises:
        TomlSyntaxError: it is not TOML, nests deeper than `DEEPEST`, or has very many keys.
    """
    lines = file.text.split("\n")
    if has_long_key(file.text):
        raise _too_deep(file, lines)
    if has_too_many_keys(file.text):
        raise TomlSyntaxError(
            f"{shown_path(file.path)} has more than {MOST_KEYS:,} keys and values",
            spans=[Span(file.path, 1, 1, 1, lines[0], "the first line")],
        )
    try:
        data: Any = tomllib.loads(file.text)
    except RecursionError:
        raise _too_deep(file, lines) from None
    except ValueError as error:
        raise _refused(file, lines, error) from None
    if _depth(data) > DEEPEST:
        raise _too_deep(file, lines)
    for part in root:
        data = data.get(part, {}) if isinstance(data, dict) else {}
    return Parsed(file, root, data, locate(file.text), lines, shipped)


def is_json(value: Any) -> bool:
    """Whether a TOML scalar can be said in JSON and in 64 bits."""
    if isinstance(value, bool | str):
        return True
    if isinstance(value, int):
        return value in INTEGERS
    return isinstance(value, float) and math.isfinite(value)


def _json_ready(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json_ready(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_json_ready(inner) for inner in value]
    return value if is_json(value) else NOT_JSON


def _depth(data: Any) -> int:
    depth, level = 0, [data]
    while level and depth <= DEEPEST:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return depth


def _too_deep(file: Text, lines: list[str]) -> TomlSyntaxError:
    """The error for deep nesting; its place is a guess where strings hold brackets or dots."""
    span = Span(file.path, 1, 1, 1, lines[0], "somewhere below")
    opened = 0
    for number, line in enumerate(lines, 1):
        dots = 0
        for column, character in enumerate(line, 1):
            opened += (character in "[{") - (character in "]}")
            dots += character == "."
            if opened + dots > DEEPEST:
                span = Span(file.path, number, column, 1, line, "this deep")
                break
        if span.label == "this deep":
            break
    return TomlSyntaxError(
        f"{shown_path(file.path)} nests more than {DEEPEST} tables or arrays in each other",
        spans=[span],
    )


PLACE = re.compile(
    r"^(?P<what>.*) \((?:at line (?P<line>\d+), column (?P<column>\d+)|at end .*)\)$"
)


def _refused(file: Text, lines: list[str], error: ValueError) -> TomlSyntaxError:
    """The refusal of tomllib, with the place that it names and a guess at the cure."""
    if (duplicate := locate(file.text).duplicate) and _is_about_duplicates(error):
        path, first, second = duplicate
        return TomlSyntaxError(
            f"`{describe.dotted(path)}` is defined twice",
            spans=[
                _span(file, lines, first, "first here"),
                _span(file, lines, second, "and again here"),
            ],
            helps=["remove one of the two"],
        )
    match = PLACE.match(str(error))
    if match is None:  # Python's own limit on the digits of an integer has no place
        number = re.search(r"[0-9_]{4000,}", file.text)
        at = number.start() if number else 0
        line = file.text.count("\n", 0, at) + 1
        column = at - (file.text.rfind("\n", 0, at) + 1) + 1
        what, helps = "an integer has thousands of digits", ["TOML integers have 64 bits"]
    else:
        what = match["what"][0].lower() + match["what"][1:]
        line = min(int(match["line"] or len(lines)), len(lines))
        column = int(match["column"] or len(lines[line - 1]) + 1)
        helps = _cure(lines[line - 1])
    source = lines[line - 1]
    span = Span(file.path, line, min(column, len(source) + 1), 1, source, "not TOML from here")
    return TomlSyntaxError(
        f"{shown_path(file.path)} is not TOML: {what}", spans=[span], helps=helps
    )


def _is_about_duplicates(error: ValueError) -> bool:
    text = str(error)
    return any(word in text for word in ("overwrite", "twice", "immutable", "Duplicate"))


def _span(file: Text, lines: list[str], mark: Mark, label: str) -> Span:
    return Span(file.path, mark.line, mark.column, mark.length, lines[mark.line - 1], label)


WORDS = {"True": "true", "False": "false", "yes": "true", "on": "true", "no": "false"}
WORDS |= {"off": "false", "TRUE": "true", "FALSE": "false"}


def _cure(source: str) -> list[str]:
    """What was probably meant by a value that is not TOML."""
    match = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*[=:]\s*([^\s#\"'\[{][^#]*?)\s*(#.*)?$", source)
    if "\r" in source:
        return ["end lines with a newline, or a carriage return and a newline"]
    if match is None:
        return []
    name, value = match[1], match[2]
    if value in ("None", "null", "nil"):
        return ["delete the line: TOML has no null, and a key that is not set keeps its default"]
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9 _.+-]*", value) and value not in ("true", "false"):
        return [f"write `{name} = {WORDS.get(value, describe.toml(value))}`"]
    return []
