"""What is said when another scope holds a switch, or `busy` is no word for what to do then."""

from __future__ import annotations

import threading

from backendcfg.errors import InvalidArgumentError, ProfileBusyError
from backendcfg.registry.scopes import BUSY
from backendcfg.transact.wording import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backendcfg.registry.owners import Claim, Held


def refuse_unknown(busy: object) -> None:
    """Refuse what is no word of `scopes.BUSY`, of whatever type.

    Raises:
        InvalidArgumentError: it is none.
    """
    if isinstance(busy, str) and busy in BUSY:
        return
    raise InvalidArgumentError(
        f'`busy` must be "raise", "wait" or "skip", not {busy!r}',
        helps=['leave it out to get "raise"'],
    )


def error(
    claim: Claim, wanted: dict[str, object], blocked: list[Held], *, deadlock: bool = False
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
    for thread in threading.enumerate():
        if thread.ident == ident:
            return f"thread `{thread.name}`"
    return f"thread {ident}"
