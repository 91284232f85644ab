"""`with guard():` finds what a block leaves changed, whoever wrote it."""

from __future__ import annotations

import json
import platform
import sys

import pytest
from numba_program import TOTAL

CATCH = """
import json, os
import backendcfg
from backendcfg.errors import SwitchLeftChangedError
def caught(block, **options):
    try:
        with backendcfg.guard(**options) as watched:
            block(watched)
    except SwitchLeftChangedError as error:
        return [error.message, *error.notes, error.state]
    return None
"""


def test_a_block_that_leaves_variables_changed_is_refused_with_old_and_new_text(python):
    printed = python(
        CATCH
        + """
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
def block(watched):
    os.environ.update(NVIDIA_TF32_OVERRIDE="1", MKL_CBWR="COMPATIBLE", HOME="/elsewhere")
print(json.dumps(caught(block)))
print(os.environ["MKL_CBWR"])
print(json.dumps(caught(lambda watched: os.environ.pop("MKL_CBWR"), restore=True)))
print(os.environ["MKL_CBWR"])
print(caught(lambda watched: None))
"""
    )
    first, kept, second, restored, clean = printed.splitlines()
    assert json.loads(first) == [
        "the block left `MKL_CBWR` and `NVIDIA_TF32_OVERRIDE` changed",
        "`MKL_CBWR` was unset and is COMPATIBLE",
        "`NVIDIA_TF32_OVERRIDE` was 0 and is 1",
        "the switches are as they were left",
    ]
    assert kept == "COMPATIBLE"
    assert json.loads(second) == [
        "the block left `MKL_CBWR` changed",
        "`MKL_CBWR` was COMPATIBLE and is unset",
        "all were put back",
    ]
    assert restored == "COMPATIBLE"
    assert clean == "None"


def test_functions_and_coroutine_functions_are_watched_and_generators_refused(python):
    printed = python(
        CATCH
        + """
import asyncio
from backendcfg.errors import InvalidArgumentError
@backendcfg.guard(restore=True)
def plain(text):
    os.environ["MKL_CBWR"] = text
    return 3
@backendcfg.guard(restore=True)
async def coroutine(text):
    await asyncio.sleep(0)
    return plain.__wrapped__(text)
os.environ["MKL_CBWR"] = "AUTO"
assert (plain("AUTO"), asyncio.run(coroutine("AUTO"))) == (3, 3)
for call in (lambda: plain("AVX2"), lambda: asyncio.run(coroutine("AVX2"))):
    try:
        call()
    except SwitchLeftChangedError as error:
        print(error.notes, os.environ["MKL_CBWR"])
def generator():
    yield
async def stream():
    yield
for function in (generator, stream):
    try:
        backendcfg.guard()(function)
    except InvalidArgumentError as error:
        print(error.message, *error.helps, sep="; ")
"""
    )
    changed = "('`MKL_CBWR` was AUTO and is AVX2',) AUTO"
    refused = (
        "`guard` cannot decorate `{}`: other code runs between the steps of a generator;"
        " write `with backendcfg.guard():` around the loop that reads it"
    )
    assert printed.splitlines() == [
        changed,
        changed,
        refused.format("generator"),
        refused.format("stream"),
    ]


@pytest.mark.torch
def test_pytorchs_switches_and_pools_are_watched_without_any_profile(python):
    printed = python(
        CATCH
        + """
import numpy, torch, threadpoolctl
def by_hand(watched):
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
print(json.dumps(caught(by_hand, restore=True)))
print(torch.are_deterministic_algorithms_enabled(), torch.get_num_threads() > 1,
      torch.backends.cudnn.benchmark)
def pools(watched):
    threadpoolctl.threadpool_limits(1, user_api="blas")
print(json.dumps(caught(pools, restore=True)))
def put_back(watched):
    torch.use_deterministic_algorithms(True)
    assert watched.changes()
    torch.use_deterministic_algorithms(False)
print(caught(put_back))
"""
    )
    by_hand, after, pools, put_back = printed.splitlines()
    notes = json.loads(by_hand)
    assert "`torch.deterministic_algorithms` was any and is deterministic" in notes
    assert "`torch.num_threads` was 2 and is 1" in notes
    assert "`torch.backends.cudnn.benchmark` was false and is true" in notes
    assert notes[-1] == "all were put back"
    assert after == "False True False"
    assert json.loads(pools)[1] == "`openblas[numpy].threads` was 2 and is 1"
    assert put_back == "None"


@pytest.mark.torch
def test_a_library_that_is_imported_inside_is_no_change_but_what_is_written_after_is(python):
    printed = python(
        CATCH
        + """
def imports(watched):
    import torch
def imports_and_writes(watched):
    import scipy.linalg, threadpoolctl
    threadpoolctl.threadpool_limits(1, user_api="blas")
print(caught(imports))
import numpy
print(json.dumps(caught(imports_and_writes)))
"""
    )
    first, second = printed.splitlines()
    assert first == "None"
    assert "`openblas[scipy].threads` was 2 and is 1" in json.loads(second)


