"""What an entry does when another scope holds a switch: raise, wait or skip.

A thread that waits blocks; a task is suspended.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, get_ident

from backendcfg.errors import InvalidArgumentError, ProfileBusyError
from backendcfg.registry.owners import LOCK
from backendcfg.transact.outcome import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from _thread import LockType
    from typing import Any

    from backendcfg.registry.owners import Claim, HeldSwitch


RAISE, WAIT, SKIP = 0, 1, 2
BUSY = {"raise": RAISE, "wait": WAIT, "skip": SKIP}
"""The words that callers give for them."""


class NotYet(Exception):
    """A task's entry is blocked; its waiter is woken when something is given back."""


class Waiter:
    """One entry that waits.

    Attributes:
        ancestors: the claims of the scopes around it, which it keeps while it waits.
        blockers: the claims that it waits for.
        ident: the thread that is blocked by waiting, or None for a task.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.ancestors: tuple[object, ...] = ()
        self.blockers: set[Claim] = set()
        self.ident = None if loop else get_ident()
        self._gate: LockType | None = None
        self._loop = loop
        self._future: asyncio.Future[None] | None = loop.create_future() if loop else None

    def register(self, ancestors: tuple[object, ...], blocked: list[HeldSwitch]) -> None:
        """Wait for these claims. The caller holds LOCK.

        Raises:
            Deadlock: none of them can be given back before this one is.
        """
        self.ancestors = ancestors
        self.blockers = {held.claim for held in blocked}
        if _would_never_end(self):
            raise Deadlock
        WAITERS.add(self)

    def wait(self) -> None:
        """Block this thread until something is given back. The caller holds LOCK, once."""
        gate = self._gate = allocate_lock()
        gate.acquire()
        LOCK.release()
        try:
            gate.acquire()  # until `wake` opens it
        finally:
            LOCK.acquire()

    async def wait_in_task(self) -> None:
        """Suspend this task until something is given back."""
        if self._future is not None:
            await self._future

    def wake(self) -> None:
        """Let it look again; from any thread, which holds LOCK."""
        from contextlib import suppress

        if self._gate is not None:
            with suppress(RuntimeError):  # an interrupt came after it was opened, just here
                self._gate.release()
            self._gate = None
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop was closed under it
                self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Deadlock(Exception):
    """Waiting would never end."""


WAITERS: set[Waiter] = set()


def forget(waiter: Waiter) -> None:
    """It waits no longer."""
    with LOCK:
        WAITERS.discard(waiter)


def wake_all() -> None:
    """Something was given back. The caller holds LOCK."""
    for waiter in tuple(WAITERS):
        waiter.wake()


def _would_never_end(waiter: Waiter) -> bool:
    """Whether every way out of this wait leads through this wait.

    A claim is stalled when its thread is blocked, or when the context that holds it waits itself.
    """
    pending: list[Claim] = list(waiter.blockers)
    seen: set[Any] = set()
    while pending:
        claim = pending.pop()
        if claim in seen:
            continue
        seen.add(claim)
        if claim in waiter.ancestors or (waiter.ident is not None and claim.ident == waiter.ident):
            return True
        for other in WAITERS:
            if other is not waiter and (claim in other.ancestors or claim.ident == other.ident):
                pending.extend(other.blockers)
    return False


def refuse_unknown(busy: object) -> None:
    """Refuse what is no word of `BUSY`, of whatever type.

    Raises:
        InvalidArgumentError: it is none.
    """
    if isinstance(busy, str) and busy in BUSY:
        return
    raise InvalidArgumentError(
        f'`busy` must be "raise", "wait" or "skip", not {busy!r}',
        helps=['leave it out to get "raise"'],
    )


def refusal(
    claim: Claim, wanted: dict[str, object], blocked: list[HeldSwitch], *, deadlock: bool = False
) -> ProfileBusyError:
    """The error for an entry that these claims are in the way of.

    Args:
        claim: the entry.
        wanted: what it wants, by switch name.
        blocked: the claims in the way.
        deadlock: whether the entry would have waited, and would have waited forever.
    """
    name = claim.prepared.name
    first = blocked[0]
    switch = first.cell.switch.name
    notes = list(
        dict.fromkeys(
            f"`{held.cell.switch.name}` is held at {shown(held.wanted)} by profile"
            f" `{held.claim.prepared.name}`, opened in {thread_name(held.claim.ident)};"
            f" `{name}` wants {shown(wanted.get(held.cell.switch.name))}"
            for held in blocked
        )
    )
    helps = ["let the other scope end first, or use one profile in both places"]
    if deadlock:
        notes.append("waiting would never end: that scope cannot be left before this call returns")
        helps.append(f'in a coroutine, use `async with profile("{name}", busy="wait")`')
    else:
        helps.append(f'`profile("{name}", busy="wait")` waits until it is free')
    helps.append(
        f'`profile("{name}", busy="skip")` leaves process-wide switches alone, and sets only what'
        " is per context"
    )
    return ProfileBusyError(
        f"profile `{name}` wants `{switch}` at {shown(wanted.get(switch))}, which profile"
        f" `{first.claim.prepared.name}` holds at {shown(first.wanted)}",
        notes=notes,
        state=f"profile `{name}` was not entered; nothing was changed",
        helps=helps,
    )


def thread_name(ident: int) -> str:
    """A thread as people know it."""
    import threading

    for thread in threading.enumerate():
        if thread.ident == ident:
            return f"thread `{thread.name}`"
    return f"thread {ident}"


os.register_at_fork(after_in_child=WAITERS.clear)
