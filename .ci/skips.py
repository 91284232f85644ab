"""Fail when a test was skipped in every run for want of something that CI could install.

    python skips.py ALLOWED RUN.xml...

ALLOWED is a regular expression for the reasons that no installation can cure: missing hardware.
Prints one line per test that no run ran.
"""

from __future__ import annotations

import re
import sys
from xml.etree import ElementTree as ET


def read(path: str) -> dict[str, str | None]:
    """Each test of a run with the reason it was skipped for, or None where it ran."""
    tests: dict[str, str | None] = {}
    for case in ET.parse(path).iter("testcase"):  # noqa: S314 -- pytest wrote it
        skip = case.find("skipped")
        # A module that is skipped as a whole is one case without a class name.
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        tests[name] = None if skip is None else skip.get("message", "")
    return tests


def never_ran(runs: list[dict[str, str | None]]) -> dict[str, str]:
    """The tests and modules that no run ran, with the first reason given."""
    reasons: dict[str, str] = {}
    ran: set[str] = set()
    for run in runs:
        for name, reason in run.items():
            if reason is None:
                ran |= {name, name.partition("::")[0]}
            else:
                reasons.setdefault(name, reason)
    return {name: reason for name, reason in reasons.items() if name not in ran}


def main(allowed: str, paths: list[str]) -> int:
    """Print what nobody ran; 1 when something of it could have run, or when nothing ran."""
    skipped = never_ran([read(path) for path in paths])
    curable = {
        name for name, reason in skipped.items() if not re.search(allowed, reason, re.IGNORECASE)
    }
    for name, reason in sorted(skipped.items()):
        print(f"{'NEVER RAN' if name in curable else 'allowed'}: {name}: {reason}")
    return 1 if curable or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
