"""How changes, reasons, tiers and the calibration read; see `resolve.words` for the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from backendcfg.errors import shown_path
from backendcfg.resolve.words import counted, literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.schema.plan import Entry
    from backendcfg.transact.compiled import Compiled


def adaptation(entry: Entry) -> str:
    """`threads.count: requested "auto", got 2, because ...`; "" where the host changed nothing."""
    if (change := entry.adaptation) is None:
        return ""
    return (
        f"{entry.flag}: requested {literal(change.requested)}, got {literal(change.got)}, "
        f"because {change.because}"
    )


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


def not_in_python() -> str:
    """When a plain `python` would have what is in force here; "" where it has."""
    from backendcfg.session import autoload

    return autoload.silent() or untrusted()


def untrusted() -> str:
    """When a plain `python` would obey this project's file; "" where it does, or there is none."""
    from backendcfg import startup

    if startup.may_have_profile(committed=False)[0]:
        return ""
    return "not before you run `backendcfg trust` or `backendcfg apply` here"


def without_profile(paths: Sequence[str]) -> list[str]:
    """A sentence on settings files with flags, where no profile is in force and there are any."""
    if not paths:
        return []
    files = ", ".join(map(shown_path, paths))
    return [f"no process starts with the flags in {files}: no profile is in force here"]


def no_project() -> list[str]:
    """A sentence on the file of a project that does not count here, as it is another user's."""
    from backendcfg import environ, startup

    return list(filter(None, [environ.not_counting(startup.working_directory())]))


def made_again(stale: str) -> str:
    """Why a stored plan is stale, and what becomes of it."""
    return f"{stale}; the first start here resolves the profile again"


def left_in_force() -> tuple[str | None, list[str]]:
    """The profile that is in force here where none is active any more, and lines that say so."""
    from backendcfg.cli.output import block
    from backendcfg.errors import BackendCfgError
    from backendcfg.session.choice import chosen

    try:
        left = chosen()
    except BackendCfgError as error:  # what was done is done
        return None, [f"what is in force here cannot be told: {error.message}"]
    if left is None or not left.name:
        return None, []
    lines = [f"{left.name} is in force here, by {left.source}"]
    return left.name, lines + block("python", filter(None, [untrusted()]), "bold")


def with_left(done: str, left: Sequence[str]) -> list[str]:
    """What was done and, in the same sentence, what `left_in_force` says."""
    return ["; ".join([done, *left[:1]]), *left[1:]]


def when(seconds: float) -> str:
    """A time as people read it, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def calibrated(compiled: Compiled | None) -> dict[str, Any]:
    """Whether our operations go by measured speed in a process that starts under a profile or none.

    Returns:
        `used`; `measured`, the day when the table for its threads was made, "" where there is none;
        `unused`, why it is not used.
    """
    from backendcfg.dispatch import calibration
    from backendcfg.session.shell import environment_of_run

    environment = environment_of_run(compiled) if compiled is not None else None
    table = found = calibration.table_for(compiled, environment)
    if isinstance(found, str):
        values, asked = (compiled.values, compiled.asked) if compiled is not None else ({}, ())
        threads = calibration.threads(values, asked)
        read = [calibration.read(threads, environment), calibration.read(threads)]
        table = next((one for one in read if not isinstance(one, str)), found)
    return {
        "used": not isinstance(found, str),
        "measured": "" if isinstance(table, str) else table.day,
        "unused": found if isinstance(found, str) else "",
    }


def calibration_words(found: dict[str, Any]) -> str:
    """What `calibrated` found, as a sentence."""
    measured = f"measured {found['measured']}, " if found["measured"] else ""
    return f"{measured}in use" if found["used"] else f"{measured}not used: {found['unused']}"
