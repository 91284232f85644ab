"""Count the keys of a TOML text before tomllib reads it.

tomllib takes minutes and gigabytes for a key of 50,000 parts, and the report of 60,000 wrong keys
takes a minute. No person writes either.
"""

from __future__ import annotations

LONGEST = 100
"""Parts that a key may have."""

MOST = 10_000
"""Keys that a text may have; its signs of equality are counted."""


def too_many(text: str) -> bool:
    """Whether a text has more keys than `MOST`."""
    return text.count("=") > MOST


def has_long(text: str) -> bool:
    """Whether a key of a text has more parts than `LONGEST`."""
    return any(line.count(".") > LONGEST and _dots(line) > LONGEST for line in text.split("\n"))


def _dots(line: str) -> int:
    """The dots after a part of a key, outside the strings of a line and before its comment."""
    count = 0
    quote = before = ""
    for character in line:
        if quote:
            if character == quote and before != "\\":
                quote = ""
        elif character in "\"'":
            quote = character
        elif character == "#":
            break
        elif character == ".":
            count += before not in ("", ".")
        before = character
    return count
