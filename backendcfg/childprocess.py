"""Child interpreters: how they are started, asked, waited for, and how they ended.

A child does what must not be done in this process: it imports a framework, opens a library that may
crash, or starts from a clean environment.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from backendcfg import errors
from backendcfg.errors import BackendCfgError, InternalError, StateUnwritableError
from backendcfg.progress import Step
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen
    from tempfile import TemporaryDirectory
    from typing import IO, Any

    from backendcfg.errors import RequestError

LIMIT_SECONDS = 120.0
"""How long a child may take that imports every framework."""

GRACE_SECONDS = 30.0
"""How long a child may take to end what it runs, each time that it is asked."""


@record(frozen=True)
class Ended:
    """What became of a child.

    Attributes:
        status: its exit status, negative for the number of a signal; None when it could not be
            started, or was killed because its time was up.
        output: what it wrote to standard output; empty without a status.
        errors: what it wrote to standard error.
        obstacle: why there is no status: "did not end within 20 s"; "" where there is one.
    """

    status: int | None
    output: bytes = b""
    errors: bytes = b""
    obstacle: str = ""

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.output.decode(errors="replace")

    @property
    def complaints(self) -> str:
        """Its standard error as text."""
        return self.errors.decode(errors="replace")

    @property
    def how(self) -> str:
        """How it ended, as the end of a sentence about it: "ended with status 3"."""
        return self.obstacle or f"ended with status {self.status}"

    def last_line(self, otherwise: str = "it said nothing") -> str:
        """The last line of its standard error."""
        return (self.complaints.strip().splitlines() or [otherwise])[-1]

    def answer(self) -> Any:
        """The JSON in its last line; libraries may have printed before.

        Raises:
            ValueError: there is none.
        """
        import json

        lines = self.text.splitlines()
        return json.loads(lines[-1] if lines else "")


def command(arguments: Sequence[str], *, isolated: bool = False, python: str = "") -> list[str]:
    """The words that start an interpreter.

    Args:
        arguments: of the interpreter. The working directory is not searched for modules: a folder
            of the user's may be called like one.
        isolated: without site-packages, so that no start-up file and no profile acts in it.
        python: which interpreter; "" for the one that runs this.

    Raises:
        FileNotFoundError: this interpreter does not know its own path.
    """
    python = python or sys.executable
    if not python:
        raise FileNotFoundError("the interpreter does not know its own path")
    return [python, *(("-I", "-S") if isolated else ("-P",)), *arguments]


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    given: str = "",
    seconds: float | None = None,
    isolated: bool = False,
    python: str = "",
    alone: bool = False,
    ends: bool = False,
) -> Ended:
    """Run a child to its end; whatever goes wrong is in the answer.

    Args:
        arguments: as for `command`.
        environment: of the child; None for this process's.
        given: its standard input.
        seconds: after which it is killed; None for `LIMIT_SECONDS`.
        isolated: as for `command`.
        python: as for `command`.
        alone: start it in a session of its own: Ctrl-C reaches this process alone, which then kills
            the child and all that the child started; so does the time limit.
        ends: it passes SIGTERM on to what it runs, and kills that at SIGUSR1; it is waited for when
            this process is interrupted.
    """
    import subprocess

    seconds = LIMIT_SECONDS if seconds is None else seconds
    try:
        child = subprocess.Popen(
            command(arguments, isolated=isolated, python=python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            start_new_session=alone,
        )
    except OSError as error:
        return Ended(None, obstacle=f"could not be started: {error}")
    with child:
        try:
            output, complaints = child.communicate(given.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(child, group=alone)
            return Ended(None, obstacle=f"did not end within {seconds:g} s")
        except BaseException as error:
            try:
                if ends:
                    # Ctrl-C has reached what it runs, too. What `kill` sends has not: the command
                    # line raises it with a `number`.
                    by_terminal = isinstance(error, KeyboardInterrupt)
                    _end(child, asked=by_terminal and not hasattr(error, "number"))
            finally:
                _kill(child, group=alone)
            raise
    return Ended(child.returncode, output, complaints)


def not_started(word: str, obstacle: int, state: str, path: str = "") -> RequestError:
    """The error for a command that cannot be started, with the exit code that shells give then.

    Args:
        word: the first of the command.
        obstacle: `errno` of the attempt.
        state: what the error says of the state.
        path: `PATH` as it was searched, for a word without a folder.
    """
    if obstacle in (errno.ENOENT, errno.ENOTDIR):
        return errors.CommandNotFoundError(
            f"command `{word}` was not found",
            notes=[f"PATH is {path}"] if path and os.sep not in word else [],
            state=state,
            helps=["check its spelling, or give its whole path"],
        )
    return errors.CommandNotExecutableError(
        f"command `{word}` cannot be executed: {os.strerror(obstacle)}",
        state=state,
        helps=["for a script, name its interpreter: `python script.py`"],
    )


def scratch(state: str = "nothing was started", inside: str = "") -> TemporaryDirectory[str]:
    """A folder for what a child writes, which is gone after the `with` block.

    Args:
        state: what an error says of the state.
        inside: a folder to make in it.

    Raises:
        StateUnwritableError: no folder for temporary files can be written.
    """
    from tempfile import TemporaryDirectory

    try:
        made = TemporaryDirectory(prefix="backendcfg-")
        if inside:
            os.mkdir(os.path.join(made.name, inside), 0o700)
        return made
    except OSError as error:
        # Without a name, Python's own message has the folders that it tried.
        where = f" in {os.path.dirname(error.filename)}" if error.filename else ""
        raise StateUnwritableError(
            f"no temporary folder can be made{where}: {error.strerror}",
            state=state,
            helps=["set TMPDIR to a folder that you may write, on a disk that has space"],
        ) from error


def _end(child: Popen[bytes], *, asked: bool) -> None:
    """Wait until a child has ended what it runs, which is asked to end, and at last killed.

    Another interrupt meanwhile has it killed at once.
    """
    import signal
    from subprocess import TimeoutExpired

    try:
        for number in (None if asked else signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
            if number is not None:
                child.send_signal(number)
            with suppress(TimeoutExpired):
                child.wait(GRACE_SECONDS)
                return
    except KeyboardInterrupt:
        child.send_signal(signal.SIGUSR1)
        with suppress(TimeoutExpired):
            child.wait(1)


def _kill(child: Popen[bytes], *, group: bool) -> None:
    """Kill a child, and with `group` all processes that it started in its own session."""
    import signal

    if group:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def ask(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    task: str,
    remedy: str,
    given: str = "",
    python: str = "",
) -> dict[str, Any]:
    """The JSON object that a child prints as its last line.

    Args:
        arguments: as for `command`.
        environment: of the child.
        task: what it does, for messages: "the rehearsal of profile `fast`".
        remedy: what else the user can do, if it dies.
        given: its standard input.
        python: as for `command`.

    Raises:
        BackendCfgError: what the child answered under `error`, as its own class.
        InternalError: it died, hung or did not answer.
    """
    with Step(f"waiting for {task}"):
        done = run(arguments, environment, given=given, python=python)
    if done.obstacle:
        raise InternalError(f"{task} {done.obstacle}", helps=[remedy])
    try:
        answer: dict[str, Any] = done.answer()
    except ValueError as error:
        raise InternalError(
            f"{task} {done.how}", notes=[done.last_line()], helps=[remedy]
        ) from error
    if "error" in answer:
        raise from_record(answer["error"])
    return answer


_TESTIMONY = """
import json
try:
    from {} import testify
    answer = {{"found": testify(**{!r})}}
