"""The sentences of a failed apply, composed from its steps."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def shown(value: Any) -> str:
    """A value as TOML would spell it, strings bare: 8, true, default, unset."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value:
        return value
    try:
        return repr(value)
    except Exception:  # a message about a failure must not fail
        return f"a {type(value).__name__}"


def reason(error: BaseException) -> str:
    """What an error says, or what it is called when it says nothing."""
    return str(error) or type(error).__name__


def steps(first: int, last: int) -> str:
    """A range of steps: "step 1", "steps 1 and 2", "steps 1 to 4"."""
    if last == first:
        return f"step {first}"
    return f"steps {first} {'and' if last == first + 1 else 'to'} {last}"


def all_steps(count: int) -> str:
    """A number of steps: "the one step", "both steps", "all five steps", "all 40 steps"."""
    if count <= 2:
        return "both steps" if count == 2 else "the one step"
    return f"all {_WORDS[count] if count < len(_WORDS) else count} steps"


def listed(names: Sequence[str]) -> str:
    """Names in backticks: "`a`", "`a` and `b`", "`a`, `b` and `c`"."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
