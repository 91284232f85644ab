"""Products of 2:4 sparse matrices on a GPU: of small whole numbers, so that they are exact."""

import pytest
import torch
from gpu_arrays import served, under

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError

DTYPES = ("float16", "bfloat16", "int8")


@pytest.fixture(autouse=True)
def _served(cuda):
    said = ops.explain("sparse_matmul", ((64, 64), (64, 64)), "float16", device=cuda.place)
    if said.provider != "cusparselt":
        pytest.skip("needs a GPU that cuSPARSELt serves, which is not here")


def numbers(cuda, *shape, dtype):
    return torch.randint(-3, 4, shape, device=cuda.device).to(getattr(torch, dtype))


def pruned(cuda, *shape, dtype):
    """Two of four are kept, wherever they lie."""
    keep = torch.rand(*shape[:-1], shape[-1] // 4, 4, device=cuda.device).argsort(-1) < 2
    return numbers(cuda, *shape, dtype=dtype) * keep.reshape(shape)


def assert_exact(result, a, b, bias=None):
    wanted = a.double() @ b.double()
    if bias is not None:
        wanted = wanted + bias.double()[:, None]
    assert result.dtype is (torch.int32 if a.dtype is torch.int8 else a.dtype)
    # Whole numbers of this size are held by each type, but for bfloat16's eight bits.
    assert torch.equal(result.double(), wanted.to(result.dtype).double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(32, 16, 64), (64, 64, 128), (96, 256, 32)])
@pytest.mark.parametrize("by_columns", [False, True])
def test_a_sparse_product_is_right(cuda, dtype, m, n, k, by_columns):
    a, b = pruned(cuda, m, k, dtype=dtype), numbers(cuda, k, n, dtype=dtype)
    if by_columns:
        b = b.T.contiguous().T
    result, by = served(ops.sparse_matmul, ops.sparse_compress(a), b)
    assert by == "cusparselt"
    assert_exact(result, a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_bias_is_added_and_views_are_read(cuda, dtype):
    a, b = pruned(cuda, 64, 64, dtype=dtype), numbers(cuda, 64, 32, dtype=dtype)
    bias = numbers(cuda, 64, dtype=dtype)
    compressed = ops.sparse_compress(a)
    assert_exact(ops.sparse_matmul(compressed, b, bias), a, b, bias)
    assert_exact(ops.sparse_matmul(compressed, b[:, :8], bias), a, b[:, :8], bias)
    assert_exact(ops.sparse_matmul(compressed, b[:, ::2]), a, b[:, ::2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fastest_algorithm_is_right_too(cuda, dtype):
    a, b = pruned(cuda, 128, 128, dtype=dtype), numbers(cuda, 128, 64, dtype=dtype)
    compressed = ops.sparse_compress(a)
    found = ops.sparse_search(compressed, b)
    assert_exact(ops.sparse_matmul(compressed, b, algorithm=found), a, b)


def test_what_is_not_sparse_is_refused(cuda):
    with pytest.raises(InvalidArgumentError, match="at most 2 numbers other than 0"):
        ops.sparse_compress(torch.ones(32, 64, device=cuda.device).half())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sparse_product_has_the_same_bits(cuda, dtype):
    a, b = pruned(cuda, 64, 128, dtype=dtype), numbers(cuda, 128, 64, dtype=dtype)
    if dtype != "int8":
        a, b = a * 1.37, b * 0.73
    compressed = ops.sparse_compress(a)
    with under(**{"determinism.tier": "run-to-run"}), cuda.busy():
        first = ops.sparse_matmul(compressed, b)
        for _ in range(cuda.times):
            assert torch.equal(ops.sparse_matmul(compressed, b), first)


def test_plans_of_two_shapes_serve_in_turns(cuda):
    a = pruned(cuda, 64, 128, dtype="float16")
    compressed = ops.sparse_compress(a)
    for turn in range(cuda.times):
        b = numbers(cuda, 128, 16 + 16 * (turn % 2), dtype="float16")
        assert_exact(ops.sparse_matmul(compressed, b), a, b)
