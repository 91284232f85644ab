"""The base: what is in force where no scope is open. `apply` changes it, all or none.

A switch that an open scope holds is not touched: its base is changed in the owner table, and it
gets there when the scope ends. What an earlier apply set and this one does not is returned to what
it was before the first.

Not so for a library that was loaded while a variable that it reads held what an `apply` had put
there: what the switch held before it was set then came from us. It returns to what the library
would have taken without the variable, and the outcome of a switch that cannot return says why.
"""

from __future__ import annotations

from backendcfg import _native, log
from backendcfg.errors import BackendCfgError
from backendcfg.records import record, replace
from backendcfg.registry import entering, owners
from backendcfg.transact.journal import carry_out, foresee
from backendcfg.transact.outcome import Outcome, reason, shown
from backendcfg.transact.switch import AnytimeSwitch, Setting, told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from backendcfg._native import Prepared
    from backendcfg.transact.protocol import Latch, Reach, Switch


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

    def dormant(self) -> str:
        """Why nothing reads the switch, or ""."""
        return told(self.switch, "dormant")

    def unsupported(self) -> str:
        """Why the library cannot take the value wanted, or ""."""
        return told(self.switch, "unsupported")


@record(frozen=True)
class AppliedSwitch:
    """A switch that an apply has set.

    Attributes:
        setting: what it set last.
        original: what the switch held before the first apply.
        taken: the variables that an apply had changed when the library read them, as they were
            before: what the switch held is then what the library took from us.
    """

    setting: Setting
    original: Any
    taken: Mapping[str, Any]


@record(frozen=True)
class Restoration:
    """Where a switch returns to that no profile sets any more.

    Attributes:
        entry: what was applied to it.
        value: what it returns to.
        stays: why it stays as it is, or "".
        begins: for a switch that each thread has, the value for threads that start from now on,
            where the library would give them the one that came from us.
    """

    entry: AppliedSwitch
    value: Any
    stays: str = ""
    begins: Setting | None = None

    @property
    def setting(self) -> Setting:
        """What the journal is to write."""
        switch = self.entry.setting.switch
        inner: Any = ReturnedSwitch(switch) if hasattr(switch, "lasting") else switch
        return Setting(inner, self.value, self.entry.setting.flag)

    @property
    def told(self) -> Outcome:
        """The outcome of a switch that stays as it is."""
        setting = self.entry.setting
        return Outcome(
            setting.switch.name,
            setting.flag,
            None,
            setting.wanted,
            "irreversible",
            f"it stays at what was applied: {self.stays}",
        )


class ReturnedSwitch:
    """A switch with a `lasting` effect: it is restored although the effect stays."""

    def __init__(self, switch: Switch) -> None:
        self.name = switch.name
        self.reach: Reach = switch.reach
        self.latch: Latch = switch.latch
        self.reversible = switch.reversible
        self.read = switch.read
        self.write = switch.write
        self.lasting = told(switch, "lasting")

    def too_late(self) -> str:
        """Never: a library that is loaded later still reads it."""
        return ""


_applied: dict[str, AppliedSwitch] = {}
_left: dict[str, Setting] = {}


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
            `journal.transact`.
    """
    # A switch that cannot take its new value must not keep that of the profile before.
    names = {
        one.switch.name
        for one in settings
        if not (told(one.switch, "dormant") or told(one.switch, "unsupported"))
    }
    # Before the lock is taken, because a library may have to be asked in a child process.
    gone = returns(
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
        given_back = with_what_lasts(dropped, outcomes[len(settings) :])
        stay = [each.told for each in gone if each.stays]
        outcomes = (*outcomes[: len(settings)], *given_back, *stay)
    entering.give_back_deferred()
    return outcomes


def extend_base(
    settings: Sequence[Setting], *, profile: str = "", strict: bool = False
) -> tuple[Outcome, ...]:
    """Set what libraries that were just loaded have, beside what the base already set.

    What one of them cannot be given is undone for that library alone and logged.

    Args:
        settings: what they bring, in the order of writing.
        profile: the profile in force, for messages.
        strict: raise instead.

    Returns:
        One outcome per setting, in the order given.

    Raises:
        UnreadableSwitchError, RolledBackError, RollbackIncompleteError: `strict`; as
            `journal.transact`.
    """
    found: dict[str, Outcome] = {}
    for library, group in _by_library(settings).items():
        try:
            with owners.LOCK:
                outcomes = _apply(group, lambda: None, profile=profile, active=profile)
        except BackendCfgError as error:
            if strict:
                raise
            because = f"{library} is left as it was: {reason(error.__cause__ or error)}"
            log.warning("profile %s: %s\n%s", profile, because, "\n".join(error.__notes__))
            outcomes = tuple(
                Outcome(one.switch.name, one.flag, one.wanted, None, "undone", because)
                for one in group
            )
        found.update({outcome.switch: outcome for outcome in outcomes})
    return tuple(found[setting.switch.name] for setting in settings)


def _by_library(settings: Iterable[Setting]) -> dict[str, list[Setting]]:
    """Settings by what their switches' names begin with: `torch`, `openblas[scipy]`."""
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        library, bracket, _ = setting.switch.name.partition("]")
        groups.setdefault(library + bracket if bracket else library.partition(".")[0], []).append(
            setting
        )
    return groups


