"""Random draws in the tasks of pools are seeded by the task, not by the worker that takes it.

Which worker of a pool takes which task is a race. So under a seed every generator starts anew with
each task, where the task's number says: its place among the tasks of `multiprocessing.Pool` and
`ProcessPoolExecutor`, among the items of one `map`, among the calls of one `joblib.Parallel`. The
number is counted where the pool was made, so neither chunks nor batches, workers that end, nor how
many there are change what is drawn.

A worker gets its tasks from a queue, and learns of each by looking at what it gets. Numbers that
it cannot know travel with the task, as an attribute of a `UserList` in the place of a tuple, which
a worker without backendcfg takes like one.
"""

from __future__ import annotations

import sys
from collections import UserList

from backendcfg import _native, environ
from backendcfg.bridges import lineage, seeds
from backendcfg.session import installed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from backendcfg.transact.compiled import Compiled

_NUMBER = "_backendcfg_number"
"""Where items have the number of the first, and arguments the number of their call and whose."""

_CALLS = "_backendcfg_calls"
"""Where a `joblib.Parallel` has what its calls are seeded by."""

_BACKENDS = ("LokyBackend", "MultiprocessingBackend")
"""The backends of joblib that compute in processes of this machine."""


def path_of_child(plans: Sequence[Compiled], number: int) -> lineage.Path:
    """The path of the child that `multiprocessing` calls the how many-th of this process."""
    own = seeds.own() if _seed(plans) is not None else ()
    return *lineage.here(), *own, lineage.child(number)


def _seed(plans: Sequence[Compiled]) -> int | None:
    """The seed that plans ask for, the later ones over the earlier."""
    for plan in reversed(plans):
        if "seed.value" in plan.effective:
            seed = plan.values["seed.value"]
            return None if seed == "off" else int(seed)
    return None


class Tasks:
    """What the tasks of one pool are named and seeded by.

    Attributes:
        seed: the profile's; None where it has none, and tasks are named for `backendcfg.record`.
        path: of the pool.
        first: the number of its first task, where several pools share one count.
    """

    __slots__ = ("first", "path", "seed")

    def __init__(self, seed: int | None, path: lineage.Path, first: int = 0) -> None:
        self.seed = seed
        self.path = path
        self.first = first

    @classmethod
    def of(
        cls, kind: str, plans: Sequence[Compiled], jobs: Iterator[int] | None = None
    ) -> Tasks | None:
        """For a pool that is being made here; None where nothing seeds or compares its tasks.

        Args:
            kind: what it is counted among: "pool", or "calls" of joblib.
            plans: what is in force here.
            jobs: what counts the tasks of all pools, one step further from now on.
        """
        if (seed := _seed(plans)) is None and environ.RECORDS.read() is None:
            return None
        first = 0 if jobs is None else next(jobs) + 1
        return cls(seed, (*lineage.group(kind), *seeds.own()), first)

    @classmethod
    def from_list(cls, data: Sequence[Any]) -> Tasks:
        """The inverse of `to_list`."""
        return cls(data[0], tuple(data[1]), data[2])

    def to_list(self) -> list[Any]:
        """The same for JSON."""
        return [self.seed, self.path, self.first]

    def begin(self, *number: int) -> None:
        """A task begins in this worker."""
        seeds.begin_task((*self.path, *number), self.seed)

    def each(self, items: Iterable[Any], *number: int) -> Iterator[Any]:
        """The items, each of which begins a task; the number of the first is given."""
        *whose, first = number
        for at, item in enumerate(items, first):
            self.begin(*whose, at)
            yield item

    def govern(self, process: Any) -> None:
        """See that each task that a worker gets from its queue begins with its own seed.

        Call it before the worker runs, whose first argument is the queue.
        """
        queue: Any = next(iter(getattr(process, "_args", ())), None)
        if (get := getattr(queue, "get", None)) is None:
            return
        begun: list[bool] = []

        def get_and_begin(*positional: Any, **named: Any) -> Any:
            if not begun:
                begun.append(True)
                seeds.worker_begins()
            task = get(*positional, **named)
            return self.begun(task)

        queue.get = get_and_begin

    def begun(self, task: Any) -> Any:
        """A task that a worker got, which begins; or one whose items begin when they are taken."""
        if isinstance(task, tuple) and len(task) == 5:
            job, at, function, arguments, named = task
            chunk = arguments[0] if len(arguments) == 1 else None
            if isinstance(chunk, tuple) and len(chunk) == 2 and hasattr(chunk[1], _NUMBER):
                inner, items = chunk
                items = self.each(items, job - self.first, getattr(items, _NUMBER))
                return job, at, function, ((inner, items),), named
            self.begin(job - self.first, at)
        elif hasattr(task, "work_id"):
            if _takes_chunk(task.fn):
                task.args = (self.each(task.args[0], task.work_id, 0),)
            else:
                self.begin(task.work_id)
        return task


def _numbered(items: Iterable[Any], number: Any) -> UserList[Any]:
    """The same items, with a number that pickling keeps."""
    numbered = UserList(items)
    setattr(numbered, _NUMBER, number)
    return numbered


def _takes_chunk(function: Any) -> bool:
    """Whether it is what `ProcessPoolExecutor.map` makes of a function."""
    inner = getattr(function, "func", None)
    module = sys.modules.get(getattr(inner, "__module__", ""))
    return inner is not None and inner is getattr(module, "_process_chunk", None)


def numbers_items(original: Callable[..., Any]) -> Callable[..., Any]:
    """For `Pool._guarded_task_generation`: chunks of items tell the number of their first."""

    def generate(pool: Any, job: Any, function: Any, iterable: Iterable[Any]) -> Iterator[Any]:
        module = sys.modules["multiprocessing.pool"]
        chunked = function in (module.mapstar, module.starmapstar)
        if not chunked or isinstance(pool, module.ThreadPool):
            yield from original(pool, job, function, iterable)
            return
        first = 0
        for task in original(pool, job, function, iterable):
            if task[2] is function:
                ((inner, items),) = task[3]
                yield *task[:3], ((inner, _numbered(items, first)),), *task[4:]
                first += len(items)
            else:
                yield task

    return generate


def numbers_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    """For `joblib.Parallel._dispatch`: batches of calls tell the number of their first."""

    def dispatch(parallel: Any, batch: Any) -> Any:
        if type(parallel._backend).__name__ in _BACKENDS and batch.items:
            first = parallel.n_dispatched_tasks
            if first == 0:
                made = Tasks.of("calls", installed.plans(_native.chain()))
                parallel.__dict__[_CALLS] = made and made.to_list()
            if (calls := parallel.__dict__.get(_CALLS)) is not None:
                function, arguments, named = batch.items[0]
                told = _numbered(arguments, (calls, first))
                batch.items[0] = (function, told, named)
        return original(parallel, batch)

    return dispatch


def seeds_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    """For `joblib.parallel.BatchedCalls.__call__`, in the worker: each call begins a task."""

    def call(batch: Any) -> Any:
        told = getattr(batch.items[0][1], _NUMBER, None) if batch.items else None
        if told is not None:
            calls, first = told
            batch.items = Tasks.from_list(calls).each(batch.items, first)
        return original(batch)

    return call
