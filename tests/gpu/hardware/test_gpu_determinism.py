"""The same bits from run to run on a GPU, while another stream keeps it busy."""

import pytest
import torch
from gpu_arrays import FP32, PREFER, PROVIDERS, under

from backendcfg import ops

DETERMINISTIC = {"determinism.algorithms": "deterministic", "determinism.tier": "run-to-run"}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "complex64", "bfloat16", "float16", "tf32"]
)
@pytest.mark.parametrize("shape", ["square", "deep"])
def test_a_product_has_the_same_bits(cuda, provider, dtype, shape):
    flags = {PREFER: provider, **DETERMINISTIC}
    if dtype == "tf32":
        flags, dtype = {**flags, FP32: "tf32"}, "float32"
    m, k = (cuda.size, cuda.size) if shape == "square" else (64, cuda.deep)
    a, b = cuda.random(m, k, dtype=dtype), cuda.random(k, m, dtype=dtype)
    with under(**flags), cuda.busy():
        first = ops.matmul(a, b)
        for _ in range(cuda.times):
            assert torch.equal(ops.matmul(a, b), first)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sum_has_the_same_bits(cuda, dtype):
    a, b = cuda.random(64, cuda.deep, dtype=dtype), cuda.random(cuda.deep, 64, dtype=dtype)
    added = cuda.random(64, dtype=dtype)
    with under(**DETERMINISTIC), cuda.busy():
        first = ops.addmm(added, a, b)
        for _ in range(cuda.times):
            assert torch.equal(ops.addmm(added, a, b), first)
