"""Child processes start under what is in force where they are made.

`multiprocessing` hands its `Process` object to the child, by pickle or by fork. While a profile is
in force, `BaseProcess.start` puts what is in force into that object, and the child takes it over
before anything else of the object is there. This serves `multiprocessing` by every start method,
`concurrent.futures`, loky and joblib, and `torch.multiprocessing` with its DataLoader.

A pool keeps the scopes that were open where it was made, also for workers that start later or
replace others. Programs that are started otherwise find the profile of the process in
BACKENDCFG_INHERIT.

Nothing is wrapped while nothing is in force, and nothing is imported: a module is looked at once
the program has imported it.
"""

from __future__ import annotations

import os
import sys
from _thread import _local as local

from backendcfg import __version__, _native, environ, plain_json
from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.probe.limits import given_share, share_out
from backendcfg.registry import entering
from backendcfg.session import installed, threads, wiring
from backendcfg.session.choice import PARENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Protocol

    from backendcfg.bridges import lineage
    from backendcfg.session import tasks
    from backendcfg.transact.compiled import Asked, Compiled

    class TakeOver(Protocol):
        """`session.process.take_over`."""

        def __call__(
            self, plans: Sequence[Compiled], source: str, *, found: bool = False
        ) -> None: ...


# Unpickling must work in every child: one whose Python has no backendcfg, or another one. So what
# is pickled is not a class of ours but this text, which gives up where there is nothing to call.
_RECEIVE = """
from multiprocessing.process import current_process
current_process()._backendcfg_given = given
try:
    from backendcfg.session.start import receive
except ImportError:
    pass
else:
    receive(given)
"""

GIVEN = "_backendcfg"
"""Where a `Process` object carries what its child takes over."""

_POOL = "_backendcfg_pool"
"""Where a pool, or a process that it makes, has what was in force where it was made."""

COUNT = "threads.count"

_EXECUTORS = {
    "concurrent.futures.process": ("_spawn_process", "_adjust_process_count"),
    "joblib.externals.loky.process_executor": ("_adjust_process_count",),
    "loky.process_executor": ("_adjust_process_count",),
}
"""Modules with a `ProcessPoolExecutor`, and its methods that start workers, in any thread."""

_BACKENDS = "joblib._parallel_backends"
_RANKS = (f"{TORCH.name}.multiprocessing.spawn", f"{TORCH.name}.multiprocessing")
"""Modules with `start_processes`, which `torch.multiprocessing.spawn` calls."""

_MODULES = (
    *("multiprocessing.process", "multiprocessing.pool", "joblib.parallel", _BACKENDS),
    *_EXECUTORS,
    *_RANKS,
)


class _Pool:
    """What was in force where a pool was made.

    Attributes:
        size: how many workers share the cores of this process; 1 where they do not.
        scopes: the scopes that were open, innermost first.
        tasks: what its tasks are seeded by; None where nothing seeds them.
    """

    __slots__ = ("scopes", "size", "tasks")

    def __init__(self, size: int) -> None:
        self.size = size
        self.scopes = _native.chain()
        self.tasks: tasks.Tasks | None = None

    def number_tasks(self, jobs: Iterator[int] | None = None) -> None:
        """Seed its tasks by their numbers, where the profile sets a seed."""
        from backendcfg.session import tasks

        self.tasks = tasks.Tasks.of("pool", installed.plans(self.scopes), jobs)


class _Starting(local):
    """The pool for which this thread starts a worker, if it does."""

    pool: _Pool | None = None


_starting = _Starting()
_scopes_open: list[bool] = []
_watch: list[imports.Watch] = []
_received: list[tasks.Tasks] = []
_replaced: list[tuple[Any, str, Any, Any]] = []
_take_over: list[TakeOver] = []


def connect(take_over: TakeOver) -> None:
    """Hand in what makes plans the base of a child: `session.process` has it."""
    _take_over[:] = [take_over]


