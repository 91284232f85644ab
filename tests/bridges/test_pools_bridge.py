"""The switches of thread pools, on libraries compiled here and on the real ones."""

from __future__ import annotations

import ctypes
import threading
from importlib import metadata
from importlib.util import find_spec

import pytest

from backendcfg.bridges import imports, pool_calls, pools
from backendcfg.bridges.pool_calls import Inventory, take_inventory
from backendcfg.probe.loaded import LoadedLibrary
from backendcfg.transact.protocol import Switch

COUNT = {"threads.count": 2}


def library(kind, path, owner="numpy", prefix="", suffix=""):
    ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    return LoadedLibrary(kind, "", owner, path, prefix, suffix)


def switches(found):
    """By name, with everything that the flags of this bridge can ask for."""
    values = {"threads.count": 2, "threads.dynamic": False, "blas.openblas.core_type": "SkylakeX"}
    return {each.switch.name: each for each in pools.settings(values, set(values), found=found)}


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("scipy_", ""), ("scipy_", "64_")])
def test_an_openblas_is_read_and_set_by_whatever_its_names_are(build, prefix, suffix):
    path = build("pool_openblas", f"PREFIX={prefix}", f"SUFFIX={suffix}")
    switch = switches(take_inventory([library("openblas", path, "numpy", prefix, suffix)]))[
        "openblas[numpy].threads"
    ].switch
    before = switch.read()
    switch.write(5)
    after = switch.read()
    switch.write(before)
    assert (before, after, switch.read()) == (3, 5, 3)


def test_every_switch_keeps_the_protocol(build):
    found = take_inventory(
        [
            library("openblas", build("pool_openblas")),
            library("mkl", build("pool_mkl", name="libtorch_cpu.so"), "torch"),
            library("blis", build("pool_blis"), "system"),
            library("openmp", build("pool_openmp", name="libgomp.so.1"), "torch"),
        ]
    )
    offered = switches(found)
    assert list(offered) == [
        "mkl[torch].dynamic",
        "openmp[libgomp torch].dynamic",
        "openblas[numpy].threads",
        "mkl[torch].threads",
        "blis[system].threads",
        "openmp[libgomp torch].threads",
        "mkl[torch].local_threads",
        "openblas[numpy].core_type",
    ]
    assert all(isinstance(each.switch, Switch) for each in offered.values())


def test_a_missing_setter_is_named_and_its_switch_is_not_offered(build):
    found = take_inventory([library("openblas", build("pool_openblas", "NO_SETTER"))])
    assert pools.settings(COUNT, COUNT, found=found) == []
    assert pools.missing(found) == {"openblas[numpy].threads": "it has no openblas_set_num_threads"}


def test_one_library_without_symbols_hides_no_other(build):
    bare = library("openblas", build("pool_mkl", name="libopenblas-broken.so"), "conda")
    found = take_inventory([bare, library("openblas", build("pool_openblas"))])
    assert [pool.label for pool in found.pools] == ["openblas[numpy]"]
    assert pools.missing(found) == {
        "openblas[conda].threads": "it has no openblas_get_num_threads "
        "and no openblas_set_num_threads",
        "openblas[conda].core_type": "it has no openblas_get_corename",
    }


@pytest.mark.parametrize(
    ("macro", "reason"),
    [("NULL_CORE", "it gives no core type"), ("NO_CORE", "it has no openblas_get_corename")],
)
def test_a_core_type_that_is_not_told_costs_only_its_own_switch(build, macro, reason):
    found = take_inventory([library("openblas", build("pool_openblas", macro))])
    assert list(switches(found)) == ["openblas[numpy].threads"]
    assert pools.missing(found) == {"openblas[numpy].core_type": reason}


def test_a_library_that_is_not_in_the_process_is_never_loaded(build):
    path = build("pool_openblas", name="absent.so")
    found = take_inventory([LoadedLibrary("openblas", "", "numpy", path)])
    assert found.pools == ()
    assert pools.missing(found) == {"openblas[numpy].threads": f"{path} is not in this process"}


