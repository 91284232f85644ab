"""`with guard():`: no numeric switch may be left changed, by whoever wrote it.

Every switch that our bridges can read in this process is watched, whether or not a profile is in
force, and so are the variables of numeric libraries and the facts that have no flag of ours, such
as the default dtype. A library that is imported inside brings new
switches, which is no change; what becomes of them after the import is watched too.
"""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import ContextDecorator
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.audit import facts, survey
from backendcfg.bridges import environment, imports
from backendcfg.errors import BackendCfgError, InvalidArgumentError, SwitchLeftChangedError
from backendcfg.records import record
from backendcfg.registry import base, owners
from backendcfg.session import installed, process, wiring
from backendcfg.transact import journal
from backendcfg.transact.outcome import listed, shown
from backendcfg.transact.switch import ANYTIME, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from backendcfg.audit.survey import SwitchReading

    _Function = TypeVar("_Function", bound=Callable[..., Any])


@record(frozen=True)
class Change:
    """One switch, fact or variable that does not hold what it held.

    Attributes:
        switch: the name of the switch, of the fact, or of the variable.
        before: what it held; None for a variable that was not set.
        now: what it holds.
    """

    switch: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"`{self.switch}` was {shown(self.before)} and is {shown(self.now)}"


class Watched:
    """Every switch, fact and variable as they were when this was made.

    Facts, and switches whose reach is one thread, are compared only in the thread that made it.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.depth = installed.depth()
        self.base = installed.prepared()
        self.switches: dict[str, SwitchReading] = survey.survey()
        self.facts = facts.facts()
        self.variables = survey.variables()
        self.kept = environment.kept()

    def changes(self) -> tuple[Change, ...]:
        """What is otherwise now, in the order in which a profile would write it."""
        now = survey.survey()
        self._expect(now)
        found = [
            Change(name, was.own, now[name].own)
            for name, was in self.switches.items()
            if name in now and self._differs(was, now[name])
        ]
        variables = survey.variables()
        return (
            *found,
            *self._changed_facts(),
            *(
                Change(name, self.variables.get(name), variables.get(name))
                for name in sorted({*self.variables, *variables})
                if self.variables.get(name) != variables.get(name)
            ),
        )

    def extend(self, _module: str = "") -> None:
        """Take what a library brings, at the moment that it was imported, as it is then."""
        for name, switch in survey.survey().items():
            self.switches.setdefault(name, switch)
        for name, value in facts.facts().items():
            if not facts.is_option(name):  # before it was imported, nobody had set it
                self.facts.setdefault(name, value)

    def _expect(self, now: Mapping[str, SwitchReading]) -> None:
        """Take of what came without an import, as by ctypes, what it began with.

        That is what the profile in force wants, or else what a child process finds.
        """
        came_since = now.keys() - self.switches.keys()
        if not came_since or self.base is None or installed.prepared() is not self.base:
            return
        for setting in wiring.settings(self.base.payload):
            name, own = setting.switch.name, setting.wanted
            if name not in came_since or setting.switch.latch not in ANYTIME:
                continue
            came: Any = now[name].switch
            if now[name].own != own:
                try:
                    own = came.afresh({})
                except (LookupError, AttributeError):
                    continue  # nobody can tell
            self.switches[name] = survey.SwitchReading(came, setting.flag, own, own=own)

    def accept(self, switches: Mapping[str, Any]) -> None:
        """Take these switches, facts and variables as they are given."""
        for name, value in switches.items():
            if name in self.switches:
                was = self.switches[name]
                self.switches[name] = survey.SwitchReading(was.switch, was.flag, value, own=value)
            elif facts.is_fact(name):
                self.facts[name] = value
            elif value is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = value

    def restore(self) -> tuple[str, ...]:
        """Put back what was changed, all that can be.

        What was applied to the process since is taken back first, by `undo` or by putting the
        profile that was in force in its place. A switch that an open scope holds is the scope's to
        put back.

        Returns:
            What could not be put back, and why, in words.
        """
        left: list[str] = []
        try:
            while installed.depth() > self.depth:
                process.undo()
            now = installed.prepared()
            if self.base is not None and now not in (self.base, None):
                process.adjust(self.base, over=now)
        except BackendCfgError as error:
            left.append(error.message)
        for change in self.changes():
            try:
                obstacle = self._put_back(change)
            except BackendCfgError as error:
                obstacle = "; ".join([error.message, *error.notes])
            if obstacle:
                left.append(f"`{change.switch}`: {obstacle}")
        return tuple(left)

    def _changed_facts(self) -> list[Change]:
        if threading.get_ident() != self.thread:
            return []
        now = facts.facts()
        # An option that was not set is at its default; other facts come with their library.
        names = [name for name in {**self.facts, **now} if facts.is_option(name) or name in now]
        pairs = [
            (name, _fact(self.facts, name), _fact(now, name))
            for name in names
            if facts.is_option(name) or name in self.facts
        ]
        return [
            Change(name, before, after)
            for name, before, after in pairs
            if facts.plain(before) != facts.plain(after)
        ]

    def _differs(self, was: SwitchReading, now: SwitchReading) -> bool:
        if was.obstacle or now.obstacle:
            return False
        if was.switch.reach == "thread" and threading.get_ident() != self.thread:
            return False
        if now.own == was.own:
            return False
        # What a profile put there when its library was imported, before or after this saw it.
        mine = base.applied().get(now.switch.name)
        if mine is None or installed.prepared() is not self.base:
            return True
        return (mine.original, mine.setting.wanted) != (was.own, now.own)

    def _put_back(self, change: Change) -> str:
        """Put one change back; why that is not done, or ""."""
        if change.switch not in self.switches and facts.is_fact(change.switch):
            return facts.put_back(change.switch, change.before)
        if change.switch not in self.switches:
            why = environment.kept().get(change.switch, "")
            if why and change.switch not in self.kept:
                return why  # it was read since, and not as it was before
            environ.put(change.switch, change.before)
            return ""
        was = self.switches[change.switch]
        switch = was.switch
        with owners.LOCK:
            if owners.cell_of(switch).claims:
                return "an open scope holds it"
            if switch.latch not in ANYTIME:
                return switch.too_late() or "it can be set once only"
            journal.transact([Setting(switch, was.own, was.flag)], _nothing)
        return ""


class Guard(ContextDecorator):
    """What `guard` returns: it is entered with `with`, or decorates a function."""

    def __init__(self, *, restore: bool) -> None:
        self._restore = restore
        self._open: list[tuple[Watched, imports.Watch]] = []

    def __enter__(self) -> Watched:
        watched = Watched()
        self._open.append((watched, imports.watch(watched.extend)))
        return watched

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        watched, watch = self._open.pop()
        watch.remove()
        if not (changes := watched.changes()) or isinstance(error, GeneratorExit):
            return
        refused = refusal(watched, changes, restore=self._restore)
        if error is None:
            raise refused
        error.add_note(refused.render())

    def __call__(self, function: _Function) -> _Function:
        """The function, or coroutine function, with a block around each call.

        Raises:
            InvalidArgumentError: it is a generator function.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidArgumentError(
                f"`guard` cannot decorate `{function.__qualname__}`: other code runs between the"
                " steps of a generator",
                helps=["write `with backendcfg.guard():` around the loop that reads it"],
            )
        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        async def watched(*positional: Any, **named: Any) -> Any:
            with Guard(restore=self._restore):
                return await function(*positional, **named)

        return watched  # type: ignore[return-value]  # a coroutine function, as it was

    def _recreate_cm(self) -> Guard:
        return Guard(restore=self._restore)


