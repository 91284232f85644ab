"""What this machine and this process have. The public function is `backendcfg.detect`."""

from __future__ import annotations

import os

HUNG_SECONDS = 600.0
"""For how long a file that did not answer is not opened again."""


def text_of(path: str, *, has_names: bool = False) -> str:
    """The text of a file of the system; "" where it cannot be read.

    Args:
        path: the file.
        has_names: whether it has names of files, which are to be as the system calls take them.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return ""
    return os.fsdecode(content) if has_names else content.decode("utf-8", "replace")


def first_line_of(path: str) -> str:
    """The first line of a file of the system, stripped; "" where it cannot be read."""
    return text_of(path).partition("\n")[0].strip()


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
