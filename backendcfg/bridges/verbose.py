"""What MKL and oneDNN print about their own calls, in the libraries that are loaded.

`verbose_calls.py` finds the calls; this file makes switches of them: `mkl[torch].verbose`,
`mkl[mkl].verbose`, `onednn[torch].verbose`. The variables MKL_VERBOSE and ONEDNN_VERBOSE, for
libraries and processes to come, are the environment's bridge.
"""

from __future__ import annotations

from backendcfg.bridges import afresh
from backendcfg.bridges.verbose_calls import level_under, library_levels
from backendcfg.catalogue.cpu import MKL, ONEDNN
from backendcfg.records import record
from backendcfg.transact.switch import Latch, Reach, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from backendcfg.bridges.verbose_calls import LibraryLevel, LibraryLevels

FRAMEWORK: str | None = None
SCOPED_FLAGS = frozenset({"mkl.verbose", "mkldnn.verbose"})

_KINDS = {"mkl.verbose": MKL.name, "mkldnn.verbose": ONEDNN.name}


@record(frozen=True)
class Verbosity:
    """The level of one library: 0 silent, 1 calls, 2 more."""

    switch: LibraryLevel
    reach: Reach = Reach.PROCESS
    latch: Latch = Latch.ANYTIME

    @property
    def name(self) -> str:
        return f"{self.switch.label}.verbose"

    @property
    def reversible(self) -> bool:
        return not self.switch.fixed

    def read(self) -> int | str:
        return self.switch.get()

    def write(self, value: int) -> None:
        self.switch.set(value)

    def too_late(self) -> str:
        return ""

    def unsupported(self) -> str:
        """Why the level cannot be changed: what was before could never be put back."""
        return self.switch.fixed

    @property
    def reads(self) -> frozenset[str]:
        """The variables that decide the level which the library starts with."""
        flags = {kind: flag for flag, kind in _KINDS.items()}
        return afresh.readers(flags[self.switch.kind])

    def afresh(self, variables: Mapping[str, Any]) -> int:
        """The level that it starts with under these variables.

        Raises:
            LookupError: no call gives it what they say.
        """
        level = level_under(self.switch.kind, afresh.texts(variables))
        if level in (0, 1, 2):
            return int(level)
        raise LookupError(f"without, {level} had said more than any call of oneDNN can")


def settings(
    values: Mapping[str, Any],
    asked: Collection[str],
    name: str = "PROFILE",
    *,
    found: LibraryLevels | None = None,
) -> list[Setting]:
    """The settings of every MKL and oneDNN in this process, for the flags that were asked.

    Args:
        values: every flag with its value.
        asked: the flags that somebody set; others are left alone.
        name: the profile; nothing here needs a remedy.
        found: the switches, else those of this process.
    """
    if SCOPED_FLAGS.isdisjoint(asked):
        return []
    offered = library_levels() if found is None else found
    return [
        Setting(Verbosity(switch), values[flag], flag)
        for flag, kind in _KINDS.items()
        if flag in asked
        for switch in offered.found
        if switch.kind == kind
    ]


def missing(found: LibraryLevels | None = None) -> dict[str, str]:
    """The switches that are not offered, each with the reason."""
    return (library_levels() if found is None else found).missing
