"""`with profile(...)`: from a name to a scope, fast when the name was resolved before."""

from __future__ import annotations

import copyreg

from backendcfg import environ
from backendcfg._native import Prepared, Scope
from backendcfg.locks import LOADING
from backendcfg.registry.busy import BUSY, refuse_unknown
from backendcfg.session import children, process, threads, wiring
from backendcfg.transact.journal import foresee
from backendcfg.transact.outcome import warn_of_pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from backendcfg.transact.compiled import Compiled

    Busy = Literal["raise", "wait", "skip"]

_prepared = wiring.prepared


def profile(name: str, *, busy: Busy = "raise") -> Scope:
    """A scope in which a profile is in force; on leaving it everything is as it was.

    Use it in `with`, in `async with`, or as a decorator of functions, coroutine functions and
    generators. Scopes nest, and one object may be entered again. What our own operations read is
    the innermost profile, with its defaults, and per context: threads and asyncio tasks do not see
    each other's scopes. Of other libraries a scope sets what its profile names. What is
    process-wide in them is shared by scopes that agree. Where the process has a profile, leaving
    puts that profile's value back, also over one that the program had set.

    Where the tier rests on what only the start of a process can set, a `PendingWarning` says so.
    A scope sets no seeds: what is drawn inside belongs to the stream of the program around it.

    Args:
        name: a profile, or several joined by `+`. It is resolved once per process, until
            `reload()`.
        busy: what to do when another open scope holds a process-wide switch at another value:
            raise ProfileBusyError, wait for it, or skip the process-wide switches.

    Raises:
        RequestError: no such profile, or it is wrong; `InvalidArgumentError` for no text at all.
        MachineError: this machine cannot serve it.
        ProfileBusyError: on entering, under `busy="raise"`.
    """
    try:
        return Scope(_prepared[name], BUSY[busy])
    except (KeyError, TypeError):  # no such key, or nothing that can be one
        pass
    if not isinstance(name, str):
        from backendcfg.session.planning import refuse_no_name

        refuse_no_name(name, optional=False)
    refuse_unknown(busy)
    return Scope(_prepare(name), BUSY[busy])


def _prepare(name: str) -> Prepared:
    with LOADING:
        wiring.connect()
        if name not in _prepared:
            prepared = wiring.prepare(plan := _compiled(name))
            if plan.tier != "none":
                # A scope writes no variable, but its tier may rest on one.
                late = foresee(wiring.settings(plan, ("environment",))).outcomes
                warn_of_pending(plan, late, depth=2)
            if prepared.switches is not None:
                process.follow_imports_for_scopes()
            children.scopes_may_open()
            _prepared[name] = prepared
        return _prepared[name]


def _compiled(name: str) -> Compiled:
    if environ.disabled():
        return wiring.nothing()
    from backendcfg.session.planning import compiled

    return compiled(name)


def reload() -> None:
    """Forget resolved profiles, and set what was loaded without an import since.

    The next `profile(name)` reads its files again; open scopes keep what they have. The profile
    of the process keeps its values until the next `apply`. The calling thread gets the switches
    that each thread has for itself, also if it ran before the profile was applied.
    """
    from backendcfg.session import adjust

    with LOADING:
        _prepared.clear()
    adjust.forget()
    process.catch_up()
    threads.begin()


def _by_name(scope: Scope) -> tuple[Callable[..., Scope], tuple[str | None, str]]:
    """How a scope is pickled, as within a decorated function that joblib sends to a worker."""
    from backendcfg.session.planning import anywhere

    # A copy, since another thread may prepare a scope meanwhile.
    found = [name for name, prepared in _prepared.copy().items() if prepared is scope.prepared]
    (busy,) = (word for word, number in BUSY.items() if number == scope.busy)
    return _again, (anywhere(found[0]) if found else scope.prepared.name, busy)


def _again(name: str, busy: Any) -> Scope:
    return profile(name, busy=busy)


copyreg.pickle(Scope, _by_name)
