"""The schema for those who cannot import it: the defaults for Python, the list of flags for C.

`python -m backendcfg.schema.export` writes both. A process that starts under a profile must not
import Pydantic, and C can import nothing.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from backendcfg.schema.base import candidates
from backendcfg.schema.flag import FlagField, iterate
from backendcfg.schema.profile import Flags, defaults

PYTHON = "backendcfg/defaults.py"
C = "native/include/backendcfg_flags.inc"

_PYTHON_HEADER = '''\
"""The default of every flag, generated from backendcfg/schema; do not edit.

`python -m backendcfg.schema.export` writes it. It imports nothing, so that any process can have it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULTS: dict[str, Any] = {
'''
_C_HEADER = """\
/* Generated from backendcfg/schema by `python -m backendcfg.schema.export`; do not edit.
 *
 * The flags that C reads, or from which something follows that C keeps with a snapshot: those that
 * the schema marks with `in_c`.
 *
 * FLAG(name, NAME, KIND, choices): KIND is one of bcfg_kind, choices is "a|b|c" for a CHOICE. */
"""


def python_defaults() -> str:
    """The text of backendcfg/defaults.py."""
    lines = (f"    {_python(name)}: {_python(value)},\n" for name, value in defaults().items())
    return _PYTHON_HEADER + "".join(lines) + "}\n"


def _python(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def c_flags() -> str:
    """The text of native/include/backendcfg_flags.inc."""
    return _C_HEADER + "".join(f"{_c(flag)}\n" for flag in iterate(Flags) if flag.flag.in_c)


def _c(flag: FlagField) -> str:
    """One flag for C.

    Raises:
        TypeError: it holds free text or a table, which a snapshot cannot.
    """
    names = candidates(flag.info.annotation)
    kind, choices = ("CHOICE", names) if names else _kind(flag.info.annotation)
    if not kind:
        raise TypeError(f"`{flag.name}` cannot be `in_c`: C has numbers and choices only")
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
