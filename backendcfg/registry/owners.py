"""The owner table: who holds each process-wide or per-thread switch, and at which value.

A scope lays one claim on every switch that it sets. The value in force is the last claim's; without
a claim it is the base. A new claim is allowed when every claim already there wants the same value
or belongs to a scope around the new one in the same context. So scopes that agree share, scopes
that nest override, and scopes that would fight do not get in.

A scope does not save the value that it finds and restore it: the base is the value that `apply`
set, or else the one that the switch had while no scope claimed it. The setter is called only when
the value in force changes.

Most scopes come and go while no other is open, or change nothing because every switch holds what
they want. Their claims are kept apart, in `_unnoted`, and C goes through their switches. The cells
get such a claim when somebody reads a cell's claims or base, or another scope comes. Whatever a
scope changes, it reads every switch when it is entered and when it is left.

Claims are tied weakly to the thread that laid them: those of a thread that has ended are dropped
when the table is next used. A forked child keeps the claims of the thread that forked.
"""

from __future__ import annotations

import os
from _thread import _local as local
from _thread import get_ident
from _weakref import ref

from backendcfg._native import CellFields, enter_lines, leave_lines
from backendcfg.locks import OWNERS
from backendcfg.registry import restoring
from backendcfg.registry.restoring import STUCK
from backendcfg.transact.switch import ANYTIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from backendcfg._native import Prepared, Scope
    from backendcfg.transact.protocol import Switch
    from backendcfg.transact.switch import Setting

    Unnoted = tuple["Wanted", list[Any]]
    """What a claim wants, and what each switch held before; [] where that is what it wants."""
    Line = tuple["Cell", Any, Callable[[], Any], Callable[[Any], None], Setting]
    """A setting that scopes may write: its cell, the value, how to read and write it."""

LOCK = OWNERS
"""Made in `locks`, because a fork waits for it even while this module is loaded."""


class Thread:
    """Lives as long as the thread that made it, which alone has it."""

    __slots__ = ("__weakref__", "cells", "ident", "lines", "reference", "wanted")

    def __init__(self) -> None:
        self.wanted: Wanted | None = None
        self.lines: list[Line] = []
        self.ident = get_ident()
        # Shared by all claims of the thread, which keep it alive for its callback.
        self.reference = ref(self, _thread_ended)
        self.cells: dict[str, Cell] = {}


class Claim:
    """What one entry into a scope holds.

    Attributes:
        prepared: the profile.
        scope: the scope object, which may be entered many times.
        thread: the thread that entered.
        held: what it claims, in the order in which it was set.
    """

    __slots__ = ("held", "ident", "prepared", "scope", "thread")

    def __init__(self, prepared: Prepared, scope: Scope) -> None:
        self.prepared = prepared
        self.scope = scope
        self.held: list[Line] = []
        try:
            thread: Thread = _local.thread
        except AttributeError:
            thread = this_thread()
        self.thread = thread.reference
        self.ident = thread.ident

    def tie(self) -> None:
        """Make the calling thread the one whose end drops the claims."""
        thread = this_thread()
        self.thread = thread.reference
        self.ident = thread.ident


class HeldSwitch:
    """One claim on one cell, for messages: the table itself makes no such objects."""

    __slots__ = ("cell", "claim", "wanted")

    def __init__(self, cell: Cell, claim: Claim, wanted: Any) -> None:
        self.cell = cell
        self.claim = claim
        self.wanted = wanted


class Cell(CellFields):
    """One switch, in one thread if that is its reach.

    Attributes:
        switch: the switch.
        eligible: whether scopes may set it: at any time, and put it back.
        by_thread: whether each thread has a value of its own.
        known: whether `base` was recorded and must not be read again: apply set it, or what it
            should be could not be restored.
        _claims: the values wanted, in the order in which they were claimed; the last is in force.
        thread: whose value it is, None for the process.
    """

    __slots__ = ("by_thread", "eligible", "switch", "thread")

    def __init__(self, switch: Switch, thread: Thread | None = None) -> None:
        self.switch = switch
        self.by_thread = switch.reach == "thread"
        self.eligible = (
            switch.latch in ANYTIME
            and switch.reach != "call"
            and switch.reversible
            and not switch.too_late()
        )
        self._base: Any = None
        self.known = False
        self._claims: dict[Claim, Any] = {}
        self.thread = thread.reference if thread is not None else None

    @property
    def claims(self) -> dict[Claim, Any]:
        """The values wanted. The caller holds LOCK."""
        if _unnoted:
            _note_claims()
        return self._claims

    @property
    def base(self) -> Any:
        """Its value while nobody claims it. The caller holds LOCK."""
        if _unnoted:
            _note_claims()
        return self._base

    @base.setter
    def base(self, value: Any) -> None:
        self._base = value

    def now(self) -> Any:
        """The value in force, as far as the table knows."""
        return next(reversed(self.claims.values())) if self.claims else self.base

    def holders(self) -> tuple[HeldSwitch, ...]:
        """The claims, in their order."""
        return tuple(HeldSwitch(self, claim, wanted) for claim, wanted in self.claims.items())