def test_a_count_beyond_what_a_library_was_built_for_is_capped_and_said(build):
    found = take_inventory([library("openblas", build("pool_openblas", 'LIMIT="8"'))])
    [setting] = pools.settings({"threads.count": 128}, ["threads.count"], found=found)
    assert setting.wanted == 8
    assert pools.capped(128, found) == {"openblas[numpy].threads": 8}
    assert pools.capped(8, found) == {}


@pytest.mark.parametrize("value", [0, -1, 65, "2", True, 2.0])
def test_a_count_that_cannot_be_is_refused_before_the_library_sees_it(build, value):
    found = take_inventory([library("openblas", build("pool_openblas"))])
    switch = switches(found)["openblas[numpy].threads"].switch
    with pytest.raises(ValueError, match=r"openblas\[numpy\]\.threads must be from 1 to 64, not "):
        switch.write(value)
    assert switch.read() == 3


def test_a_core_type_is_pending_with_the_command_that_gives_it(build):
    found = take_inventory([library("openblas", build("pool_openblas"))])
    values = {"blas.openblas.core_type": "SkylakeX"}
    [setting] = pools.settings(values, values, "start it", found=found)
    switch = setting.switch
    assert (switch.name, switch.latch, switch.reversible) == (
        "openblas[numpy].core_type",
        "before-import",
        False,
    )
    assert (switch.read(), setting.wanted) == ("Haswell", "SkylakeX")
    assert switch.too_late() == "it chose Haswell when it was loaded"
    assert setting.remedy == "start it"
    with pytest.raises(RuntimeError, match="it chose Haswell when it was loaded"):
        switch.write("SkylakeX")


def test_a_core_type_in_other_letters_is_the_same(build):
    found = take_inventory([library("openblas", build("pool_openblas"))])
    values = {"blas.openblas.core_type": "HASWELL"}
    [setting] = pools.settings(values, values, found=found)
    assert setting.wanted == setting.switch.read() == "Haswell"


def test_a_core_type_that_openblas_ignored_is_not_blamed_on_the_start(build, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "skylakex")
    found = take_inventory([library("openblas", build("pool_openblas"))])
    values = {"blas.openblas.core_type": "SkylakeX"}
    [setting] = pools.settings(values, values, found=found)
    assert setting.switch.too_late() == (
        "it was started with OPENBLAS_CORETYPE=SkylakeX and runs Haswell: "
        "it has no such kernels, or this processor cannot run them"
    )
    assert setting.remedy == ""


def test_auto_asks_nothing_of_a_core_type(build):
    found = take_inventory([library("openblas", build("pool_openblas"))])
    values = {"blas.openblas.core_type": "auto"}
    assert pools.settings(values, values, found=found) == []


def test_mkl_that_clips_reads_as_what_it_was_told(build):
    """Else an apply with more threads than cores would look like a library that lies."""
    found = take_inventory([library("mkl", build("pool_mkl", name="libtorch_cpu.so"), "torch")])
    threads = pools.settings({"threads.count": 8}, COUNT, found=found)[0].switch
    [pool] = found.pools
    before = threads.read()
    threads.write(8)
    told, answers = threads.read(), pool.get()
    pool.set_dynamic(0)
    undynamic = threads.read()
    pool.set_dynamic(1)
    pool.set(1)
    by_others = threads.read()
    threads.write(before)
    assert (before, told, answers, undynamic, by_others) == (2, 8, 2, 8, 1)
    assert (threads.read(), pool.get_dynamic()) == (2, 1)


def test_dynamic_is_set_before_the_counts_that_it_clips(build):
    found = take_inventory([library("mkl", build("pool_mkl", name="libtorch_cpu.so"), "torch")])
    values = {"threads.count": 8, "threads.dynamic": False}
    settings = pools.settings(values, values, found=found)
    before = [each.switch.read() for each in settings]
    for each in settings:
        each.switch.write(each.wanted)
    assert [each.switch.read() for each in settings] == [False, 8, 0]
    for each, value in zip(reversed(settings), reversed(before), strict=True):
        each.switch.write(value)
    assert [each.switch.read() for each in settings] == before == [True, 2, 0]


