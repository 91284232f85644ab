"""JSON without `import json`, which compiles regular expressions that a start never uses.

The two functions are the C parts of the standard library's own module, and give the same results.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    import _json
except ImportError:  # an interpreter without them has the slow ones
    _json = None  # type: ignore[assignment]


class _Rules:
    """What `json.JSONDecoder` has where nobody asked for anything else."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(text: str) -> Any:
    """As `json.loads`, with its errors; a ValueError too for what is nested too deeply."""
    try:
        if _json is not None:
            try:
                value, end = _json.make_scanner(_Rules)(text, 0)  # type: ignore[arg-type]
            except (
                AttributeError,
                StopIteration,
                TypeError,
            ):  # no JSON, or another release's parts
                end = -1
            if end == len(text.rstrip(" \t\n\r")):
                return value
        import json

        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: Any) -> str:
    """As `json.dumps`, with its errors."""
    if _json is not None:
        try:
            encode = _json.make_encoder(
                {}, _refuse, _json.encode_basestring_ascii, None, ": ", ", ", False, False, True
            )
            return "".join(encode(value, 0))
        except TypeError:  # not for JSON, or another release's parts
            pass
    import json

    return json.dumps(value)


def _refuse(value: object) -> None:
    raise TypeError
