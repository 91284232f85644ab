"""What takes long, in one line on a terminal, until it is done.

The line is drawn by a thread of its own, half a second after the command began. It is gone before
anything else is printed: at the end of the step, for an error, for Ctrl-C.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from backendcfg import environ, progress
from backendcfg.cli.output import wrapped
from backendcfg.errors import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

DELAY = 0.5
TICK = 0.1
"""Seconds of a command before the line is drawn, and between two drawings."""

BAR = 30
ERASE = "\r\x1b[K"


@contextmanager
def shown(stream: TextIO) -> Iterator[None]:
    """Show what takes long on a terminal, if it can erase a line."""
    if environ.foreign(("TERM",)).get("TERM") == "dumb":
        yield
        return
    began = time.monotonic()
    progress.show = lambda: Line(stream, began).begin()
    try:
        yield
    finally:
        progress.show = None


class Line:
    """The line while some step lasts."""

    def __init__(self, stream: TextIO, command_began: float) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self._pause = max(DELAY - (self._began - command_began), TICK)
        self._ended = threading.Event()
        self._drawing = threading.Lock()
        self._drawn = False

    def begin(self) -> Callable[[], None]:
        """Draw it from now on; what is returned ends that."""
        threading.Thread(target=self._draw, daemon=True).start()
        return self.end

    def end(self) -> None:
        """Erase it."""
        self._ended.set()
        with self._drawing:
            if self._drawn:
                self._write(ERASE)

    def _draw(self) -> None:
        while not self._ended.wait(self._pause):
            self._pause = TICK
            step = progress.current()
            with self._drawing:
                if step is not None and not self._ended.is_set():
                    self._drawn = True
                    self._write(ERASE + text(step, time.monotonic() - self._began, self._columns()))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, shown: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(shown.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._ended.set()


def text(step: progress.Step, seconds: float, columns: int) -> str:
    """The line, cut to fit: in a terminal's last column the cursor may go to the next line."""
    if step.part is None:
        turning = "|/-\\"[int(seconds / TICK) % 4]
        whole = f"{turning} {step.what}, {seconds:.0f} s"
    else:
        part, width = min(step.part, 1.0), min(BAR, columns // 2)
        whole = f"[{'#' * round(part * width):.<{width}}] {part:4.0%} {step.what}"
    return wrapped(visible(whole), columns - 1)[0]
