"""Explanations: why a profile does not fit, where a value comes from, how two plans differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.resolve.plan import examine
from backendcfg.resolve.words import assignment, literal, set_at
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.errors import BackendCfgError
    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack
    from backendcfg.schema.plan import Check, Choice, Entry, Origin, Plan


@dataclass(frozen=True)
class WhyNot:
    """What the resolver looked at, and what it made of it.

    Attributes:
        name: the profile.
        checks: every requirement of the profile and of its tier, met and unmet.
        conditions: what `[[when]]` tables found; an unmet one only leaves that table out.
        choices: how each library was chosen, with the reasons against the others.
        refusals: every error that keeps the profile from resolving.
    """

    name: str
    checks: tuple[Check, ...]
    conditions: tuple[Check, ...]
    choices: tuple[Choice, ...]
    refusals: tuple[BackendCfgError, ...]

    @property
    def fits(self) -> bool:
        """Whether the profile resolves on this host."""
        return not self.refusals

    @property
    def unmet(self) -> tuple[Check, ...]:
        """The requirements that do not hold."""
        return tuple(check for check in self.checks if not check.met)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {
            "name": self.name,
            "fits": self.fits,
            "checks": [check.model_dump(mode="json") for check in self.checks],
            "conditions": [check.model_dump(mode="json") for check in self.conditions],
            "choices": [choice.model_dump(mode="json") for choice in self.choices],
            "refusals": [error.to_dict() for error in self.refusals],
        }


def why_not(stack: Stack, host: Host) -> WhyNot:
    """Why a profile does not resolve on a host, or what it rests on when it does."""
    found = examine(stack, host)
    return WhyNot(
        found.name,
        (*found.requires, *(kept.check for kept in found.tier)),
        found.conditions,
        found.choices,
        found.refusals,
    )


def explain_flag(plan: Plan, flag: str) -> tuple[str, ...]:
    """Where a value comes from, what it won over, and how the host changed it, as lines.

    A legacy spelling explains the flags that it stands for.
    """
    field = flags()[flag]
    meant = dict.fromkeys(name for spelled in field.flag.spells.values() for name in spelled)
    return tuple(line for name in meant or (flag,) for line in _lines(plan, plan.entry(name)))


def _lines(plan: Plan, entry: Entry) -> Iterator[str]:
    yield f"{assignment(entry.flag, entry.value)}  from {set_at(entry.origin)}"
    if (change := entry.adaptation) is not None:
        yield (
            f"  adapted: requested {literal(change.requested)}, got {literal(change.got)}, "
            f"because {change.because}"
        )
    if entry.idle:
        yield f"  dormant: {entry.idle}"
    for choice in plan.choices:
        if choice.flag == entry.flag:
            yield f"  usable, best first: {', '.join(choice.order)}"
            for one in choice.conditional:
                yield f"  {one.candidate} {'; '.join(one.reasons)}"
            for one in choice.rejected:
                yield f"  not {one.candidate}: {'; '.join(one.reasons)}"
    for hidden in entry.hides:
        # No preference among libraries is an empty table, which says nothing to a reader.
        value = literal(hidden.value) if hidden.value != {} else "nothing"
        yield f"  hides {value} from {set_at(hidden.origin)}"


@dataclass(frozen=True)
class Difference:
    """A flag that two plans give different values.

    Attributes:
        flag: its name.
        left, right: the values in the first and the second plan.
        left_origin, right_origin: who set them.
    """

    flag: str
    left: Any
    right: Any
    left_origin: Origin
    right_origin: Origin


def diff(left: Plan, right: Plan) -> tuple[Difference, ...]:
    """Every flag whose value differs between two plans, in schema order."""
    return tuple(
        Difference(one.flag, one.value, other.value, one.origin, other.origin)
        for one, other in zip(left.entries, right.entries, strict=True)
        if one.value != other.value
    )
