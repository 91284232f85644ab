"""Which profiles fit a host, the most suitable first, each with the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg.resolve.examination import Examination, examine
from backendcfg.resolve.ground import cores
from backendcfg.resolve.tiers import TIER
from backendcfg.resolve.words import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack
    from backendcfg.schema.plan import Entry


@dataclass(frozen=True)
class Recommendation:
    """A profile on a host.

    Attributes:
        name: the profile.
        fits: whether it resolves here.
        reasons: why not; or what it does here, what was adapted and what has no effect.
    """

    name: str
    fits: bool
    reasons: tuple[str, ...]


def recommend(stacks: Sequence[Stack], host: Host) -> tuple[Recommendation, ...]:
    """Every profile, ordered: those that fit, then by how much of what they ask works here.

    A profile that asks for much that nothing here reads stands behind one that works as written,
    one that leaves processors idle behind those that use them, and one that makes libraries talk
    behind all that do not; between equals the order of `stacks` stays.
    """
    found = [examine(stack, host) for stack in stacks]
    found.sort(
        key=lambda one: (
            bool(one.refusals),
            _is_verbose(one),
            _leaves_idle(one),
            _share_without_effect(one),
        )
    )
    return tuple(
        Recommendation(one.name, fits=not one.refusals, reasons=_reasons(one)) for one in found
    )


def _asked(found: Examination) -> list[Entry]:
    return [entry for entry in found.entries if entry.origin.rank != "default"]


def _is_verbose(found: Examination) -> bool:
    """Whether it is for looking at what libraries do rather than for working."""
    return any(
        found.ground.value(flag) != quiet
        for flag, quiet in (("mkl.verbose", 0), ("mkldnn.verbose", 0))
    )


def _leaves_idle(found: Examination) -> bool:
    """Whether cores that are for this process would do nothing."""
    return bool(found.ground.value("threads.count") < cores(found.ground.host))


def _share_without_effect(found: Examination) -> float:
    asked = _asked(found)
    idle = sum(1 for entry in asked if entry.idle or _gave_way(entry))
    return idle / len(asked) if asked else 0.0


def _gave_way(entry: Entry) -> bool:
    """Whether the host changed a wish; "auto" asks to be filled in and is none."""
    return entry.adaptation is not None and entry.adaptation.requested != "auto"


def _reasons(found: Examination) -> tuple[str, ...]:
    if found.refusals:
        return tuple(error.message for error in found.refusals)
    asked = _asked(found)
    idle: dict[str, list[str]] = {}
    for entry in asked:
        if entry.idle:
            idle.setdefault(entry.idle, []).append(entry.flag)
    used = len(asked) - sum(len(flags) for flags in idle.values())
    tier = found.ground.value(TIER)
    reasons = [] if tier == "none" else [f"it keeps its tier here: `{tier}`"]
    if _leaves_idle(found):
        count = found.ground.value("threads.count")
        reasons.append(f"it computes on {count} of {cores(found.ground.host)} cores")
    reasons += [f"{used} of its {len(asked)} flags {'has' if used == 1 else 'have'} an effect here"]
    reasons += [f"{len(flags)} without effect: {reason}" for reason, flags in idle.items()]
    reasons += [
        f"`{entry.flag}` becomes {literal(entry.adaptation.got)} instead of "
        f"{literal(entry.adaptation.requested)}: {entry.adaptation.because}"
        for entry in asked
        if entry.adaptation is not None and _gave_way(entry) and not entry.idle
    ]
    return tuple(reasons)
