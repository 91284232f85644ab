"""Whether a rank still computes as it did: looked at now and then, without asking the others.

Ranks that agreed once and have not changed since agree still.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

from backendcfg.audit.token import numerics_token
from backendcfg.errors import FleetWarning, UsageError
from backendcfg.fleet.agreement import MOST_NAMED, WHOLE, settings_of, shown
from backendcfg.fleet.groups import group_of
from backendcfg.resolve.words import some_lines


@dataclass(frozen=True)
class Change:
    """A setting that is not as it was.

    Attributes:
        name: "switches.torch.num_threads".
        then: what it was; None where it was not set.
        now: what it is.
    """

    name: str
    then: Any
    now: Any

    def __str__(self) -> str:
        name = self.name.removeprefix("switches.")
        return f"{name}: {shown(self.then)} then, {shown(self.now)} now"


def watch(every: float = 60.0) -> Watch:
    """Begin to look whether this rank still computes as it does now; see `Watch`.

    Call it after `agree()`, in the thread that computes.

    Args:
        every: seconds from one look to the next.
    """
    return Watch(every)


class Watch:
    """Looks at the settings of this rank now and then, when it is called.

    Call it in the loop that computes: `watch()`. Between two looks that takes less than a
    microsecond, a look less than a millisecond. A setting that changed is told in a `FleetWarning`,
    once for each value, with the number of the rank. What is imported later is no change.

    Attributes:
        every: seconds from one look to the next.
    """

    def __init__(self, every: float = 60.0) -> None:
        self.every = every
        self._then = _flat()
        self._told: dict[str, Change] = {}
        self._next = time.monotonic() + every

    def __call__(self) -> tuple[Change, ...]:
        """Look, if it is time.

        Returns:
            What changed since the last look.
        """
        now = time.monotonic()
        if now < self._next:
            return ()
        self._next = now + self.every
        return self._look()

    def look(self) -> tuple[Change, ...]:
        """Look now.

        Returns:
            What changed since the last look.
        """
        return self._look()

    def _look(self) -> tuple[Change, ...]:
        present = _flat()
        changed = {
            name: Change(name, self._then.get(name), present.get(name))
            for name in self._then.keys() | present.keys()
            if self._then.get(name) != present.get(name)
            and (name in self._then or name.startswith(WHOLE))
            and (name in present or name.startswith(WHOLE))
        }
        new = [one for name, one in sorted(changed.items()) if self._told.get(name) != one]
        self._told = changed
        if new:
            lines = some_lines([str(one) for one in new], MOST_NAMED)
            lines = [f"{_who()} computes otherwise than it did", *lines]
            warnings.warn("\n  ".join(lines), FleetWarning, stacklevel=3)
        return tuple(new)


def _flat() -> dict[str, Any]:
    parts = settings_of(numerics_token().parts)
    return {
        f"{part}.{name}": value for part, named in parts.items() for name, value in named.items()
    }


def _who() -> str:
    try:
        group = group_of()
    except UsageError:  # no ranks were brought together
        return "this process"
    return f"rank {group.names[group.rank]}"