def follow(*, needed: bool, handed: Sequence[Asked]) -> None:
    """Watch over children exactly while something may be in force.

    Args:
        needed: whether the process has a profile.
        handed: what was asked for where programs would not find it by themselves.
    """
    _tell_programs(handed)
    if needed or _scopes_open:
        _begin()
    elif _watch:
        _watch.pop().remove()
        for owner, name, original, replacement in reversed(_replaced):
            # Whoever wrapped it since calls ours, which finds nothing in force.
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        _replaced.clear()


def scopes_may_open() -> None:
    """A process may be started inside a scope from now on."""
    if not _scopes_open and not environ.disabled():
        _scopes_open.append(True)
        _begin()


def _begin() -> None:
    """Wrap what is imported, and what will be."""
    if not _watch:
        _watch.append(imports.watch(_wrap, _MODULES))
        for name in _MODULES:
            if imports.is_imported(name):
                _wrap(name)


def _tell_programs(handed: Sequence[Asked]) -> None:
    environ.put(environ.INHERIT.name, in_words(handed) if handed else None)


def in_words(handed: Sequence[Asked]) -> str:
    """What BACKENDCFG_INHERIT holds: the requests, and the BACKENDCFG_PROFILE that they outrank."""
    requests = [dict(vars(request)) for request in handed]
    return plain_json.dumps({"over": environ.PROFILE.read() or "", "requests": requests})


def _wrap(module: str) -> None:
    """Look after a module that has been imported."""
    from backendcfg.session import tasks

    if module == "multiprocessing.process":
        _replace(module, "BaseProcess", "start", _starts)
        _replace(module, "BaseProcess", "_bootstrap", _bootstraps)
    elif module == "multiprocessing.pool":
        _replace(module, "Pool", "__init__", _makes_pool)
        _replace(module, "Pool", "_guarded_task_generation", tasks.numbers_items)
    elif module == "joblib.parallel":
        _replace(module, "Parallel", "_dispatch", tasks.numbers_calls)
        _replace(module, "BatchedCalls", "__call__", tasks.seeds_calls)
    elif module == _BACKENDS:
        _replace(module, "ParallelBackendBase", "_prepare_worker_env", _shares_cores)
    elif module in _RANKS:
        _replace(module, "", "start_processes", _starts_ranks)
    else:
        _replace(module, "ProcessPoolExecutor", "__init__", _makes_executor)
        for method in _EXECUTORS[module]:
            _replace(module, "ProcessPoolExecutor", method, _starts_worker)


def _replace(module: str, kind: str, name: str, made: Callable[[Any], Any]) -> None:
    """Put what `made` makes of a method in its place; other releases may have other methods.

    Args:
        module: where the class is.
        kind: the class; "" for a function of the module.
        name: of the method or function.
        made: makes what calls the original.
    """
    from functools import wraps

    found = sys.modules[module]
    owner: Any = getattr(found, kind, None) if kind else found
    original = vars(owner).get(name) if isinstance(owner, (type, type(sys))) else None
    if original is None or any((o, n) == (owner, name) for o, n, _, _ in _replaced):
        return
    # A module may have taken ours from another one that was replaced before.
    theirs = next((before for _, _, before, after in _replaced if after is original), None)
    if theirs is not None:
        _replaced.append((owner, name, theirs, original))
    else:
        replacement = wraps(original)(made(original))
        setattr(owner, name, replacement)
        _replaced.append((owner, name, original, replacement))


