"""What `status` and `explain` say of the calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backendcfg.transact.compiled import Compiled


def calibrated(compiled: Compiled | None) -> dict[str, Any]:
    """Whether our operations go by measured speed under a profile, or under none.

    Returns:
        `used`; `measured`, the day when the table for its threads was made, "" where there is none;
        `unused`, why it is not used.
    """
    from backendcfg.dispatch import calibration, snapshots

    found = snapshots.table_for(compiled)
    values, asked = (compiled.values, compiled.asked) if compiled is not None else ({}, ())
    table = calibration.read(calibration.threads(values, asked))
    return {
        "used": not isinstance(found, str),
        "measured": "" if isinstance(table, str) else table.day,
        "unused": found if isinstance(found, str) else "",
    }


def in_words(found: dict[str, Any]) -> str:
    """The same as a sentence."""
    measured = f"measured {found['measured']}, " if found["measured"] else ""
    return f"{measured}in use" if found["used"] else f"{measured}not used: {found['unused']}"
