"""Parse TOML text into data that knows its places, or say what is not TOML and where."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg.errors import Span, TomlSyntaxError, shown_path
from backendcfg.load.positions import Mark, Path, Positions, locate
from backendcfg.schema import describe
from backendcfg.schema.layer import Place

if TYPE_CHECKING:
    from backendcfg.load.text import Text

DEEPEST = 32
"""Nested tables and arrays that a file may have; a real one has five."""

INTEGERS = range(-(2**63), 2**63)

NOT_JSON: dict[str, Any] = {"\0": {"\0": {}}}
"""Stands in the JSON for a date, a nan or a huge integer: no key accepts it."""


@dataclass(frozen=True)
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
        TomlSyntaxError: it is not TOML, or nests deeper than `DEEPEST`.
    """
    lines = file.text.split("\n")
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
        helps = _cure(lines[line - 1], column)
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


def _cure(source: str, column: int) -> list[str]:
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
