"""What was imported under a profile is, after undo, as if the profile had never been applied."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys

import pytest

ONE_THREAD = "schema = 1\n[threads]\ncount = 1\n"
EVERYTHING = {"threads.count": 1, "threads.dynamic": True, "mkl.verbose": 1, "mkldnn.verbose": 1}

STATE = """
import json, os, sys, threading
import backendcfg
def state():
    import threadpoolctl
    from backendcfg.bridges.pool_calls import inventory
    from backendcfg.bridges.verbose import library_levels
    torch = sys.modules.get("torch")
    def count(): return torch and torch.get_num_threads()
    def pools():
        return {
            p.label: [p.get(), p.get_dynamic and p.get_dynamic(), p.set_local and p.set_local(0)]
            for p in inventory().pools
        }
    def openmp(): return {name: now for name, now in pools().items() if name.startswith("openmp")}
    thread = []
    def look(): thread.extend([openmp(), count(), openmp()])
    found = {
        "PyTorch": count(),
        "threadpoolctl": sorted(
            [each["filepath"], each["num_threads"]] for each in threadpoolctl.threadpool_info()
        ),
        "pools": pools(),
        "verbosity": {switch.label: switch.get() for switch in library_levels().found},
        "variables": {k: v for k, v in os.environ.items() if not k.startswith("BACKENDCFG_")},
    }
    one = threading.Thread(target=look)
    one.start()
    one.join()
    return {**found, "a new thread": thread}
def tell(): print("\\n" + json.dumps(state()), flush=True); os._exit(0)
"""


def mkl_wheel():
    """The library of the mkl wheel."""
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [str(file.locate()) for file in files if file.name.startswith("libmkl_rt.so")]
    if not found:
        pytest.skip("the mkl wheel is not installed")
    return os.path.normpath(found[0])


def last(printed):
    return json.loads(printed.splitlines()[-1])


PRESETS = [
    {},
    {"OMP_NUM_THREADS": "1"},
    {"OMP_NUM_THREADS": "8"},
    {"OMP_NUM_THREADS": "3,2", "OPENBLAS_NUM_THREADS": "1", "GOTO_NUM_THREADS": "2"},
    {
        "MKL_NUM_THREADS": "5",
        "MKL_DYNAMIC": "FALSE",
        "MKL_DOMAIN_NUM_THREADS": "MKL_BLAS=3",
        "OMP_DYNAMIC": "true",
        "MKL_VERBOSE": "2",
        "DNNL_VERBOSE": "2",
    },
]


@pytest.mark.torch
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: " ".join(preset) or "nothing")
def test_every_library_is_as_if_the_profile_had_never_been_applied(python, preset):
    program = (
        STATE
        + """
apply, library = json.loads(sys.argv[1]), sys.argv[2]
if apply: backendcfg.apply(settings=apply)
import ctypes, numpy, torch, scipy.linalg
ctypes.CDLL(library).MKL_Get_Max_Threads()
if apply:
    backendcfg.reload()
    under = state()
    assert {1} == {count for _, count in under["threadpoolctl"]}, under
    assert 1 == under["PyTorch"] and {1} == set(under["verbosity"].values()), under
    assert {"mkl[torch]", "mkl[mkl]", "onednn[torch]"} == set(under["verbosity"]), under
    assert backendcfg.undo() is None
tell()
"""
    )
    never = last(python(program, "{}", mkl_wheel(), **preset))
    assert {"openblas[numpy]", "openblas[scipy]", "mkl[torch]", "mkl[mkl]"} < set(never["pools"])
    assert never == last(python(program, json.dumps(EVERYTHING), mkl_wheel(), **preset))


def test_a_profile_in_force_from_the_start_can_be_taken_back_late(python, tmp_path):
    (tmp_path / "one.toml").write_text(ONE_THREAD)
    program = (
        STATE
        + """
import numpy, scipy.linalg
if backendcfg.active():
    assert {1} == {count for _, count in state()["threadpoolctl"]}
    backendcfg.undo()
tell()
"""
    )
    assert last(python(program)) == last(python(program, BACKENDCFG_PROFILE="./one.toml"))


def test_what_run_gave_a_process_is_its_own(backendcfg, tmp_path):
    (tmp_path / "one.toml").write_text(ONE_THREAD)
    program = (
        STATE
        + """
import numpy
assert backendcfg.active()
assert backendcfg.undo() is None and backendcfg.active() is None
tell()
"""
    )
    found = last(backendcfg("run", "./one.toml", "--", sys.executable, "-c", program))
    assert [1] == [count for _, count in found["threadpoolctl"]]
    assert "1" == found["variables"]["OPENBLAS_NUM_THREADS"]


@pytest.mark.slow
def test_another_profile_returns_what_was_imported_under_the_first(python):
    program = (
        STATE
        + """
