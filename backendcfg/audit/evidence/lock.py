"""The lock of a proven run: a small TOML file that says what it ran on, and what it produced.

It is kept in version control, so it has no paths, its keys are sorted, and writing it twice gives
the same bytes but for the date. `drift.py` compares one with what is here.
"""

from __future__ import annotations

import datetime as dt
import shlex
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from backendcfg import __version__
from backendcfg.errors import (
    InvalidLockError,
    TomlSyntaxError,
    UnreadableFileError,
    UnsupportedSchemaError,
    shown_path,
)
from backendcfg.load.complaints import not_what
from backendcfg.load.parsed import parse
from backendcfg.load.text import read_text
from backendcfg.resolve.words import some_lines
from backendcfg.schema import describe
from backendcfg.schema.base import Document
from backendcfg.schema.describe import Kind
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.load.parsed import Parsed

VERSION = 1
"""Of the document. Raised when a release writes what this one would misread."""

Scalar = bool | int | float | str
Plain = Scalar | list[Scalar]


class Profile(Document):
    """What was in force.

    Attributes:
        name: as it was asked for.
        tier: what it guarantees of bits.
        order: CPU providers that may serve, best first.
        flags: every flag that somebody set and that can change bits, with its value here.
    """

    name: str
    tier: str
    order: list[str] = []
    flags: dict[str, Any]


class Library(Document):
    """What one package brings that computes.

    Attributes:
        version: of the package, or "".
        files: size and digest of each library, by its file name.
    """

    version: str = ""
    files: dict[str, str]


class Python(Document):
    """The interpreter, and the numeric packages that are installed.

    Attributes:
        version: of the language.
        implementation: "CPython".
        backendcfg: its version.
        packages: versions by import name.
    """

    version: str
    implementation: str
    backendcfg: str
    packages: dict[str, str]


class Machine(Document):
    """What of the machine can change results.

    Attributes:
        cpu: the processor's name.
        microarchitecture: archspec's name of it.
        features: its instruction sets for arithmetic, by which libraries choose kernels.
        caches: their sizes, by which libraries choose the blocks of their sums.
        usable: processors that the process may use.
        gpus: names and compute capabilities of those that are visible.
        drivers: versions by name.
    """

    cpu: str
    microarchitecture: str
    features: str
    caches: str
    usable: int
    gpus: list[str] = []
    drivers: dict[str, str] = {}


class Numerics(Document):
    """The numerics token of a process in which every installed framework is imported.

    Attributes:
        token: the digest.
        composed: how it is composed; tokens of another number cannot be compared.
        parts: a digest of each part.
        switches, facts, variables: these parts in full.
    """

    token: str
    composed: int
    parts: dict[str, str]
    switches: dict[str, Plain]
    facts: dict[str, Plain]
    variables: dict[str, Plain]


class Results(Document):
    """What every run produced.

    Attributes:
        runs: how many were equal.
        bound: a deviation in this part of all runs would have shown in 95 of 100 proofs.
        text: digest of what was printed, times left out.
        records: digest of what was recorded, or "" for nothing.
        files: a digest of what each file holds that was written; None where there were too many.
        also: what every third run had otherwise because that was asked for, by name: threads,
            processors; None for nothing. It says how much was proven, and is compared with nothing.
    """

    runs: Annotated[int, Field(ge=2)]
    bound: Annotated[float, Field(ge=0, le=1)]
    text: str
    records: str = ""
    files: dict[str, str] | None = None
    also: dict[str, Annotated[int, Field(ge=1)]] | None = None


class Present(Document):
    """What a program that starts now would find: all that drifts."""

    profile: Profile
    libraries: dict[str, Library]
    python: Python
    machine: Machine
    numerics: Numerics


class Lock(Present):
    """What a proven run ran on and produced.

    Attributes:
        lock: the version of this document.
        created: the day on which it was written.
    """

    lock: Literal[1] = 1
    created: str
    results: Results

    def to_toml(self) -> str:
        """The document; the same one gives the same text."""
        import tomli_w

        tables = self.model_dump(exclude_none=True)
        written = {"lock": tables.pop("lock"), "created": tables.pop("created"), **tables}
        return HEADING + tomli_w.dumps(_sorted(written), multiline_strings=False)


