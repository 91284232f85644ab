"""Flags that are set: by a file's tables, by variables and by arguments.

Names become canonical, legacy spellings become the flags that they stand for, and every value keeps
the place where it was set. Variables and arguments are one value each, in TOML or as a bare word.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from typing import TYPE_CHECKING, Any, get_args, get_origin

from backendcfg import environ
from backendcfg.errors import (
    BackendCfgError,
    ConflictingFlagsError,
    InvalidValueError,
    InvalidVariableError,
    UnknownFlagError,
    WrongTypeError,
)
from backendcfg.load.complaints import MOST, nearest, not_what, refusal, valid
from backendcfg.load.parsed import is_json
from backendcfg.load.text import has_long_key
from backendcfg.schema import describe, torch_backends
from backendcfg.schema.base import candidates
from backendcfg.schema.describe import Kind
from backendcfg.schema.profile import Assignment, Dropped, Place, flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.load.complaints import Refused
    from backendcfg.load.parsed import Parsed, Path
    from backendcfg.schema.base import FlagField


NOTHING = object()


def assignments(
    parsed: Parsed, base: Path, refused: Refused
) -> tuple[tuple[Assignment, ...], list[BackendCfgError]]:
    """Every flag that the table at `base` sets, in file order, and the conflicts among them.

    What stands at a `refused` path is wrong already and is left out.
    """
    found: dict[str, tuple[Assignment, Path]] = {}
    errors: list[BackendCfgError] = []
    table = parsed.value(base)
    for name, flag in flags().items():
        path: Path = (*base, *name.split("."))
        if (value := _at(table, name)) is NOTHING or refused.touch(path):
            continue
        if (ours := _ours(flag, value)) is not None:
            errors.append(
                InvalidValueError(
                    _of_ours(ours),
                    spans=[parsed.span((*path, ours), "backendcfg's own", on="key")],
                    helps=[_SET_THE_FLAG],
                )
            )
        for assignment in expand(flag, value, parsed.place(path)):
            if (earlier := found.get(assignment.flag)) is None:
                found[assignment.flag] = (assignment, path)
            else:
                errors.append(_conflict(parsed, assignment, earlier, path))
    ordered = sorted(
        (assignment for assignment, _ in found.values()),
        key=lambda assignment: (assignment.place.line, assignment.place.column),
    )
    return tuple(ordered), errors


def _ours(flag: FlagField, value: Any) -> str | None:
    """The first variable of backendcfg's own that a value of `environment` sets, or None."""
    names = value if flag.name == "environment" else ()
    return next((name for name in names if name.startswith(environ.PREFIX)), None)


def _of_ours(name: str) -> str:
    return f"`environment` sets {name}, a variable by which backendcfg itself is told what to do"


_SET_THE_FLAG = "set the flag itself, as `threads.count = 4`; what is no flag belongs to the shell"


def expand(flag: FlagField, value: Any, place: Place) -> Iterator[Assignment]:
    """What a flag's valid value writes: itself, or the flags that a legacy spelling stands for."""
    if flag.flag.spells:
        for target, meant in flag.flag.spells[value].items():
            yield Assignment(flag=target, value=meant, place=place, written_as=flag.name)
    else:
        yield Assignment(flag=flag.name, value=normal(flag, value), place=place)


def normal(flag: FlagField, value: Any) -> Any:
    """The one form of a valid value: `"mkl"` for a library becomes `{"prefer": ["mkl"]}`."""
    if not candidates(flag.info.annotation):
        return value
    table = {"prefer": [value]} if isinstance(value, str) else value
    return {name: inner for name, inner in table.items() if inner}


