"""Traps that need processes of their own: threads, children, libraries beside others.

Bare programs are run by `printed`, which imports nothing of ours; `under` runs the same programs
under `backendcfg run`.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PYTHON = sys.executable

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


# --- T15: contexts of two threads -------------------------------------------------------------

TWO_THREADS = """
import threading, torch
from contextlib import contextmanager
{imports}
first, second = {first}, {second}
entered, left = threading.Event(), threading.Event()
before = torch.backends.mkldnn.deterministic
def other():
    try:
        with second:
            entered.set()
            left.wait()
    except Exception as error:
        print(type(error).__name__, error, sep=": ")
        entered.set()
with first:
    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
left.set()
thread.join()
print(before, torch.backends.mkldnn.deterministic)
"""


@pytest.mark.torch
@needs_torch
def test_t15_contexts_of_two_threads_do_not_restore_each_others_values(printed, tmp_path):
    flags = "torch.backends.mkldnn.flags(enabled=True, deterministic={})"
    bare = TWO_THREADS.format(imports="", first=flags.format(True), second=flags.format(True))
    # Everybody has left, and the switch is as nobody outside has ever set it.
    assert printed(bare) == "False True\n"

    for name, value in (("on", "true"), ("off", "false")):
        text = f"schema = 1\n[mkldnn]\ndeterministic = {value}\n"
        (tmp_path / f"{name}.toml").write_text(text)
    scopes = 'backendcfg.profile("./on.toml")', 'backendcfg.profile("./off.toml")'
    held = TWO_THREADS.format(imports="import backendcfg", first=scopes[0], second=scopes[0])
    assert printed(held) == "False False\n"
    held = TWO_THREADS.format(imports="import backendcfg", first=scopes[0], second=scopes[1])
    assert printed(held) == (
        "ProfileBusyError: profile `./off.toml` wants `torch.backends.mkldnn.deterministic` at "
        "false, which profile `./on.toml` holds at true\n"
        "False False\n"
    )


# --- T18: workers -----------------------------------------------------------------------------

WORKERS = """
import multiprocessing, sys
import torch
{imports}
def ask():
    return [torch.are_deterministic_algorithms_enabled(), torch.backends.mkldnn.deterministic]
if __name__ == "__main__":
    {apply}
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, *pool.apply(ask))
"""


@pytest.mark.torch
@needs_torch
def test_t18_workers_that_are_spawned_have_the_profile(printed, tmp_path):
    program = tmp_path / "program.py"
    run = f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"
    by_hand = "torch.use_deterministic_algorithms(True); torch.backends.mkldnn.deterministic = True"
    program.write_text(WORKERS.format(imports="", apply=by_hand))
    assert printed(run) == "spawn False False\nforkserver False False\n"
    ours = 'backendcfg.apply("reproducible")'
    program.write_text(WORKERS.format(imports="import backendcfg", apply=ours))
    assert printed(run) == "spawn True True\nforkserver True True\n"


# --- T25: TensorFlow and JAX begin with TF32 --------------------------------------------------


@pytest.mark.tensorflow
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_t25_tensorflow_begins_with_tf32_and_tf32_off_switches_it_off(printed, under):
    code = """
import tensorflow
print(tensorflow.config.experimental.tensor_float_32_execution_enabled())
"""
    assert printed(code).splitlines()[-1] == "True"
    assert under("tf32-off", code).splitlines()[-1] == "False"


@pytest.mark.jax
@needs_jax
def test_t25_jax_leaves_the_precision_to_the_device_and_tf32_off_does_not(printed, under):
    code = "import jax; print(jax.config.jax_default_matmul_precision)"
    assert printed(code) == "None\n"
    assert under("tf32-off", code) == "highest\n"


# --- T26: a variable that no getter shows -----------------------------------------------------


@pytest.mark.torch
@needs_torch
def test_t26_a_variable_that_outranks_every_framework_is_named(printed):
    getters = """
import torch
b = torch.backends
print(torch.get_float32_matmul_precision(), b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32)
"""
    assert printed(getters, NVIDIA_TF32_OVERRIDE="1") == "highest False True\n"
    verify = """
