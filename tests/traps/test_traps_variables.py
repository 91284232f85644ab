"""Traps of the variables that numeric libraries read: the same program, told otherwise by a shell.

Bare programs are run by `printed`, which imports nothing of ours; `under` runs the same programs
under `backendcfg run`.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")

DIGEST = """
import hashlib
def digest(array):
    return hashlib.sha256(memoryview(array).cast("B")).hexdigest()[:16]
"""


# --- T28: MKL_CBWR ----------------------------------------------------------------------------


def _branch(printed):
    return re.findall(r"CNR:(\S+)", printed)[-1]


@pytest.mark.torch
@needs_torch
def test_t28_a_branch_of_mkl_that_this_processor_does_not_get_is_named(printed):
    product = "import torch; x = torch.ones(64, 64); x @ x"
    verbose = {"MKL_VERBOSE": "1"}
    asked = _branch(printed(product, MKL_CBWR="AVX2", **verbose))
    of_intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    assert asked == ("AVX2" if of_intel else "AUTO")
    assert _branch(printed(product, MKL_CBWR="BOGUS", **verbose)) == "AUTO"
    assert _branch(printed(product, MKL_CBWR="COMPATIBLE", **verbose)) == "COMPATIBLE"
    plan = """
import backendcfg
for asked in ("avx2", "compatible"):
    plan = backendcfg.plan(settings={"blas.mkl.cbwr": asked})
    [entry] = [one for one in plan.entries if one.flag == "blas.mkl.cbwr"]
    print(entry.value, entry.adaptation and entry.adaptation.because)
"""
    elsewhere = "auto MKL knows this branch on Intel's processors only and takes AUTO elsewhere"
    assert printed(plan) == f"{'avx2 None' if of_intel else elsewhere}\ncompatible None\n"
    refused = """
import backendcfg
try:
    backendcfg.plan(settings={"blas.mkl.cbwr": "bogus"})
except backendcfg.errors.InvalidValueError as error:
    print(error.message)
"""
    assert printed(refused) == (
        'argument `blas.mkl.cbwr` must be one of "off", "auto", "compatible", "avx2", "avx512", '
        '"avx2,strict", "avx512,strict", not the string "bogus"\n'
    )


# --- T29, T31: threads ------------------------------------------------------------------------

SUM = (
    DIGEST
    + """
import torch
x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
print(torch.get_num_threads(), digest(x.sum().numpy()))
"""
)


@pytest.mark.torch
@needs_torch
def test_t29_what_a_shell_says_of_threads_does_not_change_bits(printed, under, several_processors):
    one, all_ = printed(SUM, OMP_NUM_THREADS="1"), printed(SUM)
    assert one.split()[0] == "1"
    assert one.split()[1] != all_.split()[1]
    assert under("reproducible", SUM, OMP_NUM_THREADS="1") == under("reproducible", SUM)


@pytest.mark.torch
@needs_torch
def test_t31_one_count_holds_for_openmp_and_for_mkl(printed, under, several_processors):
    count = "import torch; print(torch.get_num_threads())"
    assert printed(count, OMP_NUM_THREADS="2", MKL_NUM_THREADS="1") == "1\n"
    # MKL_DYNAMIC clips what exceeds the processors, and nobody is told.
    many = str(len(os.sched_getaffinity(0)) + 2)
    assert printed(count, OMP_NUM_THREADS=many) != f"{many}\n"
    assert printed(count, OMP_NUM_THREADS=many, MKL_DYNAMIC="FALSE") == f"{many}\n"
    names = """
import os, torch
wanted = [os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_DYNAMIC")]
print(*wanted, torch.get_num_threads())
"""
    processors = len(os.sched_getaffinity(0))
    preset = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "1"}
    omp, mkl, dynamic, torch_says = under("reproducible", names, **preset).split()
    assert omp == mkl == torch_says
    assert 1 <= int(omp) <= processors
    assert dynamic == "FALSE"


# --- T30: OPENBLAS_CORETYPE -------------------------------------------------------------------

KERNELS = """
import numpy, threadpoolctl
print(*(pool["architecture"] for pool in threadpoolctl.threadpool_info()))
"""


def test_t30_a_kernel_set_with_a_typo_is_refused(python, printed):
    # Nothing is said, and the kernels compute that no request would have chosen.
    status, out, err = python(KERNELS, OPENBLAS_CORETYPE="Haswel")
    assert (status, err) == (0, "")
    assert out == printed(KERNELS)
    refused = """
import backendcfg
try:
    backendcfg.apply(settings={"blas.openblas.core_type": "Haswel"})
except backendcfg.errors.BackendCfgError as error:
    print(error.render())
"""
    assert printed(refused) == (
        'error[invalid-value]: `blas.openblas.core_type` is "Haswel", which is no kernel set of '
        "OpenBLAS\n"
        "  note: OpenBLAS takes an unknown name without a word and computes with other kernels\n"
        "  note: among its kernel sets are Nehalem, Sandybridge, Bulldozer, Piledriver, "
        "Steamroller, Excavator, Haswell, Zen\n"
        "  state: nothing was changed\n"
        '  help: write "Haswell"\n'
    )


# --- T44: JAX on the CPU ----------------------------------------------------------------------

JAX = (
    DIGEST
    + """
import jax, numpy
draw = numpy.random.default_rng(0)
matrix = draw.standard_normal((700, 700), dtype="float32")
vector = draw.standard_normal(1 << 16, dtype="float32")
values = jax.numpy.linalg.svd(matrix, compute_uv=False)
print(digest(numpy.asarray(values)), digest(numpy.asarray(jax.numpy.asarray(vector).sum())))
"""
)


@pytest.mark.jax
@needs_jax
def test_t44_what_a_shell_says_of_threads_does_not_change_jaxs_bits(
    printed, under, several_processors
):
    svd, total = printed(JAX).split()
    one_thread, one_process = printed(JAX, OPENBLAS_NUM_THREADS="1"), printed(JAX, NPROC="1")
    assert one_thread.split()[0] != svd
    assert one_process.split()[1] != total
    preset = {"OPENBLAS_NUM_THREADS": "1", "NPROC": "1"}
    assert under("reproducible", JAX, **preset) == under("reproducible", JAX)
