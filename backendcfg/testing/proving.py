"""`--backendcfg-prove=N`: each marked test in N processes, and what they produce compared.

In pytest's own process nothing of a marked test runs, and none of its fixtures: `Prover` puts the
proof in the place of the test. Each run is a pytest of its own, which `one_run` starts and watches.
"""

from __future__ import annotations

import os
import shlex
from contextlib import chdir
from typing import TYPE_CHECKING

import pytest

from backendcfg import childprocess, environ
from backendcfg.audit.evidence.prove import is_loaded, prove
from backendcfg.audit.evidence.sides import held, refuse_disabled, side_of
from backendcfg.audit.report import words
from backendcfg.errors import BackendCfgError, CommandFailedError, UsageError
from backendcfg.resolve.words import counted
from backendcfg.session import planning
from backendcfg.testing import one_run
from backendcfg.testing.plugin import profile_in, refuse_old

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from backendcfg.audit.evidence.prove import Proof
    from backendcfg.testing.one_run import Report

MOST_SHOWN = 3
"""Runs that differ and that are told of."""


class Prover:
    """Proves each test that is marked `backendcfg("profile")`.

    Args:
        config: pytest's.
        asked: how many runs a proof has, as text.

    Raises:
        UsageError: that is no number, or less than 2; or backendcfg is turned off.
    """

    NAME = "backendcfg-prover"

    def __init__(self, config: pytest.Config, asked: str) -> None:
        if not (asked.isascii() and asked.isdecimal() and int(asked) >= 2):
            raise UsageError(
                f"`--backendcfg-prove` needs a number of runs, 2 or more, not `{asked}`",
                state="no test was run",
                helps=["write `--backendcfg-prove=10`, or `backendcfg_prove = 10` as a setting"],
            )
        refuse_disabled()
        self.config = config
        self.runs = int(asked)
        # As it is before a profile is applied to this process, or a test leaves something in it.
        self.environment = environ.copy()
        self.environment.pop("PYTEST_ADDOPTS", None)  # `one_run` hands on what of it is for a run
        self.relayed = pytest.StashKey["Report"]()
        self.sections = pytest.StashKey[list[tuple[str, str]]]()

    def register(self) -> None:
        """Watch for marked tests."""
        refuse_old()
        self.config.pluginmanager.register(self, self.NAME)

    def pytest_report_header(self) -> str:
        """How marked tests are run."""
        return f"backendcfg: each marked test is proven by {self.runs} runs"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Put the proof in the place of a marked test and of its fixtures."""
        marker = item.get_closest_marker("backendcfg")
        if marker is not None:
            item.stash[self.sections] = []
            item.setup = item.teardown = lambda: None  # type: ignore[method-assign]
            item.runtest = lambda: self._prove(item, marker)  # type: ignore[method-assign]

    def refuse_unproven(self, item: pytest.Item) -> None:
        """Fail a test that a fixture marked, when its proof should have begun already."""
        if self.sections not in item.stash:
            pytest.fail(
                "a fixture marked this test, which is too late to prove it: mark it in"
                " `pytest_collection_modifyitems`",
                pytrace=False,
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report a run that did not pass as that run's own pytest did."""
        report = yield
        if call.when != "call" or self.sections not in item.stash:
            return report
        sections = item.stash[self.sections]
        report.sections += sections
        if (run := item.stash.get(self.relayed, None)) is not None:
            report.outcome, report.longrepr = run.outcome, run.longrepr
            if hasattr(run, "wasxfail"):
                report.wasxfail = run.wasxfail
        return report

    def _prove(self, item: pytest.Item, marker: pytest.Mark) -> None:
        """Run the test several times; it passes where all runs do, and are alike."""
        name = profile_in(marker)
        found, obstacle = None, None
        with (
            childprocess.scratch() as folder,
            chdir(self.config.invocation_params.dir),
        ):
            try:
                found = self._proof(item, name, folder)
            except _NotPassedError:
                pass  # its reports tell more
            except BackendCfgError as error:
                obstacle = error
            told = one_run.told(self.config, folder)
        if told:
            self._relay(item, name, told)
        if obstacle is not None:
            if isinstance(obstacle, CommandFailedError):
                self._tell(item, f"it was {self._run(name, len(told) + 1)}")
            pytest.fail(obstacle.render(), pytrace=False)
        if found is None or len(told) < self.runs:
            text = f"a run under {name} exited with 0 before the test ended, as by `os._exit(0)`"
            pytest.fail(text, pytrace=False)
        if not found.equal:
            pytest.fail("\n".join(_different(found, item)), pytrace=False)
        self._tell(item, "\n".join([words.verdict(found), *_unread(found)]))

    def _proof(self, item: pytest.Item, name: str, folder: str) -> Proof:
        """Run the test, and compare what it prints and records.

        Raises:
            _NotPassedError: it did not pass in the first run, and did not fail.
            BackendCfgError: there is no such profile, or a run failed.
        """
        plan = planning.compiled(name)
        command = one_run.ask(item, folder)
        empty = os.path.join(folder, "files")
        os.mkdir(empty)

        def stop(*_: object) -> None:
            """A test that is skipped in the first run is not run again."""
            told = one_run.told(self.config, folder)
            if not told or _odd(told[0]) is not None:
                raise _NotPassedError

        side = side_of(name, plan, environment=self.environment)
        return prove(command, side, held(plan), runs=self.runs, folder=empty, keep=stop)

    def _relay(self, item: pytest.Item, name: str, told: Sequence[Sequence[Report]]) -> None:
        """Show what one run showed: the first that did not pass, else the first of all.

        Raises:
            Exception: pytest's for the outcome of a run that did not pass.
        """
        place = next((at for at, reports in enumerate(told) if _odd(reports) is not None), 0)
        reports, where = told[place], self._run(name, place + 1)
        item.stash[self.sections].extend(reports[-1].sections)
        item.user_properties += getattr(reports[-1], "user_properties", [])
        odd = _odd(reports)
        if odd is None:
            return
        if place and not odd.failed:
            text = f"the test passed in the first run, and not in {where}"
            pytest.fail(f"{text}\n  note: {_reason(odd)}", pytrace=False)
        item.stash[self.relayed] = odd
        if odd.skipped and not hasattr(odd, "wasxfail"):
            pytest.skip(_reason(odd))
        for other in reports:
            if other.failed and other is not odd:
                self._tell(item, f"its {other.when} failed, too\n{other.longreprtext}")
        self._tell(item, f"it was {where}")
        pytest.fail(odd.longreprtext, pytrace=False)

    def _tell(self, item: pytest.Item, text: str) -> None:
        item.stash[self.sections].append(("backendcfg", text))

    def _run(self, name: str, number: int) -> str:
        """Which run it was, in words."""
        load = " (with load)" if is_loaded(number - 1) else ""
        return f"run {number} of {self.runs} under {name}{load}"