@pytest.mark.torch
def test_what_a_profile_in_force_sets_on_a_late_import_is_no_change(python):
    printed = python(
        CATCH
        + """
backendcfg.apply(settings={"threads.count": 1})
def imports(watched):
    import numpy, torch
    assert torch.get_num_threads() == 1
print(caught(imports))
"""
    )
    assert printed == "None\n"


@pytest.mark.parametrize("sets", [False, True])
def test_a_runtime_that_came_without_an_import_is_held_against_the_profile(python, sets):
    """As a kernel of one's own brings one, by ctypes."""
    printed = python(
        CATCH
        + f"""
import ctypes
backendcfg.apply(settings={{"threads.count": 3}})
def loads(watched):
    global runtime
    runtime = ctypes.CDLL("libgomp.so.1")
    assert runtime.omp_get_max_threads() == 3
    if {sets}:
        runtime.omp_set_num_threads(5)
print(json.dumps([caught(loads, restore=True), runtime.omp_get_max_threads()]))
"""
    )
    caught, threads = json.loads(printed)
    assert threads == 3
    if sets:
        assert "`openmp[libgomp system].threads` was 3 and is 5" in caught[1]
    else:
        assert caught is None


NUMBA = """
if {before}:
    total()
def sets(watched):
    os.environ["NUMBA_NUM_THREADS"] = "1"
    if not {before}:
        total()
left = caught(sets, restore=True)[-1]
print(json.dumps([left, total(), os.environ.get("NUMBA_NUM_THREADS")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_numba_compiles_after_a_block_that_sets_its_number_whenever_it_was_imported(python, before):
    """It refuses where the variable is not what it read."""
    pytest.importorskip("numba")
    left, total, number = json.loads(python(CATCH + TOTAL + NUMBA.format(before=before)))
    assert total == 9.0
    assert number == (None if before else "1")
    assert ("numba is imported already" in left) is not before


def test_a_profile_that_is_applied_inside_and_not_taken_back_is_named_and_taken_back(python):
    printed = python(
        CATCH
        + """
import numpy
def block(watched):
    backendcfg.apply(settings={"threads.count": 1})
found = caught(block, restore=True)
print(json.dumps(found))
print(backendcfg.active(), caught(lambda watched: None))
def scope(watched):
    with backendcfg.profile("reproducible"):
        pass
print(caught(scope))
"""
    )
    first, second, third = printed.splitlines()
    found = json.loads(first)
    assert "`openblas[numpy].threads` was 2 and is 1" in found
    assert found[-2:] == ["profile `default` was applied and not taken back", "all were put back"]
    assert second == "None None"
    assert third == "None"


def test_a_flag_that_is_assigned_inside_over_a_profile_is_left_and_put_back(python):
    printed = python(
        CATCH
        + """
import numpy
from backendcfg.session import adjust
backendcfg.apply(settings={"threads.count": 2})
def block(watched):
    adjust.assign({"threads.count": 1})
found = caught(block, restore=True)
print(found[1], found[-1])
print(backendcfg.flags["threads.count"], backendcfg.verify().ok, caught(lambda watched: None))
"""
    )
    assert printed == ("`openblas[numpy].threads` was 2 and is 1 all were put back\n2 True None\n")


def test_the_blocks_own_exception_goes_on_and_carries_what_was_left(python):
    printed = python(
        """
import os, backendcfg
try:
    with backendcfg.guard():
        os.environ["OMP_NUM_THREADS"] = "3"
        raise KeyError("mine")
except KeyError as error:
    print(error.args, error.__notes__[0].splitlines()[0])
"""
    )
    assert printed == (
        "('mine',) error[switch-left-changed]: the block left `OMP_NUM_THREADS` changed\n"
    )


def test_it_decorates_functions_and_nests(python):
    printed = python(
        CATCH
        + """
@backendcfg.guard()
def leaks():
    os.environ["OMP_NUM_THREADS"] = str(int(os.environ.get("OMP_NUM_THREADS", 0)) + 1)
for _ in range(2):
    try:
        leaks()
    except SwitchLeftChangedError as error:
        print(error.notes[0])
def outer(watched):
    found = caught(lambda _: os.environ.update(OMP_NUM_THREADS="9"), restore=True)
    print(found[1])
print(caught(outer))
"""
    )
    assert printed == (
        "`OMP_NUM_THREADS` was unset and is 1\n"
        "`OMP_NUM_THREADS` was 1 and is 2\n"
        "`OMP_NUM_THREADS` was 2 and is 9\n"
        "None\n"
    )


@pytest.mark.torch
def test_switches_of_a_thread_are_compared_in_that_thread_only(python):
    printed = python(
        CATCH
        + """
import threading, torch
watching = backendcfg.guard()
watched = watching.__enter__()
found = []
def work():
    torch.set_num_threads(1)
    found.extend(change.switch for change in watched.changes())