def test_a_threads_own_count_of_mkl_is_cleared_so_that_the_processs_decides(build):
    found = take_inventory([library("mkl", build("pool_mkl", name="libtorch_cpu.so"), "torch")])
    [pool] = found.pools
    pool.set_local(1)
    threads, local = (each.switch for each in pools.settings(COUNT, COUNT, found=found))
    assert (local.name, local.reach, local.latch) == (
        "mkl[torch].local_threads",
        "thread",
        "each-thread",
    )
    assert (threads.read(), local.read(), local.read()) == (2, 1, 1)
    threads.write(1)
    threads.write(2)
    assert threads.read() == 2
    local.write(0)
    assert local.read() == 0
    local.write(1)
    assert (local.read(), threads.read()) == (1, 2)
    pool.set_local(0)


def test_blis_without_a_count_reads_as_one_thread(build):
    found = take_inventory([library("blis", build("pool_blis"), "system")])
    switch = switches(found)["blis[system].threads"].switch
    before = switch.read()
    switch.write(6)
    after = switch.read()
    switch.write(before)
    assert (before, after, switch.read()) == (1, 6, 1)


@pytest.mark.parametrize(("macro", "variable"), [("WAYS=4", ""), ("WAYS=1", "BLIS_JC_NT")])
def test_blis_with_ways_set_by_hand_is_not_offered(build, monkeypatch, macro, variable):
    if variable:
        monkeypatch.setenv(variable, "1")
    found = take_inventory([library("blis", build("pool_blis", macro), "system")])
    assert found.pools == ()
    assert pools.missing(found) == {
        "blis[system].threads": "BLIS_JC_NT and its sisters say how loops are split, "
        "which outranks any thread count"
    }


def test_blis_whose_unset_ways_read_as_one_is_offered(build):
    found = take_inventory([library("blis", build("pool_blis", "WAYS=1"), "system")])
    assert [pool.label for pool in found.pools] == ["blis[system]"]


def test_blis_that_would_abort_is_never_called(build, monkeypatch):
    monkeypatch.setenv("BLIS_ARCH_TYPE", "2")
    found = take_inventory([library("blis", build("pool_blis"), "system")])
    assert pools.missing(found) == {
        "blis[system].threads": "it aborts the process at its first call: BLIS_ARCH_TYPE=2"
    }


def test_the_kernels_of_blis_are_compared_by_name(build):
    found = take_inventory([library("blis", build("pool_blis"), "system")])
    values = {"blas.blis.arch_type": "zen3"}
    [setting] = pools.settings(values, values, found=found)
    assert (setting.switch.name, setting.switch.read(), setting.wanted) == (
        "blis[system].core_type",
        "haswell",
        "zen3",
    )


def test_a_blis_that_cannot_name_its_kernels_keeps_its_threads(build):
    found = take_inventory([library("blis", build("pool_blis", "NO_NAMES"), "system")])
    assert [pool.core_type for pool in found.pools] == [None]
    assert pools.missing(found) == {
        "blis[system].core_type": "it has no bli_arch_query_id and bli_arch_string"
    }


def test_openmp_counts_belong_to_each_thread(build):
    path = build("pool_openmp", name="libgomp-0123abcd.so.1")
    switch = switches(take_inventory([library("openmp", path, "scikit-learn")]))[
        "openmp[libgomp scikit-learn].threads"
    ].switch
    assert (switch.reach, switch.latch) == ("thread", "each-thread")
    seen = []

    def other():
        switch.write(7)
        seen.append(switch.read())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert (seen, switch.read()) == ([7], 4)


def test_two_llvm_runtimes_are_left_alone_because_a_call_may_abort(build):
    paths = [build("pool_openmp", name="libiomp5.so"), build("pool_openmp", name="libomp.so.5")]
    found = take_inventory([library("openmp", path, "system") for path in paths])
    reason = (
        "2 LLVM-like OpenMP runtimes are loaded; calling one that has not started "
        f"aborts the process: {paths[0]}, {paths[1]}"
    )
    assert found.pools == ()
    assert pools.missing(found) == {
        "openmp[libiomp5 system].threads": reason,
        "openmp[libomp system].threads": reason,
    }


