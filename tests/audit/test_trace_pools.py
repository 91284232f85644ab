"""Tasks of pools, recorded alike whichever worker takes which, and however many there are."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from backendcfg.audit.trace import pools, streams
from backendcfg.audit.trace.reading import partings, read
from backendcfg.audit.trace.streams import Recorder, Wanted, want

POOLS = {
    "threads": "futures.ThreadPoolExecutor({workers})",
    "processes": "futures.ProcessPoolExecutor({workers})",
    "multiprocessing's threads": "pool.ThreadPool({workers})",
    "multiprocessing's processes": "pool.Pool({workers})",
}

# Of six tasks: `map` of an executor hands in each by itself, that of multiprocessing all at once.
KEYS = {kind: [f"0.{n}" if "multiprocessing" in kind else n for n in range(6)] for kind in POOLS}

PROGRAM = """
import os
from concurrent import futures
from multiprocessing import pool
import numpy as np

def norm(number):
    if number == {first}:
        while not os.path.exists("last"):
            pass  # others compute what comes after it
    if number == 5:
        open("last", "w").close()
    x = np.arange(number, number + 4.0)
    return float(np.sqrt(np.dot(x, x)))

if __name__ == "__main__":
    with {pool} as made:
        found = list(made.map(norm, range(6), chunksize=1))
    os.remove("last")
    np.add(found, 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", POOLS)
def test_tasks_have_the_same_streams_whichever_workers_compute_them(recorded, names, kind):
    def run(workers, first):
        made = POOLS[kind].format(workers=workers)
        streams, _ = recorded(PROGRAM.format(pool=made, first=first))
        return [one for one in streams if len(one.records)]

    found = run(3, first=0)
    assert {one.key: names(one) for one in found} == {
        "0-0": ["numpy.add float64"],
        **{f"0-0.{key}": ["numpy.dot float64", "numpy.sqrt float64"] for key in KEYS[kind]},
    }
    assert partings(found, run(3, first=2)) == []
    assert partings(found, run(1, first=-1)) == []


@pytest.mark.slow
@pytest.mark.skipif(find_spec("joblib") is None, reason="joblib is not installed")
@pytest.mark.parametrize("prefer", ["threads", "processes"])
def test_each_call_of_joblib_is_a_task_whatever_batches_it_makes(recorded, names, prefer):
    program = """
import numpy as np
from joblib import Parallel, delayed

def norm(x):
    return float(np.sqrt(x @ x))

rows = np.arange(24.0).reshape(8, 3)
found = Parallel({workers}, prefer="{prefer}", batch_size={size})(
    delayed(norm)(np.negative(row)) for row in rows
)
np.add(found, 1)
"""
    run = lambda **how: recorded(program.format(prefer=prefer, **how))[0]
    found = run(workers=2, size="'auto'")
    of = {one.key: names(one) for one in found if len(one.records)}
    assert of.pop("0-0") == ["numpy.add float64"]
    assert list(of) == [f"0-0.0.{n}" for n in range(16)]
    assert {tuple(of[f"0-0.0.{n}"]) for n in range(0, 16, 2)} == {("numpy.negative float64",)}
    assert partings(found, run(workers=3, size=2)) == []


def test_a_task_of_a_task_is_below_it(recorded, names):
    found, _ = recorded(
        """
from concurrent.futures import ThreadPoolExecutor
import numpy as np

def outer(pool):
    with ThreadPoolExecutor(1) as inner:
        inner.submit(np.sqrt, np.array([2.0])).result()
    np.exp(1.0)

with ThreadPoolExecutor(2) as pool:
    for one in [pool.submit(outer, pool) for _ in range(2)]:
        one.result()
"""
    )
    of = {one.key: names(one) for one in found if len(one.records)}
    exp, sqrt = ["numpy.exp float64"], ["numpy.sqrt float64"]
    assert of == {"0-0.0": exp, "0-0.1": exp, "0-0.0.0": sqrt, "0-0.1.0": sqrt}


def test_results_and_exceptions_of_tasks_are_the_functions_own(recorded):
    _, printed = recorded(
        """
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

def fail(word, *, more):
    raise LookupError(word + more)

with ThreadPoolExecutor(1) as pool, ThreadPool(1) as other, ProcessPoolExecutor(1) as third:
    print(pool.submit(fail, "a", more="b").exception())
    print(pool.submit(int, "7", base=8).result())
    print(other.apply(int, ("7",), {"base": 8}), other.starmap(max, [(1, 2), (4, 3)]))
    try:
        other.map(int, ["1", "x"])
    except ValueError as error:
        print(error)
    print(third.submit(int, "7", base=8).result())
    print("pickle" in str(third.submit(lambda: 0).exception()))
    print(pool.submit.__name__)
"""
    )
    assert printed.splitlines() == [
        "ab",
        "7",
        "7 [2, 4]",
        "invalid literal for int() with base 10: 'x'",
        "7",
        "True",
        "submit",
    ]


def test_tasks_beyond_the_most_are_run_and_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MOST_TASKS", 2)
    want(str(tmp_path), Wanted())
    recorder = Recorder(str(tmp_path))
    monkeypatch.setattr(pools, "_recorder", recorder)

    def compute(number):
        recorder.stream().add("mm", number)
        below.append(recorder.new_task())
        return -number

    below = []
    keys = [recorder.new_task() for _ in range(4)]
    assert keys == ["0-0.0", "0-0.1", "", ""]
    assert [pools.Task(compute, key)(n) for n, key in enumerate(keys)] == [0, -1, -2, -3]
    assert below == ["0-0.0.0", "0-0.1.0", "", ""]
    recorder.flush()
    assert [(one.key, one.records["digest"].tolist()) for one in read(str(tmp_path))] == [
        ("0-0", []),
        ("0-0.0", [0]),
        ("0-0.1", [1]),
    ]


def test_a_task_in_a_process_that_is_not_recorded_is_the_function(monkeypatch):
    monkeypatch.setattr(pools, "_recorder", None)
    assert pools.Task(int, "0-0.0")("7", base=8) == 7