class Wanted(list["Setting"]):
    """The settings of a profile that is entered again and again: their cells are looked up once.

    Attributes:
        lines: those that scopes may write, each with its cell; None until somebody enters.
        by_thread: whether any of these cells only stands for one in each thread.
    """

    __slots__ = ("by_thread", "lines")

    def __init__(self, settings: Iterable[Setting] = ()) -> None:
        super().__init__(settings)
        self.lines: list[Line] | None = None
        self.by_thread = False


CELLS: dict[str, Cell] = {}
_unnoted: dict[Claim, Unnoted] = {}
"""Claims that their cells do not have yet: one on switches that nobody else claims, or several of
one profile that changed nothing."""
# By ident, which the system gives again to later threads. Not a WeakSet: threads begin while
# another one looks, and a set that grows cannot be walked.
_THREADS: dict[int, ref[Thread]] = {}
_local = local()
_ended: list[bool] = []
deferred: list[Claim] = []
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
        _THREADS[thread.ident] = thread.reference
    return thread


def threads() -> tuple[Thread, ...]:
    """The tokens of every thread that has one. The caller holds LOCK."""
    found = [reference() for reference in list(_THREADS.values())]
    return tuple(thread for thread in found if thread is not None)


def _thread_ended(_: object) -> None:
    # Runs wherever the last reference to the token went, so it may not touch the table.
    _ended.append(True)


def cell_of(switch: Switch) -> Cell:
    """The cell of a switch for the calling thread, made when it is first seen."""
    cell = CELLS.get(switch.name)
    if cell is None:
        cell = CELLS[switch.name] = Cell(switch)
    return _in_this_thread(switch) if cell.by_thread else cell


def _in_this_thread(switch: Switch) -> Cell:
    """The calling thread's own cell of a switch that has a value for each thread."""
    thread = this_thread()
    own = thread.cells.get(switch.name)
    if own is None:
        own = thread.cells[switch.name] = Cell(switch, thread)
    return own


def take(
    claim: Claim, settings: Sequence[Setting], ancestors: tuple[object, ...]
) -> list[HeldSwitch]:
    """Lay claims on every switch of `settings`, or on none. The caller holds LOCK.

    Returns:
        The claims of others that are in the way; nothing was changed when there are any.

    Raises:
        RolledBackError, RollbackIncompleteError: a switch could not be set.
    """
    if _ended:
        _drop_the_dead()
    if type(settings) is not Wanted:
        settings = Wanted(settings)
    lines = settings.lines
    if lines is None:
        lines = _look_up(settings)
    if settings.by_thread:
        thread = this_thread()
        known = thread.wanted is settings
        lines = thread.lines if known else _of_this_thread(thread, settings, lines)
    if not lines:
        return []
    held = claim.held
    first = len(held)
    begun: list[tuple[Line, Any]] = []
    try:
        if first == 0:
            before_all: list[Any] = []
            if _unnoted:
                entered = _changes_nothing(settings, lines)
                if entered:
                    held += lines
            else:
                entered = enter_lines(lines, held, begun, before_all, restoring.refuse_reading)
            if entered:
                _unnoted[claim] = settings, before_all
                return []
        _note_claims()
        if blocked := _in_the_way(lines, ancestors):
            return blocked
        for line in lines:  # as C's `enter_line`, for switches that have claims
            cell, wanted, read, write, setting = line
            claims = cell._claims
            if claims:
                before = cell.now()
            else:
                cell.switch = setting.switch
                before = read()
                if not cell.known:
                    cell.base = before
            if before != wanted:
                begun.append((line, before))
                write(wanted)
                if (found := read()) != wanted:
                    restoring.refuse_reading(wanted, found)
            # In this order: `give_back` can restore what is held before it is claimed.
            held.append(line)
            claims[claim] = wanted
    except BaseException as cause:
        restoring.undo(claim, first, lines, begun, cause)
    return []


def _changes_nothing(settings: Wanted, lines: list[Line]) -> bool:
    """Whether every open scope is of this profile and changed nothing, and a new one would not."""
    for others, before in _unnoted.values():
        if others is not settings or before:
            return False
        break
    try:
        return all(read() == wanted for _, wanted, read, _, _ in lines)
    except Exception:
        return False  # `take` reads them one by one, and says which


