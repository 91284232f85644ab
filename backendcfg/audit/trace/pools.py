"""Tasks of pools, which have streams of their own.

Which worker of a pool takes which task differs from run to run, and so does the number of workers
that start. So each task has a stream, named after the thread or task that hands it to the pool and
numbered in that order. It is the same in each run, whichever thread or process computes it.

Pools are those of `concurrent.futures`, `multiprocessing` and joblib, of threads or of processes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from backendcfg.bridges import imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from backendcfg.audit.trace.streams import Recorder

LOKY = ("loky.process_executor", "joblib.externals.loky.process_executor")
MULTIPROCESSING, JOBLIB = "multiprocessing.pool", "joblib.parallel"
EXECUTORS = {
    "concurrent.futures.thread": "ThreadPoolExecutor",
    "concurrent.futures.process": "ProcessPoolExecutor",
    **dict.fromkeys(LOKY, "ProcessPoolExecutor"),
}
"""Classes with a method `submit`, by module."""

_recorder: Recorder | None = None


@dataclass(frozen=True)
class Task:
    """A function that a pool is to call, here or in another process.

    Attributes:
        function: what it calls.
        key: of the stream of what it computes.
    """

    function: Callable[..., Any]
    key: str

    def __call__(self, *positional: Any, **named: Any) -> Any:
        """Call the function, and record what it computes in the task's stream."""
        if _recorder is None:
            return self.function(*positional, **named)
        with _recorder.in_task(self.key):
            return self.function(*positional, **named)


def watch(recorder: Recorder) -> None:
    """Record tasks of pools in streams of their own from now on."""
    global _recorder
    _recorder = recorder
    modules = (*EXECUTORS, MULTIPROCESSING, JOBLIB)
    imports.watch(_watch, modules)
    for module in modules:
        if imports.is_imported(module):
            _watch(module)


def _watch(module: str) -> None:
    there = sys.modules[module]
    if module == MULTIPROCESSING:
        _replace(there.Pool, "apply_async", _applying)
        _replace(there.Pool, "_guarded_task_generation", _generating)
    elif module == JOBLIB:
        _replace(there.Parallel, "__call__", _parallel)
    else:
        _replace(getattr(there, EXECUTORS[module]), "submit", _submitting)


def _replace(kind: Any, name: str, make: Callable[[Recorder, Any], Any]) -> None:
    original = getattr(kind, name, None)
    if original is not None and _recorder is not None:
        setattr(kind, name, wraps(original)(make(_recorder, original)))


def _submitting(recorder: Recorder, original: Any) -> Any:
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        return original(self, Task(fn, recorder.new_task()), *args, **kwargs)

    return submit


def _applying(recorder: Recorder, original: Any) -> Any:
    def apply_async(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, Task(func, recorder.new_task()), *args, **kwargs)

    return apply_async


def _generating(recorder: Recorder, original: Any) -> Any:
    # What `map` and the like call. A thread of the pool takes the tasks from what it returns.
    def generation(self: Any, job: Any, func: Any, iterable: Iterable[Any]) -> Iterator[Any]:
        tasks = original(self, job, func, iterable)
        return _numbered(tasks, recorder.new_task())

    def _numbered(tasks: Iterator[Any], key: str) -> Iterator[Any]:
        for job, number, func, args, kwargs in tasks:
            yield job, number, Task(func, f"{key}.{number}"), args, kwargs

    return generation


def _parallel(recorder: Recorder, original: Any) -> Any:
    # Joblib makes batches of so many calls as took long enough before, and lets whichever thread is
    # at hand ask for the next ones. So each call is a task, and so is asking for it.
    def call(self: Any, iterable: Iterable[Any]) -> Any:
        if self._effective_n_jobs() == 1:
            return original(self, iterable)
        key = recorder.new_task()
        with recorder.in_task(key):
            return original(self, numbered(iter(iterable), key))

    def numbered(calls: Iterator[Any], key: str) -> Iterator[Any]:
        number = 0
        while True:
            with recorder.in_task(f"{key}.{number}"):
                try:
                    function, args, kwargs = next(calls)
                except StopIteration:
                    return
            yield Task(function, f"{key}.{number + 1}"), args, kwargs
            number += 2

    return call
