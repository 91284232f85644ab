"""Choosing a library by preference, with every reason against the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.schema.base import Preference
from backendcfg.schema.plan import Adaptation, Choice, Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from backendcfg.schema.plan import Origin


@dataclass(frozen=True)
class Chosen:
    """A choice and how firm it is.

    Attributes:
        choice: what was chosen, and the reasons against the others.
        adaptation: how the host changed the wish, if it did.
        required: the library that was required, or "".
    """

    choice: Choice
    adaptation: Adaptation | None
    required: str


def preference(value: Any) -> Preference[str]:
    """A preference from JSON data; a bare name is preferred."""
    if isinstance(value, str):
        return Preference[str](prefer=[value])
    return Preference[str].model_validate(value)


def choose(
    flag: str,
    value: Any,
    candidates: Sequence[str],
    unusable: Callable[[str], tuple[str, ...]],
    *,
    origin: Origin,
    stand_ins: Mapping[str, str] | None = None,
) -> Chosen:
    """The first usable candidate, and why each earlier one is not used.

    Args:
        flag: the flag that chooses.
        value: its value, a preference as JSON data.
        candidates: every name, in the order that holds when nothing is preferred.
        unusable: why a name cannot be used on this host; empty when it can.
        origin: who set the value; named as the reason for what is forbidden.
        stand_ins: for a name, the one that does its work where it cannot be.
    """
    wish = preference(value)
    order: list[str] = []
    for name in wish.prefer:
        order += [name, (stand_ins or {}).get(name, name)]
    ranked = list(dict.fromkeys([*order, *candidates]))
    reasons: dict[str, tuple[str, ...]] = {}
    for name in ranked:
        forbidden = (f"forbidden by {origin.title}",) if name in wish.forbid else ()
        only = (
            (f"{origin.title} requires {wish.require}",)
            if wish.require not in (None, name) and not forbidden
            else ()
        )
        reasons[name] = (*forbidden, *only, *unusable(name))
    usable = tuple(name for name in ranked if not reasons[name])
    required = wish.require or ""
    chosen = usable[0] if usable else required
    first = next(iter(wish.prefer), None)
    adaptation = None
    if usable and first not in (None, chosen) and wish.require is None:
        passed = ranked[: ranked.index(chosen)]
        because = "; ".join(f"{name}: {', '.join(reasons[name])}" for name in passed)
        adaptation = Adaptation(requested=first, got=chosen, because=because)
    rejected = tuple(
        Rejection(candidate=name, reasons=reasons[name]) for name in ranked if reasons[name]
    )
    named = tuple(name for name in usable if name in (*order, required))
    choice = Choice(flag=flag, chosen=chosen, order=usable, named=named, rejected=rejected)
    return Chosen(choice, adaptation, required)
