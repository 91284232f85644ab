"""Which profile is active for a project, a user or an environment: numbered generations on disk.

    <state>/v2/active                     the index; renaming it is the only commit point
    <state>/v2/generations/<key>/7.json   one generation, written before the index names it
    <state>/v2/lock                       held by writers; readers take no lock

What is active for an environment is kept the same way below its `sys.prefix`, where everybody may
read it.

A process that is killed anywhere in a commit leaves the old index or the new one. A generation
file that no index ever named is overwritten by the next commit.
"""

from __future__ import annotations

import os
import sys
import time

from backendcfg import environ, log, startup
from backendcfg.errors import NothingToUndoError, StateUnwritableError
from backendcfg.startup import ENVIRONMENT, TRUSTED, USER
from backendcfg.transact import disk, store
from backendcfg.transact.store import KEPT, Generation, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, NoReturn

    from backendcfg.transact.compiled import Compiled

__all__ = [
    "ENVIRONMENT",
    "KEPT",
    "Generation",
    "active",
    "commit",
    "current",
    "directory",
    "distrust",
    "history",
    "ignored",
    "off",
    "option",
    "take_over_old_state",
    "trust",
    "undo",
    "whose",
]


def directory() -> str:
    """Where the user's state is kept; it need not exist.

    BACKENDCFG_STATE_DIR, else XDG_STATE_HOME/backendcfg, else ~/.local/state/backendcfg; below it
    one directory for this format.

    Raises:
        StateUnwritableError: there is no home directory.
    """
    if not (state := startup.state_directory()):
        raise StateUnwritableError(
            "there is no home directory to keep the state of backendcfg in",
            helps=["set BACKENDCFG_STATE_DIR to a directory that is yours"],
        )
    return state


def take_over_old_state() -> str:
    """Move what 0.1.0 kept for this host to where every host finds it.

    Returns:
        What became of it, as a sentence; "" where there was nothing to take over.

    Raises:
        StateUnwritableError: it cannot be moved; it is as before.
    """
    if not (state := startup.state_directory()):
        return ""
    base = os.path.dirname(state)
    old = os.path.join(base, os.uname().nodename.replace("/", "_") or "localhost", "v1")
    if os.path.lexists(state) or not os.path.isfile(os.path.join(old, "active")):
        return ""
    try:
        os.rename(old, state)
    except OSError as error:
        raise disk.unwritable(state, error, "write") from error
    return f"what backendcfg 0.1 kept for this host alone is active on every host now: {state}"


def commit(
    path: str | None,
    name: str,
    arguments: Mapping[str, str],
    plan: dict[str, Any],
    compiled: Compiled,
    *,
    rank: str = "profile-by-argument",
) -> int:
    """Make a profile the active one, durably; the next `undo` returns to what is active now.

    Args:
        path: the project's root, None for the user, or `ENVIRONMENT`.
        name: the profile.
        arguments: flags set beside it, as TOML text.
        plan: the full plan, as JSON has it.
        compiled: what a starting process applies.
        rank: how strong the pick is.

    Returns:
        The number of the new generation.

    Raises:
        StateUnwritableError: the state cannot be written or is damaged; what was active still is.
    """
    import json

    state, scope = _place(path)
    shared = path == ENVIRONMENT
    _refuse_foreign(state)
    disk.make_directory(state, shared=shared)
    with _writing(state):
        rows = store.read_index(_index(state))
        row = rows.get(scope) or _new_row(scope)
        number = row.highest + 1
        home = os.path.join(state, "generations", row.key)
        disk.make_directory(home, shared=shared)
        document = {
            "format": store.FORMAT,
            "generation": number,
            "parent": row.generation,
            "beyond": 0 if row.generation else row.back,
            "path": environ.as_text(path or ""),
            "name": name,
            "arguments": dict(arguments),
            "rank": rank,
            "created": time.time(),
            "compiled": json.loads(compiled.to_json()),
            "plan": plan,
        }
        disk.sweep(state)
        disk.sweep(home)
        text = (json.dumps(document) + "\n").encode()
        disk.replace(os.path.join(home, f"{number}.json"), text, shared=shared)
        rows[scope] = row.to(number, row.generation)
        _publish(state, rows)
        log.info("generation %d of %s: %s", number, whose(path), name)
        store.prune(home, rows[scope])
    return number


def trust(roots: Iterable[str]) -> None:
    """Note that this user trusts projects, so that plain `python` obeys their settings files.

    Args:
        roots: the folders of the projects, without links.

    Raises:
        StateUnwritableError: the state cannot be written; it is as before.
    """
    scopes = {TRUSTED + startup.escaped(root) for root in roots}
    _note(lambda noted: noted | scopes)


