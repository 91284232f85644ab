"""Per-thread switches in threads that start under a profile.

Some switches belong to one thread: PyTorch's and OpenMP's thread counts, TorchInductor's
configuration. `apply` sets them in the thread that calls it. While a profile with such switches is
in force, every `threading.Thread` sets them for itself before its `run` is called: subclasses, the
workers of executors and of `asyncio.to_thread` included. It starts at the base, also inside a
scope, and also where PyTorch would hand on the thread count that a scope set last.

Not reached are threads that `threading` did not start, and threads that ran already. They keep what
they have until `reload()` is called in them; `verify()` says so there. `undo()` reaches only the
thread that calls it; its report names the others. A switch that cannot be set does not keep a
thread from running: it is logged, and `verify()` in that thread tells.
"""

from __future__ import annotations

from _thread import _local as local
from _thread import get_ident
from _weakref import ref

from backendcfg import log
from backendcfg.records import replace
from backendcfg.registry import entering, owners
from backendcfg.transact.journal import ReadBackError
from backendcfg.transact.outcome import listed, reason, shown
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from threading import Thread
    from typing import Any

    from backendcfg.transact.outcome import Outcome


class _Here(local):
    """What this thread was given.

    Attributes:
        given: the values of the base that it has, by switch.
        failed: why it could not be given others.
    """

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.failed: dict[str, str] = {}


PATIENCE_SECONDS = 10.0
MOST_NAMED = 4
"""Threads that a sentence names; more are counted."""

_given: dict[int, tuple[ref[Thread], dict[str, Any]]] = {}
"""By the number of a thread: the thread, and what it was given."""

_here = _Here()
_wanted: dict[str, Setting] = {}
_scopes: list[bool] = []
_wrapped: list[Callable[..., Any]] = []


def base_changed(
    settings: Iterable[Setting], outcomes: Iterable[Outcome], left: Iterable[Setting] = ()
) -> None:
    """Give a new base, which the calling thread has set, to the threads that start from now on.

    Args:
        settings: the base.
        outcomes: what became of each.
        left: switches that threads need although no profile sets them, from `base.left()`.
    """
    _wanted.clear()
    _here.given.clear()
    for setting in left:
        _wanted[setting.switch.name] = setting
        _note_given(setting)
    _here.failed.clear()
    base_grew(settings, outcomes)


def base_grew(settings: Iterable[Setting], outcomes: Iterable[Outcome]) -> None:
    """Give switches that came with a library, and that this thread has set, to later threads."""
    for setting, outcome in zip(settings, outcomes, strict=False):
        if setting.switch.reach == "thread" and outcome.state in ("set", "unchanged"):
            _wanted[setting.switch.name] = setting
            _note_given(setting)
    _follow()


def _note_given(setting: Setting) -> None:
    """Remember what this thread has from now on."""
    import threading

    # The thread too, because its number goes to another one when it has ended.
    _given[get_ident()] = ref(threading.current_thread()), _here.given
    _here.given[setting.switch.name] = setting.wanted
    _here.failed.pop(setting.switch.name, None)


def scopes_may_open() -> None:
    """A thread may start while a scope holds per-thread switches."""
    _scopes[:] = [True]
    _follow()


def begin() -> None:
    """Give the calling thread the per-thread switches of the base; never raises an `Exception`."""
    try:
        _begin()
    except Exception as error:  # the program's thread shall run
        import threading

        name = threading.current_thread().name
        log.error("thread %s: its switches could not be set: %s", name, reason(error))


def _begin() -> None:
    missing = [
        setting
        for name, setting in tuple(_wanted.items())
        if name not in _here.given or _here.given[name] != setting.wanted
    ]
    for setting in missing:
        _try(setting)
    # Again, because PyTorch gives MKL a count for this thread when it is first asked for its own.
    for setting in missing:
        if setting.switch.name not in _here.failed:
            _try(setting)
    if _scopes:
        for cell in _claimed_elsewhere():
            if cell.switch.name not in _wanted:
                _try(Setting(cell.switch, cell.base, ""), only_over=cell.now())
    if owners.deferred and not owners.is_changing():
        entering.give_back_deferred()


def missed(setting: Setting) -> str:
    """Why the calling thread does not have a per-thread switch of the base, or ""."""
    base = _wanted.get(setting.switch.name)
    if base is None or base.wanted != setting.wanted:
        return ""
    if because := _here.failed.get(setting.switch.name):
        return f"it could not be set when this thread started: {because}"
    if setting.switch.name in _here.given and _here.given[setting.switch.name] == setting.wanted:
        return ""
    return "this thread ran before the profile was applied; `backendcfg.reload()` in it sets it"


