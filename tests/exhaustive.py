"""Which tests run every time, and which only when they are asked for.

`pytest` leaves out what is marked `exhaustive`: sweeps over all instruction sets, vendors, faults and
sizes. `pytest --exhaustive 1` runs everything, `pytest --exhaustive 10` about one in ten of those
tests, chosen by their names, so that it is the same ones each time. Both also run what is marked `slow`:
tests of a second and more that a plain run can do without. A test that is named
(`pytest test_x.py::test_y`) and a choice by `-m exhaustive` or `-m slow` are run as asked.

Of the tests that compute on devices over fakes, a plain run has one in three; the others count as
`slow`. Whoever names their folder or file runs all of them.

A test with parameters is marked with how many of its cases run every time:

    @pytest.mark.sweep        # as many as it takes for every value of every parameter
    @pytest.mark.sweep(3)     # three, from the first to the last at equal distances

For a test whose length is a number, the number is a parameter:

    @pytest.mark.parametrize("rounds", [500, pytest.param(10_000, marks=pytest.mark.exhaustive)])

Tests by Hypothesis say how many examples an exhaustive run has; others have an eighth of them:

    @settings(max_examples=examples(400))

`pytest --skipped-in REPORT.xml` runs what an earlier run skipped, as CI does where PyTorch and JAX are
installed: all other tests have run without them.
"""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from xml.etree import ElementTree as ET

import pytest

share = 0
"""One in so many of the tests that are marked runs; 0 for none of them."""


def examples(count):
    """How many examples a test by Hypothesis has in this run."""
    return count if share == 1 else max(count // 8, 10)


def add_option(parser):
    parser.addoption(
        "--exhaustive",
        type=int,
        default=0,
        metavar="N",
        help="also run one in N of the tests that are marked `exhaustive`; 1 runs all",
    )
    parser.addoption(
        "--skipped-in",
        action="append",
        default=[],
        metavar="REPORT",
        help="run only what an earlier run skipped, by its --junitxml REPORT; may be repeated",
    )


def configure(config):
    """Read the option, before test modules are imported."""
    global share
    share = config.getoption("exhaustive")


def select(config, items):
    """Mark the cases of sweeps, and deselect what this run leaves out."""
    tests = defaultdict(list)
    for item in items:
        tests[item.parent, getattr(item, "originalname", item.name)].append(item)
    for cases in tests.values():
        _mark(cases)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        _spare_devices(items)
    if reports := config.getoption("skipped_in"):
        skipped = set().union(*map(_skipped, reports))
        _leave_out(config, items, [item for item in items if _case(item) not in skipped])
    asked = "exhaustive" in config.option.markexpr or any("::" in word for word in config.args)
    if share == 1 or (asked and not share):
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if share:
        left_out = [item for item in left_out if zlib.crc32(_name(item)) % share]
    elif "slow" not in config.option.markexpr:
        left_out += [item for item in items if item.get_closest_marker("slow")]
    _leave_out(config, items, left_out)


def _leave_out(config, items, left_out):
    out = set(left_out)
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=left_out)


def _skipped(report):
    """The cases of a report that were skipped."""
    return {
        (case.get("classname"), case.get("name"))
        for case in ET.parse(report).iter("testcase")
        if case.find("skipped") is not None
    }


def _case(item):
    """A test as pytest names it in a report."""
    return item.nodeid.partition("::")[0].removesuffix(".py").replace("/", "."), item.name


def _name(item):
    """The name of a test that stays where its directory is moved."""
    return f"{item.path.name}::{item.name}".encode()


def _mark(cases):
    """Mark those cases of one test as exhaustive that its sweep does not keep."""
    sweep = cases[0].get_closest_marker("sweep")
    if sweep is None or not hasattr(cases[0], "callspec"):
        return
    kept = _spread(cases, *sweep.args) if sweep.args else _each_value(cases)
    for case in cases:
        if case not in kept:
            case.add_marker(pytest.mark.exhaustive)


def _spare_devices(items):
    """Mark two in three of the tests over fakes as slow: each is a child with libraries of its own."""
    for path, tests in itertools.groupby(items, key=lambda item: item.path):
        if path.parts[-3:-1] == ("gpu", "fakes"):
            for at, item in enumerate(tests):
                if at % 3:
                    item.add_marker(pytest.mark.slow)


def _spread(cases, count):
    """So many cases at equal distances, with the first and the last."""
    last = len(cases) - 1
    return {cases[round(at * last / max(count - 1, 1))] for at in range(count)}


def _each_value(cases):
    """The first cases with a new value of some parameter, taking those first that have the most."""
    values = {
        case: {(name, id(value)) for name, value in case.callspec.params.items()} for case in cases
    }
    missing = set().union(*values.values())
    kept = set()
    while missing:
        best = max(cases, key=lambda case: len(values[case] & missing))
        kept.add(best)
        missing -= values[best]
    return kept
