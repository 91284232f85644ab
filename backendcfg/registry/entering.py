"""What entering and leaving a scope does to the switches of other libraries.

The compiled part calls these functions, which `session.wiring` gives to it, and only for profiles
that have switches to set. `prepared.switches` is a function that returns the settings for what is
loaded in the process now. Environment variables, and switches that can only be set before something
happens, are passed over: scopes never write them.

`busy="skip"` enters without touching any switch when one is held; what our own operations read is
per context and in force all the same.
"""

from __future__ import annotations

from _thread import _local as local

from backendcfg import _native, log
from backendcfg.errors import BackendCfgError, ProfileBusyError
from backendcfg.records import record
from backendcfg.registry import busy, owners, restoring
from backendcfg.registry.busy import RAISE, SKIP, WAIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any, NoReturn

    from backendcfg._native import Prepared, Scope
    from backendcfg.registry.owners import Cell, Claim, HeldSwitch
    from backendcfg.registry.restoring import Stuck
    from backendcfg.transact.switch import Setting

_local = local()


def enter_switches(prepared: Prepared, scope: Scope, ancestors: tuple[object, ...]) -> Claim:
    """Set every switch that the profile sets, or none.

    Args:
        prepared: the profile.
        scope: the scope object that is entered.
        ancestors: the claims of the scopes around it in this context.

    Returns:
        The claim, to be given to `leave_switches`.

    Raises:
        ProfileBusyError: another scope holds a switch at another value.
        RolledBackError, RollbackIncompleteError: a switch could not be set.
    """
    settings = prepared.switches()
    claim = owners.Claim(prepared, scope)
    if not settings:
        return claim
    try:
        if owners.is_changing():
            _refuse_inside(prepared.name)
        with owners.LOCK:
            blocked = owners.take(claim, settings, ancestors)
        if blocked:
            _when_busy(claim, settings, ancestors, scope.busy)
        if owners.deferred:
            give_back_deferred()
    except BaseException:
        # An interrupt may have come after the claims were laid.
        leave_switches(None, None, claim)
        raise
    return claim


def _refuse_inside(name: str) -> NoReturn:
    raise ProfileBusyError(
        f"a scope of profile `{name}` was opened while this thread was setting a process-wide"
        " switch",
        helps=["open it before or after the other scope is entered or left"],
    )


def _when_busy(
    claim: Claim, settings: Sequence[Setting], ancestors: tuple[object, ...], choice: int
) -> None:
    """Enter as `busy`, one of its words, says."""
    if choice == SKIP:
        with owners.LOCK:
            if owners.take(claim, settings, ancestors):
                log.info("profile %s: switches that others hold are left", claim.prepared.name)
        return
    waiter: busy.Waiter | None = getattr(_local, "waiter", None)
    in_task = waiter is not None
    if waiter is None:
        waiter = busy.Waiter()
    with owners.LOCK:
        try:
            while blocked := owners.take(claim, settings, ancestors):
                if choice == RAISE:
                    raise _refusal(claim, settings, blocked)
                try:
                    waiter.register(ancestors, blocked)
                except busy.Deadlock:
                    raise _refusal(claim, settings, blocked, deadlock=True) from None
                if in_task:
                    raise busy.NotYet
                waiter.wait()
        finally:
            if not in_task:
                busy.forget(waiter)


def _refusal(
    claim: Claim, settings: Sequence[Setting], blocked: list[HeldSwitch], *, deadlock: bool = False
) -> ProfileBusyError:
    wanted = {setting.switch.name: setting.wanted for setting in settings}
    return busy.refusal(claim, wanted, blocked, deadlock=deadlock)


def leave_switches(prepared: Prepared | None, scope: Scope | None, claim: Claim) -> None:
    """Give back what an entry held, to the end, also when interrupted.

    A switch that cannot be restored is logged and kept in `stuck()`. More than one call for
    a claim does no harm.

    Raises:
        KeyboardInterrupt, SystemExit: after everything was given back. The compiled part calls
            again when the interrupt came before the first line.
    """
    interrupt: BaseException | None = None
    # Those who wait are still to be woken where an interrupt came after all was given back.
    owes = bool(claim.held)
    while claim.held or (owes and busy.WAITERS):
        try:
            if owners.is_changing():
                owners.deferred.append(claim)
                break
            with owners.LOCK:
                owners.give_back(claim)
                if busy.WAITERS:
                    busy.wake_all()
                owes = False
        except Exception as error:
            log.error("leaving a scope of profile %s: %r", claim.prepared.name, error)
            break
        except BaseException as error:
            interrupt = error
    if owners.deferred:
        give_back_deferred()
    if interrupt is not None:
        raise interrupt


