"""Types and values in words, for messages and for the manual.

Pydantic's own texts never reach a user: they name its types and links, and one wrong value of a
union yields several. Here a type is one phrase that follows "must be".
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from backendcfg.records import record
from backendcfg.schema.base import candidates

LONGEST = 8
"""Alternatives that a message lists before it points to the manual."""

KEYS_PAGE = "docs/profiles.md"

PATTERNS = {
    r"^[A-Za-z0-9_]+$": "a string of letters, digits and underscores",
    r"^[a-z0-9_]+$": "a string of lower-case letters, digits and underscores",
    r"^[^\x00]*$": "a string without NUL",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "a variable name: letters, digits and underscores",
    r"^[A-Za-z0-9,;:^_-]*$": 'a string of names, such as "Ring" or "^NVLS"',
    r"^\s*(==|!=|>=|<=|>|<|~=)\s*[0-9]": 'a version range, such as ">=8.0"',
}


@record(frozen=True)
class Kind:
    """A type with its constraints, as a field or an `Annotated` declares it."""

    annotation: Any
    metadata: tuple[Any, ...] = ()

    @classmethod
    def of(cls, annotation: Any, metadata: Iterable[Any] = ()) -> Kind:
        """The kind of an annotation, `Annotated` and `FieldInfo` taken apart."""
        flat: list[Any] = []
        for mark in metadata:
            flat += mark.metadata if isinstance(mark, FieldInfo) else [mark]
        if get_origin(annotation) is Annotated:
            inner, *marks = get_args(annotation)
            return cls.of(inner, [*marks, *flat])
        return cls(annotation, tuple(flat))

    @classmethod
    def field(cls, info: FieldInfo) -> Kind:
        """The kind of a model's field."""
        return cls.of(info.annotation, info.metadata)

    @property
    def members(self) -> tuple[Kind, ...]:
        """The alternatives of a union, without None; otherwise the kind itself."""
        if get_origin(self.annotation) in (Union, types.UnionType):
            return tuple(Kind.of(arg) for arg in get_args(self.annotation) if arg is not type(None))
        return (self,)

    @property
    def model(self) -> type[BaseModel] | None:
        """The model, if the kind is one."""
        is_model = isinstance(self.annotation, type) and issubclass(self.annotation, BaseModel)
        return self.annotation if is_model else None

    def entries(self) -> dict[str, Kind]:
        """What a table of this kind accepts, by the name that stands in TOML."""
        model = self.model
        if model is None:
            return {}
        return {info.alias or name: Kind.field(info) for name, info in model.model_fields.items()}

    def at(self, path: Iterable[str | int]) -> Kind | None:
        """The kind of what stands at `path` in a value of this kind; None where nothing may."""
        kind: Kind | None = self
        for part in path:
            kind = None if kind is None else kind._step(part)
        return kind

    def _step(self, part: str | int) -> Kind | None:
        for member in self.members:
            origin, arguments = get_origin(member.annotation), get_args(member.annotation)
            if member.model and part in (keys := member.entries()):
                return keys[str(part)]
            if origin in (list, tuple) and isinstance(part, int):
                return Kind.of(arguments[0])
            if origin is dict and isinstance(part, str):
                return Kind.of(arguments[1])
        return None

    def key_kind(self) -> Kind:
        """The kind of the keys of a `dict` kind."""
        return Kind.of(get_args(self.annotation)[0])

    def bound(self, name: str) -> Any:
        """A constraint such as `ge`, `le` or `pattern`, or None."""
        return next((getattr(m, name) for m in self.metadata if hasattr(m, name)), None)

    def literals(self) -> tuple[Any, ...]:
        """Every fixed value that the kind accepts."""
        return tuple(
            value
            for member in self.members
            for value in (
                get_args(member.annotation)
                if get_origin(member.annotation) is Literal
                else candidates(member.annotation)
            )
        )

    def accepts(self, kind_of_value: str) -> bool:
        """Whether some value of this TOML type ("a string", "an array") is allowed."""
        return kind_of_value in {name for member in self.members for name in _names(member)}


def _names(member: Kind) -> set[str]:
    if get_origin(member.annotation) is Literal:
        return {type_of(value) for value in get_args(member.annotation)}
    if candidates(member.annotation):
        return {"a string", "a table"}
    if member.model or get_origin(member.annotation) is dict:
        return {"a table"}
    if get_origin(member.annotation) in (list, tuple):
        return {"an array"}
    return {SCALARS.get(member.annotation, "anything")}


SCALARS: dict[Any, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
}


