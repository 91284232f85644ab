"""Products on a GPU against float64: each provider, type and flag shows its own rounding."""

import pytest
import torch
from gpu_arrays import DTYPES, FP32, PREFER, PROVIDERS, ROUNDING, error, served, under

from backendcfg import ops

MATMUL = "cuda.matmul"
TF32 = 2.0**-12  # what TF32 leaves off 1 + 2**-12


@pytest.fixture(params=PROVIDERS)
def provider(request, cuda):
    with under(**{PREFER: request.param}):
        yield request.param


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_is_as_exact_as_its_type(cuda, provider, dtype, transposed):
    n = cuda.size
    a, b = cuda.random(n, n + 8, dtype=dtype), cuda.random(n + 8, n, dtype=dtype)
    if transposed:
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    result, by = served(ops.matmul, a, b)
    assert by == provider
    assert error(result, a, b) < ROUNDING[dtype]


SHAPES = [
    ((1, 1), (1, 1)),
    ((7, 13), (13, 5)),
    ((13,), (13, 5)),
    ((7, 13), (13,)),
    ((13,), (13,)),
    ((6, 7, 13), (6, 13, 5)),
    ((6, 7, 13), (13, 5)),
    ((2, 1, 7, 13), (6, 13, 5)),
    ((2, 6, 7, 13), (6, 13, 5)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_odd_shapes_and_stacks_are_right(cuda, provider, dtype, left, right):
    a, b = cuda.random(*left, dtype=dtype), cuda.random(*right, dtype=dtype)
    result = ops.matmul(a, b)
    wanted = torch.matmul(a, b)
    assert (result.shape, result.dtype, result.device) == (wanted.shape, wanted.dtype, a.device)
    assert error(result, a, b) < 4 * ROUNDING[dtype]


VIEWS = {
    "every other column": lambda x: x[:, ::2],
    "longer rows": lambda x: x[:, :20],
    "one row for all": lambda x: x[:1].expand(24, 40),
    "beginning at an odd number": lambda x: x.flatten()[1 : 1 + 20 * 30].view(20, 30),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("view", VIEWS)
def test_views_are_read_as_they_lie(cuda, provider, dtype, view):
    a = VIEWS[view](cuda.random(24, 40, dtype=dtype))
    b = cuda.random(a.shape[1], 24, dtype=dtype)
    assert error(ops.matmul(a, b), a, b) < 4 * ROUNDING[dtype]
    b = b[:, :5]
    assert error(ops.matmul(a, b), a, b) < 4 * ROUNDING[dtype]


def test_a_conjugate_is_a_conjugate(cuda, provider):
    a, b = cuda.random(9, 7, dtype="complex64"), cuda.random(9, 5, dtype="complex64")
    assert error(ops.matmul(a.mH, b), a.mH.resolve_conj(), b) < ROUNDING["complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(24,), (16, 24), (16, 1), ()])
def test_a_sum_is_right(cuda, provider, dtype, shape):
    a, b, added = (cuda.random(*s, dtype=dtype) for s in ((16, 32), (32, 24), shape))
    result, by = served(ops.addmm, added, a, b)
    assert error(result, a, b, added) < 4 * ROUNDING[dtype]
    if shape == (24,) and "complex" not in dtype:
        assert by == "cublaslt"  # by its epilogue, whoever is preferred
    assert by in PROVIDERS


def test_factors_of_a_sum_are_used(cuda, provider):
    a, b, added = cuda.random(16, 32), cuda.random(32, 24), cuda.random(24)
    result = ops.addmm(added, a, b, beta=2, alpha=-0.5)
    assert error(result, -0.5 * a, b, 2 * added) < ROUNDING["float32"]
    nothing = ops.addmm(added, a[:, :0], b[:0], beta=3)
    assert torch.equal(nothing, (3 * added).expand(16, 24))


def test_out_is_written(cuda, provider):
    a, b = cuda.random(16, 32), cuda.random(32, 24)
    wanted = ops.matmul(a, b)
    for out in (cuda.random(16, 24), cuda.random(24, 16).mT, cuda.random(16, 48)[:, ::2]):
        assert ops.matmul(a, b, out=out) is out
        assert torch.allclose(out, wanted, rtol=1e-4, atol=1e-4)


def rounded_off(cuda, dtype):
    """How much of 1 + 2**-12 a product leaves off."""
    n = cuda.size
    a, b = cuda.full(n, n, value=1 + TF32, dtype=dtype), cuda.full(n, n, value=1.0, dtype=dtype)
    return float(((1 + TF32) - ops.matmul(a, b).real.double() / n).abs().max())


def test_ieee_is_float32_and_tf32_is_tf32(cuda, provider):
    if cuda.capability < (8, 0):
        pytest.skip("needs a GPU of compute capability 8.0, which the first with TF32 has")
    for flags in ({FP32: "ieee"}, {}, {FP32: "ieee", "fp32_precision": "tf32"}):
        with under(**{PREFER: provider}, **flags):
            assert rounded_off(cuda, "float32") < TF32 / 100
    for flag in (FP32, "cudnn.fp32_precision", "fp32_precision"):
        with under(**{PREFER: provider, flag: "tf32"}):
            assert abs(rounded_off(cuda, "float32") - TF32) < TF32 / 100


def test_complex_products_are_in_tf32_by_cublas_alone(cuda, provider):
    if cuda.capability < (8, 0):
        pytest.skip("needs a GPU of compute capability 8.0, which the first with TF32 has")
    with under(**{PREFER: provider, FP32: "tf32"}):
        off = rounded_off(cuda, "complex64")
    assert abs(off - (TF32 if provider == "cublas" else 0)) < TF32 / 100


def test_a_product_in_tf32_of_random_numbers_has_its_error(cuda, provider):
    if cuda.capability < (8, 0):
        pytest.skip("needs a GPU of compute capability 8.0, which the first with TF32 has")
    a, b = cuda.random(cuda.size, cuda.size), cuda.random(cuda.size, cuda.size)
    with under(**{PREFER: provider, FP32: "tf32"}):
        loose = error(ops.matmul(a, b), a, b)
    exact = error(ops.matmul(a, b), a, b)
    assert exact < ROUNDING["float32"] < 10 * ROUNDING["float32"] < loose < 2.0**-10


def test_float16_accumulates_where_the_flag_says(cuda, provider):
    """A sum of 131072 is infinite in float16 alone, and a sixteenth of it is not."""
    a, b = (cuda.full(64, 64, value=45.25, dtype="float16") for _ in range(2))
    added = cuda.full(64, 64, value=0.0, dtype="float16")
    whole = f"{MATMUL}.allow_fp16_reduced_precision_reduction"  # parts of it would be infinite too
    with under(**{PREFER: provider, whole: False}):
        usual = ops.addmm(added, a, b, alpha=2.0**-4)
    assert torch.equal(usual, torch.full_like(usual, 8190.25))
    with under(**{PREFER: provider, f"{MATMUL}.allow_fp16_accumulation": True}):
        assert ops.addmm(added, a, b, alpha=2.0**-4).isinf().all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("may_split", [True, False])
def test_a_reduction_in_float32_rounds_once(cuda, provider, dtype, may_split):
    name = {"float16": "fp16", "bfloat16": "bf16"}[dtype]
    flag = f"{MATMUL}.allow_{name}_reduced_precision_reduction"
    k = cuda.deep
    a = cuda.random(32, k, dtype=dtype)
    b = cuda.random(k, 32, dtype=dtype)
    with under(**{PREFER: provider, flag: False, f"{flag}_split_k": may_split}):
        result, by = served(ops.matmul, a, b)
    assert by == (provider if may_split else "cublaslt")
    exact = a.double() @ b.double()
    ulp = 2.0 ** -(11 if dtype == "float16" else 8)
    off = (result.double() - exact).abs()
    most = a.double().abs() @ b.double().abs()
    assert bool((off <= ulp * exact.abs() + 2e-6 * most).all())
    assert error(ops.matmul(a, b), a, b) < ROUNDING[dtype]  # whatever was rounded between


def test_explain_and_a_call_say_the_same(cuda, provider):
    a, b = cuda.random(64, 64), cuda.random(64, 64)
    _, by = served(ops.matmul, a, b)
    said = ops.explain("matmul", ((64, 64), (64, 64)), "float32", device=cuda.place)
    assert said.provider == by == provider
    _, by = served(ops.addmm, a[0], a, b)
    said = ops.explain("addmm", ((64,), (64, 64), (64, 64)), "float32", device=cuda.place)
    assert said.provider == by == "cublaslt"