class _NotPassedError(Exception):
    """Ends the proof of a test that the first run did not fail, nor pass."""


def _odd(reports: Sequence[Report]) -> Report | None:
    """The first report of a run which says that the test did not pass."""
    return next((one for one in reports if not one.passed), None)


def _reason(report: Report) -> str:
    """Why a test was skipped, in words."""
    found = report.longrepr
    return str(found[2]) if isinstance(found, tuple) else report.longreprtext


def _different(found: Proof, item: pytest.Item) -> Iterator[str]:
    """What runs produced otherwise, and what to do."""
    yield words.verdict(found)
    for one in found.differences[:MOST_SHOWN]:
        for what in words.produced(one):
            yield f"  run {one.run}{words.surroundings(one)}: {what}"
    if (more := len(found.differences) - MOST_SHOWN) > 0:
        yield f"  and {counted(more, 'more run')}"
    yield f"  varied: {', '.join(found.varied)}"
    yield from (f"  {what}" for what in _unread(found))
    command = shlex.join(["python", "-m", "pytest", "-s", item.nodeid])
    prove = f"backendcfg prove {shlex.quote(found.profile)} --why -- {command}"
    yield f"  help: where PyTorch computes it, `{prove}` names the operation"


def _unread(found: Proof) -> list[str]:
    return [f"not compared: {what}" for what in found.unread]
