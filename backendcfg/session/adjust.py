"""Single flags set by a program: what is in force here, with some flags changed.

`backendcfg.backends` and everything else that sets a switch rather than a profile goes through
here. A change is a request like any other: the profile in force is asked for again with these
flags as arguments, so the rules that made the plan refuse a value that its tier does not allow. The
answer is cached, and the second time costs two dictionary lookups.

The profile's files are read again for that: one that was edited since is taken as it is now.
"""

from __future__ import annotations

from weakref import WeakSet

from backendcfg import _native, environ, startup
from backendcfg._native import current
from backendcfg.errors import ProfileBusyError
from backendcfg.locks import ProcessLock
from backendcfg.records import replace
from backendcfg.registry.busy import BUSY, refuse_unknown
from backendcfg.session import children, installed, process, wiring
from backendcfg.transact.compiled import Asked
from backendcfg.transact.outcome import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal, Self, TypeVar

    from backendcfg._native import Prepared, Scope

    Function = TypeVar("Function", bound=Callable[..., Any])
    Kept = TypeVar("Kept")
    Busy = Literal["raise", "wait", "skip"]

KEPT = 1024
"""Variations that are remembered; a program that makes more starts over."""

_process = ProcessLock()
_resolved: dict[Any, Prepared] = {}
_variations: dict[Any, Prepared] = {}
_overlays: dict[Any, Overlay] = {}
_every_overlay: WeakSet[Overlay] = WeakSet()

edition = 0
"""Counts the calls of `reload()`: what was derived in an earlier edition is derived again."""


def adjusted(values: Mapping[str, Any]) -> Prepared:
    """What is in force here (a scope's profile, the process's, or nothing), with flags changed.

    Args:
        values: flags with their values; legacy spellings are understood.

    Raises:
        RequestError: a flag or a value is wrong, or contradicts what is in force.
        MachineError: this machine cannot serve it, or cannot keep the tier in force.
    """
    return _varied(current(), values)


def assign(values: Mapping[str, Any]) -> None:
    """Change flags of the profile of this process, in place, in every library or in none.

    `undo()` takes the change back together with the `apply` that it changes; with nothing applied
    there is then nothing in force again.

    Raises:
        ProfileBusyError: a scope that is open here decides one of the flags otherwise, so that
            the change would not be seen.
        BackendCfgError: as `adjusted` and `apply`; everything is as before.
    """
    if environ.disabled():
        return
    with _process.lock:
        changed = False
        while not changed:  # until nobody has put another profile in force meanwhile
            over = installed.prepared()
            prepared = _varied(over, values)
            if chain := _native.chain():
                _refuse_unseen(chain[0], prepared, values)
            changed = process.adjust(prepared, over=over)


def overlay(values: Mapping[str, Any], *, busy: Busy = "raise") -> Overlay:
    """A scope in which flags are changed, over what is in force where it is entered.

    Args:
        values: flags with their values. They are checked on entering.
        busy: as for `profile`.
    """
    try:
        # With their types, because 1, 1.0 and True are one key otherwise.
        return _overlays[(busy, *values.items(), *map(type, values.values()))]
    except (KeyError, TypeError):
        pass
    refuse_unknown(busy)
    with _process.lock:
        new = Overlay(dict(values), BUSY[busy])
        _every_overlay.add(new)
        key = (busy, *values.items(), *map(type, values.values()))
        return _remember(_overlays, key, new) if _is_plain(values) else new


