"""Which profile is active for a project or for the user: numbered generations on disk.

    <state>/<host>/v1/active                     the index; renaming it is the only commit point
    <state>/<host>/v1/generations/<key>/7.json   one generation, written before the index names it
    <state>/<host>/v1/lock                       held by writers; readers take no lock

A process that is killed anywhere in a commit leaves the old index or the new one. A generation
file that no index ever named is overwritten by the next commit.
"""

from __future__ import annotations

import os
import time

from backendcfg import environ
from backendcfg.errors import NothingToUndoError, StateUnwritableError
from backendcfg.transact import disk, index, log, stored
from backendcfg.transact.stored import KEPT, Generation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from backendcfg.transact.compiled import Compiled

__all__ = [
    "KEPT",
    "Generation",
    "active",
    "commit",
    "current",
    "directory",
    "history",
    "known",
    "off",
    "undo",
]


def directory() -> str:
    """Where the state of this machine is kept; it need not exist.

    BACKENDCFG_STATE_DIR, else XDG_STATE_HOME/backendcfg, else ~/.local/state/backendcfg; below it
    one directory per host, because home directories are shared between machines that differ.

    Raises:
        StateUnwritableError: there is no home directory.
    """
    base = environ.STATE_DIR.read()
    if base is None:
        home = environ.foreign(["XDG_STATE_HOME"]).get("XDG_STATE_HOME", "")
        if not os.path.isabs(home):  # as the XDG specification asks
            home = os.path.expanduser("~/.local/state")
        base = os.path.join(home, "backendcfg")
        if not os.path.isabs(base):
            raise StateUnwritableError(
                "there is no home directory to keep the active profile in",
                helps=["set BACKENDCFG_STATE_DIR to a directory that is yours"],
            )
    host = os.uname().nodename.replace("/", "_") or "localhost"
    return os.path.join(os.path.abspath(base), host if host.strip(".") else "localhost", "v1")


def commit(
    path: str | None,
    name: str,
    arguments: Mapping[str, str],
    plan: str,
    compiled: Compiled,
    *,
    rank: str = "profile-by-argument",
) -> int:
    """Make a profile the active one, durably; the next `undo` returns to what is active now.

    Args:
        path: the project's root, or None for the user.
        name: the profile.
        arguments: flags set beside it, as TOML text.
        plan: the full plan, as JSON text.
        compiled: what a starting process applies.
        rank: how strong the pick is.

    Returns:
        The number of the new generation.

    Raises:
        StateUnwritableError: the state cannot be written or is damaged; what was active still is.
    """
    import json

    state, scope = directory(), _scope(path)
    disk.make_directory(state)
    with disk.writing(_lock(state)):
        rows = index.read(_index(state))
        row = rows.get(scope) or index.Row(0, index.key(path or index.USER), scope)
        number = row.highest + 1
        home = os.path.join(state, "generations", row.key)
        disk.make_directory(home)
        document = {
            "format": index.FORMAT,
            "generation": number,
            "parent": row.generation,
            "path": path or "",
            "name": name,
            "arguments": dict(arguments),
            "rank": rank,
            "created": time.time(),
            "compiled": json.loads(compiled.to_json()),
            "plan": json.loads(plan),
        }
        disk.replace(os.path.join(home, f"{number}.json"), (json.dumps(document) + "\n").encode())
        rows[scope] = row.to(number, row.generation)
        disk.replace(_index(state), index.text(rows), commits=True)
        log.info("generation %d of %s: %s", number, path or "the user", name)
        stored.prune(home, rows[scope])
    return number


def undo(path: str | None) -> Generation | None:
    """Return to the generation before, or to no profile.

    Returns:
        What is active now, or None.

    Raises:
        NothingToUndoError: no profile is active and none was before.
        StateUnwritableError: the state cannot be written, or the generation before is damaged;
            what was active still is.
    """
    state, scope = directory(), _scope(path)
    row = index.read(_index(state)).get(scope)
    if row is None or not (row.generation or row.back):
        _refuse_undo(path)
    with disk.writing(_lock(state)):
        rows = index.read(_index(state))
        row = rows[scope]
        if not (row.generation or row.back):
            _refuse_undo(path)
        if row.back and row.back not in stored.numbers(os.path.join(state, "generations", row.key)):
            _refuse_undo(path, f"generation {row.back} is no longer kept; the last {KEPT} are")
        target = stored.load(state, row, row.back) if row.back else None
        rows[scope] = row.to(row.back, target.parent if target else 0)
        disk.replace(_index(state), index.text(rows), commits=True)
        log.info("back to generation %d of %s", row.back, path or "the user")
        return target and _marked(target)


