"""The profile of this process: apply it, take it back, and follow what is imported later."""

from __future__ import annotations

import os
import sys
from _thread import RLock

from backendcfg import _native, environ, log
from backendcfg.bridges import imports
from backendcfg.errors import NothingToUndoError
from backendcfg.probe.environment import watched
from backendcfg.records import replace
from backendcfg.registry import base, entering, owners
from backendcfg.session import children, installed, threads, wiring
from backendcfg.session.installed import AppliedProfile, stack, surroundings
from backendcfg.transact.interrupts import Deferral
from backendcfg.transact.outcome import Report, reason, warn_of_pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from backendcfg.transact.compiled import Compiled
    from backendcfg.transact.outcome import Outcome

_ADJUSTED = "adjusted by the program"
_watch: imports.Watch | None = None
_scopes_need_it: list[bool] = []

# Held from collecting the switches until they are set. An import that ends meanwhile in another
# thread waits, and then sets the switches that it brought as the profile in force has them. Ctrl-C
# waits too, except between the steps of the journal, which undoes them: the switches and the record
# of them in `stack` change together.
_CHANGING = RLock()
# Held only to begin or to end the watch, so that opening a scope does not wait for _CHANGING.
_WATCHING = RLock()


def apply(
    name: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> Report:
    """Make a profile the one of this process, in every library that is loaded, or in none.

    What is imported later gets its values the moment that it is imported. Open scopes keep what
    they have. What can no longer be set in this process is reported as pending, with the command
    that starts a process where it holds; a `PendingWarning` says so where the tier rests on it.
    `undo()` takes it back.

    Args:
        name: a profile, several joined by `+`, or a path to a file; None takes the one that is in
            force here, as `backendcfg status` shows it.
        settings: flags to set over it: `{"threads.count": 4}`.
        strict: refuse what is pending, and change nothing; and fail the import of a library that
            cannot be given what the profile wants of it, which is otherwise left as it was.

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
    from backendcfg.session.planning import as_arguments, compiled, compiled_pick, refuse_no_name

    refuse_no_name(name)
    arguments = as_arguments(settings)
    picked = chosen(name, arguments)
    if picked is None:
        plan, found = compiled(None, arguments=arguments), False
        source = "backendcfg.apply" if arguments else "settings files"
    else:
        plan, source = compiled_pick(picked), picked.source or "backendcfg.apply"
        found = name is None and not arguments
    report = install(plan, source, strict=strict, found=found)
    warn_of_pending(plan, report.outcomes, depth=1)
    return report


def install(
    compiled: Compiled, source: str, *, strict: bool = False, found: bool = False
) -> Report:
    """Make a compiled plan the base of this process; see `apply`.

    Args:
        compiled: the plan.
        source: who picked it, in words.
        strict: as for `apply`.
        found: as in `AppliedProfile`.
    """
    wiring.connect()
    before = installed.in_force()
    if before is not None and before.plans == (compiled,):
        # A program may apply the same for each request. `undo` takes back one at a time, so each is
        # kept, with what it has in common.
        prepared = before.prepared
    else:
        prepared = wiring.prepare_base(compiled)
    with _CHANGING, Deferral():
        outcomes = _set([prepared.payload], prepared, strict=strict)
        if before is not None and outcomes == before.outcomes:
            outcomes = before.outcomes
        stack.append(AppliedProfile(prepared, source, outcomes, found=found, strict=strict))
        _follow()
        return stack[-1].report


def take_over(plans: Sequence[Compiled], source: str, *, found: bool = False) -> None:
    """Make what was in force in another process the base of this one.

    Args:
        plans: the other's profile and open scopes, outermost first. The last is in force; those
            beneath hold for the switches that it leaves alone.
        source: where they come from, in words.
        found: as in `AppliedProfile`.
    """
    wiring.connect()
    prepared = wiring.prepare_base(plans[-1])
    with _CHANGING, Deferral():
        outcomes = _set(plans, prepared)
        stack[-1:] = [AppliedProfile(prepared, source, outcomes, tuple(plans[:-1]), found)]
        _follow()


def undo() -> Report | None:
    """Take the last `apply` back: what it changed is as it was before, read back and checked.

    A library that was loaded since, and that took its first values from variables which the profile
    had set, goes to what it would have taken without. Variables that were there when the process
    started are its own, also those that `backendcfg run` gave it.

    Returns:
        What became of every switch of the profile that is in force now. With none in force, what
        could not be taken back, as a report named "none"; None when nothing is left. That names
        what other threads keep of the switches that each thread has for itself.

    Raises:
        NothingToUndoError: nothing was applied to this process.
        RolledBackError: a switch could not be put back; the profile is still in force.
    """
    catch_up()  # what was loaded since without an import, as by ctypes, is put back, too
    with _CHANGING, Deferral():
        if not stack:
            raise NothingToUndoError(
                "no profile was applied to this process",
                helps=["`backendcfg undo` in a shell goes back to the profile active before"],
            )
        if len(stack) > 1:
            before = stack[-2]
            stack[-2:] = [replace(before, outcomes=_set(before.plans, before.prepared))]
            _follow()
            return stack[-1].report
        outcomes = base.set_base(None, [], active=stack[-1].prepared.name)
        log.set_base(())
        outcomes = threads.with_keepers(outcomes)
        lost = [one for one in stack[-1].outcomes if one.state == "irreversible"]
        stack.clear()
        threads.base_changed([], [], base.left())
        _follow()
        known = {one.switch for one in lost}
        left = [one for one in outcomes if one.state not in ("set", "unchanged")]
        stays = (*lost, *(one for one in left if one.switch not in known))
        return Report("none", outcomes=stays) if stays else None


def adjust(prepared: _native.Prepared, *, over: _native.Prepared | None) -> bool:
    """Put a variation of the profile of this process in its place, in every library or in none.

    `undo()` takes it back together with the `apply` that it varies. With nothing applied it is
    what `undo()` takes back.

    Args:
        prepared: the variation.
        over: what it varies.

    Returns:
        False, with nothing changed, where another profile is in force by now than `over`.

    Raises:
        RolledBackError, RollbackIncompleteError: as `apply`.
    """
    wiring.connect()
    with _CHANGING, Deferral():
        if installed.prepared() is not over:
            return False
        told = installed.source()
        if not told.endswith(_ADJUSTED):
            told = f"{told}, {_ADJUSTED}" if told else _ADJUSTED
        beneath = stack[-1].beneath if stack else ()
        outcomes = _set([*beneath, prepared.payload], prepared)
        stack[-1:] = [AppliedProfile(prepared, told, outcomes, beneath)]
        _follow()
        return True


def _set(
    plans: Sequence[Compiled], prepared: _native.Prepared, *, strict: bool = False
) -> tuple[Outcome, ...]:
    active = stack[-1].prepared.name if stack else ""
    settings = wiring.merged(plans)
    if any("seed.value" in plan.effective for plan in plans):
        # From now on it counts forks: a child may be the first to import what is seeded.
        from backendcfg.bridges import lineage  # noqa: F401
    log.begin_applying(plans)
    try:
        outcomes = base.set_base(prepared, settings, strict=strict, active=active)
        log.set_base(plans)
    finally:
        log.end_applying()
    threads.base_changed(settings, outcomes, base.left())
    surroundings.clear()
    surroundings.update(watched())
    return outcomes


def follow_imports_for_scopes() -> None:
    """Watch imports from now on, because a scope may be open when a library is loaded."""
    _scopes_need_it.append(True)
    threads.scopes_may_open()
    _follow_imports()


def _follow() -> None:
    """Do what depends on whether a profile is in force, and which."""
    _follow_imports()
    entry = installed.in_force()
    children.follow(
        needed=entry is not None,
        handed=[plan.request for plan in entry.plans] if entry and not entry.found else [],
    )


def _follow_imports() -> None:
    """Watch imports exactly while a profile of the process or a scope may need it."""
    global _watch
    with _WATCHING:
        needed = bool(stack or _scopes_need_it)
        begins = needed and _watch is None
        if begins:
            _watch = imports.watch(catch_up)
        elif not needed and _watch is not None:
            _watch.remove()
            _watch = None
    threading = sys.modules.get("threading")
    if begins and threading is not None and threading.active_count() > 1:
        # What another thread has imported since the switches were looked for.
        catch_up()


def catch_up(module: str = "") -> None:
    """Set the switches that came with a library since; what it cannot be given is undone for it.

    Also every switch again when the code of a module ran again, which made its switches anew. An
    import of the program does not fail for it, unless the profile was applied with `strict`.
    """
    # A setter may import something. This thread then holds the owners' lock, for which the thread
    # that changes the profile may wait, so it must not wait for that one. What was imported is
    # found with the next import, `reload()` or `verify()`.
    changing = _CHANGING
    if not changing.acquire(blocking=not owners.is_changing()):
        return
    try:
        with Deferral():
            entering.extend()
            if stack:
                _extend(stack[-1], again=imports.runs_again(module))
    except Exception as error:
        if stack and stack[-1].strict:
            raise
        log.error("what `import %s` brought could not be set: %s", module, reason(error))
    finally:
        changing.release()


def _extend(entry: AppliedProfile, *, again: bool) -> None:
    """Set the switches that the profile of this process has not set yet, or all of them again."""
    have = {outcome.switch for outcome in entry.outcomes}
    new = [
        setting
        for setting in wiring.merged(entry.plans, wiring.FOLLOWED)
        if again or (setting.switch.name not in have and getattr(setting.switch, "follows", True))
    ]
    if new:
        found = base.extend_base(new, profile=entry.prepared.name, strict=entry.strict)
        threads.base_grew(new, found)
        set_now = {setting.switch.name for setting in new}
        kept = [outcome for outcome in entry.outcomes if outcome.switch not in set_now]
        stack[-1] = replace(entry, outcomes=(*kept, *found))


children.connect(take_over)


def _after_fork() -> None:
    """In the child: whoever held a lock in another thread is gone."""
    global _CHANGING, _WATCHING
    _CHANGING, _WATCHING = RLock(), RLock()


os.register_at_fork(after_in_child=_after_fork)
