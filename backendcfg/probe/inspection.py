"""Asks libraries in child interpreters, so that none of them can kill or hang this process.

One child answers many requests. When it dies or hangs, the request that it was at is asked again
in a child of its own - the library before may be to blame - and the rest goes on in another.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import IO, TYPE_CHECKING, Any

from backendcfg import childprocess, environ
from backendcfg.progress import Step
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT = 10.0
"""Seconds that one library may take to open and answer; a cold disk needs some."""

_NO_MEMORY = ("annot allocate memory", "failed to map segment", "MemoryError")
"""What the loader and Python say where a limit on memory is in the way."""

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
        passing: whether the moment may be to blame rather than the file.
    """

    facts: dict[str, Any] | None = None
    error: str = ""
    hung: bool = False
    passing: bool = False


UNASKED = Answer(error="it was not asked", passing=True)


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
                # An interpreter that is not there will not be there later.
                passing = not isinstance(error, FileNotFoundError)
                answers[request] = Answer(error=why, passing=passing)
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
                    error = said.get("error", "")
                    lacks_memory = any(text in error for text in _NO_MEMORY)
                    answers.append(Answer(said.get("facts"), error, passing=lacks_memory))
        except TimeoutError:
            why = f"no answer within {timeout:g} s of being opened"
            return answers, Answer(error=why, hung=True, passing=True)
        except EOFError:
            status = child.status()
            # What runs out of memory is killed from outside.
            killed = status == -signal.SIGKILL
            return answers, Answer(error=_death(status, spoken), passing=killed)
        finally:
            child.close()
    return answers, None


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
