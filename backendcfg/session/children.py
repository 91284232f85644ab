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

import sys
import threading
from functools import wraps

from backendcfg import __version__, _native, environ
from backendcfg.bridges import imports, seeds
from backendcfg.registry import entering
from backendcfg.session import installed, threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from backendcfg.transact.compiled import Asked, Compiled

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

_SCOPES = "_backendcfg_scopes"
"""Where a pool, or a process that it makes, has the scopes that were open where it was made."""

SOURCE = "the parent process"
"""Who picked the profile of a child, in words."""

_EXECUTORS = {
    "concurrent.futures.process": ("_spawn_process", "_adjust_process_count"),
    "joblib.externals.loky.process_executor": ("_adjust_process_count",),
    "loky.process_executor": ("_adjust_process_count",),
}
"""Modules with a `ProcessPoolExecutor`, and its methods that start workers, in any thread."""

_MODULES = ("multiprocessing.process", "multiprocessing.pool", *_EXECUTORS)


class _Starting(threading.local):
    """The scopes of the pool for which this thread starts a worker; None for this thread's own."""

    scopes: tuple[_native.Prepared, ...] | None = None


_starting = _Starting()
_scopes_open: list[bool] = []
_watch: list[imports.Watch] = []
_replaced: list[tuple[type, str, Any, Any]] = []
_take_over: list[Callable[[Sequence[Compiled], str], None]] = []


def connect(take_over: Callable[[Sequence[Compiled], str], None]) -> None:
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
    if handed:
        environ.current()[environ.INHERIT.name] = _in_words(handed)
    else:
        environ.current().pop(environ.INHERIT.name, None)


def _in_words(handed: Sequence[Asked]) -> str:
    """What BACKENDCFG_INHERIT holds: the requests, and the BACKENDCFG_PROFILE that they outrank."""
    import json

    requests = [dict(vars(request)) for request in handed]
    return json.dumps({"over": environ.PROFILE.read() or "", "requests": requests})


def _wrap(module: str) -> None:
    """Look after a module that has been imported."""
    if module == "multiprocessing.process":
        _replace(module, "BaseProcess", "start", _starts)
        _replace(module, "BaseProcess", "_bootstrap", _bootstraps)
    elif module == "multiprocessing.pool":
        _replace(module, "Pool", "__init__", _makes_pool)
    else:
        _replace(module, "ProcessPoolExecutor", "__init__", _makes_executor)
        for method in _EXECUTORS[module]:
            _replace(module, "ProcessPoolExecutor", method, _starts_worker)


def _replace(module: str, kind: str, name: str, made: Callable[[Any], Any]) -> None:
    """Put what `made` makes of a method in its place; other releases may have other methods."""
    owner = getattr(sys.modules[module], kind, None)
    original = vars(owner).get(name) if isinstance(owner, type) else None
    ours = any(replacement is original for _, _, _, replacement in _replaced)
    if isinstance(owner, type) and original is not None and not ours:
        replacement = wraps(original)(made(original))
        setattr(owner, name, replacement)
        _replaced.append((owner, name, original, replacement))


def _starts(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(process: Any, *positional: Any, **named: Any) -> Any:
        scopes = process.__dict__.pop(_SCOPES, _starting.scopes)
        given = Inheritance.of(process, _native.chain() if scopes is None else scopes)
        # First, because what is unpickled after it may import the libraries that it is about.
        process.__dict__ = {GIVEN: given, **process.__dict__}
        try:
            return original(process, *positional, **named)
        finally:
            process.__dict__.pop(GIVEN, None)

    return start


def _bootstraps(original: Callable[..., Any]) -> Callable[..., Any]:
    def bootstrap(process: Any, *positional: Any, **named: Any) -> Any:
        given = process.__dict__.pop(GIVEN, None)
        if given:  # it was forked; unpickling leaves nothing behind
            _before_run(process, given.take_over)
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
        scopes, make = _native.chain(), pool.Process

        def worker(*positional: Any, **named: Any) -> Any:
            process = make(*positional, **named)
            process.__dict__[_SCOPES] = scopes
            return process

        # `Pool` hands `self.Process` to the thread that replaces workers. A pool of threads has
        # neither processes nor a profile of its own.
        if not isinstance(pool, sys.modules["multiprocessing.pool"].ThreadPool):
            pool.Process = worker
        return original(pool, *positional, **named)

    return initialise


def _makes_executor(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialise(executor: Any, *positional: Any, **named: Any) -> Any:
        executor.__dict__[_SCOPES] = _native.chain()
        return original(executor, *positional, **named)

    return initialise


def _starts_worker(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(executor: Any, *positional: Any, **named: Any) -> Any:
        before = _starting.scopes
        _starting.scopes = executor.__dict__.get(_SCOPES)
        try:
            return original(executor, *positional, **named)
        finally:
            _starting.scopes = before

    return start


class Inheritance:
    """What is in force where a process is started.

    Attributes:
        plans: the profile of the process and of each scope, outermost first.
        identity: which child it is: the how many-th of its parent, after its parent's own.
    """

    __slots__ = ("identity", "plans")

    def __init__(self, plans: tuple[Compiled, ...], identity: tuple[int, ...]) -> None:
        self.plans = plans
        self.identity = identity

    @classmethod
    def of(cls, child: Any, opened: Sequence[_native.Prepared]) -> Inheritance | None:
        """What a `multiprocessing` process shall take over, if there is anything.

        Args:
            child: the process.
            opened: the scopes that are open, innermost first.
        """
        if environ.disabled():
            return None
        base = installed.in_force()
        plans = base.plans if base is not None else ()
        plans = *plans, *(prepared.payload for prepared in reversed(opened))
        # A fork inside a scope takes the scope along, although the pool may have been made outside.
        return cls(plans, tuple(child._identity)) if plans or _native.chain() else None

    def __reduce__(self) -> tuple[Any, ...]:
        import json

        if not self.plans:
            return str, ()
        given = {
            "version": __version__,
            "identity": self.identity,
            "plans": [plan.to_json() for plan in self.plans],
        }
        return exec, (_RECEIVE, {"given": json.dumps(given)})

    def take_over(self) -> None:
        """In a forked child, whose memory has the parent's profile, scopes and generators."""
        if _native.chain():
            _abandon_scopes()
        base = installed.in_force()
        settle(self.plans, self.identity, there=base is not None and base.plans == self.plans)


def settle(plans: tuple[Compiled, ...], identity: tuple[int, ...], *, there: bool) -> None:
    """Make the plans the base of this child, with generators of its own."""
    seeds.become(identity)
    if plans and not (there and all("seed.value" not in plan.asked for plan in plans)):
        _take_over[0](plans, SOURCE)
    else:
        threads.begin()  # the thread that forked may be older than the profile


def _abandon_scopes() -> None:
    """Forget the scopes of the parent, which a child never leaves: it ends instead."""
    from contextvars import copy_context

    for claim in _native.claims():
        entering.leave_switches(None, None, claim)
    for variable in copy_context():
        if variable.name == "backendcfg.scopes":
            variable.set(None)
