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


def never_ran(runs: list[dict[str, str | None]]) -> dict[str, list[str]]:
    """The tests and modules that no run ran, with the reasons of all runs."""
    reasons: dict[str, list[str]] = {}
    ran: set[str] = set()
    for run in runs:
        for name, reason in run.items():
            if reason is None:
                ran |= {name, name.partition("::")[0]}
            else:
                reasons.setdefault(name, []).append(reason)
    return {name: given for name, given in reasons.items() if name not in ran}


def main(allowed: str, paths: list[str]) -> int:
    """Print what nobody ran; 1 when something of it could have run, or when nothing ran."""
    skipped = never_ran([read(path) for path in paths])
    any_curable = not paths
    for name, reasons in sorted(skipped.items()):
        # A run in which a package is installed may find that hardware is missing, too.
        incurable = [one for one in reasons if re.search(allowed, one, re.IGNORECASE)]
        any_curable |= not incurable
        print(f"{'allowed' if incurable else 'NEVER RAN'}: {name}: {(incurable or reasons)[0]}")
    return int(any_curable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
