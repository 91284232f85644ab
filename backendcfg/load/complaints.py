"""Turn what Pydantic refuses into our own errors, each with its place and a likely cure."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from backendcfg.catalogue.frameworks import TORCH
from backendcfg.errors import (
    BackendCfgError,
    InvalidValueError,
    SeveralErrors,
    UnknownKeyError,
    WrongTypeError,
)
from backendcfg.load.parsed import Parsed, is_json
from backendcfg.schema import describe
from backendcfg.schema.describe import Kind
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from backendcfg.load.parsed import Path

MOST = 20
"""Errors of one file that are printed."""

BOOLEAN_WORDS = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


class Refused:
    """Where a file has values that were refused, at most one below another.

    Two sets of paths, because a file may have as many refused keys as it has lines, and each of its
    other values is looked for among them.
    """

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._at = frozenset(paths)
        self._around = frozenset(path[:end] for path in self._at for end in range(len(path)))

    def __contains__(self, path: Path) -> bool:
        """Whether the value at a path itself was refused."""
        return path in self._at

    def touch(self, path: Path) -> bool:
        """Whether the value at a path, or something in it or around it, was refused."""
        return path in self._around or any(path[:end] in self._at for end in range(len(path) + 1))


def complaints(
    parsed: Parsed, model: type[BaseModel], error: ValidationError
) -> tuple[list[BackendCfgError], Refused]:
    """One error for each thing that Pydantic refused, in file order, and where those stand.

    At most one error over `MOST` is made: no more are printed.
    """
    found: dict[Path, bool] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        path, whole = _path(parsed.data, item["loc"])
        found[path] = found.get(path, False) or (item["type"] == "extra_forbidden" and whole)
    # A union complains of itself and of what is in it: what is in it says more.
    outer = {path[:end] for path in found for end in range(len(path))}
    paths = sorted((path for path in found if path not in outer), key=_in_file_order(parsed))
    errors = [
        unknown_key(parsed, model, path)
        if found[path] or Kind.of(model).at(path) is None
        else _wrong(parsed, model, path)
        for path in paths[: MOST + 1]
    ]
    return errors, Refused(paths)


def _in_file_order(parsed: Parsed) -> Callable[[Path], tuple[int, int]]:
    def place(path: Path) -> tuple[int, int]:
        mark = parsed.mark(path, on="key")
        return mark.line, mark.column

    return place


def _path(data: Any, location: Sequence[str | int]) -> tuple[Path, bool]:
    """The part of Pydantic's location that stands in the document, and whether that is all."""
    path: Path = ()
    whole = True
    for part in location:
        # A part that is not there is the name of a union's member, or "[key]".
        if isinstance(data, dict) and part in data:
            data, path = data[str(part)], (*path, part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data, path = data[part], (*path, part)
        else:
            whole = False
    return path, whole


def unknown_key(parsed: Parsed, model: type[BaseModel], path: Path) -> BackendCfgError:
    """A key that the table does not have."""
    *table, name = path
    kind = Kind.of(model).at(table)
    accepted = sorted(key for member in (kind.members if kind else ()) for key in member.entries())
    where = _table_name(parsed, table)
    near = nearest(str(name), accepted)
    helps = []
    if name == "flags" and not table:  # as in [[when]]
        near = ""
        helps.append("write the flags at the top level, without `flags`")
    elif [*table, name] == [TORCH.name, "backends"]:
        near = ""
        helps.append("write what is below it at the top level, as `[cudnn]`")
    elif near:
        helps.append(f"rename it to `{near}`, or delete the line")
    elif flag := _flag_meant(model, table, str(name)):
        helps.append(f"did you mean `{flag}`?")
    else:
        helps.append("delete the line")
    listed = describe.listed([f"`{key}`" for key in accepted])
    label = f"did you mean `{near}`?" if near else "no such key"
    return UnknownKeyError(
        f"unknown key `{describe.key(str(name))}` "
        + (f"in table `{where}`" if table else "at the top level"),
        spans=[parsed.span(path, label, on="key")],
        notes=[f"{f'`{where}`' if table else 'the top level'} accepts: {listed}"],
        helps=helps,
    )


def _table_name(parsed: Parsed, table: Sequence[str | int]) -> str:
    names = [str(part) for part in (*parsed.root, *table) if isinstance(part, str)]
    name = describe.dotted(names)
    return f"[[{name}]]" if table and isinstance(table[-1], int) else f"[{name}]"


def _flag_meant(model: type[BaseModel], table: Sequence[str | int], name: str) -> str:
    """The flag that somebody may have meant who wrote its name in another table."""
    if table and table[0] == "when" and name in Kind.of(model).entries():
        return f"flags.{name}"
    ends = [flag for flag in flags() if flag == name or flag.endswith(f".{name}")]
    return ends[0] if ends else ""


def nearest(name: str, among: Iterable[str]) -> str:
    """The one name that `name` resembles (difflib above 0.6), or ""."""
    folded = {other.lower(): other for other in among}
    matches = difflib.get_close_matches(name[:80].lower(), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else ""


def _wrong(parsed: Parsed, model: type[BaseModel], path: Path) -> BackendCfgError:
    """A value that its key does not take, or a key that a table of names does not."""
    kind = Kind.of(model).at(path)
    outer = Kind.of(model).at(path[:-1])
    name = describe.dotted(_flag_part(path))
    if kind is None:
        raise AssertionError(f"no type for {path}")
    value = parsed.value(path)
    if outer and outer.annotation and not outer.model and _bad_key(outer, str(path[-1])):
        return InvalidValueError(
            f"`{describe.key(str(path[-1]))}` in `{describe.dotted(_flag_part(path[:-1]))}` "
            f"must be {describe.words(outer.key_kind())}",
            spans=[parsed.span(path, "not such a name", on="key")],
        )
    complaint, label, helps = refusal(kind, value, _as_written(parsed, path))
    if not helps and kind.model:
        key = next((key for key, inner in kind.entries().items() if valid(inner, value)), "")
        helps = [f"write one of its keys: `{name}.{key} = {describe.toml(value)}`"] if key else []
    return complaint(
        f"`{name}` must be {describe.words(kind)}, not {not_what(kind, value)}",
        spans=[parsed.span(path, label)],
        helps=helps,
    )


def _as_written(parsed: Parsed, path: Path) -> str:
    """The key with the dotted parts before it on its line; "" for an element of an array."""
    if isinstance(path[-1], int):
        return ""
    mark = parsed.mark(path, on="key")
    before = parsed.lines[mark.line - 1][: mark.column - 1]
    parts = re.search(r"""(?:[A-Za-z0-9_"'-]+\s*\.\s*)*$""", before)
    return (parts.group() if parts else "") + describe.key(path[-1])


def _bad_key(kind: Kind, name: str) -> bool:
    if not any("dict" in str(member.annotation) for member in kind.members):
        return False
    return not valid(kind.key_kind(), name)


def _flag_part(path: Path) -> Path:
    """The flag's own name: without the `[[when]]` that it stands in."""
    return path[3:] if len(path) > 3 and path[0] == "when" and path[2] == "flags" else path


def not_what(kind: Kind, value: Any) -> str:
    """How a message names the value: with its type only where the type is what is wrong."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    if plain and is_json(value) and kind.accepts(describe.type_of(value)):
        guess = _meant(kind, value)[1]
        return (
            describe.toml(value)
            if guess is None or isinstance(guess, str)
            else (describe.shown(value))
        )
    return describe.shown(value)


def refusal(kind: Kind, value: Any, key: str) -> tuple[type[BackendCfgError], str, list[str]]:
    """The class of error for a refused value, what to say under the caret, and the cures."""
    meant, guess = _meant(kind, value)
    helps = [f"write `{key} = {describe.toml(guess)}`".replace("` = ", "`")] if meant else []
    if isinstance(value, str) and meant and not isinstance(guess, str | list):
        return WrongTypeError, "quoted, so TOML reads a string", helps
    if isinstance(value, int) and not isinstance(value, bool) and not is_json(value):
        return InvalidValueError, "more than 64 bits", helps
    if not kind.accepts(describe.type_of(value)):
        return WrongTypeError, describe.type_of(value), helps
    if meant:
        return InvalidValueError, f"did you mean {describe.toml(guess)}?", helps
    if isinstance(value, int | float):
        return InvalidValueError, "not in that range", helps
    return InvalidValueError, "not allowed here", helps


def _meant(kind: Kind, value: Any) -> tuple[bool, Any]:
    """Whether a value can be guessed that was meant, and which."""
    guesses: list[Any] = []
    if isinstance(value, str):
        guesses += [BOOLEAN_WORDS[value.lower()]] if value.lower() in BOOLEAN_WORDS else []
        with contextlib.suppress(ValueError, RecursionError, KeyError):
            guesses.append(tomllib.loads(f"guess = {value[:80]}")["guess"])
        if near := nearest(value, [v for v in kind.literals() if isinstance(v, str)]):
            guesses.append(near)
        guesses.append([value[:80]])
    elif type(value) is int and value in (0, 1):
        guesses.append(bool(value))
    elif type(value) is bool:
        guesses += [int(value)] if 1 in kind.literals() or kind.bound("le") == 1 else []
    elif isinstance(value, float) and is_json(value) and value.is_integer():
        guesses.append(int(value))
    for guess in guesses:
        if valid(kind, guess):
            return True, guess
    return False, None


def valid(kind: Kind, value: Any) -> bool:
    """Whether a value is of a kind, as strictly as in a file."""
    try:
        adapt(kind).validate_json(json.dumps(value), strict=True)
    except (ValidationError, TypeError):
        return False
    return True


def adapt(kind: Kind) -> TypeAdapter[Any]:
    """A validator for one kind."""
    annotation = kind.annotation
    return TypeAdapter(Annotated[(annotation, *kind.metadata)] if kind.metadata else annotation)


def raise_all(where: str, errors: Sequence[BackendCfgError]) -> None:
    """Raise what was found in a file or a profile: nothing, the one error, or all of them."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        count = f"more than {MOST}" if len(errors) > MOST else str(len(errors))
        raise SeveralErrors(f"{count} errors in {where}", errors=errors[:MOST])


def file_order(error: BackendCfgError) -> tuple[int, int]:
    """Where in its file an error is: a key to sort by."""
    return (error.spans[0].line, error.spans[0].column) if error.spans else (0, 0)
