"""PyTorch's switches, each test in a child process that has the real PyTorch."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from bridge_programs import APPLY_AND_UNDO

ASKED = {
    "threads.count": 1,
    "threads.interop": 3,
    "determinism.algorithms": "deterministic",
    "determinism.fill_uninitialized_memory": False,
}
PRELUDE = """
import json, sys, threading
from backendcfg.bridges import imports, pools, torch as bridge
def settings(values, asked=None):
    return {s.switch.name: s for s in bridge.settings(values, asked or values, "start it")}
"""
PRELUDE += APPLY_AND_UNDO

pytestmark = pytest.mark.torch
real = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@real
def test_what_is_set_is_read_back_from_torch_and_restored(answer):
    code = (
        PRELUDE
        + """
import torch
values = {"threads.count": 1, "determinism.algorithms": "deterministic",
          "determinism.fill_uninitialized_memory": False}
mine = settings(values)
before = apply(mine)
torch_says = [torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
              torch.is_deterministic_algorithms_warn_only_enabled(),
              torch.utils.deterministic.fill_uninitialized_memory]
during = {name: s.switch.read() for name, s in mine.items()}
print(json.dumps([before, torch_says, during, undo(mine, before)]))
"""
    )
    before, torch_says, during, after = answer(code, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2")
    assert before == {
        "torch.num_threads": 2,
        "torch.deterministic_algorithms": "any",
        "torch.utils.deterministic.fill_uninitialized_memory": True,
    }
    assert torch_says == [1, True, False, False]
    assert during == {
        "torch.num_threads": 1,
        "torch.deterministic_algorithms": "deterministic",
        "torch.utils.deterministic.fill_uninitialized_memory": False,
    }
    assert after == before


@real
def test_each_mode_of_deterministic_algorithms_reads_as_it_was_written(answer):
    code = (
        PRELUDE
        + """
import torch
switch = settings({"determinism.algorithms": "warn"})["torch.deterministic_algorithms"].switch
seen = []
for mode in ("warn", "deterministic", "any", "warn", "any"):
    switch.write(mode); seen.append(switch.read())
torch.use_deterministic_algorithms(True, warn_only=True); seen.append(switch.read())
torch.use_deterministic_algorithms(False); seen.append(switch.read())
print(json.dumps(seen))
"""
    )
    assert answer(code) == ["warn", "deterministic", "any", "warn", "any", "warn", "any"]


@real
def test_setting_the_mode_does_not_load_the_compiler(answer):
    code = (
        PRELUDE
        + """
import torch
apply(settings({"determinism.algorithms": "deterministic"}))
print(json.dumps("torch._inductor" in sys.modules))
"""
    )
    assert answer(code) is False


@real
def test_the_compilers_own_switch_is_set_for_each_thread(answer):
    code = (
        PRELUDE
        + """
import torch, torch._inductor.config as config
config.deterministic = True
values = {"determinism.algorithms": "deterministic"}
config.deterministic = False
mine = settings(values); before = apply(mine)
seen = []
def other():
    seen.append(config.deterministic)
    apply(settings(values)); seen.append(config.deterministic)
thread = threading.Thread(target=other); thread.start(); thread.join()
here = config.deterministic
print(json.dumps([list(mine), seen, here, undo(mine, before)]))
"""
    )
    names, seen, here, after = answer(code)
    folder = "torch.inductor.cache_dir"
    assert names == ["torch.deterministic_algorithms", "torch.inductor.deterministic", folder]
    assert (seen, here) == ([False, True], True)
    del after[folder]
    assert after == {
        "torch.deterministic_algorithms": "any",
        "torch.inductor.deterministic": False,
    }


@real
def test_bare_pytorchs_debug_mode_leaves_the_compiler_out_and_the_compiler_forgets_its_own(answer):
    """Why there are two switches, and why the compiler's alone would not do."""
    code = (
        PRELUDE
        + """
import torch, torch._inductor.config as config
seen = []
torch.set_deterministic_debug_mode("error"); seen.append(config.deterministic)
torch.set_deterministic_debug_mode("default"); config.deterministic = True
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3)); seen.append(config.deterministic)
print(json.dumps(seen))
"""
    )
    assert answer(code) == [False, False]


COMPILING = """
import json, threading
import torch, backendcfg
seen = []
def backend(graph, inputs):
    import torch._inductor.config as config
    seen.append(config.deterministic)
    return graph
def work(number):
    torch._dynamo.reset()
    torch.compile(lambda x: x * number, backend=backend)(torch.ones(3))
"""


@real
def test_the_first_compilation_of_the_process_is_deterministic_under_reproducible(answer):
    code = COMPILING + "backendcfg.apply('reproducible'); work(2); work(3); print(json.dumps(seen))"
    assert answer(code, BACKENDCFG_DISABLE="0") == [True, True]