def guard(*, restore: bool = False) -> Guard:
    """A block, or a decorated function, that must leave every numeric switch as it found it.

    Watched are the switches of every library that is loaded, as far as a bridge can read them, and
    what has no flag of ours (`audit.facts`), in this thread, and the variables of numeric
    libraries. What other threads and tasks write in the
    meantime counts as well, since most switches are the process's. It nests. It decorates functions
    and coroutine functions, and refuses generators.

    Args:
        restore: put back what was changed before raising. Without it everything is left as it
            is found, because somebody else may rely on it by now.

    Returns:
        A context manager, which gives what is watched: `changes()` tells at any time what is
        otherwise.

    Raises:
        SwitchLeftChangedError: on leaving, with every switch, its old and its new value. When the
            block raises, its own exception goes on, and carries this as a note.
    """
    return Guard(restore=restore)


def refusal(
    watched: Watched, changes: tuple[Change, ...], *, restore: bool, what: str = "the block"
) -> SwitchLeftChangedError:
    """The error for what was left changed, after putting it back if asked."""
    names = listed([change.switch for change in changes])
    notes = [str(change) for change in changes]
    if installed.depth() > watched.depth and (late := installed.prepared()):
        notes.append(f"profile `{late.name}` was applied and not taken back")
    state = "the switches are as they were left"
    if restore:
        left = watched.restore()
        state = "; ".join(["not all could be put back", *left] if left else ["all were put back"])
    return SwitchLeftChangedError(
        f"{what} left {names} changed",
        notes=notes,
        state=state,
        helps=["set it for a block only, `with backendcfg.profile(...)`, or put it back after use"],
    )


def _fact(found: Mapping[str, Any], name: str) -> Any:
    return found[name] if name in found else facts.initial(name)


def _nothing() -> None:
    """There is no new profile to publish."""