HEADING = """\
# What a program was proven with, by `backendcfg prove PROFILE --output FILE -- COMMAND`.
# `backendcfg run --locked FILE -- COMMAND` starts it on nothing else.
"""


def _sorted(data: Any, depth: int = 0) -> Any:
    """The same with sorted keys below the sections."""
    if isinstance(data, dict):
        order = sorted(data) if depth else data
        return {name: _sorted(data[name], depth + 1) for name in order}
    return data


def plain(value: Any) -> Any:
    """A value as TOML can say it: None is "none"."""
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None:
        return "none"
    return value if isinstance(value, bool | int | float | str) else str(value)


def made(present: Present, results: Results) -> Lock:
    """The lock of what is here and what was produced, of today."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return Lock(created=today, results=results, **dict(present))


def write(lock: Lock, path: str) -> None:
    """Write a lock; a reader sees the old file or the new one. A link stays one.

    Raises:
        UnreadableFileError: the file cannot be written.
    """
    disk.replace_named(path, lock.to_toml().encode())


def read(path: str) -> Lock:
    """The lock in a file.

    Raises:
        UnreadableFileError: it cannot be read as text.
        InvalidLockError: it is no lock; every fault is named, with its place.
        UnsupportedSchemaError: another release wrote it.
    """
    try:
        parsed = parse(read_text(path))
    except UnreadableFileError as error:
        helps = [*error.helps, "name a file that `backendcfg prove --output` wrote"]
        raise UnreadableFileError(error.message, spans=error.spans, helps=helps) from None
    except TomlSyntaxError as error:
        raise InvalidLockError(
            error.message, spans=error.spans, helps=[*error.helps, *_helps(path)]
        ) from None
    _check_version(parsed, path)
    try:
        return Lock.model_validate_json(parsed.json())
    except ValidationError as error:
        raise _invalid(parsed, path, error) from None


def _check_version(parsed: Parsed, path: str) -> None:
    version = parsed.data.get("lock")
    if version is None:
        message = f"{shown_path(path)} is no lock: `lock` is missing"
        raise InvalidLockError(message, helps=_helps(path))
    if type(version) is not int or version < 1:
        raise InvalidLockError(
            f"{shown_path(path)} is no lock: `lock` must be {VERSION},"
            f" not {describe.shown(version)}",
            spans=[parsed.span(("lock",))],
            helps=_helps(path),
        )
    if version != VERSION:
        raise UnsupportedSchemaError(
            f"{shown_path(path)} is a lock of version {version}; backendcfg {__version__} reads"
            f" version {VERSION}",
            spans=[parsed.span(("lock",), "newer than this release")],
            helps=["upgrade backendcfg: `pip install --upgrade backendcfg`", *_helps(path)],
        )


def _helps(path: str) -> list[str]:
    command = f"backendcfg prove PROFILE --output {shlex.quote(shown_path(path))} -- COMMAND"
    return [f"take the file from version control again, or write it anew: `{command}`"]


MOST_FAULTS = 8


def _invalid(parsed: Parsed, path: str, error: ValidationError) -> InvalidLockError:
    """Everything that is wrong with it: the first that has a place, the others as notes."""
    items = error.errors(include_url=False, include_context=False)
    faults = dict(_fault(parsed.data, item["type"], item["loc"]) for item in items)
    first, *others = sorted(faults, key=lambda words: not faults[words])
    return InvalidLockError(
        f"{shown_path(path)} is no lock: {first}",
        spans=[parsed.span(faults[first])] if faults[first] else [],
        notes=some_lines(others, MOST_FAULTS),
        helps=_helps(path),
    )


def _fault(
    data: Any, kind: str, location: Sequence[str | int]
) -> tuple[str, tuple[str | int, ...]]:
    """One of Pydantic's findings in our words, and where it stands; () for what is missing."""
    place: tuple[str | int, ...] = ()
    value = data
    for part in location:  # the last ones may name a member of a union
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            break
        place = (*place, part)
    if kind == "missing":
        return f"`{describe.dotted(location)}` is missing", ()
    name = describe.dotted(place)
    expected = Kind.of(Lock).at(place)
    if kind == "extra_forbidden" or expected is None:
        return f"`{name}` is unknown", place
    return f"`{name}` must be {describe.words(expected)}, not {not_what(expected, value)}", place
