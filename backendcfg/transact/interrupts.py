"""Hold signals back while settings are half changed, without losing them.

A Python signal handler may raise between any two bytecodes, also inside an `except` block that is
undoing something. While a `Deferral` is open the handlers only take note; `deliver()` runs the real
ones at a point where raising is safe, and leaving the block sends what is left again.
"""

from __future__ import annotations

# Not `signal`, which makes enumerations of its numbers and loads what that takes.
import _signal as signal  # type: ignore[import-not-found]
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any, Self

HELD_BACK = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    *(signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2),  # timeouts raise, and notices of schedulers
)


class Deferral:
    """A block in which the signals wait whose handlers programs let raise.

    Only handlers written in Python are replaced: the default action of SIGTERM ends the process at
    once, which leaves nothing to protect. Python runs handlers in the main thread only, so in any
    other thread this does nothing.

    Args:
        graver: errors that a signal must not hide; when the block raises one, signals that wait are
            dropped.
    """

    def __init__(self, graver: type[BaseException] | tuple[()] = ()) -> None:
        self._graver = graver
        self._handlers: dict[int, Any] = {}
        self._waiting: list[int] = []

    def __enter__(self) -> Self:
        if _in_main_thread():
            try:
                for number in HELD_BACK:
                    if callable(handler := signal.getsignal(number)):
                        self._handlers[number] = handler
                        signal.signal(number, self._take_note)
            except BaseException:  # the second handler's signal arrived before it was replaced
                self._restore()
                raise
        return self

    def _take_note(self, number: int, _frame: FrameType | None) -> None:
        self._waiting.append(number)

    def deliver(self) -> None:
        """Run the real handlers of the signals that wait; they may raise."""
        while self._waiting:
            number = self._waiting.pop(0)
            handler = self._handlers[number]
            # A block around this one only takes note, and would let this one go on.
            while isinstance(around := getattr(handler, "__self__", None), Deferral):
                handler = around._handlers[number]
            handler(number, sys._getframe())

    def _restore(self) -> None:
        """Give every handler back, also where one that is back already raises."""
        try:
            for number in tuple(self._handlers):
                signal.signal(number, self._handlers[number])
                del self._handlers[number]
        finally:
            if self._handlers:
                self._restore()

    def _send(self, handlers: dict[int, Any]) -> None:
        """Run the handlers of the signals that wait, also where one raises."""
        try:
            while self._waiting:
                number = self._waiting.pop(0)
                # Not the signal again: the event loop of asyncio has heard of it already.
                handlers[number](number, sys._getframe())
        finally:
            if self._waiting:
                self._send(handlers)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, self._graver):
            self._waiting.clear()
        handlers = dict(self._handlers)
        try:
            self._restore()
        finally:
            self._send(handlers)


def _in_main_thread() -> bool:
    threading = sys.modules.get("threading")  # without it there is one thread
    return threading is None or threading.current_thread() is threading.main_thread()
