"""The record of what was applied to this process: the profiles, who picked them, the outcomes.

Only `session.process` changes it.
"""

from __future__ import annotations

from backendcfg.records import record
from backendcfg.transact.outcome import Outcome, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg._native import Prepared
    from backendcfg.transact.compiled import Compiled


@record(frozen=True)
class AppliedProfile:
    """A profile that was applied to this process.

    Attributes:
        prepared: the profile; its payload is the compiled plan.
        source: who picked it, in words.
        outcomes: what became of each switch, also of those that came with later imports.
        beneath: in a child process, the plans of the profile and the scopes around the one that was
            innermost in the parent, outermost first: they hold for the switches it leaves alone.
        found: whether a program that this one starts finds the profile as this one did, in its
            variables or among the active profiles.
        strict: whether an import fails that brings what cannot be set.
    """

    prepared: Prepared
    source: str
    outcomes: tuple[Outcome, ...]
    beneath: tuple[Compiled, ...] = ()
    found: bool = False
    strict: bool = False

    @property
    def plans(self) -> tuple[Compiled, ...]:
        """Every plan that holds, the one that wins last."""
        return *self.beneath, self.prepared.payload

    @property
    def report(self) -> Report:
        """The same for people and machines."""
        compiled: Compiled = self.prepared.payload
        left = any(
            outcome.state in ("pending", "unsupported", "undone")
            and compiled.tier_rests_on(outcome.flag)
            for outcome in self.outcomes
        )
        return Report(
            compiled.name,
            compiled.tier,
            compiled.tier == "none" or not (left or compiled.unkept),
            self.outcomes,
            {flag: why for flag, why in compiled.dormant.items() if flag in compiled.asked},
            compiled.overrides,
        )


stack: list[AppliedProfile] = []
"""What was applied and not taken back; the last is in force."""

surroundings: dict[str, str] = {}
"""The variables of other software that were set at the last apply, those that it set among them."""


def in_force() -> AppliedProfile | None:
    """The profile of this process and its outcomes."""
    return stack[-1] if stack else None


def plans(scopes: Sequence[Prepared]) -> tuple[Compiled, ...]:
    """Every plan that holds in these open scopes, innermost first; the one that wins is last."""
    base = stack[-1].plans if stack else ()
    return *base, *(prepared.payload for prepared in reversed(scopes))


def prepared() -> Prepared | None:
    """The profile of this process, whatever scopes are open here."""
    return stack[-1].prepared if stack else None


def depth() -> int:
    """How many times `undo()` can take something back."""
    return len(stack)


def source() -> str:
    """Who picked the profile of this process, in words; "" where none is in force."""
    return stack[-1].source if stack else ""


def report() -> Report | None:
    """What became of every switch of the profile that is in force in this process."""
    return stack[-1].report if stack else None
