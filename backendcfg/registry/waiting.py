"""Entries that wait for a switch that another scope holds: threads block, tasks do not."""

from __future__ import annotations

import os
import threading

from backendcfg.registry.owners import LOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from backendcfg.registry.owners import Claim, Held


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
        self.ident = None if loop else threading.get_ident()
        self._loop = loop
        self._future: asyncio.Future[None] | None = loop.create_future() if loop else None

    def register(self, ancestors: tuple[object, ...], blocked: list[Held]) -> None:
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
        _given_back.wait()

    async def wait_in_task(self) -> None:
        """Suspend this task until something is given back."""
        if self._future is not None:
            await self._future

    def wake(self) -> None:
        """Let it look again; from any thread."""
        if self._loop is not None:
            from contextlib import suppress

            with suppress(RuntimeError):  # its loop was closed under it
                self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Deadlock(Exception):
    """Waiting would never end."""


WAITERS: set[Waiter] = set()
_given_back = threading.Condition(LOCK)


def forget(waiter: Waiter) -> None:
    """It waits no longer."""
    with LOCK:
        WAITERS.discard(waiter)


def wake_all() -> None:
    """Something was given back. The caller holds LOCK."""
    _given_back.notify_all()
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


def _after_fork() -> None:
    global _given_back
    WAITERS.clear()
    _given_back = threading.Condition(LOCK)


os.register_at_fork(after_in_child=_after_fork)
