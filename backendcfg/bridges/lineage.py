"""Which process, and which task of which pool, draws here: what its seed follows from.

A process is named by a path: the how many-th child of the how many-th child it is. A task of a
pool is named by the path of the process that made the pool, by which of its pools that is, and by
the task's number in it; not by the worker that takes it, which is a race. What a task starts
itself is counted from the task on.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Path = tuple[int | str, ...]

_process: list[int | str] = []


class _Task:
    """The task that runs in this process.

    Attributes:
        path: which it is.
        seed: where generators start in it; None where no profile seeds them.
        before: how many children the process had before it; None until it starts one.
    """

    __slots__ = ("before", "path", "seed")

    def __init__(self, path: Path, seed: int | None) -> None:
        self.path = path
        self.seed = seed
        self.before: int | None = None


_task: list[_Task] = []
_counts: dict[tuple[str, ...], int] = {}
"""How many pools, and threads of each name, this task or process has had."""

_numbers = range(1, sys.maxsize)
_calls = [iter(_numbers)]
"""Numbers the calls of `os.fork()`, from when this process got its path or began its task."""

_calling: dict[int, int] = {}
"""The number of the call that a thread is in."""

_forked: list[int] = []
"""The calls that led here from the process that got the path or began the task, first one first."""

MOST_NAMES = 10_000
"""Names that are counted. Most names of threads come once, and are not worth keeping."""


def derived(seed: int, path: Iterable[int | str]) -> int:
    """The seed at a path: the first 32 bits of SHA-1 of `seed/1/2`, for its 1st child's 2nd.

    The process that was started first has the profile's own.
    """
    if not (words := [str(word) for word in path]):
        return seed
    # _sha1 rather than hashlib, whose import opens OpenSSL.
    from _sha1 import sha1  # type: ignore[import-not-found]

    text = "/".join((str(seed), *words))
    return int.from_bytes(sha1(text.encode()).digest()[:4], "big")


def become(path: Iterable[int | str]) -> None:
    """This process is the child at a path."""
    _process[:] = path
    _task.clear()
    _count_forks()
    _counts.clear()


def process() -> Path:
    """The path of this process; a child that is being unpickled is not yet told otherwise."""
    module = sys.modules.get("multiprocessing.process")
    if _process or module is None:
        return tuple(_process)
    return tuple(module.current_process()._identity)


def begin(path: Path, seed: int | None) -> None:
    """A task begins here, and ends when the next one begins.

    Args:
        path: which it is.
        seed: the profile's; None where it has none.
    """
    _task[:] = [_Task(path, None if seed is None else derived(seed, path))]
    _count_forks()
    _counts.clear()


def task() -> Path:
    """The path of the task that runs here; () outside of tasks."""
    return _task[0].path if _task else ()


def task_seed() -> int | None:
    """Where generators start in the task that runs here; None where nothing says so."""
    return _task[0].seed if _task else None


def here() -> Path:
    """The path of the task that runs here, else that of the process."""
    return *(task() or process()), *(word for number in _forked for word in ("fork", number))


def of_fork(seed: int) -> int:
    """A seed as it is in this process, where `os.fork()` made it: another in each child."""
    for number in _forked:
        seed = derived(seed, ("fork", number))
    return seed


def child(number: int) -> int:
    """Which child of the task or process a process is that is the how many-th of this process."""
    if not _task:
        return number
    if _task[0].before is None:
        _task[0].before = number - 1
    return number - _task[0].before


def group(kind: str) -> Path:
    """The path of a group of tasks that is being made here: the how many-th of its kind."""
    return *here(), *_next(kind)


def thread(name: str) -> Path:
    """The path of a thread that begins here, from the process or task on.

    By its name, since threads that are started at once begin in any order.
    """
    return _next("thread", name)


def _next(*words: str) -> Path:
    if len(_counts) >= MOST_NAMES:
        for each in [each for each in _counts if each[0] == "thread"]:
            del _counts[each]
    _counts[words] = number = _counts.get(words, 0) + 1
    return *words, number


def _count_forks(*forked: int) -> None:
    """Number calls from 1 again, in a process to which these led."""
    _forked[:] = forked
    _calls[0] = iter(_numbers)


def _before_fork() -> None:
    _calling[get_ident()] = next(_calls[0])


def _after_fork() -> None:
    mine = _calling[get_ident()]
    _calling.clear()
    _count_forks(*_forked, mine)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _calling.pop(get_ident(), None),
    after_in_child=_after_fork,
)
