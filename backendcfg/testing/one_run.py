"""One run of a proof: how its pytest is started, and the plugin that this loads.

It runs one test, prints what that printed and nothing else, and leaves its reports in a folder.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from backendcfg import childprocess
from backendcfg.errors import InvalidArgumentError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Mapping

    Report = pytest.CollectReport | pytest.TestReport

ASKED = "asked"
"""The file in the folder that holds `Asked`."""

TOLD = "told"
"""The file that gets a line for each run: the reports of the test, as JSON."""

OPTION = "--backendcfg-run"

KEPT = ("fulltrace", "log_level", "runxfail", "showlocals", "tbstyle", "verbose")
"""Options of pytest that say how a test runs and how its failure reads."""


@dataclass(frozen=True)
class Asked:
    """What a run is for.

    Attributes:
        place: the test, as `place` gives it.
        options: of the outer pytest that hold here too, by the names of their values.
    """

    place: tuple[str, str]
    options: Mapping[str, Any]


def place(item: pytest.Item) -> tuple[str, str]:
    """The file of a test and its name in there, whatever pytest was called with."""
    file = next((node for node in item.listchain() if isinstance(node, pytest.File)), None)
    return str(item.path), item.nodeid.removeprefix(file.nodeid if file is not None else "")


def ask(item: pytest.Item, folder: str) -> list[str]:
    """Write what a run is for, and give the command that makes it.

    Args:
        item: the test.
        folder: where it is written, and what the run leaves.

    Raises:
        InvalidArgumentError: no other process can be given the value of an option.
    """
    given, early = vars(item.config.option), item.config.known_args_namespace
    # Those that conftest.py files declare. Another plugin's may ask for a report of all tests.
    own = given.keys() - vars(early).keys()
    options = {name: given[name] for name in (*KEPT, *own) if name in given}
    options["basetemp"] = os.path.join(folder, "tmp")
    try:
        asked = pickle.dumps(Asked(place(item), options))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgumentError(
            f"an option that a conftest.py declares has a value for this process only: {error}",
            state="the test was not run",
            helps=["have the option's `type` give text, numbers, or what `pickle` takes"],
        ) from error
    with open(os.path.join(folder, ASKED), "wb") as file:
        file.write(asked)
    return _command(item, early, folder)


def _command(item: pytest.Item, early: argparse.Namespace, folder: str) -> list[str]:
    """A pytest with the options that it needs before it can read `Asked`."""
    config = item.config
    plugins = config.pluginmanager
    # What `addopts` says is in the outer options, with much that is not for a run.
    settings = {"addopts": "", "backendcfg_prove": "", "backendcfg_profile": ""}
    settings["backendcfg_guard"] = str(plugins.has_plugin("backendcfg-leaks"))
    if plugins.has_plugin("cacheprovider"):  # else nobody knows the setting
        settings["cache_dir"] = os.path.join(folder, "cache")
    listed = [("-p", name) for name in (*early.plugins, __name__)]
    listed += [("-W", text) for text in early.pythonwarnings or ()]
    listed += [("-o", text) for text in early.override_ini or ()]
    listed += [("-o", f"{name}={text}") for name, text in settings.items()]
    # An argument with `[` or `::` would name a test; the run finds its own among more files, too.
    paths = map(str, (item.path, *item.path.parents))
    path = next(path for path in paths if "[" not in path and "::" not in path)
    return [
        sys.executable,
        *([] if {"", str(config.invocation_params.dir)} & set(sys.path) else ["-P"]),
        *("-m", "pytest", "-c", str(config.inipath or os.devnull)),
        f"--rootdir={config.rootpath}",
        f"--confcutdir={early.confcutdir}",
        f"--import-mode={early.importmode}",
        f"--assert={early.assertmode}",
        *(["--noconftest"] if early.noconftest else []),
        *(word for pair in listed for word in pair),
        f"{OPTION}={folder}",
        path,
    ]


def told(config: pytest.Config, folder: str) -> list[list[Report]]:
    """The reports of each run that left some."""
    path = os.path.join(folder, TOLD)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    return [[_report(config, data) for data in run] for run in runs if run]


def _report(config: pytest.Config, data: Mapping[str, Any]) -> Report:
    found: Report = config.hook.pytest_report_from_serializable(config=config, data=data)
    if isinstance(found.longrepr, list):  # JSON has no tuples
        found.longrepr = found.longrepr[0], found.longrepr[1], found.longrepr[2]
    found.sections = [(title, text) for title, text in found.sections]
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option that names the folder."""
    parser.getgroup("backendcfg").addoption(OPTION, metavar="FOLDER", help="For a run of a proof.")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """End with the process that waits for this one: pytest's own may be interrupted alone."""
    childprocess.end_with_parent()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take over the outer options, before a plugin or a conftest.py is configured by them."""
    folder = config.getoption("backendcfg_run")
    with open(os.path.join(folder, ASKED), "rb") as file:
        asked: Asked = pickle.load(file)  # noqa: S301 - `ask` wrote it
    vars(config.option).update(asked.options)
    config.pluginmanager.register(OneRun(config, folder, asked))


class OneRun:
    """Runs the test and keeps its reports.

    Args:
        config: pytest's.
        folder: where the reports go.
        asked: what to run.
    """

    def __init__(self, config: pytest.Config, folder: str, asked: Asked) -> None:
        self.config = config
        self.folder = folder
        self.asked = asked
        self.reports: list[Any] = []
        # Until pytest is configured, so that its own lines go nowhere; tests find the true one.
        self.stdout, sys.stdout = sys.stdout, io.StringIO()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Give standard output back, once what prints pytest's own lines has the other."""
        sys.stdout = self.stdout

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the one test."""
        items[:] = [item for item in items if place(item) == self.asked.place][:1]
        if not items:
            name = self.asked.place[1].removeprefix("::")
            raise pytest.UsageError(
                f"this run finds no test `{name}`: its name differs from run to run, or an option"
                " of another plugin makes it"
            )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a test pass that was expected to fail: it may yet differ, which is failing, too."""
        report = yield
        if report.failed and call.excinfo is None:
            report.outcome = "passed"
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a file could not be read."""
        if report.failed:
            self._keep(report)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep it, and print what the test printed once that is all; nothing is captured here."""
        self._keep(report)
        if report.when == "teardown":
            sys.stdout.write(report.capstdout)

    def _keep(self, report: Report) -> None:
        write = self.config.hook.pytest_report_to_serializable
        self.reports.append(write(config=self.config, report=report))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Tell the outer pytest."""
        with open(os.path.join(self.folder, TOLD), "a", encoding="utf-8") as file:
            file.write(json.dumps(self.reports, default=str) + "\n")