def distrust(roots: Iterable[str], within: str) -> None:
    """Take that back of projects, and of all whose folder is another one or lies in it.

    Args:
        roots: the folders of the projects, without links.
        within: the other folder, likewise.

    Raises:
        StateUnwritableError: the state cannot be written; it is as before.
    """
    scopes = {TRUSTED + startup.escaped(root) for root in roots}
    where = TRUSTED + startup.escaped(within)
    _note(lambda noted: {x for x in noted - scopes if not startup.is_within(x, where)})


def _note(change: Callable[[set[str]], set[str]]) -> None:
    state = directory()
    if not change(set()) and not os.path.exists(_index(state)):
        return
    _refuse_foreign(state)
    disk.make_directory(state)
    with _writing(state):
        rows = store.read_index(_index(state))
        noted = {scope for scope in rows if scope.startswith(TRUSTED)}
        wanted = change(noted)
        if wanted == noted:
            return
        rows = {scope: row for scope, row in rows.items() if scope not in noted - wanted}
        _publish(state, rows | {scope: _new_row(scope) for scope in sorted(wanted - noted)})


def whose(path: str | None) -> str:
    """Whom a generation is active for, in words."""
    if path == ENVIRONMENT:
        return f"the environment {sys.prefix}"
    return path or "the user"


def option(whom: str) -> str:
    """The option that verbs need here to mean that one's generations, with a space, or "".

    Args:
        whom: as `whose` says it.
    """
    if whom == whose(ENVIRONMENT):
        return " --environment"
    in_project = startup.project(startup.working_directory())[0]
    return " --user" if in_project and whom == whose(None) else ""


def undo(path: str | None) -> Generation | None:
    """Return to the generation before, or to no profile.

    Returns:
        What is active now, or None.

    Raises:
        NothingToUndoError: no profile is active and none was before.
        StateUnwritableError: the state cannot be written, or the generation before is damaged;
            what was active still is.
    """
    state, scope = _place(path)
    row = store.read_index(_index(state)).get(scope)
    if row is None or not (row.generation or row.back):
        _refuse_undo(path)
    with _writing(state):
        rows = store.read_index(_index(state))
        row = rows[scope]
        if not (row.generation or row.back):
            _refuse_undo(path)
        if row.back and row.back not in store.numbers(os.path.join(state, "generations", row.key)):
            _refuse_undo(path, f"generation {row.back} is no longer kept; the last {KEPT} are")
        target = store.load(state, row, row.back) if row.back else None
        rows[scope] = row.to(row.back, target.parent if target else _beyond(state, row))
        _publish(state, rows)
        log.info("back to generation %d of %s", row.back, whose(path))
        return target and _marked(target)


def _beyond(state: str, row: Row) -> int:
    """What `undo` returns to after it returned from the active generation to none."""
    try:
        return store.load(state, row, row.generation).beyond if row.generation else 0
    except StateUnwritableError:
        return 0


def off(path: str | None) -> int:
    """Make no profile active; `undo` returns to the one that was.

    Works whatever state the generations are in, and rebuilds an index that is damaged.

    Returns:
        The generation that was active, 0 when none was.

    Raises:
        StateUnwritableError: the disk cannot be written, a later release wrote the index, or
            somebody else may write its folder.
    """
    state, scope = _place(path)
    if not os.path.exists(_index(state)):
        return 0
    with _writing(state):
        rows, fault = store.parse_index(_index(state))
        if fault in (store.LATER, startup.SHARED):
            raise store.damaged(_index(state), fault)
        if fault:
            rows = _rescued(state, rows)
        row = rows.get(scope)
        before = row.generation if row else 0
        if row is not None and before:
            rows[scope] = row.to(0, before)
        if before or fault:
            try:
                _publish(state, rows)
            except StateUnwritableError:
                # A full disk: what is no longer active makes room.
                store.clear(os.path.join(state, "generations", row.key if row else "user"), before)
                _publish(state, rows)
        log.info("no profile is active for %s", whose(path))
        return before


def current(path: str | None) -> Generation | None:
    """The active generation of a project, of the user for None, or of `ENVIRONMENT`.

    Raises:
        StateUnwritableError: it cannot be read.
    """
    return _active(*_place(path))


