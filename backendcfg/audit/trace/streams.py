"""Streams of operations: one for each thread of a process that BACKENDCFG_TRACE has recorded.

So has each task that a pool of threads or processes is given (pools.py). A record is 12 bytes: the
number of the operation's name, and a digest of what it computed. Two runs of a program are compared
record by record. A run may be asked to write down more of a few operations, its window: where they
are called, and the digests of what they read.

In the folder that BACKENDCFG_TRACE names there are, for each stream, `NAME.records` and
`NAME.lines`: JSON documents, one to a line, first what the stream is, then names and details. Where
operations are followed, `NAME.samples` has numbers that each computed. What is wanted of the run is
in `wanted.json`.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import struct
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from backendcfg.audit.trace.again import Exactness, error, is_the_programs
from backendcfg.probe.launchers import prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

WANTED = "wanted.json"
RECORDS, LINES, SAMPLES = ".records", ".lines", ".samples"
GENERATOR = "generator"
"""What the state of a generator is called among what an operation reads."""

PROGRAM = "the compiled program"
"""What a compiled function is called there, beside its arguments."""

LARGEST_KEPT = 2 << 30
"""Bytes of arguments that are kept for a replay."""

MOST_SAMPLED = 4096
"""Numbers that are looked at of what an operation computes, where its stream is followed."""

_PACK = struct.Struct("<IQ").pack
SAMPLE = struct.Struct("<II")
"""Before the float64s of a sample: the operation's number, and how many there are."""

MOST_TASKS = 1024
"""Tasks of one thread, or of one task, that are recorded; each has files of its own."""

_KEPT_BYTES = 1 << 16
"""Of a stream that are not written yet; a process that is killed loses them."""


@dataclass(frozen=True)
class Wanted:
    """What a run is to write down.

    Attributes:
        windows: by stream, the first and the last operation of which more is wanted.
        keep: by stream, the operation whose arguments are kept in a file, -1 for none.
        follow: how many operations are sampled from the first of a window on.
        capacity: bytes of records that one stream may have; later operations are only counted.
        again: how each operation is run a second time: as again.py says; "" for not at all.
    """

    windows: dict[str, tuple[int, int]] = field(default_factory=dict)
    keep: dict[str, int] = field(default_factory=dict)
    follow: int = 0
    capacity: int = 256 << 20
    again: str = ""


def want(folder: str, wanted: Wanted) -> None:
    """Say what a run is to write into a folder, before it starts."""
    with open(os.path.join(folder, WANTED), "w", encoding="utf-8") as file:
        json.dump(asdict(wanted), file)