thread = threading.Thread(target=work)
thread.start()
thread.join()
print([name for name in found if name == "torch.num_threads"])
print([change.switch for change in watched.changes() if change.switch == "torch.num_threads"])
torch.set_num_threads(1)
print([change.switch for change in watched.changes() if change.switch == "torch.num_threads"])
"""
    )
    assert printed == "[]\n[]\n['torch.num_threads']\n"


def test_a_switch_that_an_open_scope_holds_is_the_scopes_to_put_back(python):
    printed = python(
        CATCH
        + """
import numpy
from pathlib import Path
Path("one.toml").write_text("schema = 1\\n[threads]\\ncount = 1\\n")
scope = backendcfg.profile("./one.toml")
print(*caught(lambda watched: scope.__enter__(), restore=True)[1:])
print(caught(lambda watched: scope.__exit__(None, None, None))[1])
"""
    )
    assert printed == (
        "`openblas[numpy].threads` was 2 and is 1 "
        "not all could be put back; `openblas[numpy].threads`: an open scope holds it\n"
        "`openblas[numpy].threads` was 1 and is 2\n"
    )


@pytest.mark.torch
def test_what_has_no_flag_is_named_with_old_and_new_value_and_put_back(python):
    printed = python(
        CATCH
        + """
import torch, torch._dynamo.config
def block(watched):
    import torch._inductor.config
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_flush_denormal(True)
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch._inductor.config.max_autotune = True
    torch._dynamo.config.cache_size_limit = 3
    os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = "/elsewhere"
print(json.dumps(caught(block, restore=True)))
print(torch.get_default_dtype(), torch.get_default_device(), torch.is_autocast_enabled("cpu"),
      torch._inductor.config.max_autotune, 2.3e-308 * 0.5 > 0, caught(lambda watched: None))
print(json.dumps(caught(block)[-1:]), torch.get_default_dtype())
"""
    )
    first, second, third = printed.splitlines()
    _, *notes, state = json.loads(first)
    assert notes == [
        "`thread.flush_denormal` was false and is true",
        "`torch.default_dtype` was float32 and is float64",
        "`torch.default_device` was unset and is meta",
        "`torch.autocast[cpu].enabled` was false and is true",
        "`torch.autocast[cpu].dtype` was bfloat16 and is float16",
        "`torch._inductor.config.max_autotune` was false and is true",
        "`torch._dynamo.config.recompile_limit` was 8 and is 3",
        "`TORCHINDUCTOR_MAX_AUTOTUNE` was unset and is 1",
    ]
    assert state == "all were put back"
    assert second == "torch.float32 cpu False False True None"
    assert third == '["the switches are as they were left"] torch.float64'


@pytest.mark.torch
def test_compiling_and_importing_inside_is_no_change(python):
    printed = python(
        CATCH
        + """
def block(watched):
    import torch
    torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(3))
    import torch._inductor.config
print(caught(block))
"""
    )
    assert printed == "None\n"


@pytest.mark.jax
def test_jaxs_options_that_have_no_flag_are_watched_and_put_back(python):
    printed = python(
        CATCH
        + """
import jax, jax.numpy
def block(watched):
    jax.config.update("jax_disable_jit", True)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_compilation_cache_dir", "/elsewhere")
print(json.dumps(caught(block, restore=True)[1:]))
def held(watched):
    global disabled
    disabled = jax.disable_jit()
    disabled.__enter__()
print(json.dumps(caught(held, restore=True)[1:]))
"""
    )
    first, second = map(json.loads, printed.splitlines())
    assert first == [
        "`jax.config.jax_numpy_dtype_promotion` was standard and is strict",
        "`jax.config.jax_disable_jit` was false and is true",
        "all were put back",
    ]
    assert second == [
        "`jax.config.jax_disable_jit` was false and is true",
        (
            "not all could be put back; "
            "`jax.config.jax_disable_jit`: what holds it now does not let it go"
        ),
    ]


def test_flushed_denormals_are_found_without_pytorch(python):
    printed = (
        python(
            CATCH
            + """
import ctypes
libm = ctypes.CDLL("libm.so.6")
# The control word of the SSE unit stands 28 bytes into the floating-point environment.
environment = (ctypes.c_uint32 * 8)()
def block(watched):
    libm.fegetenv(environment)
    environment[7] |= 1 << 15
    libm.fesetenv(environment)
print(json.dumps(caught(block, restore=True)))
"""
        )
        if platform.machine() == "x86_64" and sys.platform == "linux"
        else pytest.skip("x86-64 only")
    )
    assert json.loads(printed) == [
        "the block left `thread.flush_denormal` changed",
        "`thread.flush_denormal` was false and is true",
        (
            "not all could be put back; `thread.flush_denormal`: "
            "only `torch.set_flush_denormal` sets it, and PyTorch is not loaded"
        ),
    ]
