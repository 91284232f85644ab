"""Running a program from outside: how long it takes, what it uses, and what it prints."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backendcfg import childprocess, environ
from backendcfg.audit.evidence import ranks, recorded
from backendcfg.errors import CommandFailedError, InternalError
from backendcfg.probe.launchers import RANK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_TEXT = 4 << 20
"""Bytes of standard output that are looked at; whoever prints more prints no results."""

_A_WEEK = 7 * 86400.0

# An interpreter without site-packages, because the peak of memory that Linux tells of a program is
# at least that of whoever forked it. https://man7.org/linux/man-pages/man2/getrusage.2.html
_RUNNER = """
import json, os, signal, sys, time
processors, out, err, *words = sys.argv[1:]
if int(processors):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(processors)])
write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
files += [(os.POSIX_SPAWN_OPEN, n, p, write, 0o600) for n, p in ((1, out), (2, err))]
# Ctrl-C is for the program, which has it from the terminal; this process says how it ended.
usual = [] if signal.signal(signal.SIGINT, signal.SIG_IGN) is signal.SIG_IGN else [signal.SIGINT]
ends = {signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGKILL}
before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
begin = time.perf_counter()
try:
    started = os.posix_spawnp(
        words[0], words, os.environ, file_actions=files, setsigdef=usual, setsigmask=before
    )
    for number in ends:
        signal.signal(number, lambda number, _: os.kill(started, ends[number]))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
except OSError as error:
    print(json.dumps({"errno": error.errno}))
    raise SystemExit
_, status, used = os.wait4(started, 0)
took = time.perf_counter() - begin
print(json.dumps({
    "seconds": took,
    "processor": used.ru_utime + used.ru_stime,
    "memory": used.ru_maxrss << 10,
    "status": os.waitstatus_to_exitcode(status),
}))
"""


@dataclass(frozen=True)
class Side:
    """What a program is started under.

    Attributes:
        name: of the profile; "nothing" for none.
        environment: of its process.
        of_first: what the environment of a run that does not count has beside that.
        processors: how many the program may use at most; 0 for all that this process may.
        also: what every third run of a proof has otherwise: `processors`, or `threads` that
            OMP_NUM_THREADS asks for.
    """

    name: str
    environment: Mapping[str, str]
    of_first: Mapping[str, str] = field(default_factory=dict)
    processors: int = 0
    also: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        seconds: from its start to its end.
        processor: seconds of processor time, of the processes that it waited for, too.
        memory: the largest resident memory that it or one of those had, in bytes.
        text: what it printed, as far as it is looked at, but for its ranks.
        records: what its processes recorded with `backendcfg.record`.
        ranks: by number, what each rank printed that it started.
    """

    seconds: float
    processor: float
    memory: int
    text: str
    records: tuple[recorded.Stream, ...] = ()
    ranks: Mapping[int, str] = field(default_factory=dict)

    @property
    def whole_text(self) -> str:
        """What it and each rank printed, with a line before that of a rank: "rank0:"."""
        return self.text + "".join(f"{RANK}{n}:\n{text}" for n, text in self.ranks.items())


class TookTooLongError(Exception):
    """A program was ended because its time was up."""


def run(
    command: Sequence[str], side: Side, *, counts: bool = True, seconds: float | None = None
) -> Run:
    """Run a program to its end, with nothing on standard input.

    Args:
        command: the program and its arguments.
        side: what it is started under.
        counts: whether it is measured.
        seconds: how long it may take; then it has a session of its own, all of which ends when the
            time is up, and when this process is interrupted. None for as long as it takes: it is
            interrupted by Ctrl-C as if it ran by itself, and asked to end when this process is.

    Raises:
        TookTooLongError: it did not end within so many seconds.
        CommandNotFoundError, CommandNotExecutableError: it cannot be started.
        CommandFailedError: it did not exit with 0.
    """
    with childprocess.scratch(_STATE, "records") as folder:
        files = [os.path.join(folder, name) for name in (ranks.OUTPUT, "err")]
        records = os.path.join(folder, "records")
        environment = {
            **side.environment,
            environ.RECORDS.name: records,
            **({} if counts else side.of_first),
        }
        words = ["-c", _RUNNER, str(side.processors), *files, *command]
        limit = _A_WEEK if seconds is None else seconds
        done = childprocess.run(
            words,
            environment,
            seconds=limit,
            isolated=True,
            alone=seconds is not None,
            ends=seconds is None,
        )
        if seconds is not None and done.status is None:
            raise TookTooLongError(done.obstacle)
        try:
            told = json.loads(done.text)
        except ValueError as error:
            raise InternalError(
                f"the process that runs the command {done.how}", notes=[done.last_line()]
            ) from error
        if (obstacle := told.pop("errno", None)) is not None:
            raise childprocess.not_started(command[0], obstacle, _STATE)
        text, complaints = (_beginning(path) for path in files)
        # What it left running finds no folder any more.
        still = os.path.join(folder, "read")
        os.rename(records, still)
        streams, printed = recorded.read(still), ranks.read(still, MOST_TEXT)
    if status := told.pop("status"):
        raise _failed(status, side, complaints)
    return Run(text=text, records=streams, ranks=printed, **told)


def _beginning(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(MOST_TEXT).decode(errors="replace")


_STATE = "there is no result, and nothing was stored"


def _failed(status: int, side: Side, complaints: str) -> CommandFailedError:
    how = f"exited with {status}" if status > 0 else f"was ended by {_signal(-status)}"
    return CommandFailedError(
        f"the command {how} under {side.name}",
        notes=complaints.strip().splitlines()[-3:],
        state=_STATE,
        helps=["run it alone until it exits with 0; it reads nothing from standard input here"],
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
