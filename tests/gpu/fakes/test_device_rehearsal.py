"""The tests for a GPU are rehearsed on fakes, so that they do not fail for their own sake on one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
BENCHMARKS = TESTS.parent / "benchmarks"
EVIDENCE = TESTS.parent / "docs" / "gpu-evidence.md"


def rehearse(*options):
    """What a run of tests/gpu says, of those that the options choose."""
    # An empty entry would be where this runs, which may hold the sources beside what is installed.
    path = [str(TESTS / "gpu" / "fakes"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "gpu_rehearsal", *options, "-m", "gpu", str(TESTS / "gpu" / "hardware")),
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


# Which tests, over which fakes, and how many there are at least.
OVER_FAKES = {
    "products or determinism or calls": (("libcublas.so.13", "libcublasLt.so.13"), 220),
    "linalg": (("libcusolver.so.12", "libcublas.so.13", "libmagma.so"), 300),
    "convolution": (("libcudnn.so.9",), 80),
    "transforms": (("libcufft.so.12",), 200),
    "sparse": (("libcusparseLt.so.0",), 25),
}


@pytest.mark.torch
@pytest.mark.sweep(2)
@pytest.mark.parametrize("chosen", OVER_FAKES)
def test_the_tests_of_each_family_are_rehearsed_on_fakes(device_file, chosen):
    libraries, count = OVER_FAKES[chosen]
    files = ("libexchange.so", "libcuda.so.1", *libraries)
    said = rehearse("--fakes=" + ":".join(device_file(file) for file in files), "-k", chosen)
    assert passed(said) > count
    # What is skipped needs a driver's own streams, or another library; all else ran.
    assert set(re.findall(r"SKIPPED .*: (.*)", said)) <= {
        "needs a GPU with streams of its own",
        "needs a GPU with graphs of its own",
        "needs a GPU that magma serves, which is not here",
    }


@pytest.mark.torch
def test_attention_is_rehearsed_by_the_kernels_for_the_cpu():
    said = rehearse("-k", "attention and not gradients and (square or mask or bits or graph)")
    assert passed(said) > 20


@pytest.mark.torch
@pytest.mark.exhaustive
def test_gradients_are_rehearsed_by_the_emulated_kernels(device_file):
    fakes = "--fakes=" + ":".join(map(device_file, ("libexchange.so", "libcuda.so.1")))
    said = rehearse(fakes, "--emulated", "-k", "gradients and (77 or groups or mask)")
    assert passed(said) > 50


@pytest.mark.torch
def test_each_command_that_would_confirm_a_statement_chooses_tests():
    names = [line.casefold() for line in rehearse("--collect-only").splitlines() if "::" in line]
    page = EVIDENCE.read_text(encoding="utf-8")
    commands = {quoted or word for quoted, word in re.findall(r'-k (?:"([^"]+)"|(\w+))', page)}
    assert len(commands) > 20
    for command in commands - {"NAME"}:
        asked = re.sub(r"(?!and\b|or\b|not\b)\b\w+", r"('\g<0>' in name)", command)
        assert any(eval(asked, {"name": name}) for name in names), command


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": ""},
    )


def measured(*fakes):
    """The rows of a rehearsed benchmark without their times, and what else it printed."""
    done = run(TESTS / "gpu" / "fakes" / "gpu_benchmark_rehearsal.py", str(BENCHMARKS), *fakes)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    rows = [line.split("|")[1].strip() for line in lines if line.count("|") > 5]
    rows = [row for row in rows if row.strip("-") and row != "what"]
    timeless = [re.sub(r" \([\d.]+ .s\)$", "", row) for row in rows]
    return timeless, [line for line in lines if "|" not in line]


@pytest.mark.torch
def test_the_benchmark_is_rehearsed_on_fakes(device_file):
    files = ("libexchange.so", "libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13")
    more = ("libcufft.so.12", "libcudnn.so.9", "libcusolver.so.12")
    rows, served = measured(*(device_file(file) for file in (*files, *more)))
    families = (
        *("addmm", "einsum", "scaled_dot_product_attention", "conv2d", "fft.rfft"),
        *("linalg.cholesky_ex", "linalg.solve_ex"),
    )
    assert rows == [
        "a product of n = 4 beyond the bare call of cuBLAS",
        "4 transforms of 64 numbers beyond the bare call of cuFFT",
        *(f"a small call of {family}" for family in families),
        *(f"{kind} product, n = 4" for kind in ("float32", "TF32", "bfloat16", "float16")),
    ]
    assert served == [
        "bgemm by cublas",
        "conv2d by cudnn",
        "einsum by one pair",
        "fft.fft by cufft",
        "fft.rfft by cufft",
        "hgemm by cublas",
        "linalg.cholesky_ex by cusolver",
        "linalg.solve_ex by cusolver",
        "scaled_dot_product_attention by cudnn",
        "sgemm by cublas",
        "sgemm by cublaslt",
    ]


@pytest.mark.torch
def test_the_benchmark_of_attention_is_rehearsed_on_the_cpu():
    rows, _ = measured()
    assert rows == [
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
    assert len(said) == 13


@pytest.mark.torch
def test_the_benchmark_says_what_it_needs_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run(BENCHMARKS / "gpu.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"benchmarks/gpu\.py: nothing was measured: it needs a GPU, and PyTorch \S+ can use none here\n",
        done.stderr,
    )
