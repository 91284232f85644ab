"""What this machine and this process have. The public function is `backendcfg.detect`."""

from __future__ import annotations

import os

HUNG_SECONDS = 600.0
"""For how long a file that did not answer is not opened again."""


def text_of(path: str, *, errors: str = "replace") -> str:
    """The text of a file of the system; "" where it cannot be read.

    Args:
        path: the file.
        errors: what becomes of bytes that are no UTF-8; "surrogateescape" for names of files.
    """
    try:
        with open(path, encoding="utf-8", errors=errors) as file:
            return file.read()
    except OSError:
        return ""


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