class Stream:
    """What one thread or task computes, in the order in which it does.

    Attributes:
        key: its name, which is the same in each run of a program; "" for one that is not written.
        count: how many operations it has had.
        last: the last one of its window, -1 without one.
        keep: the one whose arguments are to be kept, -1 for none.
        again: how each is run a second time.
        repeated: how many were.
        exactness: by operation, how many bits of its results are right.
        tasks: the numbers of those that it hands to pools.
    """

    def __init__(self, recorder: Recorder, key: str, thread: str) -> None:
        wanted = recorder.wanted
        self.key, self.count, self.repeated = key, 0, 0
        self.tasks = itertools.count()
        self.folder = recorder.folder
        self.first, self.last = wanted.windows.get(key, (0, -1))
        self.keep = wanted.keep.get(key, -1)
        length = wanted.follow if key in wanted.windows else 0
        self._followed = range(self.first, self.first + length)
        self.again = wanted.again
        self.exactness: dict[str, Exactness] = {}
        self._path = os.path.join(recorder.folder, key)
        self._left = wanted.capacity if key else -1
        self._numbers: dict[str, int] = {}
        self._records, self._lines, self._samples = bytearray(), bytearray(), bytearray()
        self._line(
            {
                "stream": key,
                "thread": thread,
                "process": os.getpid(),
                "began": time.time_ns(),
                "argv": sys.orig_argv,
                "python": sys.executable,
            }
        )

    def add(self, name: str, digest: int) -> None:
        """Record an operation.

        Args:
            name: what it is, as users know it, with the types of what it computed.
            digest: of what it computed, in 64 bits.
        """
        self.count += 1
        if self._left < 0:
            return
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers)
            self._line({"name": name})
        self._records += _PACK(number, digest)
        if len(self._records) >= _KEPT_BYTES:
            self.flush()

    def is_in_window(self) -> bool:
        """Whether more is wanted of the operation that comes next."""
        return self.first <= self.count <= self.last

    def is_followed(self) -> bool:
        """Whether a sample is wanted of what the operation computes that comes next."""
        return self.count in self._followed

    def sample(self, numbers: bytes) -> None:
        """Write numbers that the operation computed that comes next, each a float64."""
        self._samples += SAMPLE.pack(self.count, len(numbers) // 8) + numbers

    def detail(self, facts: Mapping[str, Any]) -> None:
        """Write more of the operation that comes next, which is in the window."""
        self._line({"index": self.count, **facts})

    def compare(
        self, name: str, place: str, library: Any, found: Sequence[Any], exact: Sequence[Any]
    ) -> None:
        """Count an operation that was run in float64, too.

        Args:
            name: what it is.
            place: where the program calls it.
            library: NumPy or PyTorch.
            found: what it computed.
            exact: what it computed in float64; empty where it cannot be run so.
        """
        try:
            apart = error(library, found, exact)
        except Exception as obstacle:  # such as no memory
            if is_the_programs(obstacle, (library.__name__,)):
                raise
            apart, exact = None, ()
        if apart is None and exact:
            return  # nothing of fewer bits
        counted = self.exactness.setdefault(name, Exactness())
        if apart is None:
            counted.failed += 1
        else:
            self.repeated += 1
            counted.add(apart, place)

    def tell_unlike(self, name: str, place: str, outputs: Sequence[str]) -> None:
        """Name the operation that comes next: it computed something else the second time."""
        self.detail({"name": name, "place": place, "outputs": [*outputs], "unlike": True})

    def flush(self) -> None:
        """Write what is not written yet."""
        if not self.key:
            return
        self._left -= len(self._records)
        if self._left < 0 and self._records:
            self._line({"capped": self.count})
        if self.again:
            self._line({"repeated": self.repeated})
            for name, one in self.exactness.items():
                self._line({"exact": name, **asdict(one)})
        kept_of = {LINES: self._lines, RECORDS: self._records, SAMPLES: self._samples}
        for suffix, kept in kept_of.items():
            if kept:
                try:
                    with open(self._path + suffix, "ab") as file:
                        file.write(kept)
                except OSError:
                    self._left = -1  # a full disk, or the command that asked for it has ended
                kept.clear()

    def _line(self, document: Mapping[str, Any]) -> None:
        self._lines += json.dumps(document).encode() + b"\n"


class Recorder:
    """The streams of this process.

    Args:
        folder: where they are written.

    Attributes:
        in_threads: make what sees the operations of one thread only, for each that starts.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, WANTED), encoding="utf-8") as file:
            self.wanted = Wanted(**json.load(file))
        self.key = _free_key(folder)
        self.forked = itertools.count(1)
        self.threads = itertools.count(1)
        self.streams: list[Stream] = []
        self.here = threading.local()
        self.in_threads: list[Callable[[], AbstractContextManager[Any]]] = []

    def stream(self) -> Stream:
        """The stream of the calling thread."""
        found: Stream | None = getattr(self.here, "stream", None)
        if found is None:
            thread = threading.current_thread()
            number = 0 if thread is threading.main_thread() else _number_of(thread, self)
            key = "" if number is None else f"{self.key}-{number}"
            found = self.here.stream = Stream(self, key, thread.name)
            self.streams.append(found)
        return found

    def new_task(self) -> str:
        """The key of a task that the calling thread hands to a pool; "" beyond MOST_TASKS."""
        stream = self.stream()
        number = next(stream.tasks)
        return f"{stream.key}.{number}" if stream.key and number < MOST_TASKS else ""

    @contextmanager
    def in_task(self, key: str) -> Iterator[None]:
        """Record what the calling thread computes in here in the stream of a task.

        Args:
            key: from `new_task`, or below such a one.
        """
        before = getattr(self.here, "stream", None)
        made = Stream(self, key if _IN_PROCESS in key else "", threading.current_thread().name)
        self.here.stream = made
        self.streams.append(made)
        try:
            yield
        finally:
            if made.count:
                made.flush()
            # A process that the task forked has streams of its own.
            if getattr(self.here, "stream", None) is made:
                self.here.stream = before
                self.streams.remove(made)

    def watching(self, run: Callable[[], None]) -> Callable[[], None]:
        """A thread's `run`, under what sees the operations of one thread only."""

        def watched() -> None:
            with ExitStack() as stack:
                for watch in self.in_threads:
                    stack.enter_context(watch())
                run()

        return watched

    def flush(self) -> None:
        """Write what is not written yet, of each thread."""
        for stream in list(self.streams):
            stream.flush()

    def begin_in_child(self) -> None:
        """In a forked child: it has streams of its own, and ends as workers of pools do."""
        self.key = f"{self.key}.{next(self.forked)}"
        self.forked, self.threads = itertools.count(1), itertools.count(1)
        self.streams, self.here = [], threading.local()
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.register_after_fork(self, _flush_with_worker)


_NUMBER = "_backendcfg_number"
_IN_PROCESS = "-"
"""In a key, between the process and the thread in it."""

_POOLS = ("concurrent.futures.thread", "multiprocessing.pool")
"""Modules whose functions the threads of pools run."""


def begin(folder: str) -> Recorder:
    """Record this process from now on: what sees operations tells them to its streams."""
    recorder = Recorder(folder)
    atexit.register(recorder.flush)
    # Counted before the fork, so that the child's key does not depend on who runs first.
    os.register_at_fork(
        after_in_parent=lambda: next(recorder.forked), after_in_child=recorder.begin_in_child
    )
    start = threading.Thread.start

    def recorded(self: threading.Thread) -> None:
        # By the thread that starts it: which of two threads runs first differs from run to run. How
        # many a pool starts does, too, and what they compute belongs to its tasks.
        module = getattr(getattr(self, "_target", None), "__module__", "")
        setattr(self, _NUMBER, None if module in _POOLS else next(recorder.threads))
        self.__dict__["run"] = recorder.watching(self.run)
        start(self)

    threading.Thread.start = recorded  # type: ignore[method-assign]
    return recorder


def _number_of(thread: threading.Thread, recorder: Recorder) -> int | None:
    # What `threading` did not start has no number yet.
    number: int | None = getattr(thread, _NUMBER, -1)
    return next(recorder.threads) if number == -1 else number


def _flush_with_worker(recorder: Recorder) -> None:
    """In a forked worker of `multiprocessing`, which ends without the handlers of `atexit`."""
    sys.modules["multiprocessing.util"].Finalize(recorder, recorder.flush, exitpriority=-1000)


def _free_key(folder: str) -> str:
    """The key of a process that was not forked: a number that no other of its rank has taken."""
    of_rank = prefix()
    for number in itertools.count():
        key = f"{of_rank}{number}"
        try:
            os.mkdir(os.path.join(folder, f"process-{key}"), 0o700)
        except FileExistsError:
            continue
        return key
    raise AssertionError
