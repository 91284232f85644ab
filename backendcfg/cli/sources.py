"""Where the verbs get stacks, hosts and plans: from what is named, else from what is in force.

A host can come from a JSON file: it is read with every fault named in words, and written whole or
not at all.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from backendcfg import session
from backendcfg.errors import (
    InvalidHostError,
    Span,
    StateUnwritableError,
    UnreadableFileError,
    shown_path,
)
from backendcfg.load.text import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Plan
    from backendcfg.schema.profile import Stack
    from backendcfg.session.choice import Picked


def picked(name: str | None, settings: Mapping[str, str]) -> Picked:
    """Who picked what a name means here; without one, the profile in force for a new process."""
    from backendcfg.session.choice import Picked, chosen

    found = chosen(name, settings)
    if found is None:
        return Picked(name, "profile-by-argument", "no profile", arguments=dict(settings))
    return found


def stack(pick: Picked) -> Stack:
    """Every layer behind a profile that was picked, weakest first."""
    return session.stack(pick.request, arguments=pick.arguments, rank=pick.rank)


def host(path: str | None) -> Host:
    """The host in a file, or this one."""
    if path is None:
        return session.detect()
    return read_host(path)


def plan(name: str | None, settings: Mapping[str, str], host_file: str | None = None) -> Plan:
    """The plan of a name on a host.

    Raises:
        RequestError: the name, a file or a setting is wrong.
        MachineError: the host cannot serve it.
    """
    from backendcfg.progress import Step
    from backendcfg.resolve.plan import resolve

    with Step("making the plan"):
        return resolve(stack(picked(name, settings)), host(host_file))


MOST_FAULTS = 8


def read_host(path: str) -> Host:
    """The host in a file that `backendcfg detect --capture` wrote.

    Raises:
        UnreadableFileError: the file cannot be read as text.
        InvalidHostError: it is not a host; every fault is named.
    """
    from pydantic import ValidationError

    from backendcfg.schema.host import Host

    text = _text(path)
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        raise InvalidHostError(
            f"{path} is not JSON",
            spans=[Span(path, error.lineno, error.colno, 1, line, error.msg.lower())],
            helps=[f"write one with `backendcfg detect --capture {path}`"],
        ) from error
    except RecursionError as error:
        raise InvalidHostError(f"{path} is nested too deeply to be a host") from error
    try:
        return Host.model_validate_json(text)
    except ValidationError as error:
        faults = [_fault(item) for item in error.errors(include_url=False)]
        raise InvalidHostError(
            f"{path} is not a host: {faults[0]}",
            notes=faults[1:MOST_FAULTS]
            + ([f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []),
            helps=[f"write one with `backendcfg detect --capture {path}`"],
        ) from error


def write_host(host: Host, path: str) -> None:
    """Store a host but for its machine's name; a reader sees the old file or the new one.

    Raises:
        UnreadableFileError: the file cannot be written.
    """
    from backendcfg.transact.disk import replace

    nameless = host.model_copy(update={"system": host.system.model_copy(update={"name": ""})})
    text = nameless.model_dump_json(by_alias=True, indent=2) + "\n"
    try:
        replace(os.path.abspath(path), text.encode(), shared=True)
    except StateUnwritableError as error:
        raise UnreadableFileError(
            error.message.replace(os.path.abspath(path), path),
            helps=["name a file in a folder that you may write"],
        ) from error


def _text(path: str) -> str:
    try:
        return read_bytes(path)[0].decode("utf-8-sig")
    except UnreadableFileError as error:
        raise UnreadableFileError(
            error.message, helps=["name a file that `backendcfg detect --capture` wrote"]
        ) from None
    except UnicodeDecodeError as error:
        raise UnreadableFileError(
            f"cannot read {shown_path(path)}: it is not text in UTF-8 (byte {error.start})"
        ) from error


def _fault(item: Any) -> str:
    """One of Pydantic's findings in our words."""
    where = ".".join(str(part) for part in item["loc"]) or "the document"
    kind, found = item["type"], item.get("input")
    if kind == "missing":
        return f"`{where}` is missing"
    if kind == "extra_forbidden":
        return f"`{where}` is not a key of a host"
    if kind == "literal_error":
        expected = item["ctx"]["expected"].replace("'", '"')
        return f"`{where}` must be {expected}, not {json.dumps(found)}"
    wanted = {
        "int_type": "an integer",
        "bool_type": "true or false",
        "string_type": "a string",
        "list_type": "an array",
        "tuple_type": "an array",
        "dict_type": "an object",
        "model_type": "an object",
    }.get(kind, "valid")
    shown = json.dumps(found)
    return f"`{where}` must be {wanted}, not {shown if len(shown) <= 40 else shown[:37] + '...'}"
