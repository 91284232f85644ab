"""What instances print: on this terminal line by line with their names, and in files."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

from backendcfg.errors import StateUnwritableError

if TYPE_CHECKING:
    from typing import BinaryIO, TextIO

LONGEST = 1 << 16
"""Bytes of a line that are held back until it ends; progress bars never end theirs."""


class Stream:
    """One stream of one instance.

    Args:
        label: what stands before each line on the terminal.
        console: where its lines go.
        path: the file that has all of it, or "" for none.

    Raises:
        StateUnwritableError: the file cannot be written.
    """

    def __init__(self, label: str, console: TextIO, path: str = "") -> None:
        self._label = label.encode()
        self._console: BinaryIO | None = getattr(console, "buffer", None)
        self._partial = b""
        self._file: IO[bytes] | None = None
        if path:
            try:
                self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by `close`
            except OSError as error:
                raise unwritable(path, error) from error

    def feed(self, data: bytes) -> None:
        """Take what the instance printed."""
        if self._file is not None:
            self._file.write(data)
        *whole, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LONGEST:
            whole.append(self._partial)
            self._partial = b""
        self._show(whole)

    def close(self) -> None:
        """Show the last line, though it has no end."""
        if self._partial:
            self._show([self._partial])
            self._partial = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _show(self, lines: list[bytes]) -> None:
        if self._console is None or not lines:
            return
        try:
            self._console.write(b"".join(b"[%s]:%s\n" % (self._label, line) for line in lines))
            self._console.flush()
        except OSError:
            # Nobody reads it any more. The instances go on, and their files are written.
            self._console = None


def streams(label: str, folder: str = "") -> tuple[Stream, Stream]:
    """The standard output and the standard error of an instance.

    Args:
        label: its name, as `run0`.
        folder: where `run0.stdout.log` and `run0.stderr.log` are written; "" for nowhere.
    """
    sys.stdout.flush()
    paths = [os.path.join(folder, f"{label}.{kind}.log") for kind in ("stdout", "stderr")]
    if not folder:
        return Stream(label, sys.stdout), Stream(label, sys.stderr)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    return Stream(label, sys.stdout, paths[0]), Stream(label, sys.stderr, paths[1])


def unwritable(path: str, error: OSError) -> StateUnwritableError:
    """The error for a log file that cannot be written."""
    return StateUnwritableError(
        f"cannot write {path}: {os.strerror(error.errno or 0)}",
        state="no instance was started",
        helps=["give a folder that is yours with `--log-path`"],
    )
