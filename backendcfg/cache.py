"""Bounded memories of what was worked out for a call: one class, and one that knows profiles.

    _routes: ProfileCache[Hashable, Route] = ProfileCache(1024)

    route = _routes.find((shape, dtype), lambda: choose(shape, dtype))

Both are safe to use from any thread and in a forked child: they take no lock. Two threads may both
work out the same value; one of the two stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from backendcfg._native import current

if TYPE_CHECKING:
    from collections.abc import Callable

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """At most `most` values by key (1 or more); a full one drops the value that was put first.

    Putting a value again makes it the newest, so a caller that puts what it gets has an LRU cache.
    The value None cannot be told from a value that is not there.
    """

    __slots__ = ("_values", "get", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: dict[Key, Value] = {}
        self.get = self._values.get
        """The value of a key, or None: the dictionary's own method, because hits must be fast."""

    def put(self, key: Key, value: Value) -> None:
        """Store a value; drop the oldest values to make room."""
        values = self._values
        values.pop(key, None)
        while len(values) >= self.most:
            try:
                del values[next(iter(values))]
            except (KeyError, RuntimeError, StopIteration):
                continue  # another thread changed it meanwhile: look again
        values[key] = value

    def items(self) -> list[tuple[Key, Value]]:
        """Every key with its value, the oldest first."""
        return list(self._values.items())

    def clear(self) -> None:
        """Drop every value."""
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)


class ProfileCache(BoundedCache[tuple[object, Key], Value]):
    """Values that follow from a key and from the profile in force where it is asked."""

    __slots__ = ()

    def find(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key under the profile in force, made where there is none.

        A value is not stored where another thread replaced the profile while it was made: nobody
        can say which of the two profiles it follows from.

        Raises:
            TypeError: the key cannot be hashed.
        """
        in_force = current()
        whole = (in_force, key)
        value = self.get(whole)
        if value is None:
            value = make()
            if current() is in_force:
                self.put(whole, value)
        return value