def with_keepers(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """What became of the switches of a base that ends, and which other threads keep theirs.

    Call it before `base_changed`.
    """
    return tuple(_with_keepers(outcome) for outcome in outcomes)


def _with_keepers(outcome: Outcome) -> Outcome:
    base = _wanted.get(outcome.switch)
    if outcome.state not in ("set", "unchanged") or base is None or base.wanted == outcome.wanted:
        return outcome
    import threading

    names = []
    for thread in threading.enumerate():
        who, given = _given.get(thread.ident or 0, (None, {}))
        if thread is threading.current_thread() or who is None or who() is not thread:
            continue
        if given.get(outcome.switch, _ANYTHING) == base.wanted:
            names.append(thread.name)
    if not names:
        return outcome
    keep = f"thread {listed(names)} keeps" if len(names) == 1 else f"threads {listed(names)} keep"
    if len(names) > MOST_NAMED:
        keep = f"{len(names)} threads keep, `{names[0]}` among them,"
    because = f"{keep} what the profile gave: `undo()` reaches only the thread that calls it"
    return replace(outcome, state="irreversible", because=because)


_ANYTHING = object()


def _try(setting: Setting, *, only_over: Any = _ANYTHING) -> None:
    name = setting.switch.name
    try:
        _give(setting, only_over)
    except Exception as error:
        import threading

        _here.failed[name] = reason(error)
        thread = threading.current_thread().name
        wanted = shown(setting.wanted)
        log.error("thread %s: %s could not be set to %s: %s", thread, name, wanted, reason(error))
    else:
        if name in _wanted:
            _note_given(setting)
        _here.failed.pop(name, None)


def _give(setting: Setting, only_over: Any) -> None:
    """Set one switch in this thread and read it back.

    Args:
        setting: the switch.
        only_over: the one value to write over.
    """
    switch, wanted = setting.switch, setting.wanted
    claimed = owners.this_thread().cells
    if not claimed and (switch.read() == wanted or only_over not in (_ANYTHING, switch.read())):
        return
    # Writing one may touch another for a moment, which belongs to the whole process.
    with _Patiently():
        cell = owners.cell_of(switch)
        if cell.claims:
            if only_over is _ANYTHING:
                cell.base, cell.known = wanted, True
            return
        found = switch.read()
        if found == wanted or only_over not in (_ANYTHING, found):
            return
        switch.write(wanted)
        if (found := switch.read()) != wanted:
            raise ReadBackError(f"wrote {shown(wanted)}, read back {shown(found)}")


def _claimed_elsewhere() -> list[owners.Cell]:
    """The per-thread switches that scopes of other threads hold."""
    mine = owners.this_thread()
    try:
        with _Patiently():
            return [
                cell
                for thread in owners.threads()
                if thread is not mine
                for cell in list(thread.cells.values())
                if cell.claims
            ]
    except TimeoutError as error:
        import threading

        log.error("thread %s: %s", threading.current_thread().name, error)
        return []


class _Patiently:
    """The owners' lock, or `TimeoutError`: whoever holds it might wait for this thread."""

    def __enter__(self) -> None:
        if not owners.LOCK.acquire(timeout=PATIENCE_SECONDS):
            raise TimeoutError(f"another thread was changing switches for {PATIENCE_SECONDS} s")

    def __exit__(self, *exception: object) -> None:
        owners.LOCK.release()


def _follow() -> None:
    """Look at starting threads exactly while there may be something to give them."""
    if not (_wanted or _scopes or _wrapped):
        return
    import threading

    if (_wanted or _scopes) and not _wrapped:
        original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
        _wrapped[:] = [original, _beginning(original)]
        threading.Thread._bootstrap_inner = _wrapped[1]  # type: ignore[attr-defined]
    elif (
        not (_wanted or _scopes)
        and _wrapped
        # Whoever wrapped it since calls ours, which then has nothing to give.
        and threading.Thread._bootstrap_inner is _wrapped[1]  # type: ignore[attr-defined]
    ):
        threading.Thread._bootstrap_inner = _wrapped[0]  # type: ignore[attr-defined]
        _wrapped.clear()


def _beginning(original: Callable[[Thread], None]) -> Callable[..., None]:
    """The method in which a thread runs, with `begin` before `run`.

    Not before the method itself: whoever starts the thread waits until that has announced it, and
    may hold the lock that `begin` needs.
    """
    from functools import wraps

    @wraps(original)
    def bootstrap(thread: Thread) -> None:
        own = thread.__dict__.get("run")
        run = thread.run

        def run_with_switches() -> None:
            if own is None:
                del thread.__dict__["run"]
            else:
                thread.__dict__["run"] = own
            begin()
            run()

        if _wanted or _scopes:
            thread.__dict__["run"] = run_with_switches
        original(thread)

    return bootstrap
