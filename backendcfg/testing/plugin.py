"""The pytest plugin: a profile for the run, for one test, and a guard around every test.

`backendcfg_pytest`, which pytest loads by itself, registers these only when they are asked for.
`Leaks` says who left a numeric switch changed: a test with its own fixtures, or a wider fixture.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import backendcfg
from backendcfg import environ, startup
from backendcfg.audit.guard import Change, Watched, refusal
from backendcfg.bridges import imports
from backendcfg.errors import BackendCfgError, PendingWarning
from backendcfg.probe.limits import given_share, share_out
from backendcfg.session import installed
from backendcfg.session.choice import chosen
from backendcfg.session.planning import compiled_pick

if TYPE_CHECKING:
    from collections.abc import Generator

    from backendcfg.errors import SwitchLeftChangedError
    from backendcfg.transact.outcome import Report


OLDEST = (8, 0)


class Suite:
    """A run of tests under a profile, under guard, or both.

    Args:
        config: pytest's.
        profile: the profile of the whole run; "" for the one in force here, if there is one.
        guard: whether to guard every test.
    """

    def __init__(self, config: pytest.Config, profile: str, *, guard: bool) -> None:
        self.config = config
        self.profile = profile
        self.guard = guard
        self.report: Report | None = None

    def register(self) -> None:
        """Apply the profile, before any test module is imported, and watch the tests.

        Raises:
            pytest.UsageError: the profile cannot be applied.
        """
        refuse_old()
        share_cores(self.config)
        try:
            if self.profile:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PendingWarning)  # the header says it
                    self.report = backendcfg.apply(self.profile)
            else:
                self.report = installed.report()
                if self.report is None and (picked := chosen()) is not None:
                    compiled_pick(picked)  # raises what the start of this process said in one line
        except BackendCfgError as error:
            raise pytest.UsageError(error.render()) from error
        self.config.pluginmanager.register(self, "backendcfg-suite")
        if self.guard:
            self.config.pluginmanager.register(Leaks(), "backendcfg-leaks")

    def pytest_report_header(self) -> list[str]:
        """The profile and what of it cannot hold in this process, and whether tests are guarded."""
        lines = []
        if self.report is not None and not environ.disabled():
            tier = self.report.tier
            in_force = f"{tier}, {'' if self.report.in_force else 'not '}in force"
            by = "" if self.profile else f", by {installed.source()}"
            lines.append(f"backendcfg: profile {self.report.profile} ({in_force}){by}")
            pending = [one for one in self.report.outcomes if one.state == "pending"]
            lines += [f"backendcfg: pending {one.switch}: {one.because}" for one in pending]
            if pending:
                words = f"backendcfg run {self.report.profile} -- pytest ..."
                lines.append(f"backendcfg: what is pending holds under `{words}`")
            untrusted = not startup.may_have_profile(committed=False)[0]
            if not self.profile and (untrusted or startup.is_off()):
                cure = "backendcfg trust" if untrusted else "backendcfg autoload on"
                lines.append(
                    f"backendcfg: Python that a test starts has no profile before `{cure}`"
                )
        elif not self.guard and not environ.disabled():
            lines.append("backendcfg: no profile is in force")
        if self.guard:
            lines.append("backendcfg: tests must leave numeric switches as they find them")
        return lines

    def pytest_unconfigure(self) -> None:
        """Take the profile back: pytest may run inside a program that goes on."""
        if self.profile and self.report is not None and installed.depth():
            backendcfg.undo()


class Marked:
    """Runs each test that is marked `backendcfg("profile")` with that profile in force."""

    NAME = "backendcfg-marked"

    @classmethod
    def register(cls, config: pytest.Config) -> None:
        """Register it, once."""
        if not config.pluginmanager.has_plugin(cls.NAME):
            refuse_old()
            share_cores(config)
            config.pluginmanager.register(cls(), cls.NAME)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """The test function, inside a scope; fixtures are set up before it."""
        marker = item.get_closest_marker("backendcfg")
        if marker is None:
            return (yield)
        cases = sys.modules.get("unittest.async_case")
        if cases and isinstance(getattr(item, "instance", None), cases.IsolatedAsyncioTestCase):
            pytest.fail(
                "`@pytest.mark.backendcfg` does not reach a test of `IsolatedAsyncioTestCase`,"
                " which has a context of its own; write `with backendcfg.profile(...):` in it",
                pytrace=False,
            )
        with backendcfg.profile(profile_in(marker)):
            return (yield)


def profile_in(marker: pytest.Mark) -> str:
    """The profile that a marker names; the test fails whose marker does not."""

    def given(profile: object) -> object:
        return profile

    try:
        name = given(*marker.args, **marker.kwargs)
    except TypeError:
        name = None
    if not isinstance(name, str):
        pytest.fail('write the marker as `@pytest.mark.backendcfg("profile")`', pytrace=False)
    return name


def share_cores(config: pytest.Config) -> None:
    """Give each worker of pytest-xdist its share of the cores, for `threads.count = "auto"`.

    Its workers inherit the variable, which their interpreters read before they know that they are
    workers. A worker that has none, as where only markers ask for profiles, takes its own share.
    """
    if (worker := getattr(config, "workerinput", None)) is not None:
        workers = worker["workercount"] if given_share()[0] is None else 0
    elif getattr(config.option, "dist", "no") == "no":
        workers = 0
    else:  # each is `popen`, or `3*popen` where `--tx` said so; other machines are not shared
        given = [one.rpartition("*") for one in config.option.tx or ()]
        workers = sum(int(many or 1) for many, _, way in given if way.startswith("popen"))
    if workers > 1:
        before = environ.CORES.read()
        config.add_cleanup(functools.partial(environ.put, environ.CORES.name, before))
        share_out(workers)


def refuse_old() -> None:
    """Refuse a pytest that lacks what the plugin needs.

    Raises:
        pytest.UsageError: it is too old.
    """
    if pytest.version_tuple[:2] < OLDEST:
        raise pytest.UsageError(
            f"backendcfg's options need pytest {OLDEST[0]}.{OLDEST[1]} or newer,"
            f" and this is {pytest.__version__}"
        )


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
        left = tuple(
            Change(name, change.before, value)
            for name, change in made.items()
            if (value := now.get(name, change.now)) != change.before
        )
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
