"""Several processes until all have ended: what they print, how they end, and signals for them.

Each instance leads a process group of its own, so that a signal that reaches the launcher is passed
on exactly once, to the instance and everything it started. When one fails the others are ended.
What they print is shown on this terminal, line by line with their names, and written to files.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from backendcfg.errors import StateUnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import BinaryIO, TextIO


GRACE_SECONDS = 30.0
"""How long an instance that was asked to end may take, as PyTorch has it."""

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
CHUNK = 1 << 16
PATIENCE = 3
"""The interrupt that no longer asks."""


@dataclass(frozen=True)
class Command:
    """An instance to start.

    Attributes:
        rank: its number.
        words: the command and its arguments.
        environment: all of its variables.
        streams: what takes its standard output and its standard error.
    """

    rank: int
    words: Sequence[str]
    environment: Mapping[str, str]
    streams: tuple[Stream, Stream]


@dataclass(frozen=True)
class Ended:
    """How it all ended.

    Attributes:
        status: what a shell would say: 0, the status of the first instance that failed, or 128 and
            the number of the signal that ended it or the launcher.
        rank: the first instance that failed, or None.
        signal: the signal that ended the launcher's work, or 0.
        statuses: of every instance.
    """

    status: int
    rank: int | None
    signal: int
    statuses: tuple[int, ...]


def run(commands: Sequence[Command]) -> Ended:
    """Start every command, wait for all, and say how they ended.

    The streams are closed. Nothing that was started is left, also when this raises.

    Raises:
        OSError: a process cannot be started.
    """
    with _signals() as (inbox, wakeup):
        running = _Running(commands, wakeup)
        try:
            running.start()
            while not running.done():
                running.step()
                while inbox:
                    running.pass_on(inbox.pop(0))
        finally:
            running.stop()
    return running.ended()


@dataclass
class _Running:
    commands: Sequence[Command]
    wakeup: socket.socket | None
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    failed: int | None = None
    received: list[int] = field(default_factory=list)
    deadline: float | None = None

    def start(self) -> None:
        if self.wakeup is not None:
            self.selector.register(self.wakeup, selectors.EVENT_READ)
        for command in self.commands:
            child = subprocess.Popen(
                list(command.words),
                env=dict(command.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
            self.children[command.rank] = child
            for pipe, stream in zip((child.stdout, child.stderr), command.streams, strict=True):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    self.selector.register(pipe, selectors.EVENT_READ, stream)

    def done(self) -> bool:
        return len(self.statuses) == len(self.children)

    def step(self) -> None:
        """Wait for something to happen, and deal with it."""
        # Outside the main thread nothing says that a child has ended.
        for key, _ in self.selector.select(1.0 if self.wakeup is not None else 0.05):
            if key.data is None:
                with suppress(BlockingIOError):
                    key.fileobj.recv(4096)  # type: ignore[union-attr]
            else:
                self._read(key.fileobj, key.data)  # type: ignore[arg-type]
        for rank, child in self.children.items():
            if rank not in self.statuses and (status := self._status(child)) is not None:
                self.statuses[rank] = status if status >= 0 else 128 - status
                if status != 0 and self.failed is None and not self.received:
                    self.failed = rank
                    self._end()
        if self.deadline is not None and time.monotonic() > self.deadline:
            self._signal(signal.SIGKILL)

    def pass_on(self, number: int) -> None:
        """Give a signal to every instance that still runs."""
        if number == signal.SIGTSTP:
            self._signal(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._signal(signal.SIGCONT)
            return
        self._signal(number)
        if number == signal.SIGUSR1:
            return
        self.received.append(number)
        if len(self.received) >= PATIENCE:
            self._signal(signal.SIGKILL)
        elif number != signal.SIGINT:
            self.deadline = time.monotonic() + GRACE_SECONDS

    def stop(self) -> None:
        """Leave nothing behind."""
        self._signal(signal.SIGKILL)
        for child in self.children.values():
            child.wait()
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                # What is in the pipe, and no more: something that was left may go on printing.
                self._read(key.fileobj, key.data, chunks=16)  # type: ignore[arg-type]
        for command in self.commands:
            for stream in command.streams:
                stream.close()
        for child in self.children.values():
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        self.selector.close()

    def ended(self) -> Ended:
        number = self.received[0] if self.received else 0
        statuses = tuple(self.statuses[command.rank] for command in self.commands)
        if number:
            return Ended(128 + number, None, number, statuses)
        status = 0 if self.failed is None else self.statuses[self.failed]
        return Ended(status, self.failed, 0, statuses)

    def _status(self, child: subprocess.Popen[bytes]) -> int | None:
        """How a child ended; what a failed one leaves behind is asked to end."""
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        if ended.si_status != 0 and not self.received:
            # Before it is waited for, after which its number may be somebody else's.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
        return child.wait()

    def _read(self, pipe: IO[bytes], stream: Stream, chunks: int = 1) -> None:
        """Take some of what is there now; not all, or a fast instance would hold up the others."""
        for _ in range(chunks):
            try:
                data = os.read(pipe.fileno(), CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.selector.unregister(pipe)
                return
            stream.feed(data)

    def _end(self) -> None:
        """Ask the others to end, because one has failed."""
        self._signal(signal.SIGTERM)
        self.deadline = time.monotonic() + GRACE_SECONDS

    def _signal(self, number: int) -> None:
        for rank, child in self.children.items():
            # Not one that was waited for: its number may be somebody else's by now.
            if rank not in self.statuses and child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, number)


@contextmanager
def _signals() -> Iterator[tuple[list[int], socket.socket | None]]:
    """Collect the signals that this process gets; only its main thread can, others leave them."""
    inbox: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield inbox, None
        return
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    before = {
        number: signal.signal(number, lambda found, _: inbox.append(found))
        for number in (*PASSED_ON, signal.SIGTSTP)
        # Whoever started this process with a signal ignored, as nohup does, wants it so.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    # For the wake-up alone.
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield inbox, reader
    finally:
        for number, handler in before.items():
            # None is a handler that was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(descriptor)
        reader.close()
        writer.close()


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
                self._file = open(path, "wb", buffering=0, opener=_no_link)  # noqa: SIM115 - `close`
            except OSError as error:
                raise unwritable(path, error) from error

    def feed(self, data: bytes) -> None:
        """Take what the instance printed."""
        if self._file is not None:
            self._store(self._file, data)
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
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _store(self, file: IO[bytes], data: bytes) -> None:
        """Write to the file; where that fails the instances go on without it."""
        left = memoryview(data)
        try:
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            self._file = None
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                sys.stderr.write(
                    f"warning: {file.name} ends here: {error.strerror}; the instances go on, and"
                    " what they print is shown on the terminal alone\n"
                )
                sys.stderr.flush()

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


def _no_link(path: str, flags: int) -> int:
    """Open a file whose name anybody can foresee: a link there would empty another file."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def unwritable(path: str, error: OSError) -> StateUnwritableError:
    """The error for a log file that cannot be written."""
    why = "it is a link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
    return StateUnwritableError(
        f"cannot write {path}: {why}",
        state="no instance was started",
        helps=["give a folder that is yours with `--log-path`"],
    )
