"""The C list of flags, generated: `python -m backendcfg.schema.native_flags FILE` writes it.

The list gives each flag that a snapshot can hold its id, in the order of the schema. Flags with
free text, lists and legacy spellings are left out: no C code reads the former two, and nothing
carries the latter once a profile is loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from backendcfg.schema.base import candidates
from backendcfg.schema.flag import FlagField, iterate
from backendcfg.schema.profile import Flags

HEADER = """\
/* Generated from backendcfg/schema by `python -m backendcfg.schema.native_flags`; do not edit.
 *
 * FLAG(name, NAME, KIND, choices): KIND is one of bcfg_kind, choices is "a|b|c" for a CHOICE. */
"""


def render() -> str:
    """The text of native/include/backendcfg_flags.inc."""
    lines = [line for flag in iterate(Flags) if (line := _line(flag))]
    return HEADER + "".join(f"{line}\n" for line in lines)


def _line(flag: FlagField) -> str:
    """One flag as C, or "" for one that a snapshot does not hold."""
    if flag.flag.spells:
        return ""
    names = candidates(flag.info.annotation)
    kind, choices = ("CHOICE", names) if names else _kind(flag.info.annotation)
    if not kind:
        return ""
    identifier = flag.name.upper().replace(".", "_")
    return f'FLAG("{flag.name}", {identifier}, {kind}, "{"|".join(choices)}")'


def _kind(annotation: Any) -> tuple[str, tuple[str, ...]]:
    """The kind and the choices of a type; ("", ()) for free text and tables."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin is Literal:
        values = get_args(annotation)
        return ("CHOICE", values) if all(isinstance(v, str) for v in values) else ("INTEGER", ())
    if origin in (Union, UnionType):
        kinds = {_kind(part)[0] for part in get_args(annotation)}
        return ("INTEGER", ()) if "INTEGER" in kinds else ("", ())
    return {bool: "BOOL", int: "INTEGER"}.get(annotation, ""), ()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="ascii")
