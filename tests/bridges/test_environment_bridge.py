"""Variables for a child, and as switches of this process."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from numba_program import TOTAL

from backendcfg.bridges import environment, pool_calls
from backendcfg.bridges.pool_calls import Inventory
from backendcfg.catalogue.variables import VARIABLES
from backendcfg.errors import MissingLibraryError
from backendcfg.schema.profile import defaults

REPRODUCIBLE = {
    "threads.count": 2,
    "threads.dynamic": False,
    "blas.openblas.core_type": "Haswell",
    "blas.mkl.cbwr": "compatible",
    "python.hash_seed": 0,
    "torch.cublas_workspace_config": ":4096:8",
}


@pytest.fixture(name="nothing_loaded", autouse=True)
def _nothing_loaded(monkeypatch):
    """Whatever the test session itself has loaded, these tests see a process without it."""
    monkeypatch.setattr(environment.imports, "may_have_libraries", lambda: True)
    monkeypatch.setattr(pool_calls, "inventory", Inventory)
    monkeypatch.setattr(environment, "_allowed", lambda: 64)
    for name in ("torch", "tensorflow", "torch.distributed", "jax._src.xla_bridge"):
        monkeypatch.delitem(environment.sys.modules, name, raising=False)


def test_a_child_gets_every_variable_that_carries_an_asked_flag():
    assert environment.variables(REPRODUCIBLE, REPRODUCIBLE) == {
        "GOTO_NUM_THREADS": None,
        "OPENBLAS_NUM_THREADS": "2",
        "OMP_NUM_THREADS": "2",
        "MKL_DOMAIN_NUM_THREADS": None,
        "MKL_NUM_THREADS": "2",
        "BLIS_JC_NT": None,
        "BLIS_PC_NT": None,
        "BLIS_IC_NT": None,
        "BLIS_JR_NT": None,
        "BLIS_IR_NT": None,
        "BLIS_NUM_THREADS": "2",
        "NPROC": "2",
        "NUMBA_NUM_THREADS": "2",
        "OMP_DYNAMIC": "FALSE",
        "MKL_DYNAMIC": "FALSE",
        "OPENBLAS_L2_SIZE": None,
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_CBWR": "COMPATIBLE",
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }


def test_a_profile_that_asks_for_nothing_leaves_the_environment_alone():
    assert environment.variables({**defaults(), "threads.count": 2}, ()) == {}


def test_asking_for_the_librarys_own_choice_removes_the_variable():
    values = {"blas.openblas.core_type": "auto", "python.hash_seed": "random", "nccl.algo": ""}
    assert environment.variables(values, values) == {
        "OPENBLAS_L2_SIZE": None,
        "OPENBLAS_CORETYPE": None,
        "PYTHONHASHSEED": None,
        "NCCL_ALGO": None,
    }


def test_the_tf32_override_is_removed_only_for_a_profile_that_wants_tf32():
    wants = {"cuda.matmul.fp32_precision": "tf32"}
    refuses = {"cuda.matmul.fp32_precision": "ieee"}
    assert environment.variables(wants, wants)["NVIDIA_TF32_OVERRIDE"] is None
    assert "NVIDIA_TF32_OVERRIDE" not in environment.variables(refuses, refuses)


def test_the_profiles_own_table_comes_last_and_wins():
    values = {"threads.count": 2, "environment": {"OMP_NUM_THREADS": "3", "KMP_BLOCKTIME": "0"}}
    got = environment.variables(values, values)
    assert (got["OMP_NUM_THREADS"], got["KMP_BLOCKTIME"]) == ("3", "0")


def test_a_kernel_set_of_blis_is_spelled_as_the_file_here_counts(build):
    values = {"blas.blis.arch_type": "zen3"}
    libraries = [{"kind": "openblas", "path": "/x"}, {"kind": "blis", "path": build("pool_blis")}]
    assert environment.variables(values, values, libraries) == {"BLIS_ARCH_TYPE": "0"}
    assert environment.variables(values, values) == {}
    with pytest.raises(MissingLibraryError, match="has no kernel set `zen9`"):
        environment.variables({"blas.blis.arch_type": "zen9"}, {"blas.blis.arch_type"}, libraries)


def test_before_anything_is_loaded_variables_are_written_and_taken_back(monkeypatch):
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    monkeypatch.setenv("MKL_CBWR", "AUTO")
    before = dict(os.environ)
    asked = {"threads.count", "blas.openblas.core_type", "blas.mkl.cbwr"}
    settings = environment.settings(REPRODUCIBLE, asked, "start it")
    assert [(each.switch.name, each.wanted) for each in settings] == [
        ("OPENBLAS_NUM_THREADS", "2"),
        ("OMP_NUM_THREADS", "2"),
        ("MKL_NUM_THREADS", "2"),
        ("BLIS_NUM_THREADS", "2"),
        ("NPROC", "2"),
        ("NUMBA_NUM_THREADS", "2"),
        ("OPENBLAS_L2_SIZE", None),
        ("OPENBLAS_CORETYPE", "Haswell"),
        ("MKL_CBWR", "COMPATIBLE"),
    ]
    assert {each.remedy for each in settings} == {"start it"}
    assert [each.switch.too_late() for each in settings] == [""] * 9
    found = [each.switch.read() for each in settings]
    for each in settings:
        each.switch.write(each.wanted)
    assert [each.switch.read() for each in settings] == [each.wanted for each in settings]
    for each, value in zip(reversed(settings), reversed(found), strict=True):
        each.switch.write(value)
    assert dict(os.environ) == before


def test_what_a_loaded_library_has_read_is_too_late_and_says_who_read_it(monkeypatch):
    started = {"openblas[numpy]": "openblas", "openblas[scipy]": "openblas", "mkl[torch]": "mkl"}
    monkeypatch.setattr(environment.imports, "may_have_libraries", lambda: True)
    monkeypatch.setattr(pool_calls, "inventory", lambda: Inventory(started=started))
    monkeypatch.setitem(environment.sys.modules, "torch", object())
    values = {**REPRODUCIBLE, "blas.mkl.threading_layer": "gnu", "torch.cpu_capability": "avx2"}
    late = {
        each.switch.name: each.switch.too_late()
        for each in environment.settings(values, set(values) - {"torch.cublas_workspace_config"})
    }
    assert late == {
        # A running library is told by a call, so these still serve what is loaded later.
        "OPENBLAS_NUM_THREADS": "",
        "OMP_NUM_THREADS": "",
        "MKL_NUM_THREADS": "",
        "BLIS_NUM_THREADS": "",
        "NPROC": "",
        "NUMBA_NUM_THREADS": "",
        "OMP_DYNAMIC": "",
        "MKL_DYNAMIC": "",
        "OPENBLAS_CORETYPE": "openblas[numpy], openblas[scipy] read it when loaded",
        # The MKL inside PyTorch has its layer built in.
        "MKL_THREADING_LAYER": "",
        "MKL_CBWR": "mkl[torch] read it when loaded",
        "PYTHONHASHSEED": "this interpreter has started",
        "ATEN_CPU_CAPABILITY": "torch is imported already",
    }


def test_what_a_library_read_may_come_back_and_nothing_else(monkeypatch):
    started = {"mkl[torch]": "mkl"}
    monkeypatch.setattr(pool_calls, "inventory", lambda: Inventory(started=started))
    monkeypatch.setattr(environment, "_held", {})
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    (mine,) = environment.settings(REPRODUCIBLE, {"blas.mkl.cbwr"})
    (other,) = environment.settings({"blas.mkl.cbwr": "avx2"}, {"blas.mkl.cbwr"})
    read = "mkl[torch] read it when loaded"
    for text in (None, "AVX2"):
        mine.switch.write(text)
        assert [mine.switch.too_late(), other.switch.too_late()] == ["", read]
        assert mine.switch.lasting() == f"{read}; nothing takes that back"
    started["mkl[conda]"] = "mkl"  # and reads AVX2
    both = "mkl[torch], mkl[conda] read it when loaded"
    assert mine.switch.too_late() == both
    for text in ("COMPATIBLE", "AVX2", None):
        mine.switch.write(text)
        assert [mine.switch.too_late(), other.switch.too_late()] == [both, both]


def test_a_profile_that_comes_back_is_in_force_as_before(answer):
    program = """
