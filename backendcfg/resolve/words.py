"""How values, counts, places and lists read in a sentence."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from backendcfg.errors import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from backendcfg.schema.plan import Origin
    from backendcfg.schema.profile import Place

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def literal(value: Any) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(name)} = {literal(item)}" for name, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item) for item in value)}]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    """JSON, which is TOML, of a value that is no table or array; what does not print is escaped."""
    return "".join(
        one
        if one.isprintable()
        else rf"\u{ord(one):04x}"
        if one < "\U00010000"
        else rf"\U{ord(one):08x}"
        for one in json.dumps(value, ensure_ascii=False)
    )


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def assignment(flag: str, value: Any) -> str:
    """`threads.count = 4`, as it would be written in a profile."""
    return f"{flag} = {literal(value)}"


def quoted(names: Iterable[str]) -> str:
    """Each name in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a, b and c`."""
    words = list(names)
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def some(names: Sequence[str], most: int) -> str:
    """`a, b and 3 more`: no more than so many names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def some_lines(lines: Sequence[str], most: int) -> list[str]:
    """No more than so many lines, and one that says how many there are beside them."""
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 flag`, `3 flags`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def size(number: int) -> str:
    """Bytes as people read them: `512 B`, `12 KiB`, `79.6 GiB`."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def duration(seconds: float) -> str:
    """A time as people read it: `8.92 s`, `31 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def set_by(origin: Origin) -> str:
    """Who set a value, without the place: "set in profile `fast`", "the default"."""
    if origin.rank == "default":
        return "the default"
    if not origin.place.path and origin.place.name:
        return f"set by {origin.place.name}"
    return f"set in {origin.title}"


def set_at(origin: Origin) -> str:
    """Who set a value, with file and line: "from profile `fast` (profiles/fast.toml:9)"."""
    if origin.rank == "default":
        return "default"
    if not origin.place.path and origin.place.name:
        return origin.place.name
    return f"{origin.title} ({origin.place})" if origin.place.path else origin.title


def value_span(place: Place, label: str) -> Span | None:
    """The place as the loader marked it, or None for a variable or an argument."""
    if not place.path or not place.line:
        return None
    return Span(
        place.path, place.line, max(1, place.column), max(1, place.length), place.source, label
    )


def assignment_span(place: Place, label: str) -> Span | None:
    """The whole assignment around a place: from the key to the end of the value."""
    if not place.path or not place.line:
        return None
    code = _without_comment(place.source)
    begin = len(code) - len(code.lstrip())
    # In an inline table the line starts with another key; what the loader marked is better then.
    if not code.strip() or not re.match(r"\s*[\w\"'.\- ]+=\s*[^{\s]", code):
        return value_span(place, label)
    return Span(place.path, place.line, begin + 1, len(code.rstrip()) - begin, place.source, label)


def _without_comment(source: str) -> str:
    """A line of TOML up to its comment; a `#` in a string starts none."""
    quote = ""
    for index, character in enumerate(source):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#":
            return source[:index]
    return source
