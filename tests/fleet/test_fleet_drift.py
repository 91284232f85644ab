"""Whether a rank says that it no longer computes as it did."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
from test_fleet_agreement import PARTS

from backendcfg.errors import FleetWarning
from backendcfg.fleet import Change, drift


@pytest.fixture(name="parts")
def _parts(monkeypatch):
    """The parts of this rank's token, to be changed."""
    parts = copy.deepcopy(PARTS)
    monkeypatch.setattr(
        drift, "numerics_token", lambda: SimpleNamespace(parts=copy.deepcopy(parts))
    )
    monkeypatch.setattr(drift, "group_of", lambda: SimpleNamespace(names=[8, 9], rank=1))
    return parts


def told(watch):
    """What a look gives, and the warnings that it shows."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = watch()
    assert {one.category for one in seen} <= {FleetWarning}
    assert {one.filename for one in seen} <= {__file__}
    return found, [str(one.message) for one in seen]


def test_a_change_is_told_once_with_the_rank_and_each_value_anew(parts):
    watch = drift.watch(every=0)
    assert told(watch) == ((), [])
    parts["switches"]["torch.num_threads"] = 7
    text = "rank 9 computes otherwise than it did\n  torch.num_threads: 4 then, 7 now"
    assert told(watch) == ((Change("switches.torch.num_threads", 4, 7),), [text])
    assert told(watch) == ((), [])
    parts["switches"]["torch.num_threads"] = 8
    assert told(watch)[0] == (Change("switches.torch.num_threads", 4, 8),)
    parts["switches"]["torch.num_threads"] = 4
    assert told(watch) == ((), [])
    parts["switches"]["torch.num_threads"] = 8
    assert told(watch)[0] == (Change("switches.torch.num_threads", 4, 8),)


def test_what_is_imported_later_or_a_rank_s_own_is_no_change(parts):
    watch = drift.watch(every=0)
    parts["switches"]["openblas[scipy].threads"] = 4
    parts["versions"]["scipy"] = "1.17"
    parts["facts"]["torch.default_device"] = "cuda:0"
    parts["switches"]["mkl[torch].local_threads"] = 3
    assert told(watch) == ((), [])


def test_a_flag_or_a_variable_that_comes_or_goes_is_a_change(parts):
    watch = drift.watch(every=0)
    parts["flags"]["seed.value"] = 7
    del parts["variables"]["MKL_CBWR"]
    assert told(watch) == (
        (Change("flags.seed.value", None, 7), Change("variables.MKL_CBWR", "AUTO", None)),
        [
            (
                "rank 9 computes otherwise than it did\n  flags.seed.value: unset then, 7 now\n"
                '  variables.MKL_CBWR: "AUTO" then, unset now'
            )
        ],
    )


def test_many_changes_are_told_in_a_few_lines(parts):
    watch = drift.watch(every=0)
    parts["flags"] |= {f"flag.{number}": number for number in range(20)}
    found, (text,) = told(watch)
    assert len(found) == 20
    assert text.splitlines()[-1] == "  and 12 more"
    assert len(text.splitlines()) == 1 + 8 + 1


def test_between_two_looks_nothing_is_read(parts):
    watch = drift.watch(every=1e9)
    parts["switches"]["torch.num_threads"] = 7
    assert told(watch) == ((), [])
    assert told(watch.look)[0] == (Change("switches.torch.num_threads", 4, 7),)


def test_a_process_that_is_no_rank_watches_itself():
    script = """
import warnings
import numpy, threadpoolctl
import backendcfg.fleet
watch = backendcfg.fleet.watch(every=0)
watch()
threadpoolctl.threadpool_limits(1, user_api="blas")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    print([(one.name, one.now) for one in watch()])
print(str(seen[0].message).splitlines()[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", "import os; os.environ['OPENBLAS_NUM_THREADS'] = '2'\n" + script],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == (
        "[('switches.openblas[numpy].threads', 1)]\nthis process computes otherwise than it did\n"
    )
