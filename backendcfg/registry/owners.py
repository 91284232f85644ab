"""The owner table: who holds each process-wide or per-thread switch, and at which value.

A scope lays one claim on every switch that it sets. The value in force is the last claim's; without
a claim it is the base. A new claim is allowed when every claim already there wants the same value
or belongs to a scope around the new one in the same context. So scopes that agree share, scopes
that nest override, and scopes that would fight do not get in.

Nobody saves what they happen to see: the base is what `apply` put there, or else what the switch
held while nobody claimed it. The setter is called only when the value in force changes.

Claims are tied weakly to the thread that laid them: those of a thread that has ended are dropped
when the table is next used. A forked child keeps the claims of the thread that forked.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque

from backendcfg.transact import log
from backendcfg.transact.knob import Latch, Reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from backendcfg._native import Prepared, Scope
    from backendcfg.transact.knob import Setting
    from backendcfg.transact.protocol import Knob

LOCK = threading.RLock()
"""Held while claims change and while knobs are written."""


class Thread:
    """Lives as long as the thread that made it, through `threading.local`."""

    __slots__ = ("__weakref__", "cells", "ident", "reference")

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        # Shared by all claims of the thread, which keep it alive for its callback.
        self.reference = weakref.ref(self, _thread_ended)
        self.cells: dict[str, Cell] = {}


class Claim:
    """What one entry into a scope holds.

    Attributes:
        prepared: the profile.
        scope: the scope object, which may be entered many times.
        thread: the thread that entered.
        held: the claims that were laid, in order.
    """

    __slots__ = ("held", "ident", "prepared", "scope", "thread")

    def __init__(self, prepared: Prepared, scope: Scope) -> None:
        self.prepared = prepared
        self.scope = scope
        self.held: list[Held] = []
        self.tie()

    def tie(self) -> None:
        """Make the calling thread the one whose end drops the claims."""
        thread = this_thread()
        self.thread = thread.reference
        self.ident = thread.ident


class Held:
    """One claim on one cell."""

    __slots__ = ("cell", "claim", "wanted")

    def __init__(self, cell: Cell, claim: Claim, wanted: Any) -> None:
        self.cell = cell
        self.claim = claim
        self.wanted = wanted


class Cell:
    """One switch, in one thread if that is its reach.

    Attributes:
        knob: the switch.
        eligible: whether scopes may set it: at any time, and put it back.
        by_thread: whether each thread has a value of its own.
        base: its value while nobody claims it.
        known: whether `base` was recorded and must not be read again: apply set it, or what it
            should be could not be restored.
        claims: in the order in which they were laid; the last is in force.
        thread: whose value it is, None for the process.
    """

    __slots__ = ("base", "by_thread", "claims", "eligible", "knob", "known", "thread")

    def __init__(self, knob: Knob, thread: Thread | None = None) -> None:
        self.knob = knob
        self.by_thread = knob.reach is Reach.THREAD
        self.eligible = (
            knob.latch in {Latch.ANYTIME, Latch.EACH_THREAD}
            and knob.reach is not Reach.CALL
            and knob.reversible
            and not knob.too_late()
        )
        self.base: Any = None
        self.known = False
        self.claims: list[Held] = []
        self.thread = thread.reference if thread is not None else None

    def now(self) -> Any:
        """The value in force, as far as the table knows."""
        return self.claims[-1].wanted if self.claims else self.base


class Stuck:
    """A switch that could not be put back when a scope was left.

    Attributes:
        knob: its name.
        wanted: the value it should have.
        found: the value it had then, or None when it could not be read.
        because: why.
        profile: the profile whose scope was left.
    """

    __slots__ = ("because", "found", "knob", "profile", "wanted")

    def __init__(self, knob: str, wanted: Any, found: Any, because: str, profile: str) -> None:
        self.knob = knob
        self.wanted = wanted
        self.found = found
        self.because = because
        self.profile = profile


CELLS: dict[str, Cell] = {}
STUCK: dict[str, Stuck] = {}
_THREADS: weakref.WeakSet[Thread] = weakref.WeakSet()
_local = threading.local()
_ended: list[bool] = []
deferred: deque[Claim] = deque()
"""Claims to be given back by whoever holds LOCK, when it is about to let go."""

is_changing: Callable[[], bool] = LOCK._is_owned  # type: ignore[attr-defined]
"""Whether this thread is inside a change: a setter, or the garbage collector or a signal handler
during one, may open and leave scopes."""


def this_thread() -> Thread:
    """The token of the calling thread."""
    try:
        thread: Thread = _local.thread
    except AttributeError:
        thread = _local.thread = Thread()
        _THREADS.add(thread)
    return thread


def _thread_ended(_: object) -> None:
    # Runs wherever the last reference to the token went, so it may not touch the table.
    _ended.append(True)


def cell_of(knob: Knob) -> Cell:
    """The cell of a switch for the calling thread, made when it is first seen."""
    name = knob.name
    cell = CELLS.get(name)
    if cell is None:
        cell = CELLS[name] = Cell(knob)
    if cell.by_thread:
        thread = this_thread()
        own = thread.cells.get(name)
        if own is None:
            own = thread.cells[name] = Cell(knob, thread)
        return own
    return cell


def take(claim: Claim, settings: Sequence[Setting], ancestors: tuple[object, ...]) -> list[Held]:
    """Lay claims on every switch of `settings`, or on none. The caller holds LOCK.

    Returns:
        The claims of others that are in the way; nothing was changed when there are any.

    Raises:
        RolledBackError, RollbackIncompleteError: a switch could not be set.
    """
    if _ended:
        _drop_the_dead()
    plan: list[tuple[Cell, Setting]] = []
    blocked: list[Held] = []
    for setting in settings:
        cell = cell_of(setting.knob)
        if not cell.eligible:
            continue
        plan.append((cell, setting))
        if cell.claims:
            blocked += [
                held
                for held in cell.claims
                if held.wanted != setting.wanted and held.claim not in ancestors
            ]
    if not blocked:
        _write(claim, plan)
    return blocked


def _write(claim: Claim, plan: list[tuple[Cell, Setting]]) -> None:
    begun: list[tuple[int, Any]] = []
    try:
        for at, (cell, setting) in enumerate(plan):
            knob, wanted = setting.knob, setting.wanted
            if cell.claims:
                before = cell.claims[-1].wanted
            else:
                cell.knob = knob
                before = knob.read()
                if not cell.known:
                    cell.base = before
            if before != wanted:
                begun.append((at, before))
                knob.write(wanted)
                if (found := knob.read()) != wanted:
                    _refuse_reading(wanted, found)
            held = Held(cell, claim, wanted)
            claim.held.append(held)
            cell.claims.append(held)
    except BaseException as cause:
        _undo(claim, plan, begun, cause)


def _refuse_reading(wanted: Any, found: Any) -> NoReturn:
    from backendcfg.transact.journal import ReadBackError
    from backendcfg.transact.wording import shown

    raise ReadBackError(f"wrote {shown(wanted)}, read back {shown(found)}")


def _undo(
    claim: Claim,
    plan: list[tuple[Cell, Setting]],
    begun: list[tuple[int, Any]],
    cause: BaseException,
) -> NoReturn:
    """Put back what an entry had begun, and raise what there is to say.

    Args:
        claim: the entry.
        plan: everything that it was to set.
        begun: index into `plan` and value before, of what it began to write.
        cause: what stopped it.
    """
    from backendcfg.errors import RollbackIncompleteError
    from backendcfg.transact import journal
    from backendcfg.transact.interrupts import Deferral

    with Deferral(graver=RollbackIncompleteError):
        laid = len(claim.held)
        for held in reversed(claim.held):
            _forget(held)
        claim.held.clear()
        done = [journal.Step(plan[at][1], before) for at, before in begun]
        for step, (at, _) in zip(done, begun, strict=True):
            step.written = at < laid
        rest = plan[max(laid, begun[-1][0] + 1 if begun else 0) :]
        planned = done + [
            journal.Step(setting, cell.now())
            for cell, setting in rest
            if cell.now() != setting.wanted
        ]
        profile = claim.prepared.name
        try:
            journal.roll_back(planned, done, cause, profile=profile, deed="entering")
        except RollbackIncompleteError:
            for step, (at, _) in zip(done, begun, strict=True):
                if step.stuck:
                    _note_stuck(plan[at][0], step.before, None, step.stuck, profile)
            raise


def _forget(held: Held) -> None:
    claims = held.cell.claims
    for at in range(len(claims) - 1, -1, -1):
        if claims[at] is held:
            del claims[at]
            return


def give_back(claim: Claim) -> None:
    """Drop the claims of an entry and restore what they covered. The caller holds LOCK.

    Never raises for a switch that cannot be restored: that is logged and kept in STUCK. After an
    interrupt it can be called again and goes on where it was.
    """
    while claim.held:
        held = claim.held[-1]
        _restore(held)
        _forget(held)
        claim.held.pop()


def _restore(held: Held) -> None:
    """Make the value in force what it is without this claim."""
    cell = held.cell
    claims = cell.claims
    if not claims or claims[-1] is not held:
        return  # another claim is in force and stays so
    last = len(claims) == 1
    target = cell.base if last else claims[-2].wanted
    if cell.thread is not None and cell.thread() is not this_thread():
        if cell.thread() is not None and held.wanted != target:
            because = "its scope was left in another thread, which cannot set it"
            _note_stuck(cell, target, held.wanted, because, held.claim.prepared.name)
        return
    set_to(cell, target, held.wanted, held.claim.prepared.name, check=last)


def set_to(cell: Cell, target: Any, believed: Any, profile: str, *, check: bool) -> None:
    """Bring a switch to `target` and read it back; what fails is logged and kept in STUCK."""
    knob = cell.knob
    try:
        if target != believed:
            knob.write(target)
        elif not check:
            return
        found = knob.read()
        if found != target:
            knob.write(target)
            found = knob.read()
    except Exception as error:
        from backendcfg.transact.wording import reason

        _note_stuck(cell, target, None, reason(error), profile)
        return
    if found != target:
        from backendcfg.transact.wording import shown

        because = f"wrote {shown(target)}, read back {shown(found)}"
        _note_stuck(cell, target, found, because, profile)
    elif STUCK and knob.name in STUCK:
        del STUCK[knob.name]


def _note_stuck(cell: Cell, wanted: Any, found: Any, because: str, profile: str) -> None:
    STUCK[cell.knob.name] = Stuck(cell.knob.name, wanted, found, because, profile)
    cell.known = True  # what it holds now is not its base
    log.error(
        "leaving a scope of profile %s: %s could not be restored to %r: %s",
        profile,
        cell.knob.name,
        wanted,
        because,
    )


def _drop_the_dead() -> None:
    """Drop the claims of threads that ended inside a scope."""
    _ended.clear()
    for cell in CELLS.values():
        _keep(cell, lambda held: held.claim.thread() is not None)


def _keep(cell: Cell, stays: Any) -> None:
    """Keep only some claims of a cell; the value in force follows."""
    if all(map(stays, cell.claims)):
        return
    believed = cell.now()
    dropped = [held for held in cell.claims if not stays(held)]
    cell.claims[:] = [held for held in cell.claims if stays(held)]
    for held in dropped:
        if held in held.claim.held:
            held.claim.held.remove(held)
    set_to(cell, cell.now(), believed, dropped[-1].claim.prepared.name, check=not cell.claims)


def _after_fork() -> None:
    """In the child: other threads are gone, and with them their claims."""
    deferred.clear()
    LOCK.release()
    with LOCK:
        here = this_thread()
        for cell in CELLS.values():
            _keep(cell, lambda held: held.claim.thread() is here)


os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_after_fork)