import torch, backendcfg
backendcfg.apply("tf32-off")
print(*backendcfg.verify().overrides, sep="\\n")
"""
    assert printed(verify) == "\n"
    assert printed(verify, NVIDIA_TF32_OVERRIDE="1").startswith(
        "NVIDIA_TF32_OVERRIDE=1 contradicts"
    )


# --- T27: XLA_FLAGS ---------------------------------------------------------------------------


@pytest.mark.jax
@needs_jax
def test_t27_a_flag_that_xla_does_not_know_is_refused_before_it_ends_the_process(
    python, backendcfg
):
    compute = "import jax; print(float(jax.numpy.ones(3).sum()))"
    status, out, err = python(compute, XLA_FLAGS="--xla_cpu_enable_fast_mth=true")
    assert status != 0
    assert out == ""
    assert "Unknown flag in XLA_FLAGS: --xla_cpu_enable_fast_mth=true" in err

    profiles = Path(os.environ["BACKENDCFG_CONFIG_DIR"]) / "profiles"
    profiles.mkdir(parents=True)
    text = 'schema = 1\n[environment]\nXLA_FLAGS = "--xla_cpu_enable_fast_mth=true"\n'
    (profiles / "typo.toml").write_text(text)
    status, out, err = backendcfg("run", "typo", "--", PYTHON, "-c", compute)
    assert (status, out) == (2, "")
    assert err == (
        "error[invalid-value]: the installed jaxlib does not take what the plan puts into "
        "XLA_FLAGS\n"
        "  note: XLA says: Unknown flag in XLA_FLAGS: --xla_cpu_enable_fast_mth=true\n"
        "  note: the plan wants `--xla_cpu_enable_fast_mth=true` in `environment.XLA_FLAGS`\n"
        "  state: nothing was changed; with it JAX would have ended the process\n"
        "  help: correct the word, or remove it from the profile\n"
    )


# --- T32: two OpenMP runtimes -----------------------------------------------------------------

TWO_RUNTIMES = """
import ctypes, importlib.metadata
[path] = [file.locate() for file in importlib.metadata.files("intel-openmp")
          if file.name == "libiomp5.so"]
import torch
ctypes.CDLL(str(path))
"""


@pytest.mark.torch
@pytest.mark.mkl
@needs_torch
def test_t32_two_openmp_runtimes_in_a_process_are_shown_and_both_are_set(
    printed, several_processors
):
    try:
        import importlib.metadata

        importlib.metadata.files("intel-openmp")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mkl is not installed, which brings intel-openmp")
    counts = """
import threadpoolctl
pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "openmp"]
print(*sorted((p["prefix"], p["num_threads"]) for p in pools))
"""
    # PyTorch sets the count of its own runtime, and the other one keeps every processor.
    alone = printed(TWO_RUNTIMES + "torch.set_num_threads(1)" + counts)
    processors = len(os.sched_getaffinity(0))
    assert alone == f"('libgomp', 1) ('libiomp', {processors})\n"
    ours = """
import backendcfg
print(*sorted(one.threading for one in backendcfg.detect().libraries if one.kind == "openmp" and one.loaded))
backendcfg.apply(settings={"threads.count": 1})
"""
    assert printed(TWO_RUNTIMES + ours + counts) == "gnu intel\n('libgomp', 1) ('libiomp', 1)\n"


# --- T39: an import that changes the environment ----------------------------------------------


def test_t39_an_import_that_changes_what_others_read_is_named(printed, tmp_path):
    package = tmp_path / "thirdparty"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os\nos.environ['TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT'] = '1'\n"
        "os.environ['MKL_NUM_THREADS'] = '1'\n"
    )
    bare = "import sys; sys.path.insert(0, '.'); import thirdparty, os; print(os.environ['MKL_NUM_THREADS'])"
    assert printed(bare) == "1\n"
    ours = """
import sys; sys.path.insert(0, ".")
import backendcfg
try:
    with backendcfg.guard():
        import thirdparty
except backendcfg.errors.BackendCfgError as error:
    print(error.render())
"""
    assert printed(ours) == (
        "error[switch-left-changed]: the block left `MKL_NUM_THREADS` and "
        "`TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT` changed\n"
        "  note: `MKL_NUM_THREADS` was unset and is 1\n"
        "  note: `TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT` was unset and is 1\n"
        "  state: the switches are as they were left\n"
        "  help: set it for a block only, `with backendcfg.profile(...)`, or put it back after "
        "use\n"
    )


# --- T41: verbose -----------------------------------------------------------------------------

VERBOSE = """
import torch
from {module} import mkl
x = torch.ones(64, 64)
def lines(title):
    print(title, flush=True)
    x @ x
lines("before")
with mkl.verbose(0):
    pass
lines("after")
with mkl.verbose(1):
    with mkl.verbose(1):
        pass
    lines("between")
lines("at the end")
"""


def spoken(out):
    """The titles under which MKL printed a product."""
    parts = re.split(r"^(before|after|between|at the end)\n", out, flags=re.MULTILINE)
    return [title for title, text in zip(parts[1::2], parts[2::2], strict=True) if "SGEMM" in text]


@pytest.mark.torch
@needs_torch
def test_t41_leaving_a_verbose_context_restores_what_was_there(printed):
    bare, held = (
        VERBOSE.format(module="torch.backends"),
        VERBOSE.format(module="backendcfg.backends"),
    )
    assert spoken(printed(bare, MKL_VERBOSE="1")) == ["before"]
    assert spoken(printed(bare)) == []
    assert spoken(printed(held, MKL_VERBOSE="1")) == ["before", "after", "between", "at the end"]
    assert spoken(printed(held)) == ["between"]
