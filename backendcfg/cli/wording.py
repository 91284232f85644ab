"""How changes, counts and reasons read; values and places are worded by `resolve.words`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from backendcfg.resolve.words import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.schema.plan import Entry


def adaptation(entry: Entry) -> str:
    """`threads.count: requested "auto", got 2, because ...`; "" where the host changed nothing."""
    if (change := entry.adaptation) is None:
        return ""
    return (
        f"{entry.flag}: requested {literal(change.requested)}, got {literal(change.got)}, "
        f"because {change.because}"
    )


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 flag`, `3 flags`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def grouped_reasons(dormant: Mapping[str, str]) -> list[str]:
    """Dormant flags by their reason, the commonest first: "14 flags: no NVIDIA GPU here"."""
    by_reason: dict[str, list[str]] = {}
    for flag, reason in dormant.items():
        by_reason.setdefault(reason, []).append(flag)
    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        f"{flags[0] if len(flags) == 1 else counted(len(flags), 'flag')}: {reason}"
        for reason, flags in ordered
    ]


def tier_lines(tier: str, unkept: Sequence[str]) -> list[str]:
    """A tier, and what stands between it and this release, whatever is applied."""
    if not unkept:
        return [tier]
    return [tier, f"not in force: this release does not set {', '.join(unkept)} yet"]


def when(seconds: float) -> str:
    """A time as people read it, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