def active(cwd: str) -> Generation | None:
    """The active generation of the nearest project at or above a directory.

    Whether it is a project still is not looked at. Where no index exists this costs one failing
    open.

    Raises:
        StateUnwritableError: the index is damaged, or the generation cannot be read.
    """
    state = startup.state_directory()
    rows = store.read_index(_index(state), lenient=True) if state else {}
    at = os.path.abspath(cwd)
    while rows:
        row = rows.get(startup.escaped(at))
        if row is not None and row.generation:
            return _active(state, row.path)
        if (parent := os.path.dirname(at)) == at:
            break
        at = parent
    return None


def ignored() -> dict[str, str]:
    """The lists of what is active that do not count for this user, each with the reason."""
    found = {}
    for state in filter(None, (startup.state_directory(), startup.environment_directory())):
        file = _index(state)
        try:
            os.lstat(file)
        except PermissionError:
            found[file] = "permission denied"
        except OSError:
            continue
        else:
            fault = store.parse_index(file)[1]
            if fault in (store.UNREADABLE, startup.SHARED):
                found[file] = fault
    return found


def history(path: str | None) -> tuple[Generation | StateUnwritableError, ...]:
    """Every generation that is kept, newest first; one that is damaged is its error.

    Raises:
        StateUnwritableError: the index cannot be read.
    """
    state, scope = _place(path)
    row = store.read_index(_index(state)).get(scope)
    if row is None:
        return ()
    found: list[Generation | StateUnwritableError] = []
    for number in reversed(store.numbers(os.path.join(state, "generations", row.key))):
        if number > row.highest:  # written by a commit that was killed before it counted
            continue
        try:
            generation = store.load(state, row, number)
            found.append(_marked(generation) if number == row.generation else generation)
        except StateUnwritableError as error:
            found.append(error)
    return tuple(found)


def _index(state: str) -> str:
    return os.path.join(state, "active")


def _writing(state: str) -> AbstractContextManager[None]:
    """Hold the lock of a directory of state, where nobody else may write."""
    _refuse_foreign(state)
    return disk.writing(os.path.join(state, "lock"))


def _refuse_foreign(state: str) -> None:
    if state != startup.environment_directory():
        environ.refuse_home_of_sudoer(state, environ.STATE_DIR)
    if environ.is_foreign(state):
        raise store.damaged(_index(state), startup.SHARED)


def _place(path: str | None) -> tuple[str, str]:
    """The directory that a scope is kept in, and what its index calls it."""
    if path == ENVIRONMENT:
        return startup.environment_directory(), ENVIRONMENT
    return directory(), USER if path is None else startup.escaped(os.path.abspath(path))


def _new_row(scope: str) -> Row:
    return Row(0, store.key(scope), scope)


def _publish(state: str, rows: dict[str, Row]) -> None:
    """Replace the index: what it says is active from now on."""
    shared = state == startup.environment_directory()
    disk.replace(_index(state), store.index_text(rows), commits=True, shared=shared)


def _marked(generation: Generation) -> Generation:
    return Generation(**{**generation.__dict__, "active": True})


def _refuse_undo(path: str | None, why: str = "") -> NoReturn:
    raise NothingToUndoError(
        f"there is no earlier generation for {whose(path)}",
        notes=[why] if why else [],
        helps=["run `backendcfg history` to see the generations, or `backendcfg apply NAME`"],
    )


def _active(state: str, scope: str) -> Generation | None:
    """The active generation of one row.

    A generation's file never changes once the index names it, but it may be pruned between reading
    the index and opening the file; then the index has moved on and is read again.
    """
    while True:
        row = store.read_index(_index(state), lenient=True).get(scope)
        if row is None or not row.generation:
            return None
        try:
            return _marked(store.load(state, row, row.generation))
        except StateUnwritableError:
            if store.read_index(_index(state)).get(scope) == row:
                raise


def _rescued(state: str, rows: dict[str, Row]) -> dict[str, Row]:
    """The rows of a damaged index that are whole, and the rest as far as the files tell.

    A scope whose row was lost is off, with its last generation to go back to.
    """
    rows = dict(rows)
    known = {row.key for row in rows.values()}
    generations = os.path.join(state, "generations")
    for key in sorted(os.listdir(generations)) if os.path.isdir(generations) else []:
        there = store.numbers(os.path.join(generations, key))
        if key in known or not there:
            continue
        try:
            last = store.load(state, Row(0, key, ""), there[-1])
        except StateUnwritableError:
            continue
        _, scope = _place(last.path or None)
        rows[scope] = Row(0, key, scope, there[-1], there[-1])
    return rows
