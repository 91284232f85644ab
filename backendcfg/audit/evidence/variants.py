"""Profiles between two others: one, but with some flags as the other has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.resolve.words import literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from backendcfg.transact.compiled import Compiled

_UNSET = object()


def differing(a: Compiled | None, b: Compiled | None) -> list[str]:
    """The flags that have an effect here and that two plans do not set to the same value.

    Args:
        a: a plan; None for nothing.
        b: another.
    """
    one, other = effective(a), effective(b)
    return sorted(
        flag for flag in {*one, *other} if one.get(flag, _UNSET) != other.get(flag, _UNSET)
    )


def variant(a: Compiled | None, b: Compiled | None, some: Collection[str]) -> str:
    """The TOML of plan b, but with some flags as plan a has them: set otherwise, or not at all."""
    one, other = effective(a), effective(b)
    lines = ["schema = 1"]
    for flag in sorted({*one, *other}):
        value = (one if flag in some else other).get(flag, _UNSET)
        if value is not _UNSET:
            lines.append(f"{flag} = {literal(value)}")
    return "\n".join([*lines, ""])


def effective(plan: Compiled | None) -> dict[str, Any]:
    """What a plan sets and what has an effect here; nothing of no plan."""
    return {} if plan is None else {flag: plan.values[flag] for flag in plan.effective}
