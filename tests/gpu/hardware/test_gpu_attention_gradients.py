"""Gradients of attention on a GPU against float64, by each kernel that `explain` says gives them."""

import pytest
import torch
from gpu_arrays import served, under
from gpu_attention import CALLS, KERNELS, OPERATION, arguments, needs
from torch.nn.functional import scaled_dot_product_attention as theirs

from backendcfg import ops

BACKWARD = f"{OPERATION}_backward"
# Of the largest difference, relative to the largest number of a gradient.
TOLERANCES = {"bfloat16": 3e-2, "float16": 4e-3, "float32": 2e-5, "float64": 1e-12}


@pytest.fixture(params=KERNELS)
def kernel(request, cuda):
    with under(**{"cuda.sdp_priority": [request.param]}):
        yield request.param


def gradients(call, arrays, grad_out, **options):
    """Those of all arrays, of what a call gives."""
    needing = [each.detach().requires_grad_() for each in arrays]
    return torch.autograd.grad(call(*needing, **options), needing, grad_out)


def assert_right(cuda, arrays, dtype, **options):
    wide = [each.double() for each in arrays]
    out = theirs(*wide, **options)
    grad_out = cuda.random(*out.shape, dtype=dtype)
    found = gradients(ops.scaled_dot_product_attention, arrays, grad_out, **options)
    wanted = gradients(theirs, wide, grad_out.double(), **options)
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (getattr(torch, dtype), other.shape)
        assert float((one.double() - other).abs().max() / other.abs().max()) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_right(cuda, kernel, dtype, name):
    arrays, options = arguments(cuda, name, dtype)
    needs(cuda, kernel, arrays, dtype, options, BACKWARD)
    assert_right(cuda, arrays, dtype, **options)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_that_are_asked_for_are_right(cuda, kernel, dtype, name):
    arrays, options = arguments(cuda, name, dtype)
    needs(cuda, kernel, arrays, dtype, options, BACKWARD)
    out, total = ops.scaled_dot_product_attention(*arrays, return_logsumexp=True, **options)
    found, by = served(
        ops.scaled_dot_product_attention_backward, out, *arrays, out, total, **options
    )
    assert by == kernel
    wanted = gradients(theirs, [each.double() for each in arrays], out.double(), **options)
    for one, other in zip(found, wanted, strict=True):
        assert float((one.double() - other).abs().max() / other.abs().max()) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_gradients_under_a_mask_are_right(cuda, kernel, dtype):
    arrays, _ = arguments(cuda, "77 tokens", dtype)
    length = arrays[0].shape[-2]
    mask = cuda.mask(length, length)
    shapes = [tuple(each.shape) for each in arrays]
    said = ops.explain(BACKWARD, [*shapes, (length, length)], dtype, device=cuda.place)
    if said.provider != kernel:
        pytest.skip(f"needs a GPU that `{kernel}` gives gradients under a mask on")
    assert_right(cuda, arrays, dtype, attn_mask=mask)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("lead", [(), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("kernel", ["efficient", "math"])
def test_a_mask_gets_its_gradient(cuda, kernel, dtype, lead):
    """Summed over what it is broadcast by."""
    arrays, _ = arguments(cuda, "77 tokens", dtype)
    mask = cuda.random(*lead, *([77, 77] if len(lead) < 3 else [77]), dtype=dtype)
    grad_out = cuda.random(*arrays[0].shape, dtype=dtype)
    with under(**{"cuda.sdp_priority": [kernel]}):
        found = gradients(ops.scaled_dot_product_attention, (*arrays, mask), grad_out)
    wide = [each.double() for each in (*arrays, mask)]
    for one, other in zip(found, gradients(theirs, wide, grad_out.double()), strict=True):
        assert (one.dtype, one.shape) == (getattr(torch, dtype), other.shape)
        assert float((one.double() - other).abs().max() / other.abs().max()) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", ["causal", "groups"])
def test_gradients_have_the_same_bits(cuda, kernel, dtype, name):
    arrays, options = arguments(cuda, name, dtype)
    flags = {"determinism.algorithms": "deterministic", "cuda.sdp_priority": [kernel]}
    with under(**flags):
        needs(cuda, kernel, arrays, dtype, options, BACKWARD)
        grad_out = cuda.random(*arrays[0].shape, dtype=dtype)
        with cuda.busy():
            first = gradients(ops.scaled_dot_product_attention, arrays, grad_out, **options)
            for _ in range(cuda.times):
                again = gradients(ops.scaled_dot_product_attention, arrays, grad_out, **options)
                assert all(torch.equal(one, other) for one, other in zip(again, first, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(77, 77), (2, 1, 77)])
def test_gradients_of_a_mask_are_right(cuda, dtype, shape):
    arrays, _ = arguments(cuda, "77 tokens", dtype)
    mask = cuda.random(*shape, dtype=dtype)
    grad_out = cuda.random(*arrays[0].shape, dtype=dtype)
    wide = [each.double() for each in (*arrays, mask)]
    found = gradients(ops.scaled_dot_product_attention, [*arrays, mask], grad_out)
    wanted = gradients(theirs, wide, grad_out.double())
    assert found[3].shape == mask.shape
    for one, other in zip(found, wanted, strict=True):
        assert float((one.double() - other).abs().max() / other.abs().max()) < TOLERANCES[dtype]