def _starts(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(process: Any, *positional: Any, **named: Any) -> Any:
        pool = process.__dict__.pop(_POOL, _starting.pool)
        given = Inheritance.of(process, _native.chain() if pool is None else pool.scopes)
        if given is not None and pool is not None:
            given.size, given.tasks = pool.size, pool.tasks
        # First, because what is unpickled after it may import the libraries that it is about.
        process.__dict__ = {GIVEN: given, **process.__dict__}
        try:
            return original(process, *positional, **named)
        finally:
            process.__dict__.pop(GIVEN, None)

    return start


def _bootstraps(original: Callable[..., Any]) -> Callable[..., Any]:
    from functools import partial

    def bootstrap(process: Any, *positional: Any, **named: Any) -> Any:
        _starting.pool = None  # that of the parent, if this process was forked
        given = process.__dict__.pop(GIVEN, None)
        if given:  # it was forked; unpickling leaves nothing behind
            _before_run(process, partial(given.take_over, process))
        elif _received:
            _before_run(process, partial(_received.pop().govern, process))
        return original(process, *positional, **named)

    return bootstrap


def _before_run(process: Any, action: Callable[[], None]) -> None:
    """Do something where the process's own errors are reported: at the start of `run`."""
    own = process.__dict__.get("run")
    run = process.run

    def run_under_the_profile() -> None:
        del process.__dict__["run"]
        if own is not None:
            process.__dict__["run"] = own
        action()
        run()

    process.__dict__["run"] = run_under_the_profile


def _makes_pool(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialise(pool: Any, *positional: Any, **named: Any) -> Any:
        # A pool of threads has neither processes nor a profile of its own.
        module, make = sys.modules["multiprocessing.pool"], pool.Process
        if not isinstance(pool, module.ThreadPool):
            made = _Pool(_pool_size(*positional, **named))
            made.number_tasks(getattr(module, "job_counter", None))

            def worker(*positional: Any, **named: Any) -> Any:
                process = make(*positional, **named)
                process.__dict__[_POOL] = made
                return process

            # `Pool` hands `self.Process` to the thread that replaces workers.
            pool.Process = worker
        return original(pool, *positional, **named)

    return initialise


def _pool_size(processes: int | None = None, *_: Any, **named: Any) -> int:
    """How many workers a `multiprocessing.Pool` has that is made with these arguments."""
    if processes is not None:
        return processes
    return getattr(os, "process_cpu_count", os.cpu_count)() or 1


def _makes_executor(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialise(executor: Any, *positional: Any, **named: Any) -> Any:
        pool = executor.__dict__[_POOL] = _Pool(1)
        pool.number_tasks()
        return original(executor, *positional, **named)

    return initialise


def _starts_worker(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(executor: Any, *positional: Any, **named: Any) -> Any:
        before = _starting.pool
        _starting.pool = pool = executor.__dict__.get(_POOL)
        # For `joblib.Parallel`, `_shares_cores` has said how many.
        if pool is not None and type(executor).__module__ != "joblib.executor":
            pool.size = getattr(executor, "_max_workers", 1)
        try:
            return original(executor, *positional, **named)
        finally:
            _starting.pool = before

    return start


def _starts_ranks(original: Callable[..., Any]) -> Callable[..., Any]:
    """For `start_processes(fn, args, nprocs, ...)` of PyTorch: its processes share the cores."""

    def start(fn: Any, args: Any = (), nprocs: int = 1, *positional: Any, **named: Any) -> Any:
        before = _starting.pool
        _starting.pool = _Pool(nprocs)
        try:
            return original(fn, args, nprocs, *positional, **named)
        finally:
            _starting.pool = before

    return start


def _shares_cores(original: Callable[..., Any]) -> Callable[..., Any]:
    """For the variables that joblib gives workers: its share of the cores, told to ours.

    joblib takes what a variable has in this process for the program's own wish, but here it is the
    profile's count, for one process.
    """

    def prepare(backend: Any, n_jobs: int, *positional: Any, **named: Any) -> Any:
        variables = original(backend, n_jobs, *positional, **named)
        cores = sys.modules[_BACKENDS].cpu_count()
        share = backend.inner_max_num_threads or max(cores // n_jobs, 1)
        if any(COUNT in plan.asked for plan in installed.plans(_native.chain())):
            for name, text in variables.items():
                if name.endswith("_THREADS") and text.isdecimal():
                    variables[name] = str(min(int(text), share))
        # Outside every scope too: joblib replaces workers whose variables are not those of before.
        variables[environ.CORES.name] = str(share)
        return variables

    return prepare


class Inheritance:
    """What is in force where a process is started.

    Attributes:
        plans: the profile of the process and of each scope, outermost first.
        found: whether programs find them by themselves, as in `AppliedProfile`.
        identity: which child it is: the how many-th of its parent, after its parent's own.
        size: how many processes, the child among them, share the cores of its parent.
        tasks: for a worker of a pool, what its tasks are seeded by.
    """

    __slots__ = ("found", "identity", "plans", "size", "tasks")

    def __init__(self, plans: tuple[Compiled, ...], identity: lineage.Path) -> None:
        self.plans = plans
        self.found = False
        self.identity = identity
        self.size = 1
        self.tasks: tasks.Tasks | None = None

    @classmethod
    def of(cls, child: Any, opened: Sequence[_native.Prepared]) -> Inheritance | None:
        """What a `multiprocessing` process shall take over, if there is anything.

        Args:
            child: the process.
            opened: the scopes that are open, innermost first.
        """
        if environ.disabled():
            return None
        from backendcfg.session import tasks

        plans = installed.plans(opened)
        # A fork inside a scope takes the scope along, although the pool may have been made outside.
        if not plans and not _native.chain():
            return None
        base = installed.in_force()
        given = cls(plans, tasks.path_of_child(plans, child._identity[-1]))
        given.found = base is not None and base.found and not opened
        return given

    def __reduce__(self) -> tuple[Any, ...]:
        import json

        if not self.plans:
            return str, ()
        given = {
            "version": __version__,
            "identity": self.identity,
            "size": self.size,
            "found": self.found,
            "plans": [plan.to_json() for plan in self.plans],
            "tasks": self.tasks and self.tasks.to_list(),
        }
        return exec, (_RECEIVE, {"given": json.dumps(given)})

    def take_over(self, process: Any) -> None:
        """In a forked child, whose memory has the parent's profile, scopes and generators."""
        if _native.chain():
            _abandon_scopes()
        base = installed.in_force()
        there = base is not None and base.plans == self.plans
        settle(self.plans, self.identity, there=there, size=self.size, found=self.found)
        if self.tasks:
            self.tasks.govern(process)


def received(given: tasks.Tasks) -> None:
    """In a worker that was not forked, while its `Process` object is being unpickled."""
    _received[:] = [given]


def settle(
    plans: tuple[Compiled, ...],
    identity: lineage.Path,
    *,
    there: bool,
    size: int = 1,
    source: str = PARENT,
    found: bool = False,
) -> None:
    """Make the plans the base of this child, with generators of its own.

    Args:
        plans: those of its parent.
        identity: which child it is.
        there: whether they are its base already.
        size: how many processes share the cores of its parent.
        source: who picked them, in words.
        found: whether programs find them by themselves, as in `AppliedProfile`.
    """
    from backendcfg.bridges import lineage

    lineage.become(identity)
    own = _with_share(plans, size)
    there = there and own == plans
    if own and not (there and all("seed.value" not in plan.asked for plan in own)):
        _take_over[0](own, source, found=found)
    else:
        threads.begin()  # the thread that forked may be older than the profile
    # A decorator, or the process that forked, has prepared profiles for all its cores.
    for prepared in wiring.prepared.values():
        if prepared.payload.takes_all_cores:
            [plan] = _with_share((prepared.payload,), 1)
            wiring.replace_plan(prepared, plan)


def _with_share(plans: tuple[Compiled, ...], size: int) -> tuple[Compiled, ...]:
    """The plans with no more threads than this process has cores, which it may share with others.

    A number that a profile gives, as `threads.count = 4`, is for each process, but for joblib's.
    """
    share, by_joblib = given_share()
    counting = [plan for plan in plans if COUNT in plan.asked]
    if size > 1 and counting and counting[-1].takes_all_cores:
        share = share_out(size)
    if share is None:
        return plans
    return tuple(
        _with_at_most(share, plan) if by_joblib or plan.takes_all_cores else plan for plan in plans
    )


def _with_at_most(threads: int, plan: Compiled) -> Compiled:
    """A plan whose pools have no more threads than that."""
    from backendcfg.records import replace

    if COUNT not in plan.asked:
        return plan
    return replace(plan, values={**plan.values, COUNT: min(plan.values[COUNT], threads)})


def _abandon_scopes() -> None:
    """Forget the scopes of the parent, which a child never leaves: it ends instead."""
    from contextvars import copy_context

    for claim in _native.claims():
        entering.leave_switches(None, None, claim)
    for variable in copy_context():
        if variable.name == "backendcfg.scopes":
            variable.set(None)