def _note_claims() -> None:
    """Let cells know of every claim. Can be called again after an interrupt."""
    for claim, (_, before) in _unnoted.items():
        for at, (cell, wanted, _, _, setting) in enumerate(claim.held):
            if not cell._claims:
                cell.switch = setting.switch
                if not cell.known:
                    cell._base = before[at] if before else wanted
            cell._claims[claim] = wanted
    _unnoted.clear()


def _look_up(settings: Wanted) -> list[Line]:
    """Find the cells of the settings that scopes may write."""
    lines: list[Line] = []
    for setting in settings:
        switch = setting.switch
        cell = CELLS.get(switch.name)
        if cell is None:
            cell = CELLS[switch.name] = Cell(switch)
        if cell.eligible or cell.by_thread:
            lines.append((cell, setting.wanted, switch.read, switch.write, setting))
    settings.by_thread = any(line[0].by_thread for line in lines)
    settings.lines = lines
    return lines


def _of_this_thread(thread: Thread, settings: Wanted, lines: list[Line]) -> list[Line]:
    """The same with the calling thread's cells, where each thread has its own."""
    found: list[Line] = []
    for line in lines:
        if not line[0].by_thread:
            found.append(line)
        elif (own := _in_this_thread(line[4].switch)).eligible:
            found.append((own, *line[1:]))
    thread.lines, thread.wanted = found, settings
    return found


def _in_the_way(lines: list[Line], ancestors: tuple[object, ...]) -> list[HeldSwitch]:
    """The claims that want something else and do not belong to a scope around the new one."""
    return [
        HeldSwitch(cell, claim, other)
        for cell, wanted, *_ in lines
        for claim, other in cell._claims.items()
        if other != wanted and claim not in ancestors
    ]


def give_back(claim: Claim) -> None:
    """Drop the claims of an entry and restore what they covered. The caller holds LOCK.

    Never raises for a switch that cannot be restored: that is logged and kept in STUCK. After an
    interrupt it can be called again and goes on where it was.
    """
    held = claim.held
    here = this_thread().reference
    is_quick = claim in _unnoted and claim.thread is here and not STUCK
    if is_quick and leave_lines(held, _unnoted[claim][1]):
        _unnoted.pop(claim, None)
        return
    # One by one: other scopes are open, or a switch failed, or the cells got the claims meanwhile.
    _note_claims()
    while held:
        cell, wanted, read, write, _ = held[-1]
        claims = cell._claims
        thread = cell.thread
        if len(claims) == 1 and (thread is None or thread is here) and claim in claims:
            # What `_restore` would do, without the calls: for scopes that opened beside others.
            target = cell.base
            try:
                if target != wanted:
                    write(target)
                if read() != target:
                    restoring.write_again(cell, target, claim.prepared.name)
                elif STUCK:
                    STUCK.pop(cell.switch.name, None)
            except Exception as error:
                restoring.note_failed(cell, target, error, claim.prepared.name)
            del claims[claim]
        else:
            _restore(cell, claim)
            claims.pop(claim, None)
        held.pop()


def _restore(cell: Cell, claim: Claim) -> None:
    """Make the value in force what it is without this claim."""
    claims = [*cell.claims]
    if not claims or claims[-1] is not claim:
        return  # another claim is in force and stays so
    last = len(claims) == 1
    wanted = cell.claims[claim]
    target = cell.base if last else cell.claims[claims[-2]]
    profile = claim.prepared.name
    if cell.thread is not None and cell.thread() is not this_thread():
        if cell.thread() is not None and wanted != target:
            because = "its scope was left in another thread, which cannot set it"
            restoring.note_stuck(cell, target, wanted, because, profile)
        return
    restoring.set_to(cell, target, wanted, profile, check=last)


def _drop_the_dead() -> None:
    """Drop the claims of threads that ended inside a scope."""
    _ended.clear()
    for cell in CELLS.values():
        _keep(cell, lambda claim: claim.thread() is not None)


def _keep(cell: Cell, stays: Callable[[Claim], bool]) -> None:
    """Keep only some claims of a cell; the value in force follows."""
    dropped = [claim for claim in cell.claims if not stays(claim)]
    if not dropped:
        return
    believed = cell.now()
    for claim in dropped:
        del cell.claims[claim]
        claim.held[:] = [line for line in claim.held if line[0] is not cell]
    name = dropped[-1].prepared.name
    restoring.set_to(cell, cell.now(), believed, name, check=not cell.claims)


def _in_child() -> None:
    """Other threads are gone, and with them their claims."""
    deferred.clear()
    with LOCK:
        here = this_thread()
        for cell in CELLS.values():
            _keep(cell, lambda claim: claim.thread() is here)


os.register_at_fork(after_in_child=_in_child)