except Exception as error:
    if not hasattr(error, "to_dict"):
        raise
    answer = {{"error": error.to_dict()}}
print()
print(json.dumps(answer))
"""


def testimony(
    module: str, environment: Mapping[str, str], *, task: str, remedy: str, **arguments: object
) -> dict[str, Any]:
    """What the function `testify` of one of our modules returns in a child.

    Args:
        module: its name.
        environment: of the child.
        task: as for `ask`.
        remedy: as for `ask`.
        arguments: of the function; their `repr` is sent.

    Raises:
        BackendCfgError: what the function raised, or InternalError as from `ask`.
    """
    program = _TESTIMONY.format(module, arguments)
    answer = ask(["-c", program], environment, task=task, remedy=remedy)
    found: dict[str, Any] = answer["found"]
    return found


class Dialogue:
    """A child that is told lines of JSON and answers with such lines, until it is closed.

    It has a session of its own: Ctrl-C is for the process that asks, which then ends the child.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        isolated: bool = False,
        complaints: IO[bytes] | None = None,
    ) -> None:
        """Start it.

        Args:
            arguments: as for `command`.
            environment: of the child.
            isolated: as for `command`.
            complaints: the file that gets its standard error; None for nowhere.

        Raises:
            OSError: it cannot be started.
        """
        import subprocess

        self.process = subprocess.Popen(
            command(arguments, isolated=isolated),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if complaints is None else complaints,
            env=dict(environment),
            start_new_session=True,
        )
        self._heard = b""

    def tell(self, *records: Mapping[str, Any], last: bool = False) -> None:
        """Write lines, after the `last` of which nothing follows; one that is gone hears none."""
        import json

        stream = self.process.stdin
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.write(b"".join(json.dumps(one).encode() + b"\n" for one in records))
                stream.flush()
                if last:
                    stream.close()

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next line; what is no JSON object did not come from us, and is passed over.

        Raises:
            TimeoutError: none came in so many seconds.
            EOFError: none will come any more.
        """
        import json
        from select import select

        stream = self.process.stdout
        while True:
            while b"\n" not in self._heard:
                if stream is None or stream.closed:
                    raise EOFError
                if not select([stream], [], [], seconds)[0]:
                    raise TimeoutError
                if not (more := os.read(stream.fileno(), 65536)):
                    raise EOFError
                self._heard += more
            line, _, self._heard = self._heard.partition(b"\n")
            with suppress(ValueError):
                if isinstance(answer := json.loads(line), dict):
                    return answer

    def status(self) -> int | None:
        """Its exit status; None for one stuck inside a driver: nobody waits for it."""
        import subprocess

        try:
            return self.process.wait(1)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Kill it, whatever it does, and what it started."""
        _kill(self.process, group=True)
        self.status()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def begin_answers() -> int:
    """In a child that opens libraries: its standard output, which they cannot reach.

    What they print goes to standard error. When one crashes, no core file is left; and this process
    ends with the one that started it.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_parent()
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def end_with_parent() -> None:
    """Have the kernel end this process with the one that started it, even if that was killed."""
    if sys.platform.startswith("linux"):
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def from_record(record: Mapping[str, Any]) -> BackendCfgError:
    """The error that `to_dict` wrote, as its own class."""
    kinds = {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, BackendCfgError)
    }
    return kinds.get(record["code"], InternalError)(
        record["message"],
        spans=[errors.Span(**place) for place in record["places"]],
        notes=record["notes"],
        state=record["state"],
        helps=record["helps"],
    )


def signal_name(number: int) -> str:
    """The name of a signal: "SIGSEGV", or "signal 34" for one that has none."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
