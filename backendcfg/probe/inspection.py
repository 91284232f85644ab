"""Asks libraries in child interpreters, so that none of them can kill or hang this process.

One child answers many requests. When it dies or hangs, the request that it was at is asked again
in a child of its own - the library before may be to blame - and the rest goes on in another.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from backendcfg import childprocess, environ
from backendcfg.probe import HUNG_SECONDS
from backendcfg.progress import Step
from backendcfg.records import record
from backendcfg.schema.host import Broken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT = 10.0
"""Seconds that one library may take to open and answer; a cold disk needs some."""

_LIMITS = (
    *("annot allocate memory", "Memory allocation still failed", "MemoryError"),
    *("Too many open files", "failed to map segment"),
)
"""What the loader, OpenBLAS and Python say where a limit is in the way."""

_LASTING = ("not permitted", "Permission denied")
"""How "failed to map segment" ends on a file system from which no code may run."""

_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EINTR)

_HERE = os.path.dirname(os.path.abspath(__file__))
_CHILD = os.path.join(_HERE, "child.py")
# One thread each, because OpenBLAS and OpenMP start a pool while they are opened.
_CHEAP = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@record(frozen=True)
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

    def to_dict(self) -> dict[str, str]:
        """What the child reads."""
        module = os.path.join(_HERE, f"{self.subject}.py")
        return {"module": module, "path": self.path, "kind": self.kind}


@record(frozen=True)
class Answer:
    """What one file said.

    Attributes:
        facts: what the subject's `inspect` returned, or None.
        error: why there are none.
        hung: whether the reason is that it did not answer in time.
        again_after: after how many seconds it may answer, where the moment may be to blame rather
            than the file; None for never.
    """

    facts: dict[str, Any] | None = None
    error: str = ""
    hung: bool = False
    again_after: float | None = None

    def broken(self, probe: str, path: str) -> Broken:
        """What a probe says of a file that gave no facts."""
        return Broken(probe=probe, path=path, reason=self.error, again_after=self.again_after)


UNASKED = Answer(error="it was not asked", again_after=0.0)


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
    variables = {**(environ.copy() if environment is None else environment), **_CHEAP}
    answers: dict[Request, Answer] = {}
    waiting = [
        # Daemons, so that an interrupt ends the program at once; the children end with it.
        threading.Thread(target=_ask_group, args=(group, timeout, variables, answers), daemon=True)
        for group in groups
        if group
    ]
    with Step(f"opening {sum(map(len, groups))} libraries in child processes"):
        started = []
        for thread in waiting:
            try:
                thread.start()
            except RuntimeError:  # no thread can be started
                thread.run()
            else:
                started.append(thread)
        for thread in started:
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
            answered, failure = _asked(pending, timeout, variables)
        except OSError as error:
            for request in pending:
                why = f"no child process could be started: {error}"
                answers[request] = Answer(error=why, again_after=again_after(error))
            return
        answers.update(zip(pending, answered, strict=False))
        del pending[: len(answered)]
        if failure is None:
            return
        # What was opened first in its child has only itself to blame; anything later is asked
        # again, first, by the next turn.
        if not answered:
            answers[pending.pop(0)] = failure


def _asked(
    requests: Sequence[Request], timeout: float, variables: Mapping[str, str]
) -> tuple[list[Answer], Answer | None]:
    """The answers of one child, and why the next one did not come, if one is missing."""
    # Imported when something must be asked: what is remembered does not need it.
    from tempfile import TemporaryFile

    answers: list[Answer] = []
    with TemporaryFile() as spoken:
        child = childprocess.Dialogue(["-B", _CHILD], variables, isolated=True, complaints=spoken)
        try:
            child.tell(*(request.to_dict() for request in requests), last=True)
            while len(answers) < len(requests):
                said = child.hear(timeout)
                if "begin" not in said:
                    answers.append(_answer(said.get("error", ""), said.get("facts")))
        except TimeoutError:
            why = f"no answer within {timeout:g} s of being opened"
            return answers, Answer(error=why, hung=True, again_after=HUNG_SECONDS)
        except EOFError:
            status = child.status()
            # Linux kills what runs out of memory; macOS what is not signed.
            killed = status == -signal.SIGKILL and sys.platform == "linux"
            return answers, _answer(_death(status, spoken), again_after=0.0 if killed else None)
        finally:
            child.close()
    return answers, None


def again_after(error: BaseException) -> float | None:
    """0 where an error may pass, as at a limit on memory, files or processes; else None."""
    passes = (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _PASSING)
        or (isinstance(error, RuntimeError) and "start new thread" in str(error))
    )
    return 0.0 if passes else None


def _answer(
    error: str, facts: dict[str, Any] | None = None, again_after: float | None = None
) -> Answer:
    """An answer that somebody may give otherwise later, where a limit was in the way."""
    limited = any(text in error for text in _LIMITS)
    if limited and not any(text in error for text in _LASTING):
        again_after = 0.0
    return Answer(facts, error, again_after=again_after)


def _death(status: int | None, spoken: IO[bytes]) -> str:
    """How a child ended that had more to answer, and what it said before."""
    if status is not None and status < 0:
        how = f"killed the process that opened it ({childprocess.signal_name(-status)})"
    else:
        how = f"ended the process that opened it (status {status})"
    spoken.seek(0)
    said = spoken.read().decode(errors="replace").strip().splitlines()
    # The last line is often no more than "Aborting."
    return f"{how}: {' '.join(line.strip() for line in said[-2:])}" if said else how