class Overlay:
    """A scope that is resolved where it is entered; see `overlay`.

    Use it in `with`, in `async with` or as a decorator. It may be entered again, also by several
    threads and tasks at once.
    """

    __slots__ = ("__weakref__", "_entries", "_exits", "busy", "values")

    def __init__(self, values: Mapping[str, Any], busy: int = 0) -> None:
        self.values = values
        self.busy = busy
        # By what is in force outside, and by what is in force inside.
        self._entries: dict[Prepared | None, Scope] = {}
        self._exits: dict[Prepared | None, Scope] = {}

    @property
    def prepared(self) -> Prepared:
        """What entering it here would put in force."""
        return self._scope().prepared

    def __enter__(self) -> Self:
        try:
            scope = self._entries[current()]
        except KeyError:
            scope = self._scope()
        scope.__enter__()
        return self

    def __exit__(self, kind: object = None, error: object = None, trace: object = None, /) -> None:
        try:
            scope = self._exits[current()]
        except KeyError:
            # Left out of order, or in another context: the compiled part copes, and tells the log.
            exits = self._exits
            mine = (exits[prepared] for prepared in _native.chain() if prepared in exits)
            scope = next(mine, None) or self._scope()
        scope.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self._scope().__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.__exit__(*exception)

    def __call__(self, function: Function) -> Function:
        decorated: Any = wiring.decorate_later(self, function)  # type: ignore[arg-type]
        return decorated  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"overlay({self.values!r})"

    def __reduce__(self) -> tuple[type[Overlay], tuple[Mapping[str, Any], int]]:
        return Overlay, (self.values, self.busy)

    def _scope(self) -> Scope:
        """The scope for what is in force here."""
        in_force = current()
        prepared = _varied(in_force, self.values)
        with _process.lock:
            if prepared not in self._exits:
                self._forget_old()
                if prepared.switches is not None:
                    process.follow_imports_for_scopes()
                children.scopes_may_open()
                self._exits[prepared] = _native.Scope(prepared, self.busy)
            return _remember(self._entries, in_force, self._exits[prepared])

    def _forget_old(self) -> None:
        """Make room for one more way out; those of open scopes stay. Under the lock."""
        if len(self._exits) < KEPT:
            return
        # The newer half stays whole: another thread may be about to enter one of these.
        for prepared in list(self._exits)[: KEPT // 2]:
            if not self._exits[prepared].is_open:
                del self._exits[prepared]
        for outside, scope in list(self._entries.items()):
            if scope.prepared not in self._exits:
                del self._entries[outside]


def forget() -> None:
    """Resolve every variation anew from now on; `reload()` calls it."""
    global edition
    with _process.lock:
        edition += 1
        _resolved.clear()
        _variations.clear()
        for one in _every_overlay:
            # A scope that is open keeps its way out.
            one._entries.clear()


def _varied(in_force: Prepared | None, values: Mapping[str, Any]) -> Prepared:
    """A profile with flags changed, from memory where it was made before."""
    key = (in_force, _frozen(values))
    found = _variations.get(key)
    if found is None:
        wiring.connect()
        with _process.lock:
            found = _remember(_variations, key, _vary(in_force, values))
    return found


def _vary(in_force: Prepared | None, values: Mapping[str, Any]) -> Prepared:
    if environ.disabled():
        return wiring.prepare(wiring.nothing())
    request = in_force.payload.request if in_force is not None else Asked()
    arguments = _arguments(request, values)
    # The same change made again, or taken back by another one, is the same request.
    directory = request.directory or startup.working_directory()
    asked = request.name, request.rank, directory, tuple(sorted(arguments.items()))
    if asked in _resolved:
        return _resolved[asked]
    from backendcfg.session.planning import compiled_request

    compiled = compiled_request(replace(request, arguments=arguments))
    return _remember(_resolved, asked, wiring.prepare(compiled))


def _arguments(request: Asked, values: Mapping[str, Any]) -> dict[str, str]:
    """What to ask for beside the profile: what was asked before, and the change over it."""
    from backendcfg.load.assignments import from_arguments, spelled_out
    from backendcfg.resolve.words import literal

    before = {one.flag: one.value for one in from_arguments(request.arguments)}
    return {flag: literal(value) for flag, value in {**before, **spelled_out(values)}.items()}


def _refuse_unseen(scope: Prepared, prepared: Prepared, values: Mapping[str, Any]) -> None:
    """Refuse a change of the base that the scope open here would hide."""
    from backendcfg.load.assignments import spelled_out

    wanted, there = prepared.payload.values, scope.payload.values
    for flag in spelled_out(values):
        if there and wanted[flag] != there[flag]:
            raise ProfileBusyError(
                f"profile `{scope.name}`, whose scope is open here, holds `{flag}` at"
                f" {shown(there[flag])}, so {shown(wanted[flag])} would not be in force",
                helps=[
                    "set it before the scope is opened",
                    "inside, open a scope: `flags(...)` of its module in `backendcfg.backends`",
                ],
            )


def _remember(memory: dict[Any, Any], key: Any, value: Kept) -> Kept:
    if len(memory) >= KEPT:
        memory.clear()
    memory[key] = value
    return value


def _is_plain(values: Mapping[str, Any]) -> bool:
    return all(isinstance(value, (bool, int, float, str)) for value in values.values())


def _frozen(values: Mapping[str, Any]) -> str:
    """Values as a key; 1, 1.0 and True are three values, though Python holds them equal."""
    return repr([*values.items()])
