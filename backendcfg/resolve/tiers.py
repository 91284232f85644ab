"""Whether a profile keeps what it promises on a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg.resolve.ground import ENVIRONMENT
from backendcfg.resolve.promises import REQUIREMENTS, RUN
from backendcfg.resolve.words import literal, set_by
from backendcfg.schema.layer import Place
from backendcfg.schema.plan import Check, Origin
from backendcfg.schema.profile import defaults

if TYPE_CHECKING:
    from backendcfg.resolve.ground import Ground
    from backendcfg.resolve.requirement import Requirement
    from backendcfg.schema.plan import Entry

TIER = "determinism.tier"


@dataclass(frozen=True)
class Kept:
    """One requirement of a promise and what was found.

    Attributes:
        requirement: the record.
        check: whether it is met, in words.
        origin: who set what was found; None for the host itself and for what nobody set.
    """

    requirement: Requirement
    check: Check
    origin: Origin | None


def examine(tier: str, ground: Ground) -> tuple[Kept, ...]:
    """Every requirement of a tier that concerns this host, met or not."""
    return tuple(
        _look(requirement, tier, ground)
        for requirement in REQUIREMENTS
        if tier in requirement.tiers and requirement.concerns(ground)
    )


def kept(ground: Ground) -> tuple[str, ...]:
    """Every tier whose requirements all hold here, whatever the profile promises."""
    return tuple(tier for tier in RUN if all(one.check.met for one in examine(tier, ground)))


def unkept(tier: str, ground: Ground) -> tuple[str, ...]:
    """The flags that a promise rests on, beyond their defaults, and that nothing can set yet."""
    flags = dict.fromkeys(one.requirement.flag for one in examine(tier, ground))
    entries = [ground.entries[flag] for flag in flags if flag in ground.entries]
    return tuple(
        entry.flag
        for entry in entries
        if not entry.carried and entry.value != defaults()[entry.flag]
    )


def _written(entry: Entry) -> str:
    """A value, and what was written where the host changed it."""
    change = entry.adaptation
    value = literal(entry.value)
    return value if change is None else f"{literal(change.requested)}, which is {value} here"


def _look(requirement: Requirement, tier: str, ground: Ground) -> Kept:
    flag = requirement.flag
    table, _, variable = flag.partition(".")
    origin: Origin | None = None
    if not flag:
        value, found = None, requirement.found(ground)
    elif table == ENVIRONMENT:
        value, origin = ground.variable(variable), ground.variables.get(variable)
        found = f"{literal(value)}, {set_by(origin)}" if origin else "not set"
    else:
        entry = ground.entries[flag]
        value, origin = entry.value, entry.origin
        found = f"{_written(entry)}, {set_by(origin)}"
    need = f"`{flag}` must be {requirement.wanted}" if flag else requirement.wanted
    check = Check(
        need=need,
        found=found,
        met=requirement.keeps(value, ground),
        because=f"tier `{tier}`: {requirement.why}",
        place=origin.place if origin else Place(),
    )
    return Kept(requirement, check, origin)