if sys.argv[1:]:
    backendcfg.apply(settings={"threads.count": 1})
    import numpy
    under = state()
    backendcfg.apply(settings={"log.level": "info"})
    second = state()
    backendcfg.undo()
    assert under == state() != second, (under, state())
    assert backendcfg.undo() is None
    assert second == state(), (second, state())
import numpy
tell()
"""
    )
    assert last(python(program)) == last(python(program, "under"))


@pytest.mark.exhaustive
def test_an_undo_that_failed_can_be_repeated(python):
    program = (
        STATE
        + """
if sys.argv[1:]:
    backendcfg.apply(settings={"threads.count": 1})
    import numpy
    under = state()
    from backendcfg.bridges import pools
    write, pools.Threads.write = pools.Threads.write, lambda self, value: 1 / 0
    try: backendcfg.undo()
    except backendcfg.errors.RolledBackError: pass
    else: raise AssertionError("it was undone")
    assert under == state() and backendcfg.active()
    pools.Threads.write = write
    backendcfg.undo()
import numpy
tell()
"""
    )
    assert last(python(program)) == last(python(program, "under"))


@pytest.mark.exhaustive
def test_a_variable_that_the_program_set_itself_is_its_wish(python):
    printed = python(
        """
import backendcfg, os
backendcfg.apply(settings={"threads.count": 2})
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy, threadpoolctl
def counts(): return [each["num_threads"] for each in threadpoolctl.threadpool_info()]
under = counts()
backendcfg.undo()
print(under, counts())
"""
    )
    assert "[2] [1]\n" == printed


@pytest.mark.exhaustive
def test_a_runtime_that_came_without_an_import_is_put_back(python):
    """As a kernel of one's own brings one, by ctypes."""
    program = """
    import ctypes, ctypes.util, json, backendcfg
    backendcfg.apply(settings={"threads.count": 3})
    runtime = ctypes.CDLL("libgomp.so.1")
    under = runtime.omp_get_max_threads()
    print(json.dumps([under, backendcfg.undo(), runtime.omp_get_max_threads()]))
    """
    alone = "import ctypes; print(ctypes.CDLL('libgomp.so.1').omp_get_max_threads())"
    assert last(python(program)) == [3, None, int(python(alone))]
    preset = last(python(program, OMP_NUM_THREADS="2"))
    assert preset == [3, None, 2]


def test_what_nobody_can_tell_stays_and_is_said(python):
    printed = python(
        """
import backendcfg, sys
backendcfg.apply(settings={"threads.count": 1})
import numpy, threadpoolctl
sys.executable = "/nonexistent/python"
report = backendcfg.undo()
print(report)
assert backendcfg.active() is None and "OMP_NUM_THREADS" not in __import__("os").environ
print([each["num_threads"] for each in threadpoolctl.threadpool_info()])
"""
    )
    assert (
        "none (no tier): 1 irreversible\n"
        "  irreversible openblas[numpy].threads: it stays at what was applied: what it would hold"
        " without could not be found out: a child process that asked could not be started: [Errno 2]"
        " No such file or directory: '/nonexistent/python'\n"
        "[1]\n"
    ) == printed


@pytest.mark.exhaustive
def test_a_variable_goes_back_also_when_its_reader_keeps_what_it_said(python):
    printed = python(
        """
import backendcfg, os
backendcfg.apply(settings={"blas.openblas.core_type": "Haswell", "blas.mkl.cbwr": "compatible"})
import numpy
print(backendcfg.undo())
print(os.environ.get("OPENBLAS_CORETYPE"), os.environ.get("MKL_CBWR"), backendcfg.active())
backendcfg.apply(settings={"log.level": "info"})
print(backendcfg.undo())
"""
    )
    assert (
        "none (no tier): 1 irreversible\n"
        "  irreversible OPENBLAS_CORETYPE: openblas[numpy] read it when loaded; nothing takes that"
        " back\n"
        "None None None\n"
        "None\n"
    ) == printed


@pytest.mark.torch
def test_a_level_that_no_call_can_give_stays_and_is_said(python):
    printed = python(
        """
import backendcfg, os
backendcfg.apply(settings={"mkldnn.verbose": 1})
import torch
print(backendcfg.undo())
print(os.environ["ONEDNN_VERBOSE"])
""",
        ONEDNN_VERBOSE="dispatch",
    )
    assert (
        "none (no tier): 1 irreversible\n"
        "  irreversible onednn[torch].verbose: it stays at what was applied: without,"
        " ONEDNN_VERBOSE=dispatch had said more than any call of oneDNN can\n"
        "dispatch\n"
    ) == printed
