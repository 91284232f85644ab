"""A host as a file: written by `detect --capture`, read by `plan --host` on any machine."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from backendcfg.errors import InvalidHostError, Span, StateUnwritableError
from backendcfg.schema.base import SCHEMA_VERSION
from backendcfg.schema.host import Host

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGEST = 16 * 2**20
_SHOWN = 8


def write(host: Host, path: str | os.PathLike[str]) -> None:
    """Store a host, whole or not at all; the machine's own name is left out.

    Raises:
        StateUnwritableError: the file cannot be written.
    """
    target = os.path.abspath(os.fspath(path))
    anonymous = host.model_copy(update={"system": host.system.model_copy(update={"name": ""})})
    text = anonymous.model_dump_json(by_alias=True, indent=2) + "\n"
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise StateUnwritableError(
            f"the host cannot be written to {os.fspath(path)}: {error.strerror or error}",
            helps=["give `--capture` a path in a directory that you may write"],
        ) from error


def read(path: str | os.PathLike[str]) -> Host:
    """The host that a file holds.

    Raises:
        InvalidHostError: it cannot be read, is not JSON, or is not a host of this release.
    """
    name = os.fspath(path)
    data = _load(name)
    if not isinstance(data, dict):
        raise _invalid(name, f"it holds {_type(data)}, not an object")
    found = data.get("schema")
    if found != SCHEMA_VERSION or isinstance(found, bool):
        what = f"has schema {found!r}" if "schema" in data else "has no `schema`"
        raise InvalidHostError(
            f"{name} {what}; this release of backendcfg reads schema {SCHEMA_VERSION}",
            helps=["run `backendcfg detect --capture FILE` with this release on that machine"],
        )
    try:
        # As JSON text, because strict validation of Python objects refuses lists for tuples.
        return Host.model_validate_json(json.dumps(data))
    except ValidationError as error:
        faults = [_fault(fault["type"], fault["loc"], fault) for fault in error.errors()]
        notes = faults[:_SHOWN]
        if len(faults) > _SHOWN:
            notes.append(f"and {len(faults) - _SHOWN} more")
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise _invalid(name, f"{count} in it", notes) from None


def _load(name: str) -> Any:
    try:
        if os.path.getsize(name) > _LARGEST:
            raise _invalid(name, f"it is larger than {_LARGEST // 2**20} MiB")
        with open(name, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise InvalidHostError(
            f"cannot read the host {name}: {(error.strerror or str(error)).lower()}",
            helps=["run `backendcfg detect --capture FILE` to write one"],
        ) from error
    except UnicodeDecodeError as error:
        raise _invalid(name, "it is not UTF-8 text") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        source = text.splitlines()[error.lineno - 1] if text.strip() else ""
        span = Span(name, error.lineno, error.colno, 1, source[:200], error.msg.lower())
        raise InvalidHostError(
            f"{name} is not JSON",
            spans=[span],
            helps=["run `backendcfg detect --capture FILE` to write a host"],
        ) from error
    except RecursionError as error:
        raise _invalid(name, "it is nested too deeply") from error


def _invalid(name: str, why: str, notes: Sequence[str] = ()) -> InvalidHostError:
    return InvalidHostError(
        f"{name} is not a host: {why}",
        notes=notes,
        helps=["run `backendcfg detect --capture FILE` to write a host"],
    )


_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "int_from_float": "an integer",
}


def _fault(kind: str, location: tuple[int | str, ...], fault: Any) -> str:
    """One fault in our words, with its place as `cpu.usable` or `gpus[0].name`."""
    # A tagged union adds the tag to the location, which is not in the file.
    parts = [part for part in location if part not in {"found", "absent", "broken"}]
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts
    ).removeprefix(".")
    if kind == "missing":
        return f"`{place}` is missing"
    if kind == "extra_forbidden":
        return f"`{place}` is not a key of a host"
    got = _type(fault.get("input"))
    if kind in _EXPECTED:
        return f"`{place}` must be {_EXPECTED[kind]}, not {got}"
    context = fault.get("ctx") or {}
    if kind == "literal_error":
        return f"`{place}` must be {context['expected']}, not {json.dumps(fault.get('input'))}"
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        return f"`{place}.outcome` must be 'found', 'absent' or 'broken'"
    return f"`{place}` is not allowed: {json.dumps(fault.get('input'))[:60]}"


def _type(value: Any) -> str:
    """A JSON value's type, and the value when it is short."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    words = {bool: "the boolean", str: "the string", int: "the integer", float: "the number"}
    return f"{words[type(value)]} {json.dumps(value)[:60]}"
