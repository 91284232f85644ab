"""Attention of PyTorch's and JAX's arrays: in as they are, out as the same, PyTorch's numbers."""

import itertools

import numpy as np
import pytest

from backendcfg import ops

attend = ops.scaled_dot_product_attention
attend_backward = ops.scaled_dot_product_attention_backward
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 2e-2, "float16": 3e-3}


@pytest.fixture(name="torch")
def _torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch


def agree(torch, arrays, **options):
    """Ours and PyTorch's own: result and gradients."""
    arrays = [array.clone().requires_grad_() for array in arrays]
    wanted = torch.nn.functional.scaled_dot_product_attention(*arrays, **options)
    out, total = attend(*arrays, return_logsumexp=True, **options)
    close = TOLERANCE[str(wanted.dtype).rpartition(".")[2]]
    torch.testing.assert_close(out, wanted.detach(), atol=close, rtol=close)
    if not wanted.numel():
        return
    given = torch.randn_like(wanted)
    gradients = attend_backward(given, *arrays, out, total, **options)
    theirs = torch.autograd.grad(wanted, arrays, given)
    for one, other in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=close * 10, rtol=close * 10)


SHAPES = [
    [(2, 3, 7, 16), (2, 3, 11, 16), (2, 3, 11, 16)],
    [(7, 16), (11, 16), (11, 5)],
    [(3, 7, 16), (3, 11, 16), (3, 11, 16)],
    [(4, 2, 3, 7, 8), (4, 2, 3, 11, 8), (4, 2, 3, 11, 8)],
    [(1, 3, 7, 16), (2, 1, 11, 16), (2, 1, 11, 5)],
    [(7, 16), (2, 3, 11, 16), (3, 11, 5)],
    [(2, 3, 7, 16), (2, 3, 0, 16), (2, 3, 0, 16)],
    [(2, 3, 0, 16), (2, 3, 4, 16), (2, 3, 4, 16)],
    [(0, 3, 5, 16), (0, 3, 4, 16), (0, 3, 4, 16)],
]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_results_and_gradients_are_those_of_pytorch(torch, dtype):
    kind = getattr(torch, dtype)
    for shapes, is_causal in itertools.product(SHAPES, (False, True)):
        arrays = [torch.randn(shape, dtype=kind) for shape in shapes]
        agree(torch, arrays, is_causal=is_causal)
        agree(torch, arrays, is_causal=is_causal, scale=0.3)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_masks_are_those_of_pytorch(torch, dtype):
    kind = getattr(torch, dtype)
    for shape in [(7, 11), (1, 11), (2, 3, 7, 11), (2, 1, 7, 11), (1, 1, 1, 11), (3, 7, 11)]:
        arrays = [torch.randn(2, 3, length, 16, dtype=kind) for length in (7, 11, 11)]
        agree(torch, arrays, attn_mask=torch.rand(shape) > 0.3)
        agree(torch, arrays, attn_mask=torch.randn(shape, dtype=kind))
    hidden = torch.ones(7, 11, dtype=torch.bool)
    hidden[3] = False
    agree(torch, arrays, attn_mask=hidden)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_groups_of_heads_are_those_of_pytorch(torch, dtype):
    """Also the example of PyTorch's documentation, with fewer positions."""
    kind = getattr(torch, dtype)
    for heads in ((8, 2, 2), (32, 8, 8), (6, 1, 1)):
        arrays = [torch.rand(2, each, 30, 16, dtype=kind) for each in heads]
        agree(torch, arrays, enable_gqa=True)
        agree(torch, arrays, enable_gqa=True, is_causal=True)


def test_the_example_of_pytorchs_documentation(torch):
    query, key, value = (torch.rand(32, 8, 128, 64, dtype=torch.float16) for _ in range(3))
    out = attend(query, key, value)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(out, wanted, atol=2e-3, rtol=2e-3)


def test_nan_and_infinity_are_those_of_pytorchs_plain_products(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    arrays = [torch.randn(2, 3, length, 16) for length in (7, 11, 11)]
    arrays[0][0, 0, 2, 3] = float("nan")
    arrays[1][1, 1, 2, 3] = float("inf")
    arrays[2][1, 0, 2, 3] = float("inf")
    out = attend(*arrays)
    with sdpa_kernel(SDPBackend.MATH):  # the flash kernel of its CPU gives 0 for NaN
        wanted = torch.nn.functional.scaled_dot_product_attention(*arrays)
    torch.testing.assert_close(out, wanted, equal_nan=True, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_tensor_gives_a_tensor_over_our_memory(torch, dtype):
    query = torch.randn(1, 2, 5, 8, dtype=getattr(torch, dtype), requires_grad=True)
    out, total = attend(query, query, query, return_logsumexp=True)
    assert type(out) is type(total) is torch.Tensor
    assert out.dtype is query.dtype
    assert total.dtype is (torch.float64 if dtype == "float64" else torch.float32)
    assert not out.requires_grad
    again = attend(query.detach().numpy() if dtype != "bfloat16" else query, query, query)
    assert type(again) is (np.ndarray if dtype != "bfloat16" else torch.Tensor)


def test_each_gradient_is_of_the_kind_of_its_array(torch):
    query = np.ones((1, 2, 5, 8), np.float32)
    key = torch.ones(1, 2, 5, 8)
    out, total = attend(query, key, query, return_logsumexp=True)
    gradients = attend_backward(torch.from_numpy(out), query, key, query, out, total)
    assert [type(each) for each in gradients] == [np.ndarray, torch.Tensor, np.ndarray]


def test_bfloat16_of_ml_dtypes_gives_the_same():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    query = np.random.default_rng(0).standard_normal((1, 2, 5, 8)).astype(ml_dtypes.bfloat16)
    for _ in range(2):
        out, total = attend(query, query, query, return_logsumexp=True)
        assert (out.dtype, total.dtype) == (query.dtype, np.float32)
    wide = query.astype(np.float32)
    np.testing.assert_allclose(out.astype(np.float32), attend(wide, wide, wide), atol=2e-2)


def test_an_array_on_a_device_is_refused_by_its_argument(torch):
    from backendcfg.errors import InvalidArgumentError

    query = torch.ones(1, 2, 5, 8)
    with pytest.raises(InvalidArgumentError) as caught:
        attend(query, query, query.to("meta"))
    assert caught.value.message == (
        "scaled_dot_product_attention: `value` must be on the CPU, not on meta"
    )
