"""The schema for those who cannot import it: two tables for Python, the list of flags for C.

`python -m backendcfg.schema.export` writes both. A process that starts under a profile must not
import Pydantic, and C can import nothing.
"""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from backendcfg.schema.base import candidates
from backendcfg.schema.flag import FlagField, iterate
from backendcfg.schema.profile import Flags, defaults

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = "backendcfg/defaults.py"
C = "native/include/backendcfg_flags.inc"

_PYTHON_HEADER = '''\
"""The default of every flag, and PyTorch's simple switches; generated from backendcfg/schema.

`python -m backendcfg.schema.export` writes it: do not edit it. It imports nothing, so that every
process can import it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULTS: dict[str, Any] = {
'''
_CALLS_HEADER = """
TORCH_CALLS: dict[str, tuple[str, str]] = {
    # By flag, the two functions of `torch._C` that read and write PyTorch's switch.
"""
_WIDTH = 101
"""The longest line that the formatter leaves alone, with its end."""
_C_HEADER = """\
/* Generated from backendcfg/schema by `python -m backendcfg.schema.export`; do not edit.
 *
 * The flags that C reads, or from which something follows that C keeps with a snapshot: those that
 * the schema marks with `in_c`.
 *
 * FLAG(name, NAME, KIND, choices): KIND is one of bcfg_kind, choices is "a|b|c" for a CHOICE. */
"""


def python_defaults() -> str:
    """The text of backendcfg/defaults.py: the default of every flag, and the simple switches."""
    lines = (f"    {_python(name)}: {_python(value)},\n" for name, value in defaults().items())
    return _PYTHON_HEADER + "".join(lines) + "}\n" + _CALLS_HEADER + "".join(_calls()) + "}\n"


def _calls() -> Iterator[str]:
    for flag in iterate(Flags):
        if flag.flag.calls:
            functions = [f'"{flag.flag.calls.format(verb)}"' for verb in ("get", "set")]
            line = f'    "{flag.name}": ({", ".join(functions)}),\n'
            split = (
                f'    "{flag.name}": (\n        {functions[0]},\n        {functions[1]},\n    ),\n'
            )
            yield line if len(line) <= _WIDTH else split


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
