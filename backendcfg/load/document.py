"""Read one profile or settings file: everything in it, or everything that is wrong with it."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from backendcfg.environ import NOTHING
from backendcfg.errors import (
    BackendCfgError,
    UnknownKeyError,
    UnsupportedSchemaError,
    WrongTypeError,
    shown_path,
)
from backendcfg.load.assignments import assignments, dropped, invalid
from backendcfg.load.complaints import (
    Refused,
    complaints,
    file_order,
    nearest,
    raise_all,
    unknown_key,
)
from backendcfg.load.parsed import Parsed, parse
from backendcfg.load.text import read_text
from backendcfg.records import record
from backendcfg.schema import describe
from backendcfg.schema.base import SCHEMA_VERSION
from backendcfg.schema.profile import (
    LIBRARIES,
    Condition,
    Conditional,
    CpuCondition,
    GpuCondition,
    Profile,
    Requirement,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.load.parsed import Path
    from backendcfg.schema.profile import Assignment, Dropped


def requirements(parsed: Parsed, profile: Profile) -> tuple[Requirement, ...]:
    """`[requires]`, cut into what can be met or missed by itself, each with its place.

    The lines about a GPU stay together, because one device must meet them all.
    """
    needs = profile.requires
    found: list[Requirement] = []

    def add(condition: Condition, *path: str | int) -> None:
        place = parsed.place(("requires", *path))
        found.append(Requirement(condition=condition, place=place))

    if needs.gpu is not None and needs.gpu != GpuCondition():
        lines = ("compute_capability", "architecture", "vendor")
        add(
            Condition(gpu=needs.gpu),
            "gpu",
            next(line for line in lines if getattr(needs.gpu, line)),
        )
    if needs.cpu is not None:
        for line, value in needs.cpu.model_dump(exclude_defaults=True).items():
            if line == "features":
                for index, feature in enumerate(value):
                    add(Condition(cpu=CpuCondition(features=(feature,))), "cpu", line, index)
            else:
                add(Condition(cpu=CpuCondition(**{line: value})), "cpu", line)
    if needs.os is not None:
        add(Condition(os=needs.os), "os")
    for name, versions in needs.libraries.items():
        add(Condition(libraries={name: versions}), "libraries", name)
    return tuple(found)


def conditionals(
    parsed: Parsed, refused: Refused
) -> tuple[tuple[Conditional, ...], list[BackendCfgError]]:
    """Every `[[when]]` table, and the conflicts inside each."""
    found: list[Conditional] = []
    errors: list[BackendCfgError] = []
    tables = () if ("when",) in refused else parsed.data.get("when", ())
    for index, table in enumerate(tables):
        values: tuple[Any, ...] = ()
        here: Path = ("when", index)
        if here in refused:
            continue
        if "flags" in table:
            values, wrong = assignments(parsed, (*here, "flags"), refused)
            errors += wrong
        if not refused.touch(here):
            lines = {name: value for name, value in table.items() if name != "flags"}
            condition = Condition.model_validate_json(json.dumps(lines))
            place = parsed.place(here)
            found.append(Conditional(condition=condition, assignments=values, place=place))
    return tuple(found), errors


def unknown_names(parsed: Parsed, refused: Refused) -> Iterator[BackendCfgError]:
    """Version ranges that are none, and libraries and microarchitectures that nobody knows.

    Such a condition would never hold, and nobody would notice.
    """
    for path, value in _leaves(parsed.data):
        if path[0] not in ("requires", "when") or refused.touch(path):
            continue
        if path[-2] == "libraries" and path[-1] not in LIBRARIES:
            yield _unknown_library(parsed, path)
        elif path[-1] == "compute_capability" or path[-2] == "libraries":
            if not _is_range(value):
                yield invalid(
                    parsed,
                    path,
                    f"{describe.toml(value)} is not a version range",
                    "not a version range",
                    'write ranges like ">=8.0" or ">=2.5,<3"',
                )
        elif path[-1] == "microarchitecture" and value not in microarchitectures():
            near = nearest(value, microarchitectures())
            yield invalid(
                parsed,
                path,
                f"no CPU microarchitecture is called {describe.toml(value)}",
                f"did you mean {describe.toml(near)}?" if near else "not a name that archspec has",
                f"write `microarchitecture = {describe.toml(near)}`"
                if near
                else "run `backendcfg detect` to see this machine's",
            )


def _unknown_library(parsed: Parsed, path: Path) -> BackendCfgError:
    name = str(path[-1])
    near = nearest(name, LIBRARIES)
    return UnknownKeyError(
        f"hosts list no version of `{describe.key(name)}`, so the condition would never hold",
        spans=[parsed.span(path, f"did you mean `{near}`?" if near else "not listed", on="key")],
        notes=[f"they list {describe.listed([f'`{each}`' for each in LIBRARIES])}"],
        helps=[f"rename it to `{near}`, or delete the line" if near else "delete the line"],
    )


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for part, below in inner:
        if isinstance(below, dict | list):
            yield from _leaves(below, (*path, part))
        else:
            yield (*path, part), below


def _is_range(text: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


@cache
def microarchitectures() -> frozenset[str]:
    """Every name that archspec knows."""
    import archspec.cpu

    return frozenset(archspec.cpu.TARGETS)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
A_NAME = (
    "a name has letters, digits, `.`, `_` and `-`, starts with a letter or digit, and is not "
    "`nothing`"
)
PYPROJECT = "pyproject.toml"
PYPROJECT_TABLE = ("tool", "backendcfg")
SETTINGS_FILES = ("backendcfg.toml", "config.toml", PYPROJECT)

Model = TypeVar("Model", Profile, Settings)


@record(frozen=True)
class ProfileFile:
    """A valid profile.

    Attributes:
        parsed: the file with its places.
        description: what it says of itself.
        extends: the names that it extends, in order, each with its path in the data.
        assignments: flags by their canonical names, in file order.
    """

    parsed: Parsed
    description: str
    extends: tuple[tuple[str, Path], ...]
    assignments: tuple[Assignment, ...]
    dropped: tuple[Dropped, ...]
    requires: tuple[Requirement, ...]
    whens: tuple[Conditional, ...]


@record(frozen=True)
class SettingsFile:
    """Valid settings: the profile that they pick, "" for none, and flags of their own."""

    parsed: Parsed
    profile: str
    assignments: tuple[Assignment, ...]


def read_profile(
    path: str | os.PathLike[str],
    *,
    shipped: bool = False,
    faults: list[BackendCfgError] | None = None,
) -> ProfileFile:
    """A profile file.

    Args:
        path: the file.
        shipped: whether it came with backendcfg.
        faults: takes what is wrong with it, the last first, and the rest of the file is returned;
            without it, that is raised.

    Raises:
        BackendCfgError: what is wrong with it; `SeveralErrors` when that is more than one thing.
    """
    parsed = parse(read_text(path), shipped=shipped)
    profile, errors, refused = _validated(parsed, Profile)
    values, conflicts = assignments(parsed, (), refused)
    drops, unknown = dropped(parsed, refused)
    whens, conflicts_in_whens = conditionals(parsed, refused)
    errors += [*conflicts, *unknown, *conflicts_in_whens, *unknown_names(parsed, refused)]
    extends: tuple[tuple[str, Path], ...] = ()
    if not refused.touch(("extends",)):
        written = _extends(parsed.data.get("extends", []))
        errors += [_not_a_name(parsed, name, at) for name, at in written if not is_name(name)]
        extends = tuple((name, at) for name, at in written if is_name(name))
    errors.sort(key=file_order)
    if faults is None:
        raise_all(shown_path(parsed.path), errors)
    else:
        faults += errors[::-1]
    return ProfileFile(
        parsed=parsed,
        description=profile.description,
        extends=extends,
        assignments=values,
        dropped=drops,
        requires=requirements(parsed, profile),
        whens=whens,
    )


def _extends(written: str | list[str]) -> tuple[tuple[str, Path], ...]:
    if isinstance(written, str):
        return ((written, ("extends",)),)
    return tuple((name, ("extends", index)) for index, name in enumerate(written))


def read_settings(path: str | os.PathLike[str]) -> SettingsFile:
    """A settings file: backendcfg.toml, config.toml, or pyproject.toml's [tool.backendcfg].

    Raises:
        BackendCfgError: what is wrong with it; `SeveralErrors` when that is more than one thing.
    """
    root = PYPROJECT_TABLE if os.path.basename(path) == PYPROJECT else ()
    parsed = parse(read_text(path), root)
    _, errors, refused = _validated(parsed, Settings)
    values, conflicts = assignments(parsed, (), refused)
    errors += conflicts
    picked = "" if refused.touch(("profile",)) else parsed.data.get("profile", "")
    errors += [
        _not_a_name(parsed, part, ("profile",))
        for part in (picked.split("+") if picked and picked != NOTHING else ())
        if not is_name(part)
    ]
    raise_all(shown_path(parsed.path), sorted(errors, key=file_order))
    return SettingsFile(parsed, picked, values)


def is_name(name: str) -> bool:
    """Whether a profile may be called so."""
    return len(name) <= 100 and NAME.fullmatch(name) is not None and name != NOTHING


def _not_a_name(parsed: Parsed, name: str, path: Path) -> BackendCfgError:
    parts = name.split("+")
    if len(parts) > 1 and path[0] == "extends" and all(map(is_name, parts)):
        cure = f"write `extends = {describe.toml(parts)}`"
    else:
        cure = A_NAME
    return invalid(
        parsed, path, f"{describe.toml(name)} is not the name of a profile", "not a name", cure
    )


def _validated(parsed: Parsed, model: type[Model]) -> tuple[Model, list[BackendCfgError], Refused]:
    """The model, or an empty one, with what was refused and where."""
    _check_version(parsed)
    errors: list[BackendCfgError] = []
    refused = Refused()
    valid = model()
    try:
        valid = model.model_validate_json(parsed.json())
    except ValidationError as error:
        errors, refused = complaints(parsed, model, error)
    by_field_name = ("schema_version",)  # Pydantic takes a field's name beside its alias
    if by_field_name[0] in parsed.data and by_field_name not in refused:
        errors.append(unknown_key(parsed, model, by_field_name))
    return valid, errors, refused


def _check_version(parsed: Parsed) -> None:
    """Refuse a file for another schema before anything else in it is judged by this one."""
    if not isinstance(parsed.data, dict):
        table = describe.dotted(parsed.root)
        raise WrongTypeError(
            f"`{table}` must be a table, not {describe.shown(parsed.data)}",
            spans=[parsed.span((), describe.type_of(parsed.data))],
        )
    version = parsed.data.get("schema", SCHEMA_VERSION)
    if type(version) is not int:
        raise WrongTypeError(
            f"`schema` must be {SCHEMA_VERSION}, not {describe.shown(version)}",
            spans=[parsed.span(("schema",), describe.type_of(version))],
            helps=[f"write `schema = {SCHEMA_VERSION}`"],
        )
    if version != SCHEMA_VERSION:
        newer = version > SCHEMA_VERSION
        raise UnsupportedSchemaError(
            f"{shown_path(parsed.path)} is written for schema {describe.toml(version)}; "
            f"this backendcfg reads schema {SCHEMA_VERSION}",
            spans=[parsed.span(("schema",), "newer than this release" if newer else "unknown")],
            helps=[
                "upgrade backendcfg: `pip install --upgrade backendcfg`"
                if newer
                else f"write `schema = {SCHEMA_VERSION}`"
            ],
        )