def applied() -> dict[str, AppliedSwitch]:
    """What `apply` has set in this process, by switch name."""
    with owners.LOCK:
        return dict(_applied)


def _apply(
    settings: Sequence[Setting],
    publish: Callable[[], None],
    *,
    profile: str,
    active: str,
    forgotten: Sequence[Restoration] = (),
    strict: bool = False,
) -> tuple[Outcome, ...]:
    covered = [_covered(setting) for setting in settings]
    read_by = [taken(setting, _applied) for setting in settings]
    foreseen = foresee(covered)

    def publish_and_record() -> None:
        # Together: a signal that comes later must find the table as the switches are.
        publish()
        for setting, outcome, read in zip(settings, foreseen.outcomes, read_by, strict=True):
            if outcome.state not in ("pending", "unsupported", "dormant"):
                _record(setting, outcome.before, read)
        for each in forgotten:
            switch = each.entry.setting.switch
            del _applied[switch.name]
            owners.cell_of(switch).known = False
            note_left(each)

    carry_out(foreseen, publish_and_record, profile=profile, active=active, strict=strict)
    return tuple(_explained(covered, foreseen.outcomes))


def _record(setting: Setting, before: Any, read: Mapping[str, Any]) -> None:
    name = setting.switch.name
    known = _applied.get(name)
    _applied[name] = (
        replace(known, setting=setting) if known else AppliedSwitch(setting, before, read)
    )
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


def taken(setting: Setting, applied: Mapping[str, AppliedSwitch]) -> dict[str, Any]:
    """The variables that an apply had changed when the switch's library read them, as before it.

    Call it when a switch is first seen, before the next transaction.
    """
    if setting.switch.name in applied:
        return {}
    reads: Collection[str] = getattr(setting.switch, "reads", ())
    if applied.keys().isdisjoint(reads):
        return {}
    # Also the variables of other switches: a child that is asked starts with all of them restored.
    found = {
        name: entry.original
        for name, entry in applied.items()
        if hasattr(entry.setting.switch, "lasting") and _acts(entry)
    }
    return {} if found.keys().isdisjoint(reads) else found


def _acts(entry: AppliedSwitch) -> bool:
    """Whether a variable still holds what an apply has put there, and can be restored."""
    mine = entry.setting
    # The program chose the value of a variable that it changed since.
    return bool(
        entry.original != mine.wanted
        and mine.switch.read() == mine.wanted
        and not told(mine.switch, "lasting")
    )


def returns(entries: Iterable[AppliedSwitch]) -> list[Restoration]:
    """Where switches return to that no profile sets any more. May start a child process."""
    return [_return(entry) for entry in entries]


def _return(entry: AppliedSwitch) -> Restoration:
    if entry.original != entry.setting.wanted and (kept := told(entry.setting.switch, "kept")):
        return Restoration(entry, None, kept)
    if not entry.taken:
        return Restoration(entry, entry.original)
    switch: Any = entry.setting.switch
    begins = None
    try:
        value = switch.afresh(entry.taken)
        if switch.reach == "thread" and hasattr(switch, "begins"):
            begins = replace(entry.setting, wanted=switch.begins(entry.taken))
    except Exception as error:
        return Restoration(entry, None, reason(error))
    return Restoration(entry, value, begins=begins)


def with_what_lasts(settings: Sequence[Setting], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of switches that were restored; irreversible for a lasting effect."""
    return [
        replace(outcome, state="irreversible", because=lasting)
        if outcome.state == "set" and (lasting := getattr(setting.switch, "lasting", ""))
        else outcome
        for setting, outcome in zip(settings, outcomes, strict=True)
    ]


def note_left(gone: Restoration) -> None:
    """Remember the value for threads that start later, because OpenMP reads its variables once."""
    if gone.begins is not None:
        _left[gone.begins.switch.name] = gone.begins


def left() -> list[Setting]:
    """The switches to set in threads that start from now on, where no profile sets them."""
    return list(_left.values())
