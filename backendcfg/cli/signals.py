"""Signals that arrive while a command runs, and which of them the command did not get as well.

The command is in the process group of the verb. What a terminal, `timeout` or a supervisor sends to
the group reaches both; what is sent to the verb alone has to be passed on. A signal does not say
whether it was sent to the group. So the verb starts a third process in it, to which nobody sends a
signal by its number: what that one receives was sent to the group.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from backendcfg import childprocess

if TYPE_CHECKING:
    from typing import Self

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

BEGIN_SECONDS = 5.0
"""How long the third process may take to begin."""

GRACE_SECONDS = 0.3
"""How long the third process may take to report a signal, before it counts as sent to the verb."""

SAME_SECONDS = 1.0
"""What follows so soon is the same: `timeout` sends a signal to its child, and to the group."""

# It says when it has begun, and ends when the pipe from the verb does, so also when that is killed.
_LISTENER = """
import os, signal, sys
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, _: os.write(1, bytes([number])))
os.write(1, bytes([0]))
sys.stdin.buffer.read()
"""


class Listener:
    """The third process, from the start to the end of a `with` block."""

    def __enter__(self) -> Self:
        self._heard: dict[int, float] = {}
        self._process: subprocess.Popen[bytes] | None = None
        numbers = (str(int(number)) for number in PASSED_ON)
        with suppress(OSError):  # without it, every signal counts as sent to the verb
            self._process = subprocess.Popen(
                childprocess.command(["-c", _LISTENER, *numbers], isolated=True),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            if self._process.stdout is not None:
                os.set_blocking(self._process.stdout.fileno(), False)
            self._hear(BEGIN_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def wait(self, command: subprocess.Popen[bytes]) -> int:
        """The exit status of a command, which gets the signals that only this process received."""

        def pass_on(number: int, _: object) -> None:
            if not self._was_for_all(number):
                command.send_signal(number)

        before = {}
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants it so
                before[number] = signal.signal(number, pass_on)
        try:
            return command.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _was_for_all(self, number: int) -> bool:
        """Whether a signal that arrived here was sent to the whole group."""
        until = time.monotonic() + GRACE_SECONDS
        # Asked anew each time: the handler of a second signal may read the report meanwhile.
        while time.monotonic() - self._heard.get(number, -SAME_SECONDS) >= SAME_SECONDS:
            left = until - time.monotonic()
            if left <= 0 or not self._hear(min(left, 0.02)):
                return False
        return True

    def _hear(self, seconds: float) -> bool:
        """Note what it reports within a time; False where it is not there."""
        output = self._process.stdout if self._process is not None else None
        if output is None:
            return False
        if select.select([output], [], [], seconds)[0]:
            with suppress(BlockingIOError):  # the handler of a second signal has read it
                numbers = os.read(output.fileno(), 64)
                self._heard.update(dict.fromkeys(numbers, time.monotonic()))
                return bool(numbers)
        return True
