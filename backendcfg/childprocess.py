"""Child interpreters: how they are started, asked, waited for, and how they ended.

A child does what must not be done in this process: it imports a framework, opens a library that may
crash, or starts from a clean environment.
"""

from __future__ import annotations

import sys

from backendcfg import errors
from backendcfg.errors import BackendCfgError, InternalError
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT_SECONDS = 120.0
"""How long a child may take that imports every framework."""


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
) -> Ended:
    """Run a child to its end; whatever goes wrong is in the answer.

    Args:
        arguments: as for `command`.
        environment: of the child; None for this process's.
        given: its standard input.
        seconds: after which it is killed; None for `LIMIT_SECONDS`.
        isolated: as for `command`.
        python: as for `command`.
    """
    import subprocess

    seconds = LIMIT_SECONDS if seconds is None else seconds
    try:
        done = subprocess.run(
            command(arguments, isolated=isolated, python=python),
            input=given.encode(),
            capture_output=True,
            env=None if environment is None else dict(environment),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(None, obstacle=f"did not end within {seconds:g} s")
    except OSError as error:
        return Ended(None, obstacle=f"could not be started: {error}")
    return Ended(done.returncode, done.stdout, done.stderr)


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