import json, os
import backendcfg
backendcfg.apply("reproducible")
import numpy
def state():
    pending = [each.switch for each in backendcfg.verify().readings if each.state == "pending"]
    return [os.environ.get("OPENBLAS_THREAD_TIMEOUT"), pending]
found = [state()]
for _ in range(2):
    backendcfg.apply("tf32-off")
    found.append(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
    backendcfg.undo()
    found.append(state())
print(json.dumps(found))
"""
    first, *later = answer(program, BACKENDCFG_DISABLE="0")
    assert first[0] is not None
    assert "OPENBLAS_THREAD_TIMEOUT" not in first[1]
    assert later == [None, first] * 2


NUMBA = """
import json, os
import backendcfg
backendcfg.apply(settings={"threads.count": 1})
import numba
found = [total(), numba.get_num_threads()]
left = {each.switch: each.because for each in backendcfg.undo().outcomes}
print(json.dumps([found, left["NUMBA_NUM_THREADS"], total(), os.environ["NUMBA_NUM_THREADS"]]))
"""


@pytest.mark.slow
def test_numba_has_as_many_threads_and_goes_on_compiling_after_undo(answer):
    pytest.importorskip("numba")
    why = "it refuses to compile once it has threads and the variable changes"
    stays = f"it stays at what was applied: numba is imported already, and {why}"
    assert answer(TOTAL + NUMBA, BACKENDCFG_DISABLE="0") == [[9.0, 1], stays, 9.0, "1"]


def test_a_library_that_takes_no_call_makes_its_variable_too_late(monkeypatch):
    missing = {"openblas[conda].threads": "it has no openblas_set_num_threads"}
    monkeypatch.setattr(environment.imports, "may_have_libraries", lambda: True)
    monkeypatch.setattr(pool_calls, "inventory", lambda: Inventory(missing=missing))
    late = {
        each.switch.name: each.switch.too_late()
        for each in environment.settings(REPRODUCIBLE, {"threads.count"})
    }
    assert late["OPENBLAS_NUM_THREADS"] == (
        "openblas[conda] read it when loaded, and no call replaces it: "
        "it has no openblas_set_num_threads"
    )
    assert late["OMP_NUM_THREADS"] == ""


def test_what_is_as_wanted_by_default_reads_as_wanted():
    values = {"onednn.default_fpmath_mode": "strict", "mkl.verbose": 0}
    found = {each.switch.name: each.switch.read() for each in environment.settings(values, values)}
    assert found == {"MKL_VERBOSE": "0", "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT"}


def test_the_hash_seed_is_read_where_the_interpreter_read_it(answer):
    code = """
import json, os
from backendcfg.bridges import environment, pool_calls
read = lambda seed: environment.settings({"python.hash_seed": seed}, ["python.hash_seed"])[0]
os.environ["PYTHONHASHSEED"] = "5"
print(json.dumps([read(5).switch.read(), read(7).switch.read(), read("random").switch.read()]))
"""
    assert answer(code, PYTHONHASHSEED="7") == ["7", "7", "7"]
    assert answer(code) == [None, None, None]


def test_an_interpreter_that_ignores_its_environment_has_read_none(child):
    root = os.path.dirname(os.path.dirname(os.path.dirname(environment.__file__)))
    code = f"""
import sys
sys.path.insert(0, {root!r})
from backendcfg.bridges import environment, pool_calls
print(dict(environment.started_with()))
"""
    done = child(code, "-E", PYTHONHASHSEED="7")
    assert (done.stdout, done.stderr) == ("{}\n", "")


def test_every_latch_is_one_before_something():
    values = {**defaults(), "threads.count": 2}
    rows = environment.settings(values, {row.flag for row in VARIABLES})
    assert {each.switch.latch for each in rows} == {
        "before-import",
        "before-first-use",
        "before-process",
    }


def test_numpy_obeys_what_a_child_was_started_with(answer):
    values = {"threads.count": 1, "blas.openblas.core_type": "Haswell"}
    variables = environment.variables(values, values)
    code = """
import json, numpy
from backendcfg.bridges import pools
found = pools.settings({"threads.count": 9, "blas.openblas.core_type": "haswell"},
                       ["threads.count", "blas.openblas.core_type"])
print(json.dumps({s.switch.name: s.switch.read() for s in found}))
"""
    started = {name: text for name, text in variables.items() if text is not None}
    assert answer(code, **started) == {
        "openblas[numpy].threads": 1,
        "openblas[numpy].core_type": "Haswell",
    }


def test_this_process_is_compared_unless_another_environment_is_given(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    values = {"threads.count": 2}
    words = ["OMP_NUM_THREADS=7 contradicts `threads.count = 2`"]
    assert environment.contradictions(values, values) == words
    assert environment.contradictions(values, values, {}) == []


def test_a_preset_tf32_override_is_taken_away_from_a_profile_that_wants_tf32(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    wants = {"cuda.matmul.fp32_precision": "tf32"}
    [setting] = environment.settings(wants, wants)
    switch = setting.switch
    assert (switch.name, switch.read(), setting.wanted) == ("NVIDIA_TF32_OVERRIDE", "0", None)
    switch.write(None)
    assert switch.read() is None
    switch.write("0")
    assert (switch.read(), os.environ["NVIDIA_TF32_OVERRIDE"]) == ("0", "0")
    refuses = {"cuda.matmul.fp32_precision": "ieee"}
    assert environment.settings(refuses, refuses) == []


def test_the_profiles_own_variables_are_those_that_the_process_started_with(answer):
    code = """
import json
from backendcfg.bridges import environment, pool_calls
values = {"environment": {"KMP_BLOCKTIME": "0", "KMP_AFFINITY": "none"}}
found = environment.settings(values, values)
print(json.dumps([[s.switch.name, s.switch.read(), s.wanted, s.switch.too_late()] for s in found]))
"""
    assert answer(code, KMP_BLOCKTIME="0") == [
        ["KMP_BLOCKTIME", "0", "0", "this interpreter has started"],
        ["KMP_AFFINITY", None, "none", "this interpreter has started"],
    ]


def late(flag, value):
    [setting] = environment.settings({flag: value}, {flag})
    return setting.switch.too_late()


@pytest.mark.parametrize(
    ("initialised", "reason"), [(False, ""), (True, "torch has initialised CUDA")]
)
def test_cublas_has_read_its_workspaces_once_torch_has_initialised_cuda(
    monkeypatch, initialised, reason
):
    cuda = SimpleNamespace(is_initialized=lambda: initialised)
    monkeypatch.setitem(environment.sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert late("torch.cublas_workspace_config", ":4096:8") == reason


def test_without_torch_a_loaded_cublas_counts_as_used(monkeypatch):
    files = ["/usr/lib/libcublas.so.12"]
    monkeypatch.setattr(environment.loaded, "mapped_files", lambda: files)
    assert late("torch.cublas_workspace_config", ":4096:8") == "libcublas is loaded already"
    files.clear()
    assert late("torch.cublas_workspace_config", ":4096:8") == ""


@pytest.mark.parametrize(
    ("initialised", "reason"), [(False, ""), (True, "torch has initialised CUDA")]
)
def test_the_limit_of_plans_counts_as_read_once_torch_has_initialised_cuda(
    monkeypatch, initialised, reason
):
    assert late("torch.cudnn_lru_cache_limit", 100) == ""
    cuda = SimpleNamespace(is_initialized=lambda: initialised)
    monkeypatch.setitem(environment.sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert late("torch.cudnn_lru_cache_limit", 100) == reason


@pytest.mark.parametrize(
    ("begun", "reason"), [(False, ""), (True, "torch.distributed has made its communicators")]
)
def test_nccl_has_read_its_variables_once_there_are_communicators(monkeypatch, begun, reason):
    distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: begun)
    monkeypatch.setitem(environment.sys.modules, "torch.distributed", distributed)
    assert late("nccl.algo", "Ring") == reason
    assert late("nccl.nvls", "off") == reason


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_onednn_counts_as_used_once_a_framework_that_carries_it_is_imported(monkeypatch, framework):
    assert late("onednn.max_cpu_isa", "avx2") == ""
    monkeypatch.setitem(environment.sys.modules, framework, SimpleNamespace())
    assert late("onednn.max_cpu_isa", "avx2") == f"{framework} is imported already"


def test_a_kernel_set_of_blis_is_no_variable_of_a_process_that_may_load_any_file():
    values = {"blas.blis.arch_type": "zen3"}
    assert environment.settings(values, values) == []


def test_what_a_bridge_sets_by_a_call_is_left_alone_here_and_given_to_children():
    values = {
        "cuda.matmul.fp32_precision": "ieee",
        "cuda.preferred_linalg_library": "cusolver",
        "cuda.preferred_blas_library": "cublaslt",
        "cuda.preferred_rocm_fa_library": "ck",
        "cuda.cublaslt_workspace_size": 4 << 20,
        "jax.default_matmul_precision": "highest",
        "jax.enable_x64": True,
        "tensorflow.op_determinism": True,
        "cupy.compute_type": "tf32",
    }
    assert environment.settings(values, values) == []
    assert environment.variables(values, values) == {
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": None,
        "TORCH_LINALG_PREFER_HIPSOLVER": None,
        "TORCH_LINALG_PREFER_CUSOLVER": "1",
        "TORCH_BLAS_PREFER_HIPBLASLT": None,
        "TORCH_BLAS_PREFER_CUBLASLT": "1",
        "TORCH_ROCM_FA_PREFER_CK": "1",
        "CUBLASLT_WORKSPACE_SIZE": "4096",
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",
        "JAX_ENABLE_X64": "1",
        "TF_DETERMINISTIC_OPS": "1",
        "CUPY_TF32": "1",
        # The override that would deny TF32 to CuPy.
        "NVIDIA_TF32_OVERRIDE": None,
        "BACKENDCFG_CARRIED": "CUBLASLT_WORKSPACE_SIZE=4096 TORCH_BLAS_PREFER_CUBLASLT=1"
        " TORCH_LINALG_PREFER_CUSOLVER=1 TORCH_ROCM_FA_PREFER_CK=1",
    }


def test_as_many_threads_as_the_affinity_allows_are_what_jax_takes_anyway(monkeypatch):
    monkeypatch.setattr(environment, "_allowed", lambda: 3)
    monkeypatch.delenv("NPROC", raising=False)

    def found(count):
        settings = environment.settings({"threads.count": count}, ["threads.count"])
        return next(each.switch.read() for each in settings if each.switch.name == "NPROC")

    assert (found(3), found(2)) == ("3", None)
    monkeypatch.setenv("NPROC", "2")
    assert (found(3), found(2)) == ("2", "2")


def test_a_variable_that_the_profiles_own_table_sets_is_one_switch():
    values = {"threads.count": 2, "environment": {"NPROC": "1", "OMP_NUM_THREADS": "1"}}
    names = [each.switch.name for each in environment.settings(values, values)]
    assert sorted(names) == sorted(set(names))
    assert {"NPROC", "OMP_NUM_THREADS"} <= set(names)


def test_a_variable_of_the_own_table_is_in_time_until_its_reader_has_read_it(monkeypatch):
    values = {"environment": {"NPROC": "1", "NPY_DISABLE_CPU_FEATURES": "X86_V4", "OTHER": "1"}}

    def late():
        found = environment.settings(values, values)
        return {each.switch.name: each.switch.too_late() for each in found}

    for name in ("numpy", "jax._src.xla_bridge"):
        monkeypatch.delitem(environment.sys.modules, name, raising=False)
    started = "this interpreter has started"
    assert late() == {"NPROC": "", "NPY_DISABLE_CPU_FEATURES": "", "OTHER": started}
    begun = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(environment.sys.modules, "jax._src.xla_bridge", begun)
    monkeypatch.setitem(environment.sys.modules, "numpy", object())
    assert late() == {
        "NPROC": "JAX has started its backends",
        "NPY_DISABLE_CPU_FEATURES": "numpy is imported already",
        "OTHER": started,
    }


def test_the_page_lists_every_variable_with_its_reader_and_its_evidence():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "docs", "bridges", "environment.md"), encoding="utf-8") as file:
        lines = [line for line in file if line.startswith("| `")]
    cells = {tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in lines}
    listed = {(row[0], row[1], row[-1]) for row in cells}
    assert listed == {(f"`{row.flag}`", f"`{row.name}`", row.evidence) for row in VARIABLES}