def words(kind: Kind) -> str:
    """A type as a phrase: `an integer from 1 to 4096 or "auto"`."""
    phrases = [_phrase(member) for member in kind.members]
    fixed = [get_origin(member.annotation) is Literal for member in kind.members]
    # Fixed words read best at the end: `an integer or "auto"`.
    ordered = [p for p, f in zip(phrases, fixed, strict=True) if not f]
    ordered += [p for p, f in zip(phrases, fixed, strict=True) if f]
    return " or ".join(ordered)


def _phrase(member: Kind) -> str:
    origin, arguments = get_origin(member.annotation), get_args(member.annotation)
    if origin is Literal:
        return one_of(arguments)
    if names := candidates(member.annotation):
        return f"{one_of(names)}, or a table of `prefer`, `require` and `forbid`"
    if member.model:
        return "a table"
    if origin is dict:
        return f"a table of {_plural(Kind.of(arguments[1]))}"
    if origin in (list, tuple):
        return f"an array of {_plural(Kind.of(arguments[0]))}"
    if member.annotation is bool:
        return "true or false"
    if member.annotation is int:
        return _range(member.bound("ge"), member.bound("le"))
    if member.annotation is str and (pattern := member.bound("pattern")):
        return PATTERNS[pattern]
    return SCALARS.get(member.annotation, "a value")


def _range(least: Any, most: Any) -> str:
    if least is None:
        return "an integer"
    if most is None:
        return f"an integer of at least {least}"
    return f"{least} or {most}" if most == least + 1 else f"an integer from {least} to {most}"


def _plural(kind: Kind) -> str:
    if kind.literals():
        return listed([toml(value) for value in kind.literals()], "and")
    if kind.model:
        return "tables"
    if kind.annotation is str and (pattern := kind.bound("pattern")):
        words = PATTERNS[pattern].replace("a version range", "version ranges")
        return words.replace("a string", "strings", 1)
    return SCALARS.get(kind.annotation, "a value").split(" ", 1)[1] + "s"


def one_of(values: Iterable[Any]) -> str:
    """`"a"`, `"a" or "b"`, or `one of "a", "b", "c"`."""
    texts = [toml(value) for value in values]
    if len(texts) <= 2:
        return " or ".join(texts)
    return "one of " + listed(texts, "")


def listed(texts: Iterable[str], joining: str = "", page: str = KEYS_PAGE) -> str:
    """At most eight of `texts` with commas, then how many more there are and where."""
    texts = list(texts)
    if len(texts) > LONGEST:
        return ", ".join(texts[:LONGEST]) + f" and {len(texts) - LONGEST} more, see {page}"
    if joining and len(texts) > 1:
        return f"{', '.join(texts[:-1])} {joining} {texts[-1]}"
    return ", ".join(texts)


def type_of(value: Any) -> str:
    """The TOML type of a value with its article."""
    for python, name in SCALARS.items():
        if type(value) is python:
            return name
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    return "a date or time"


def shown(value: Any) -> str:
    """A value as a message names it: `the string "8"`, `the array [8]`, `an array` if long."""
    kind = type_of(value)
    if kind == "a table":
        return "a table" if value else "an empty table"
    if kind == "an array":
        if not value:
            return "an empty array"
        simple = all(isinstance(one, str | int | float) for one in value)
        return f"the array {toml(value)}" if simple and len(toml(value)) <= 60 else "an array"
    if kind == "a boolean":
        return toml(value)
    if isinstance(value, float) and not math.isfinite(value):
        return toml(value)
    if kind == "a date or time":
        return f"the date or time {value}"
    return f"the {kind.split(' ', 1)[1]} {toml(value)}"


def toml(value: Any) -> str:
    """A value as TOML writes it on one line, cut where it is long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        # JSON's escapes are TOML's, but for the surrogates beyond the first plane.
        return json.dumps(text, ensure_ascii=text.isascii() or not text.isprintable())
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return str(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key(name)} = {toml(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(inner) for inner in value)}]"
    return str(value)


def _integer(value: int) -> str:
    # Python refuses to print integers of thousands of digits; nobody wants to read them either.
    if value.bit_length() > 128:
        return f"{'-' if value < 0 else ''}0x{abs(value) >> (value.bit_length() - 32):x}..."
    return str(value)


def key(name: str) -> str:
    """A key as TOML writes it: bare where it can be, else quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def dotted(path: Iterable[str | int]) -> str:
    """A path as a user would write it: `cuda.matmul.fp32_precision`, `extends[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{key(part)}" if text else key(part)
    return text
