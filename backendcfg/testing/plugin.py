"""The pytest plugin: a profile for the run, for one test, and a guard around every test.

`backendcfg_pytest`, which pytest loads by itself, registers these only when they are asked for.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

import backendcfg
from backendcfg.errors import BackendCfgError, PendingWarning
from backendcfg.session import installed
from backendcfg.testing.leaks import Leaks

if TYPE_CHECKING:
    from collections.abc import Generator

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
        _refuse_old()
        if self.profile:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PendingWarning)  # the header says it
                    self.report = backendcfg.apply(self.profile)
            except BackendCfgError as error:
                raise pytest.UsageError(error.render()) from error
        else:
            self.report = installed.report()
        self.config.pluginmanager.register(self, "backendcfg-suite")
        if self.guard:
            self.config.pluginmanager.register(Leaks(), "backendcfg-leaks")

    def pytest_report_header(self) -> list[str]:
        """The profile and what of it cannot hold in this process, and whether tests are guarded."""
        lines = []
        if self.report is not None:
            tier = self.report.tier
            in_force = f"{tier}, {'' if self.report.in_force else 'not '}in force"
            by = "" if self.profile else f", by {installed.source()}"
            lines.append(f"backendcfg: profile {self.report.profile} ({in_force}){by}")
            pending = [one for one in self.report.outcomes if one.state == "pending"]
            lines += [f"backendcfg: pending {one.switch}: {one.because}" for one in pending]
            if pending:
                words = f"backendcfg run {self.report.profile} -- pytest ..."
                lines.append(f"backendcfg: what is pending holds under `{words}`")
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
            _refuse_old()
            config.pluginmanager.register(cls(), cls.NAME)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """The test function, inside a scope; fixtures are set up before it."""
        marker = item.get_closest_marker("backendcfg")
        if marker is None:
            return (yield)
        if len(marker.args) != 1 or marker.kwargs or not isinstance(marker.args[0], str):
            pytest.fail('write the marker as `@pytest.mark.backendcfg("profile")`', pytrace=False)
        with backendcfg.profile(marker.args[0]):
            return (yield)


def _refuse_old() -> None:
    if pytest.version_tuple[:2] < OLDEST:
        raise pytest.UsageError(
            f"backendcfg's options need pytest {OLDEST[0]}.{OLDEST[1]} or newer,"
            f" and this is {pytest.__version__}"
        )
