"""JSON that one of our commands wrote, with every fault named in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from backendcfg.errors import Span, UnreadableFileError, shown_path
from backendcfg.load.text import read_bytes

if TYPE_CHECKING:
    from backendcfg.errors import RequestError
    from backendcfg.schema.base import Document

MOST_FAULTS = 8

Read = TypeVar("Read", bound="Document")


def read(path: str, cls: type[Read], what: str, error: type[RequestError], command: str) -> Read:
    """The document in a file.

    Args:
        path: the file.
        cls: what it holds.
        what: the same in a word: "host".
        error: what is raised where it does not.
        command: what writes such files, with their path after it.

    Raises:
        UnreadableFileError: the file cannot be read as text.
        error: it holds something else; every fault is named.
    """
    text = _text(path, command)
    written = [f"write one with `{command} FILE`"]
    try:
        json.loads(text)
    except json.JSONDecodeError as fault:
        line = text.split("\n")[fault.lineno - 1]
        raise error(
            f"{path} is not JSON",
            spans=[Span(path, fault.lineno, fault.colno, 1, line, fault.msg.lower())],
            helps=written,
        ) from fault
    except (RecursionError, ValueError) as fault:  # an int of more digits than Python reads
        deep = isinstance(fault, RecursionError)
        why = f"is nested too deeply to be a {what}" if deep else f"is not a {what}: {fault}"
        raise error(f"{path} {why}") from fault
    try:
        return cls.model_validate_json(text)
    except ValidationError as fault:
        faults = [_fault(item, what) for item in fault.errors(include_url=False)]
        raise error(
            f"{path} is not a {what}: {faults[0]}",
            notes=faults[1:MOST_FAULTS]
            + ([f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []),
            helps=written,
        ) from fault


def _text(path: str, command: str) -> str:
    try:
        return read_bytes(path)[0].decode("utf-8-sig")
    except UnreadableFileError as error:
        raise UnreadableFileError(
            error.message, helps=[f"name a file that `{command}` wrote"]
        ) from None
    except UnicodeDecodeError as error:
        raise UnreadableFileError(
            f"cannot read {shown_path(path)}: it is not text in UTF-8 (byte {error.start})"
        ) from error


def _fault(item: Any, what: str) -> str:
    """One of Pydantic's findings in our words."""
    where = ".".join(str(part) for part in item["loc"]) or "the document"
    kind, found = item["type"], item.get("input")
    if kind == "missing":
        return f"`{where}` is missing"
    if kind == "extra_forbidden":
        return f"`{where}` is not a key of a {what}"
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
