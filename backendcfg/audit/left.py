"""What a program left in a folder that this process made for it: read whatever the program did.

Its processes may have ended while they wrote, and a program may put anything there. So a file is
opened only if it is a plain one and no link, and a line is read up to a length.
"""

from __future__ import annotations

import json
import os
import stat
from typing import IO, Any

MOST_LINE = 16 << 20
"""Bytes of a line; what is longer did not come from us."""

MOST_LINES = 256 << 20
"""Bytes of all lines of a file that are read."""


def opened(path: str) -> IO[bytes]:
    """A plain file to read from.

    Raises:
        OSError: there is none, it is a link or of another kind, or cannot be read.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(f"{path} is not a plain file")


class Lines:
    """The lines of a file, each of which has a JSON object."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MOST_LINES

    def next(self) -> dict[str, Any] | None:
        """The object in the next line; None at the end, and where there is something else."""
        line = self._file.readline(min(MOST_LINE, self._left))
        self._left -= len(line)
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None