def test_two_copies_of_one_owner_are_told_apart_by_file(build):
    names = ("libopenblas1.so", "libopenblas2.so", "libopenblas2.so")
    paths = [build("pool_openblas", name=name) for name in names]
    found = take_inventory([library("openblas", path, "system") for path in paths])
    assert [pool.label for pool in found.pools] == [
        "openblas[system]",
        "openblas[system libopenblas2.so]",
        f"openblas[system {paths[2]}]",
    ]


def test_a_switch_keeps_its_name_when_a_second_library_of_its_owner_is_loaded(build):
    older, newer = (
        library("openblas", build("pool_openblas", name=f"{name}.so"), "system")
        for name in ("older", "newer")
    )
    names = {}
    before = take_inventory([older], names=names).pools
    after = take_inventory([newer, older], names=names).pools
    assert [(pool.label, pool.path) for pool in before] == [("openblas[system]", older.path)]
    assert [(pool.label, pool.path) for pool in after] == [
        ("openblas[system newer.so]", newer.path),
        ("openblas[system]", older.path),
    ]


def test_flags_that_nobody_asked_for_touch_nothing(monkeypatch):
    monkeypatch.setattr(pools, "inventory", lambda: pytest.fail("looked for libraries"))
    assert pools.settings({"threads.count": 2}, {"cudnn.benchmark"}) == []


def test_the_process_is_searched_again_only_after_a_library_was_loaded(build, monkeypatch):
    searches = []
    monkeypatch.setattr(pool_calls, "_last", (None, Inventory()))
    monkeypatch.setattr(pool_calls.loaded, "libraries_in_process", lambda: searches.append(1) or [])
    path = build("pool_openblas", name="later.so")
    pool_calls.inventory()
    pool_calls.inventory()
    before = len(searches)
    ctypes.CDLL(path)
    pool_calls.inventory()
    pool_calls.inventory()
    assert (before, len(searches)) == (1, 2)


def test_where_nobody_counts_libraries_every_look_is_a_search(monkeypatch):
    searches = []
    monkeypatch.setattr(pool_calls, "_last", (None, Inventory()))
    monkeypatch.setattr(pool_calls, "mapped_set", lambda: None)
    monkeypatch.setattr(pool_calls.loaded, "libraries_in_process", lambda: searches.append(1) or [])
    pool_calls.inventory()
    pool_calls.inventory()
    assert len(searches) == 2


def test_a_forked_child_looks_and_sets_for_itself(answer):
    code = """
import json, os, numpy
from backendcfg.bridges import pools
[setting] = [s for s in pools.settings({"threads.count": 1}, ["threads.count"])
             if s.switch.name == "openblas[numpy].threads"]
before = setting.switch.read()
child = os.fork()
if child == 0:
    [mine] = [s for s in pools.settings({"threads.count": 1}, ["threads.count"])
              if s.switch.name == "openblas[numpy].threads"]
    mine.switch.write(1)
    os._exit(0 if mine.switch.read() == 1 else 9)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([status, before, setting.switch.read()]))
"""
    assert answer(code, OPENBLAS_NUM_THREADS="2") == [0, 2, 2]


def test_threads_that_look_at_once_find_the_same(answer):
    code = """
import json, threading, numpy, scipy.linalg
from backendcfg.bridges import pools
seen, barrier = [], threading.Barrier(32)
def work():
    barrier.wait()
    found = pools.settings({"threads.count": 1}, ["threads.count"])
    seen.append(sorted(s.switch.name for s in found if s.switch.name.startswith("openblas")))
threads = [threading.Thread(target=work) for _ in range(32)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([len(seen), sorted(set(map(tuple, seen)))]))
"""
    assert answer(code) == [32, [["openblas[numpy].threads", "openblas[scipy].threads"]]]


def test_the_loader_counts_every_library_that_is_loaded(build):
    path = build("pool_openblas", name="counted.so")
    before = imports.mapped_set()
    ctypes.CDLL(path)
    after = imports.mapped_set()
    assert before is not None
    assert (after[0] - before[0], after[1] - before[1]) == (1, 0)


def test_without_the_compiled_part_nobody_counts(monkeypatch):
    monkeypatch.setattr(imports, "_native", None)
    assert imports.mapped_set() is None


