"""What the kernel says of the first processor. Standard library only."""

from __future__ import annotations

import os


def first_processor(root: str = "/") -> dict[str, str]:
    """The first block of /proc/cpuinfo; reading all of a large machine takes milliseconds."""
    fields: dict[str, str] = {}
    try:
        with open(os.path.join(root, "proc/cpuinfo"), encoding="utf-8", errors="replace") as file:
            for line in file:
                name, colon, value = line.partition(":")
                if not colon and fields:
                    break
                fields[name.strip()] = value.strip()
    except OSError:
        pass  # not Linux
    return fields
