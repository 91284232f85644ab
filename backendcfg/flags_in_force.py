"""The flags that are in force where somebody asks, read once.

    flags = FlagsInForce()
    if flags["ops.check_finite"]: ...

An operation makes one when it starts and looks at nothing else, so that a profile that is switched
meanwhile does not touch it.
"""

from __future__ import annotations

from backendcfg._native import current
from backendcfg.defaults import DEFAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any


class FlagsInForce:
    """The flags in force when it was made.

    Attributes:
        values: every flag with its value.
        asked: the flags that somebody set, as opposed to their defaults.
    """

    __slots__ = ("asked", "values")

    def __init__(self) -> None:
        in_force = current()
        self.values: Mapping[str, Any] = DEFAULTS
        self.asked: Collection[str] = ()
        if in_force is not None:
            compiled = in_force.payload
            self.values = compiled.values or DEFAULTS
            self.asked = compiled.asked

    def __getitem__(self, flag: str) -> Any:
        value = self.values.get(flag)
        return DEFAULTS[flag] if value is None else value

    @property
    def tier(self) -> str:
        """What the profile guarantees of bits: "none", "run-to-run" and so on."""
        return str(self["determinism.tier"])

    @property
    def threads(self) -> int:
        """How many threads to use; 0 leaves it to the process."""
        count = self["threads.count"]
        return count if isinstance(count, int) else 0
