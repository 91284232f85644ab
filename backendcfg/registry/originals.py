"""What a switch goes back to when no profile wants anything of it any more.

Mostly that is what it held before. Not so for a library that was loaded while a variable that it
reads held what an `apply` had put there: what it held before it was set is then our own doing. It
goes back to what the library would have taken without, and what cannot go back is said.
"""

from __future__ import annotations

from backendcfg.records import record, replace
from backendcfg.transact.outcome import Outcome
from backendcfg.transact.switch import Reach, Setting, told
from backendcfg.transact.wording import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from backendcfg.transact.protocol import Switch
    from backendcfg.transact.switch import Latch


@record(frozen=True)
class Applied:
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
class Return:
    """Where a switch goes.

    Attributes:
        entry: what was applied to it.
        value: what it goes back to.
        stays: why it stays as it is, or "".
        begins: for a switch of threads, what those that start from now on shall hold, where the
            library would give them what it took from us.
    """

    entry: Applied
    value: Any
    stays: str = ""
    begins: Setting | None = None

    @property
    def setting(self) -> Setting:
        """What the journal is to write."""
        switch = self.entry.setting.switch
        inner: Any = Returned(switch) if hasattr(switch, "lasting") else switch
        return Setting(inner, self.value, self.entry.setting.flag)

    @property
    def told(self) -> Outcome:
        """What is said of a switch that stays."""
        setting = self.entry.setting
        return Outcome(
            setting.switch.name,
            setting.flag,
            None,
            setting.wanted,
            "irreversible",
            f"it stays at what was applied: {self.stays}",
        )


class Returned:
    """A switch that is given back whatever was made of it since: one of `lasting` effect."""

    def __init__(self, switch: Switch) -> None:
        self.name = switch.name
        self.reach: Reach = switch.reach
        self.latch: Latch = switch.latch
        self.reversible = switch.reversible
        self.read = switch.read
        self.write = switch.write
        self.lasting = told(switch, "lasting")

    def too_late(self) -> str:
        """Never: what comes later still reads it."""
        return ""


_left: dict[str, Setting] = {}


def taken(setting: Setting, applied: Mapping[str, Applied]) -> dict[str, Any]:
    """The variables that the library of a switch has read as `applied` has them, as they were.

    Call it before the next transaction, when a switch is first seen.
    """
    if setting.switch.name in applied:
        return {}
    reads: Collection[str] = getattr(setting.switch, "reads", ())
    if applied.keys().isdisjoint(reads):
        return {}
    # With those that decide something else in the library, but for what it can never be told anew.
    found = {
        name: entry.original
        for name, entry in applied.items()
        if hasattr(entry.setting.switch, "lasting") and _acts(entry)
    }
    return {} if found.keys().isdisjoint(reads) else found


def _acts(entry: Applied) -> bool:
    """Whether a variable holds what an apply has put there, and only until it is given back."""
    mine = entry.setting
    # One that the program changed since is the program's wish.
    return bool(
        entry.original != mine.wanted
        and mine.switch.read() == mine.wanted
        and not told(mine.switch, "lasting")
    )


def returns(entries: Iterable[Applied]) -> list[Return]:
    """Where switches go that nobody wants anything of. May ask libraries in a child process."""
    return [_return(entry) for entry in entries]


def _return(entry: Applied) -> Return:
    if not entry.taken:
        return Return(entry, entry.original)
    switch: Any = entry.setting.switch
    begins = None
    try:
        value = switch.afresh(entry.taken)
        if switch.reach is Reach.THREAD and hasattr(switch, "begins"):
            begins = replace(entry.setting, wanted=switch.begins(entry.taken))
    except Exception as error:
        return Return(entry, None, reason(error))
    return Return(entry, value, begins=begins)


def with_what_lasts(settings: Sequence[Setting], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of switches that were given back, of which some leave something behind."""
    return [
        replace(outcome, state="irreversible", because=lasting)
        if outcome.state == "set" and (lasting := getattr(setting.switch, "lasting", ""))
        else outcome
        for setting, outcome in zip(settings, outcomes, strict=True)
    ]


def note_left(gone: Return) -> None:
    """Remember what threads to come need to be given, because OpenMP reads its variables once."""
    if gone.begins is not None:
        _left[gone.begins.switch.name] = gone.begins


def left() -> list[Setting]:
    """What threads that start from now on need to be given when no profile wants otherwise."""
    return list(_left.values())
