"""Arguments of operations, with what lists, tuples and dictionaries among them hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def leaves(value: Any) -> Iterator[Any]:
    """What is in lists, tuples and dictionaries, in its order."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Lists, tuples and dictionaries with what is in them changed."""
    if isinstance(value, (list, tuple)):
        found = [mapped(change, one) for one in value]
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    if isinstance(value, dict):
        return {key: mapped(change, one) for key, one in value.items()}
    return change(value)
