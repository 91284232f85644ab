"""The tests for a GPU are rehearsed on doubles, so that they do not fail for their own sake on one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
BENCHMARKS = TESTS.parent / "benchmarks"


def rehearse(*options):
    """What a run of tests/gpu says, of those that the options choose."""
    # An empty entry would be where this runs, which may hold the sources beside what is installed.
    path = [str(TESTS / "device"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "gpu_rehearsal", *options, "-m", "gpu", str(TESTS / "gpu")),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def passed(said):
    return int(re.search(r"(\d+) passed", said).group(1))


@pytest.mark.torch
def test_products_and_determinism_are_rehearsed_on_doubles(device_file):
    files = ("libexchange.so", "libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13")
    doubles = "--doubles=" + ":".join(device_file(file) for file in files)
    said = rehearse(doubles, "-k", "products or determinism or calls")
    assert passed(said) > 220
    # What is skipped needs a driver's own streams; all else ran.
    assert set(re.findall(r"SKIPPED .*: (.*)", said)) == {"needs a GPU with streams of its own"}


@pytest.mark.torch
def test_attention_is_rehearsed_by_the_kernels_for_the_cpu():
    said = rehearse("-k", "attention and (square or mask or bits or graph)")
    assert passed(said) > 20


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": ""},
    )


@pytest.mark.torch
def test_the_benchmark_is_rehearsed(device_file):
    files = ("libexchange.so", "libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13")
    program = TESTS / "device" / "gpu_benchmark_rehearsal.py"
    done = run(program, str(BENCHMARKS), *(device_file(file) for file in files))
    assert done.returncode == 0, done.stderr
    said = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.count("|") > 5]
    assert [line for line in said if "product, n = 4" in line] == [
        f"{kind} product, n = 4" for kind in ("float32", "TF32", "bfloat16", "float16")
    ]
    assert said[-4:] == [
        f"attention (1, 2, 16, 16), causal by {kernel}"
        for kernel in ("cudnn", "flash", "efficient", "math")
    ]


@pytest.mark.torch
def test_what_calls_cost_is_measured_without_a_gpu():
    done = run(BENCHMARKS / "device_calls.py", "--quick")
    assert done.returncode == 0, done.stderr
    said = [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]]
    assert said[0] == "a call of matmul"
    assert said[-1] == "a call of conv2d with a bias"
    assert len(said) == 11


@pytest.mark.torch
def test_the_benchmark_says_what_it_needs_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run(BENCHMARKS / "gpu.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"benchmarks/gpu\.py: nothing was measured: it needs a GPU, and PyTorch \S+ can use none here\n",
        done.stderr,
    )