def _at(table: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(table, dict) or part not in table:
            return NOTHING
        table = table[part]
    return table


def _conflict(
    parsed: Parsed, later: Assignment, earlier: tuple[Assignment, Path], path: Path
) -> ConflictingFlagsError:
    """Two spellings of one flag in one table; which came first in the file is not known yet."""
    first, first_path = earlier
    pairs = sorted([(first, first_path), (later, path)], key=lambda pair: _order(parsed, pair[1]))
    texts = [
        f"{assignment.written_as or assignment.flag} = {describe.toml(parsed.value(where))}"
        for assignment, where in pairs
    ]
    legacy = next(a.written_as for a, _ in pairs if a.written_as)
    return ConflictingFlagsError(
        f"`{texts[0]}` and `{texts[1]}` are two spellings of one flag",
        spans=[
            parsed.span(
                where,
                f"the legacy spelling of `{assignment.flag}`"
                if assignment.written_as
                else "the flag itself",
                on="key",
            )
            for assignment, where in pairs
        ],
        helps=[f"keep `{later.flag}` and remove `{legacy}`"],
    )


def _order(parsed: Parsed, path: Path) -> tuple[int, int]:
    mark = parsed.mark(path, on="key")
    return mark.line, mark.column


def dropped(parsed: Parsed, refused: Refused) -> tuple[tuple[Dropped, ...], list[BackendCfgError]]:
    """What `drop` names, and the names in it that are neither a flag nor a table of flags."""
    tables = {name.rsplit(".", depth)[0] for name in flags() for depth in range(1, 4)}
    found: list[Dropped] = []
    errors: list[BackendCfgError] = []
    names = () if refused.touch(("drop",)) else parsed.data.get("drop", ())
    for index, name in enumerate(names):
        place = parsed.place(("drop", index))
        if name in flags():
            targets = {target for writes in flags()[name].flag.spells.values() for target in writes}
            found += [Dropped(flag=flag, place=place) for flag in sorted(targets) or [name]]
        elif name in tables or name.startswith("environment."):
            found.append(Dropped(flag=name, place=place))
        elif len(errors) <= MOST:
            near = nearest(name, {*flags(), *tables})
            errors.append(
                UnknownFlagError(
                    f"`drop` names {describe.toml(name)}, which is neither a flag nor a table",
                    spans=[
                        parsed.span(
                            ("drop", index), f"did you mean `{near}`?" if near else "no such flag"
                        )
                    ],
                    helps=[
                        f'write `"{near}"`' if near else f"every flag is in {describe.KEYS_PAGE}"
                    ],
                )
            )
    return tuple(found), errors


def invalid(parsed: Parsed, path: Path, message: str, label: str, cure: str) -> BackendCfgError:
    """A value that its type allows and its meaning does not."""
    return InvalidValueError(message, spans=[parsed.span(path, label)], helps=[cure])


def from_environment() -> tuple[Assignment, ...]:
    """The flags that BACKENDCFG_<FLAG> variables set.

    Raises:
        UnknownVariableError: a BACKENDCFG_* name that nobody reads.
        InvalidVariableError: a value that is not one of the flag's.
        ConflictingFlagsError: a flag and its legacy spelling.
    """
    found = environ.flag_settings(flags())
    return _merged(
        (_read(flags()[name], text, variable), Place(name=variable))
        for name, (variable, text) in found.items()
    )


def from_initial(environment: Mapping[str, str]) -> tuple[Assignment, ...]:
    """The flags that PyTorch's own variables give their first value."""
    return tuple(
        assignment
        for name, (variable, value) in torch_backends.initial_settings(environment).items()
        for assignment in expand(flags()[name], value, Place(name=variable))
    )


def from_arguments(arguments: Mapping[str, str]) -> tuple[Assignment, ...]:
    """The flags that arguments set.

    Raises:
        UnknownFlagError: no such flag.
        WrongTypeError, InvalidValueError: a value that is not one of the flag's.
        ConflictingFlagsError: a flag and its legacy spelling.
    """
    for name in arguments:
        if name not in flags():
            raise unknown_flag(name)
    return _merged(
        (_read(flags()[name], text, ""), Place(name=f"--set {name}"))
        for name, text in arguments.items()
    )


def spelled_out(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flags that a program sets, checked: each under its canonical name, in its one form.

    Args:
        values: `{"cudnn.allow_tf32": False}`; a legacy spelling becomes what it stands for.

    Raises:
        UnknownFlagError: no such flag.
        WrongTypeError, InvalidValueError: a value is not one of the flag's.
        ConflictingFlagsError: a flag and its legacy spelling.
    """
    for name in values:
        if name not in flags():
            raise unknown_flag(name)
    written = _merged(
        ((flags()[name], _checked(flags()[name], value)), Place(name=name))
        for name, value in values.items()
    )
    return {one.flag: one.value for one in written}


def _checked(flag: FlagField, value: Any) -> Any:
    """A Python value of a flag as JSON data."""
    kind = Kind.field(flag.info)
    plain = list(value) if isinstance(value, tuple) else value
    wanted = f"`{flag.name}` must be {describe.words(kind)}"
    if not _all_json(plain):
        raise WrongTypeError(f"{wanted}, not {value!r:.80}")
    if not valid(kind, plain):
        if (entry := _wrong_entry(kind, plain, flag.name)) is not None:
            raise InvalidValueError(entry)
        complaint, _, helps = refusal(kind, plain, flag.name)
        raise complaint(f"{wanted}, not {not_what(kind, plain)}", helps=helps)
    return plain


def unknown_flag(name: str) -> UnknownFlagError:
    """The error for a name that is no flag, with the nearest that is."""
    near = nearest(name, flags())
    return UnknownFlagError(
        f"there is no flag `{describe.dotted(name.split('.'))}`",
        helps=[f"did you mean `{near}`?" if near else f"every flag is in {describe.KEYS_PAGE}"],
    )


def _merged(values: Any) -> tuple[Assignment, ...]:
    found: dict[str, Assignment] = {}
    for (flag, value), place in values:
        for assignment in expand(flag, value, place):
            if earlier := found.get(assignment.flag):
                raise ConflictingFlagsError(
                    f"`{earlier.place.name}` and `{place.name}` are two spellings of one flag",
                    notes=[f"both set `{assignment.flag}`"],
                    helps=["remove one of them"],
                )
            found[assignment.flag] = assignment
    return tuple(found.values())


def _read(flag: FlagField, text: str, variable: str) -> tuple[FlagField, Any]:
    """A flag with its value, read and checked; `variable` is "" for an argument."""
    where = f"environment variable {variable}" if variable else f"argument `{flag.name}`"
    kind = Kind.field(flag.info)
    value = _value(kind, text)
    if value is None:
        error_class = InvalidVariableError if variable else InvalidValueError
        raise error_class(
            f"{where} is read as a TOML value, and {text} is not one"
            if _prints(text)
            else f"{where} is read as a TOML value, and what it says is not one",
            notes=[f"`{flag.name}` must be {describe.words(kind)}"],
        )
    if not valid(kind, value) or not _all_json(value):
        if (entry := _wrong_entry(kind, value, flag.name)) is not None:
            raise (InvalidVariableError if variable else InvalidValueError)(f"{where}: {entry}")
        complaint, _, helps = refusal(kind, value, variable or flag.name)
        raise (InvalidVariableError if variable else complaint)(
            f"{where} must be {describe.words(kind)}, not {describe.shown(value)}",
            helps=[_shell(help_text, variable) for help_text in helps],
        )
    if (ours := _ours(flag, value)) is not None:
        complaint = InvalidVariableError if variable else InvalidValueError
        raise complaint(f"{where}: {_of_ours(ours)}", helps=[_SET_THE_FLAG])
    return flag, value


def _wrong_entry(kind: Kind, value: Any, name: str) -> str | None:
    """Which entry of a table of names and values is wrong, in words; None where none is."""
    if get_origin(kind.annotation) is not dict or not isinstance(value, dict):
        return None
    names, values = map(Kind.of, get_args(kind.annotation))
    for key, one in value.items():
        if not valid(names, key):
            return f"{describe.toml(key)} must be {describe.words(names)}"
        if not valid(values, one):
            return f"`{name}.{key}` must be {describe.words(values)}, not {not_what(values, one)}"
    return None


def _value(kind: Kind, text: str) -> Any:
    """What a text means to a flag: its TOML value, else the text itself, or its words at commas.

    `8`, `true`, `"tf32"` and `["flash", "math"]` are TOML; `tf32` and `flash,math` are not. None
    where it looks like TOML and is none, and where it does not print.
    """
    value = _toml_value(text)
    if value is not None and (valid(kind, value) or text.startswith(_TOML)):
        return value
    if text.startswith(_TOML) or not text.isprintable():
        return None
    if valid(kind, text):
        return text
    words = [word.strip() for word in text.split(",")]
    if valid(kind, words):
        return words
    return text if value is None else value


_TOML = ('"', "'", "[", "{")
"""What a TOML value begins with that no bare word does."""


def _toml_value(text: str) -> Any:
    """The one TOML value that a text is, or None."""
    if has_long_key(text):
        return None
    try:
        data = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return None
    return data["value"] if list(data) == ["value"] else None


def _all_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_all_json, value.values()))
    return all(map(_all_json, value)) if isinstance(value, list) else is_json(value)


def _prints(text: str) -> bool:
    return text.isprintable() and len(text) <= 80


def _shell(help_text: str, variable: str) -> str:
    """A cure as the shell takes it: `write X=4`, a string as a bare word."""
    name, equals, value = help_text.removeprefix("write `").removesuffix("`").partition(" = ")
    if not equals:
        return help_text
    word = re.fullmatch(r'"([\w.:,^-]+)"', value)
    quoted = shlex.quote(word[1] if word else value)
    return f"write `{name}={quoted}`" if variable else f"write `--set {name}={quoted}`"
