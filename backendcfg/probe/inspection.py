"""Asks libraries in child interpreters, so that none of them can kill or hang this process.

One child answers many requests. When it dies or hangs, the request that it was at is asked again
in a child of its own - the library before may be to blame - and the rest goes on in another.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from backendcfg import childprocess, environ

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

TIMEOUT = 10.0
"""Seconds that one library may take to open and answer; a cold disk needs some."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_CHILD = os.path.join(_HERE, "child.py")
# One thread each, because OpenBLAS and OpenMP start a pool while they are opened.
_CHEAP = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Request:
    """One file to ask.

    Attributes:
        subject: the module that knows how: "symbols" or "drivers".
        path: the file.
        kind: what its name says, or which driver it is: "nvml" or "metal".
    """

    subject: str
    path: str
    kind: str = ""

    def to_json(self) -> str:
        """The line that the child reads."""
        module = os.path.join(_HERE, f"{self.subject}.py")
        return json.dumps({"module": module, "path": self.path, "kind": self.kind})


@dataclass(frozen=True)
class Answer:
    """What one file said.

    Attributes:
        facts: what the subject's `inspect` returned, or None.
        error: why there are none.
        hung: whether the reason is that it did not answer in time.
    """

    facts: dict[str, Any] | None = None
    error: str = ""
    hung: bool = False


def ask(
    groups: Sequence[Sequence[Request]],
    *,
    timeout: float = TIMEOUT,
    environment: Mapping[str, str] | None = None,
) -> dict[Request, Answer]:
    """The answers to every request; the groups are asked at the same time.

    Args:
        groups: requests that may share a child, because they do not disturb each other.
        timeout: seconds for each request.
        environment: for the children, instead of this process's.
    """
    variables = {**(environ.current() if environment is None else environment), **_CHEAP}
    answers: dict[Request, Answer] = {}
    waiting = [
        # Daemons, so that an interrupt ends the program at once; the children end with it.
        threading.Thread(target=_ask_group, args=(group, timeout, variables, answers), daemon=True)
        for group in groups
        if group
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    return answers


def _ask_group(
    group: Sequence[Request],
    timeout: float,
    variables: Mapping[str, str],
    answers: dict[Request, Answer],
) -> None:
    pending = list(group)
    while pending:
        try:
            run = _Run(pending, variables)
        except OSError as error:
            for request in pending:
                answers[request] = Answer(error=f"no child process could be started: {error}")
            return
        answered, failure = run.collect(timeout)
        answers.update(zip(pending, answered, strict=False))
        del pending[: len(answered)]
        if failure is None:
            return
        # What was opened first in its child has only itself to blame; anything later is asked
        # again, first, by the next turn.
        if not answered:
            answers[pending.pop(0)] = failure


@dataclass
class _Run:
    """One child that was given requests."""

    requests: Sequence[Request]
    variables: Mapping[str, str]
    process: subprocess.Popen[bytes] = field(init=False)
    spoken: IO[bytes] = field(init=False)

    def __post_init__(self) -> None:
        # Imported when something must be asked: what is remembered needs neither.
        import subprocess
        import tempfile

        self.spoken = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                childprocess.command(["-B", _CHILD], isolated=True),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.spoken,
                env=dict(self.variables),
                start_new_session=True,
            )
        except OSError:
            self.spoken.close()
            raise

    def collect(self, timeout: float) -> tuple[list[Answer], Answer | None]:
        """The answers that came, and why the next one did not, if one is missing."""
        assert self.process.stdin is not None  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError):
            self.process.stdin.write(
                "".join(f"{request.to_json()}\n" for request in self.requests).encode()
            )
            self.process.stdin.close()
        answers: list[Answer] = []
        try:
            hung = not self._read(answers, timeout)
            if len(answers) == len(self.requests):
                return answers, None
            return answers, self._failure(timeout, hung=hung)
        finally:
            self._end()

    def _read(self, answers: list[Answer], timeout: float) -> bool:
        """Collect answers until all are there or the child is gone; False when it hangs."""
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        descriptor = self.process.stdout.fileno()
        text = b""
        deadline = time.monotonic() + timeout
        while len(answers) < len(self.requests):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return False
            if not (more := os.read(descriptor, 65536)):
                return True
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                deadline = time.monotonic() + timeout
                with suppress(ValueError, AttributeError):
                    record = json.loads(line)
                    if "begin" not in record:
                        answers.append(Answer(record.get("facts"), record.get("error", "")))
        return True

    def _failure(self, timeout: float, *, hung: bool) -> Answer:
        if hung:
            return Answer(error=f"no answer within {timeout:g} s of being opened", hung=True)
        status = self._reap()
        if status is not None and status < 0:
            how = f"killed the process that opened it ({childprocess.signal_name(-status)})"
        else:
            how = f"ended the process that opened it (status {status})"
        self.spoken.seek(0)
        said = self.spoken.read().decode(errors="replace").strip().splitlines()
        # The last line is often no more than "Aborting."
        return Answer(
            error=f"{how}: {' '.join(line.strip() for line in said[-2:])}" if said else how
        )

    def _reap(self) -> int | None:
        """The exit status; None for a process stuck inside a driver: nobody waits for it."""
        import subprocess

        try:
            return self.process.wait(1)
        except subprocess.TimeoutExpired:
            return None

    def _end(self) -> None:
        """Kill whatever is left, also what the library started, and forget it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reap()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.spoken.close()