def give_back_deferred() -> None:
    """Leave the scopes that were left while this thread was inside a change."""
    while owners.deferred and not owners.is_changing():
        leave_switches(None, None, owners.deferred.pop(0))


def misplaced(scope: Scope) -> None:
    """A scope was left that is not open in this context."""
    log.error(
        "a scope of profile %s was left where it is not open: a second time, or in another thread"
        " or task than the one that entered it",
        scope.prepared.name,
    )


async def enter_in_task(scope: Scope) -> Scope:
    """Enter a scope without blocking the event loop while it is busy."""
    if scope.busy != WAIT or scope.prepared.switches is None:
        scope.__enter__()
    else:
        await when_free(scope.__enter__)
    return scope


async def when_free(enter: Any) -> Any:
    """What `enter()` returns once nothing is in its way."""
    import asyncio

    loop = asyncio.get_running_loop()
    while True:
        waiter = _local.waiter = busy.Waiter(loop)
        try:
            try:
                return enter()
            except busy.NotYet:
                pass
            finally:
                _local.waiter = None
            await waiter.wait_in_task()
        finally:
            busy.forget(waiter)


async def leave_in_task(
    scope: Scope,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Leave a scope; there is nothing to wait for."""
    scope.__exit__(kind, error, trace)


def suspend(depth: int) -> None:
    """Give back the switches of this context's scopes, except the outermost `depth` of them."""
    claims: tuple[Claim, ...] = _native.claims()
    for claim in claims[: len(claims) - depth]:
        leave_switches(None, None, claim)


def resume(depth: int, around: tuple[object, ...], busy: int | None = None) -> None:
    """Take back what `suspend` gave, all or none.

    Args:
        depth: as for `suspend`.
        around: the claims of whoever runs this context for a while.
        busy: what to do when a switch is taken; None does as each scope says.

    Raises:
        ProfileBusyError: somebody else took a switch meanwhile.
    """
    claims: tuple[Claim, ...] = _native.claims()
    try:
        for at in range(len(claims) - depth - 1, -1, -1):
            claim = claims[at]
            if claim.held:
                continue
            claim.tie()
            ancestors = (*claims[at + 1 :], *around)
            settings = claim.prepared.switches()
            with owners.LOCK:
                blocked = owners.take(claim, settings, ancestors)
            if blocked:
                _when_busy(claim, settings, ancestors, claim.scope.busy if busy is None else busy)
    except BaseException:
        suspend(depth)
        raise


def extend() -> None:
    """Set what a library that was just loaded has, for the scopes open in this context."""
    if owners.is_changing():
        return  # a setter imports something
    claims: tuple[Claim, ...] = _native.claims()
    for at in range(len(claims) - 1, -1, -1):
        claim = claims[at]
        have = {line[0].switch.name for line in claim.held}
        settings = [s for s in claim.prepared.switches() if s.switch.name not in have]
        try:
            with owners.LOCK:
                blocked = owners.take(claim, settings, claims[at + 1 :]) if settings else []
            if blocked:
                log.error("%s", _refusal(claim, settings, blocked))
        except BackendCfgError as error:  # the program's import goes on
            log.error("%s", error.render())


@record(frozen=True)
class Holder:
    """One open scope that holds a switch: its profile, the thread that opened it, the value."""

    profile: str
    thread: str
    wanted: Any


@record(frozen=True)
class Holding:
    """One switch that open scopes hold.

    Attributes:
        switch: its name.
        now: the value in force.
        base: the value that it returns to.
        holders: the scopes, in the order in which they were entered; the last decides.
    """

    switch: str
    now: Any
    base: Any
    holders: tuple[Holder, ...]


def holdings() -> tuple[Holding, ...]:
    """Every switch that an open scope holds; of per-thread switches the calling thread's."""
    with owners.LOCK:
        cells = [*owners.CELLS.values(), *owners.this_thread().cells.values()]
        found = tuple(_holding(cell) for cell in cells if cell.claims)
    give_back_deferred()
    return found


def _holding(cell: Cell) -> Holding:
    return Holding(
        cell.switch.name,
        cell.now(),
        cell.base,
        tuple(
            Holder(held.claim.prepared.name, busy.thread_name(held.claim.ident), held.wanted)
            for held in cell.holders()
        ),
    )


def stuck() -> tuple[Stuck, ...]:
    """Switches that could not be put back when a scope was left, and have not been since."""
    with owners.LOCK:
        return tuple(restoring.STUCK.values())