def off(path: str | None) -> int:
    """Make no profile active; `undo` returns to the one that was.

    Works whatever state the generations are in, and rebuilds an index that is damaged.

    Returns:
        The generation that was active, 0 when none was.

    Raises:
        StateUnwritableError: the disk cannot be written.
    """
    state, scope = directory(), _scope(path)
    if not os.path.exists(_index(state)):
        return 0
    with disk.writing(_lock(state)):
        rows, fault = index.parse(_index(state))
        if fault:
            rows = _rescued(state, rows)
        row = rows.get(scope)
        before = row.generation if row else 0
        if row is not None and before:
            rows[scope] = row.to(0, before)
        if before or fault:
            try:
                disk.replace(_index(state), index.text(rows), commits=True)
            except StateUnwritableError:
                # A full disk: what is no longer active makes room.
                stored.clear(os.path.join(state, "generations", row.key if row else "user"), before)
                disk.replace(_index(state), index.text(rows), commits=True)
        log.info("no profile is active for %s", path or "the user")
        return before


def current(path: str | None) -> Generation | None:
    """The active generation of a project, or of the user for None.

    Raises:
        StateUnwritableError: it cannot be read.
    """
    state = directory()
    return _active(state, _scope(path))


def active(cwd: str) -> Generation | None:
    """The generation in force for a process in `cwd`: the nearest project's, else the user's.

    No project file is read. Where no index exists this costs one failing open.

    Raises:
        StateUnwritableError: the index or the generation cannot be read.
    """
    state = directory()
    rows = index.read(_index(state))
    if not rows:
        return None
    at = os.path.abspath(cwd)
    while True:
        row = rows.get(index.escaped(at))
        if row is not None and row.generation:
            return _active(state, row.path)
        if (parent := os.path.dirname(at)) == at:
            break
        at = parent
    return _active(state, index.USER)


def known(path: str | None) -> bool:
    """Whether a profile was ever active for a project, or for the user for None.

    Raises:
        StateUnwritableError: the index cannot be read.
    """
    return _scope(path) in index.read(_index(directory()))


def history(path: str | None) -> tuple[Generation | StateUnwritableError, ...]:
    """Every generation that is kept, newest first; one that is damaged is its error.

    Raises:
        StateUnwritableError: the index cannot be read.
    """
    state = directory()
    row = index.read(_index(state)).get(_scope(path))
    if row is None:
        return ()
    found: list[Generation | StateUnwritableError] = []
    for number in reversed(stored.numbers(os.path.join(state, "generations", row.key))):
        if number > row.highest:  # written by a commit that was killed before it counted
            continue
        try:
            generation = stored.load(state, row, number)
            found.append(_marked(generation) if number == row.generation else generation)
        except StateUnwritableError as error:
            found.append(error)
    return tuple(found)


def _index(state: str) -> str:
    return os.path.join(state, "active")


def _lock(state: str) -> str:
    return os.path.join(state, "lock")


def _scope(path: str | None) -> str:
    return index.USER if path is None else index.escaped(os.path.abspath(path))


def _marked(generation: Generation) -> Generation:
    return Generation(**{**generation.__dict__, "active": True})


def _refuse_undo(path: str | None, why: str = "") -> NoReturn:
    raise NothingToUndoError(
        f"there is no earlier generation for {path or 'the user'}",
        notes=[why] if why else [],
        helps=["run `backendcfg history` to see the generations, or `backendcfg apply NAME`"],
    )


def _active(state: str, scope: str) -> Generation | None:
    """The active generation of one row.

    A generation's file never changes once the index names it, but it may be pruned between reading
    the index and opening the file; then the index has moved on and is read again.
    """
    while True:
        row = index.read(_index(state)).get(scope)
        if row is None or not row.generation:
            return None
        try:
            return _marked(stored.load(state, row, row.generation))
        except StateUnwritableError:
            if index.read(_index(state)).get(scope) == row:
                raise


def _rescued(state: str, rows: dict[str, index.Row]) -> dict[str, index.Row]:
    """The rows of a damaged index that are whole, and the rest as far as the files tell.

    A scope whose row was lost is off, with its last generation to go back to.
    """
    rows = dict(rows)
    known = {row.key for row in rows.values()}
    generations = os.path.join(state, "generations")
    for key in sorted(os.listdir(generations)) if os.path.isdir(generations) else []:
        there = stored.numbers(os.path.join(generations, key))
        if key in known or not there:
            continue
        try:
            last = stored.load(state, index.Row(0, key, ""), there[-1])
        except StateUnwritableError:
            continue
        scope = _scope(last.path or None)
        rows[scope] = index.Row(0, key, scope, there[-1], there[-1])
    return rows
