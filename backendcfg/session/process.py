"""The profile of this process: apply it, take it back, and follow what is imported later."""

from __future__ import annotations

from backendcfg import _native, environ
from backendcfg.bridges import all as bridges
from backendcfg.bridges import imports
from backendcfg.errors import NothingToUndoError
from backendcfg.records import record, replace
from backendcfg.registry import base, scopes
from backendcfg.session import wiring
from backendcfg.transact.outcome import Outcome, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from backendcfg.transact.compiled import Compiled


@record(frozen=True)
class Installed:
    """A profile that was applied to this process.

    Attributes:
        prepared: the profile; its payload is the compiled plan.
        source: who picked it, in words.
        outcomes: what became of each switch, also of those that came with later imports.
    """

    prepared: _native.Prepared
    source: str
    outcomes: tuple[Outcome, ...]


_installed: list[Installed] = []
_watch: imports.Watch | None = None
_scopes_need_it: list[bool] = []


def apply(
    name: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> Report:
    """Make a profile the one of this process, in every library that is loaded, or in none.

    What is imported later gets its values the moment that it is imported. Open scopes keep what
    they have. What can no longer be set in this process is reported as pending, with the command
    that starts a process where it holds. `undo()` takes it back.

    Args:
        name: a profile, several joined by `+`, or a path to a file; None takes whoever picks one:
            BACKENDCFG_PROFILE, else the active one, else a settings file.
        settings: flags to set over it: `{"threads.count": 4}`.
        strict: refuse what is pending, and change nothing.

    Returns:
        What became of every switch.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: this machine cannot serve it, or `strict`.
        RolledBackError: a switch could not be set; everything is as before.
        RollbackIncompleteError: and something could not be put back; `state` names it.
    """
    if environ.disabled():
        return Report("none")
    from backendcfg.session.choice import chosen
    from backendcfg.session.planning import as_arguments, compiled

    arguments = as_arguments(settings)
    if name is not None:
        return install(compiled(name, arguments=arguments), "backendcfg.apply", strict=strict)
    choice = chosen()
    if choice is None:
        return install(compiled(None, arguments=arguments), "settings files", strict=strict)
    plan = compiled(choice.name, arguments={**choice.arguments, **arguments}, rank=choice.rank)
    return install(plan, choice.source, strict=strict)


def install(compiled: Compiled, source: str, *, strict: bool = False) -> Report:
    """Make a compiled plan the base of this process; see `apply`."""
    wiring.connect()
    prepared = wiring.prepare(compiled)
    _installed.append(Installed(prepared, source, _set(prepared, strict=strict)))
    _follow_imports()
    return report(_installed[-1])


def undo() -> Report | None:
    """Take the last `apply` back: what it changed is as it was before, read back and checked.

    Returns:
        What became of every switch of the profile that is in force now, or None for none.

    Raises:
        NothingToUndoError: nothing was applied to this process.
        RolledBackError: a switch could not be put back; the profile is still in force.
    """
    if not _installed:
        raise NothingToUndoError(
            "no profile was applied to this process",
            helps=["`backendcfg undo` in a shell goes back to the profile active before"],
        )
    if len(_installed) > 1:
        before = _installed[-2]
        _installed[-2:] = [replace(before, outcomes=_set(before.prepared))]
        return report(_installed[-1])
    base.set_base(None, [], active=_installed[-1].prepared.name)
    _installed.clear()
    _follow_imports()
    return None


def source() -> str:
    """Who picked the profile of this process, in words; "" where none is in force."""
    return _installed[-1].source if _installed else ""


def installed() -> Report | None:
    """What became of every switch of the profile that is in force in this process."""
    return report(_installed[-1]) if _installed else None


def report(entry: Installed) -> Report:
    """An applied profile, for people and machines."""
    compiled: Compiled = entry.prepared.payload
    pending = any(outcome.state == "pending" for outcome in entry.outcomes)
    return Report(
        compiled.name,
        compiled.tier,
        compiled.tier == "none" or not (pending or compiled.unkept),
        entry.outcomes,
        {flag: why for flag, why in compiled.dormant.items() if flag in compiled.asked},
        compiled.overrides,
    )


def _set(prepared: _native.Prepared, *, strict: bool = False) -> tuple[Outcome, ...]:
    compiled: Compiled = prepared.payload
    active = _installed[-1].prepared.name if _installed else ""
    wanted = bridges.settings(compiled.values, compiled.effective, compiled.name)
    return base.set_base(prepared, wanted, strict=strict, active=active)


def follow_imports_for_scopes() -> None:
    """Watch imports from now on, because a scope may be open when a library is loaded."""
    _scopes_need_it.append(True)
    _follow_imports()


def _follow_imports() -> None:
    """Watch imports exactly while a profile of the process or a scope may need it."""
    global _watch
    needed = bool(_installed or _scopes_need_it)
    if needed and _watch is None:
        _watch = imports.watch(catch_up)
    elif not needed and _watch is not None:
        _watch.remove()
        _watch = None


def catch_up(_module: str = "") -> None:
    """Set the switches that came with a library since; a failure undoes only these."""
    scopes.extend()
    if not _installed:
        return
    entry = _installed[-1]
    compiled: Compiled = entry.prepared.payload
    have = {outcome.knob for outcome in entry.outcomes}
    new = [
        setting
        for setting in bridges.settings(
            compiled.values, compiled.effective, compiled.name, bridges=wiring.SCOPED
        )
        if setting.knob.name not in have
    ]
    if new:
        found: Iterable[Outcome] = base.extend_base(new, profile=compiled.name)
        _installed[-1] = replace(entry, outcomes=(*entry.outcomes, *found))