@real
def test_a_thread_that_enters_the_profile_compiles_deterministically_and_others_do_not(answer):
    code = (
        COMPILING
        + """
import torch._inductor.config
def inside():
    with backendcfg.profile("reproducible"):
        work(4)
    work(5)
for target in (inside, lambda: work(6)):
    thread = threading.Thread(target=target); thread.start(); thread.join()
print(json.dumps([seen, torch.are_deterministic_algorithms_enabled()]))
"""
    )
    assert answer(code, BACKENDCFG_DISABLE="0") == [[True, False, False], False]


@real
def test_a_thread_that_starts_under_an_applied_profile_compiles_deterministically(answer):
    code = (
        COMPILING
        + """
backendcfg.apply("reproducible")
import torch._inductor.config
thread = threading.Thread(target=work, args=(7,)); thread.start(); thread.join()
print(json.dumps(seen))
"""
    )
    assert answer(code, BACKENDCFG_DISABLE="0") == [True]


@real
def test_what_was_compiled_before_a_switch_changed_is_said_once(child):
    code = (
        PRELUDE
        + """
import torch
def tell():
    apply(settings({"mkldnn.deterministic": True, "determinism.algorithms": "deterministic"}))
    torch._C._set_mkldnn_deterministic(False)
tell()
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
torch._dynamo.reset(); tell(); print("nothing so far", file=sys.stderr)
double = torch.compile(lambda x: x + x, backend="eager"); double(torch.ones(3))
tell(); tell()
"""
    )
    assert child(code).stderr == (
        "nothing so far\n"
        "functions that torch.compile compiled before keep what they were compiled with:"
        " mkldnn.deterministic; torch._dynamo.reset() makes it compile them anew\n"
    )


@real
def test_setting_the_thread_count_leaves_mkls_dynamic_switch_as_it_was(answer):
    code = (
        PRELUDE
        + """
import torch
values = {"threads.count": 1, "threads.dynamic": True}
[dynamic] = [s.switch for s in pools.settings(values, ["threads.dynamic"])
             if s.switch.name == "mkl[torch].dynamic"]
first = dynamic.read()
mine = settings({"threads.count": 1}); before = apply(mine); during = dynamic.read()
undo(mine, before)
torch.set_num_threads(2)
print(json.dumps([first, during, dynamic.read()]))
"""
    )
    first, during, after_torchs_own = answer(code, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2")
    # The last shows that torch does turn it off, or this test would prove nothing.
    assert (first, during, after_torchs_own) == (True, True, False)


@real
def test_a_count_that_the_program_gave_torch_does_not_hide_the_profiles(answer):
    """torch.set_num_threads gives MKL a count for the thread, which outranks the process's."""
    code = (
        PRELUDE
        + """
import torch
values = {"threads.count": 2, "threads.dynamic": False}
torch.set_num_threads(1)
both = {s.switch.name: s for s in pools.settings(values, values)} | settings(values, values)
before = apply(both); during = {name: s.switch.read() for name, s in both.items()}
report = torch.__config__.parallel_info()
after = undo(both, before)
keys = ["mkl[torch].threads", "mkl[torch].local_threads", "torch.num_threads"]
print(json.dumps([[x[k] for k in keys] for x in (before, during, after)] + [report]))
"""
    )
    before, during, after, report = answer(code, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2")
    assert (before, during, after) == ([2, 1, 1], [2, 0, 2], [2, 1, 1])
    assert "mkl_get_max_threads() : 2" in report


@real
def test_the_thread_count_belongs_to_each_thread(answer):
    code = (
        PRELUDE
        + """
import torch
switch = settings({"threads.count": 1})["torch.num_threads"].switch
torch.get_num_threads()
seen = []
go, done = threading.Event(), threading.Event()
def other():
    seen.append(torch.get_num_threads()); done.set(); go.wait(); seen.append(switch.read())
thread = threading.Thread(target=other); thread.start(); done.wait()
switch.write(1); go.set(); thread.join()
print(json.dumps([seen, switch.read(), switch.reach, switch.latch]))
"""
    )
    assert answer(code, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2") == [
        [2, 2],
        1,
        "thread",
        "each-thread",
    ]


@real
def test_the_inter_operator_pool_is_set_while_torch_is_imported_and_only_then(answer):
    code = (
        PRELUDE
        + """
late = []
def callback(name):
    if name == "torch":
        each = settings({"threads.interop": 3})["torch.num_interop_threads"]
        late.append(each.switch.too_late()); each.switch.write(each.wanted)
imports.watch(callback)
import torch
each = settings({"threads.interop": 3})["torch.num_interop_threads"]
print(json.dumps([late, torch.get_num_interop_threads(), each.switch.read(), each.switch.too_late(),
                  each.remedy, each.switch.reversible]))
"""
    )
    assert answer(code) == [
        [""],
        3,
        3,
        "torch was imported before, and takes this only before its first parallel work",
        "start it",
        False,
    ]


@real
def test_flags_that_nobody_asked_for_are_left_alone(answer):
    code = (
        PRELUDE
        + f"""
import torch
print(json.dumps(list(settings({ASKED!r}, ["jax.deterministic_ops"]))))
"""
    )
    assert answer(code) == []
