"""The base: what is in force where no scope is open. `apply` changes it, all or none.

A switch that an open scope holds is not touched: its base is changed in the owner table, and it
gets there when the scope ends. What an earlier apply set and this one does not is returned to what
it was before the first, or would be: see `originals.py`.
"""

from __future__ import annotations

from backendcfg import _native
from backendcfg.records import replace
from backendcfg.registry import originals, owners, scopes
from backendcfg.registry.originals import Applied
from backendcfg.transact.journal import foresee, transact
from backendcfg.transact.switch import AnytimeSwitch, Reach, Setting, told
from backendcfg.transact.wording import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from backendcfg._native import Prepared
    from backendcfg.transact.outcome import Outcome
    from backendcfg.transact.protocol import Switch


class CoveredSwitch(AnytimeSwitch):
    """The base value of a switch that open scopes hold, as the journal sees it."""

    def __init__(self, cell: owners.Cell, switch: Switch) -> None:
        self.cell = cell
        self.switch = switch
        self.name = switch.name
        self.reach: Reach = switch.reach

    def read(self) -> Any:
        """The base."""
        return self.cell.base

    def write(self, value: Any) -> None:
        """Change the base; the switch follows when the last scope ends."""
        self.cell.base = value

    def unsupported(self) -> str:
        """Why the library cannot take the value wanted, or ""."""
        return told(self.switch, "unsupported")


_applied: dict[str, Applied] = {}


def set_base(
    prepared: Prepared | None,
    settings: Sequence[Setting],
    *,
    strict: bool = False,
    active: str = "",
) -> tuple[Outcome, ...]:
    """Make a profile the base of this process: every setting and the profile itself, or nothing.

    Switches whose reach is a thread are set for the calling thread.

    Args:
        prepared: the profile, or None for none.
        settings: what it sets in other libraries, in the order of writing.
        strict: refuse what is too late, instead of reporting it as pending.
        active: the profile in force before the call, for messages.

    Returns:
        One outcome per setting, then one per switch that an earlier apply had set and that was
        returned to its original value; irreversible where something of it stays.

    Raises:
        UnreadableSwitchError, TooLateError, RolledBackError, RollbackIncompleteError: as
            `transact`.
    """
    # What cannot take its new value must not keep the one of the profile before.
    names = {one.switch.name for one in settings if not told(one.switch, "unsupported")}
    # Before the lock is taken, because a library may have to be asked in a child process.
    gone = originals.returns(
        entry
        for name, entry in applied().items()
        if name not in names and entry.setting.switch.reversible
    )
    with owners.LOCK:
        dropped = [each.setting for each in gone if not each.stays]
        name = prepared.name if prepared is not None else ""
        outcomes = _apply(
            [*settings, *dropped],
            lambda: _native.set_base(prepared),
            forgotten=gone,
            profile=name,
            active=active,
            strict=strict,
        )
        given_back = originals.with_what_lasts(dropped, outcomes[len(settings) :])
        stay = [each.told for each in gone if each.stays]
        outcomes = (*outcomes[: len(settings)], *given_back, *stay)
    scopes.give_back_deferred()
    return outcomes


def extend_base(settings: Sequence[Setting], *, profile: str = "") -> tuple[Outcome, ...]:
    """Set what a library that was just loaded has, beside what the base already set.

    Raises:
        UnreadableSwitchError, RolledBackError, RollbackIncompleteError: as `transact`; only these
            settings are undone.
    """
    with owners.LOCK:
        return _apply(settings, lambda: None, profile=profile, active=profile)


def applied() -> dict[str, Applied]:
    """What `apply` has set in this process, by switch name."""
    with owners.LOCK:
        return dict(_applied)


def _apply(
    settings: Sequence[Setting],
    publish: Callable[[], None],
    *,
    profile: str,
    active: str,
    forgotten: Sequence[originals.Return] = (),
    strict: bool = False,
) -> tuple[Outcome, ...]:
    covered = [_covered(setting) for setting in settings]
    taken = [originals.taken(setting, _applied) for setting in settings]
    foreseen = foresee(covered)

    def publish_and_record() -> None:
        # Together: a signal that comes later must find the table as the switches are.
        publish()
        for setting, outcome, read in zip(settings, foreseen, taken, strict=True):
            if outcome.state not in ("pending", "unsupported"):
                _record(setting, outcome.before, read)
        for each in forgotten:
            switch = each.entry.setting.switch
            del _applied[switch.name]
            owners.cell_of(switch).known = False
            originals.note_left(each)

    outcomes = transact(covered, publish_and_record, profile=profile, active=active, strict=strict)
    return tuple(_explained(covered, outcomes))


def _record(setting: Setting, before: Any, taken: Mapping[str, Any]) -> None:
    name = setting.switch.name
    known = _applied.get(name)
    _applied[name] = replace(known, setting=setting) if known else Applied(setting, before, taken)
    cell = owners.cell_of(setting.switch)
    if cell.eligible:
        cell.base, cell.known = setting.wanted, True


def _covered(setting: Setting) -> Setting:
    cell = owners.cell_of(setting.switch)
    if not cell.claims:
        return setting
    return replace(setting, switch=CoveredSwitch(cell, setting.switch))


def _explained(settings: Iterable[Setting], outcomes: Iterable[Outcome]) -> Iterable[Outcome]:
    for setting, outcome in zip(settings, outcomes, strict=True):
        switch = setting.switch
        if isinstance(switch, CoveredSwitch) and outcome.state == "set":
            held = switch.cell.holders()[-1]
            yield replace(
                outcome,
                because=f"a scope of profile `{held.claim.prepared.name}` holds it at"
                f" {shown(held.wanted)} until it ends",
            )
        else:
            yield outcome
