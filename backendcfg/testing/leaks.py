"""Who left a numeric switch changed: a test with its own fixtures, or a wider fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from backendcfg.audit.guard import Change, Watched, refusal
from backendcfg.bridges import imports

if TYPE_CHECKING:
    from collections.abc import Generator

    from backendcfg.errors import SwitchLeftChangedError


class Leaks:
    """Compares every switch before a test's set-up with after its tear-down.

    A fixture that is wider than a function outlives the test for which it is set up. What it
    changes is no test's doing; it is compared with what is left when the fixture is finished.
    Whatever was left is put back, so that each leak is reported once and the next test starts from
    what the first one started from.
    """

    def __init__(self) -> None:
        self.watched: Watched | None = None
        self.watch: imports.Watch | None = None
        self.wide: dict[int, dict[str, Change]] = {}
        self.faults: list[tuple[str, tuple[Change, ...]]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Remember how everything was."""
        self.watched = Watched()
        self.watch = imports.watch(self.watched.extend)
        self.faults = []
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Note what a wide fixture changes, and take it as it is now."""
        if fixturedef.scope == "function" or self.watched is None:
            return (yield)
        before = {change.switch: change for change in self.watched.changes()}
        try:
            return (yield)
        finally:
            made = {
                change.switch: self._step(before.get(change.switch), change)
                for change in self.watched.changes()
                if change != before.get(change.switch)
            }
            self.wide[id(fixturedef)] = made
            self.watched.accept({name: change.now for name, change in made.items()})

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """A wide fixture has put back what it changed, or it has left it."""
        made = self.wide.pop(id(fixturedef), {})
        if self.watched is None or not made:
            return
        now = {change.switch: change.now for change in self.watched.changes()}
        left = tuple(change for name, change in made.items() if name not in now)
        self.watched.accept({name: change.before for name, change in made.items()})
        if left:
            self.faults.append((f"fixture `{fixturedef.argname}`", left))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail the test whose end finds something otherwise; an error of its own goes first."""
        try:
            result = yield
        except BaseException as error:
            if (leak := self._leak(item)) is not None:
                error.add_note(leak.render())
            raise
        if (leak := self._leak(item)) is not None:
            # Its whole text, and no traceback: the place that raises it is not the one at fault.
            pytest.fail(leak.render(), pytrace=False)
        return result

    def _leak(self, item: pytest.Item) -> SwitchLeftChangedError | None:
        watched, self.watched = self.watched, None
        if self.watch is not None:
            self.watch.remove()
        if watched is None or not (changes := watched.changes()):
            return None
        blamed = {change.switch for _, left in self.faults for change in left}
        own = [change for change in changes if change.switch not in blamed]
        who = [what for what, _ in self.faults]
        who += [f"test `{item.name}`"] if own else []
        return refusal(watched, changes, restore=True, what=" and ".join(who))

    @staticmethod
    def _step(before: Change | None, now: Change) -> Change:
        """The change from what stood before the fixture to what stands after it."""
        return now if before is None else Change(now.switch, before.now, now.now)
