"""Putting switches back: when a scope is left, and when entering one has failed.

Leaving never raises for a switch that cannot be restored: that is logged and kept in `STUCK`.
"""

from __future__ import annotations

from backendcfg import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from backendcfg.registry.owners import Cell, Claim, Line


class Stuck:
    """A switch that could not be put back when a scope was left.

    Attributes:
        switch: its name.
        wanted: the value it should have.
        found: the value it had then, or None when it could not be read.
        because: why.
        profile: the profile whose scope was left.
    """

    __slots__ = ("because", "found", "profile", "switch", "wanted")

    def __init__(self, switch: str, wanted: Any, found: Any, because: str, profile: str) -> None:
        self.switch = switch
        self.wanted = wanted
        self.found = found
        self.because = because
        self.profile = profile


STUCK: dict[str, Stuck] = {}


def set_to(cell: Cell, target: Any, believed: Any, profile: str, *, check: bool) -> None:
    """Bring a switch to `target` and read it back; what fails is logged and kept in STUCK."""
    switch = cell.switch
    try:
        if target != believed:
            switch.write(target)
        elif not check:
            return
        if switch.read() != target:
            write_again(cell, target, profile)
        elif STUCK:
            STUCK.pop(switch.name, None)
    except Exception as error:
        note_failed(cell, target, error, profile)


def write_again(cell: Cell, target: Any, profile: str) -> None:
    """Write a switch once more that does not hold what it should; raises what the switch does."""
    cell.switch.write(target)
    if (found := cell.switch.read()) != target:
        from backendcfg.transact.outcome import shown

        because = f"wrote {shown(target)}, read back {shown(found)}"
        note_stuck(cell, target, found, because, profile)
    else:
        STUCK.pop(cell.switch.name, None)


def note_failed(cell: Cell, wanted: Any, error: Exception, profile: str) -> None:
    """A switch raised when it was to be put back."""
    from backendcfg.transact.outcome import reason

    note_stuck(cell, wanted, None, reason(error), profile)


def note_stuck(cell: Cell, wanted: Any, found: Any, because: str, profile: str) -> None:
    """Log that a switch could not be put back, and remember it."""
    STUCK[cell.switch.name] = Stuck(cell.switch.name, wanted, found, because, profile)
    cell.known = True  # what it holds now is not its base
    log.error(
        "leaving a scope of profile %s: %s could not be restored to %r: %s",
        profile,
        cell.switch.name,
        wanted,
        because,
    )


def refuse_reading(wanted: Any, found: Any) -> NoReturn:
    """Raise because a switch does not hold what was just written."""
    from backendcfg.transact.journal import ReadBackError
    from backendcfg.transact.outcome import shown

    raise ReadBackError(f"wrote {shown(wanted)}, read back {shown(found)}")


def undo(
    claim: Claim,
    first: int,
    lines: list[Line],
    begun: list[tuple[Line, Any]],
    cause: BaseException,
) -> NoReturn:
    """Put back what an entry had begun, and raise what there is to say.

    Args:
        claim: the entry.
        first: how many cells it held before.
        lines: everything that it was to set.
        begun: the lines that it began to write, with the values before.
        cause: what stopped it.

    Raises:
        RolledBackError, RollbackIncompleteError, BaseException: as `journal.roll_back`.
    """
    from backendcfg.errors import RollbackIncompleteError
    from backendcfg.transact import journal
    from backendcfg.transact.interrupts import Deferral

    with Deferral(graver=RollbackIncompleteError):
        mine = claim.held[first:]
        for line in reversed(mine):
            line[0].claims.pop(claim, None)
        del claim.held[first:]
        places = {id(line): at for at, line in enumerate(lines)}
        done = [journal.Step(line[4], before) for line, before in begun]
        for step, (line, _) in zip(done, begun, strict=True):
            step.written = places[id(line)] < len(mine)
        rest = lines[max(len(mine), places[id(begun[-1][0])] + 1 if begun else 0) :]
        now = [c.now() if c.claims else journal.reading(read)[0] for c, _, read, _, _ in rest]
        planned = done + [
            journal.Step(line[4], value)
            for line, value in zip(rest, now, strict=True)
            if value != line[1]
        ]
        profile = claim.prepared.name
        try:
            journal.roll_back(planned, done, cause, profile=profile, deed="entering")
        except RollbackIncompleteError:
            for step, (line, _) in zip(done, begun, strict=True):
                if step.stuck:
                    if not (line[0].claims or line[0].known):
                        line[0].base = step.before
                    note_stuck(line[0], step.before, None, step.stuck, profile)
            raise