def test_a_handle_is_kept_and_belongs_to_what_is_loaded(build):
    path = build("pool_openblas", name="handled.so")
    assert pool_calls.handle(path) is None
    ctypes.CDLL(path)
    assert pool_calls.handle(path) is pool_calls.handle(path)


REAL = """
import json, sys
from threadpoolctl import threadpool_info
{imports}
from backendcfg.bridges import pools
values = {{"threads.count": 1}}
settings = [s for s in pools.settings(values, values) if s.switch.name.startswith("openblas")]
counts = lambda: sorted(i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas")
pools.settings({{"threads.count": 3}}, values)
for each in settings: each.switch.write(3)
three = counts()
before = [each.switch.read() for each in settings]
for each in settings: each.switch.write(each.wanted)
one = counts()
for each, value in zip(settings, before): each.switch.write(value)
print(json.dumps([sorted(s.switch.name for s in settings), three, one, counts(), pools.missing()]))
"""


def test_threadpoolctl_sees_what_we_set_in_numpy_and_scipy(answer):
    names, three, one, again, missing = answer(
        REAL.format(imports="import numpy, scipy.linalg"), OPENBLAS_NUM_THREADS="2"
    )
    assert names == ["openblas[numpy].threads", "openblas[scipy].threads"]
    assert (three, one, again, missing) == ([3, 3], [1, 1], [3, 3], {})


@pytest.mark.mkl
def test_libmkl_rt_is_not_asked_before_somebody_uses_it(answer):
    path = mkl_rt()
    code = f"""
import ctypes, json
library = ctypes.CDLL({path!r})
from backendcfg.bridges import pools
from backendcfg.probe.loaded import mapped_files
names = lambda: [s.switch.name for s in pools.settings({{"threads.count": 1}}, ["threads.count"])]
first, why = names(), pools.missing()
opened = any("libmkl_core" in file for file in mapped_files())
library.MKL_Get_Max_Threads()
[setting] = [s for s in pools.settings({{"threads.count": 1}}, ["threads.count"])
             if s.switch.name == "mkl[mkl].threads"]
before = setting.switch.read(); setting.switch.write(1); one = setting.switch.read()
library_says = library.MKL_Get_Max_Threads(); setting.switch.write(before)
print(json.dumps([first, why, opened, setting.switch.name, one, library_says,
                  setting.switch.read() == before]))
"""
    first, why, opened, name, one, says, restored = answer(code)
    assert first == []
    assert why == {
        "mkl[mkl].threads": "nobody has called it yet, and asking it would make it choose its "
        "layers; MKL_NUM_THREADS still decides"
    }
    assert (opened, name, one, says, restored) == (False, "mkl[mkl].threads", 1, 1, True)


def mkl_rt():
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        pytest.skip("the mkl wheel is not installed")
    return str(next(f for f in files if f.name.startswith("libmkl_rt.so")).locate().resolve())


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_mkl_and_the_openmp_inside_torch_are_reached(answer):
    code = """
import json, torch
from backendcfg.bridges import pools
values = {"threads.count": 1, "threads.dynamic": False}
mine = {s.switch.name: s for s in pools.settings(values, values)}
before = {name: s.switch.read() for name, s in mine.items()}
for each in mine.values(): each.switch.write(each.wanted)
during = {name: s.switch.read() for name, s in mine.items()}
report = torch.__config__.parallel_info()
for name in reversed(list(mine)): mine[name].switch.write(before[name])
print(json.dumps([before, during, {n: s.switch.read() for n, s in mine.items()}, report]))
"""
    before, during, after, report = answer(code, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2")
    torch_names = {"mkl[torch].threads", "mkl[torch].dynamic", "openmp[libgomp torch].threads"}
    assert torch_names <= set(before)
    assert during["mkl[torch].local_threads"] == 0
    assert (during["mkl[torch].threads"], during["openmp[libgomp torch].threads"]) == (1, 1)
    assert during["mkl[torch].dynamic"] is False
    assert "mkl_get_max_threads() : 1" in report
    assert "omp_get_max_threads() : 1" in report
    assert after == before
