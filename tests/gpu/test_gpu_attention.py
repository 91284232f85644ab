"""Attention on a GPU against float64, by each kernel that `explain` says can serve."""

import pytest
import torch
from gpu_arrays import served, under
from torch.nn.functional import scaled_dot_product_attention as theirs

from backendcfg import ops

OPERATION = "scaled_dot_product_attention"
TOLERANCES = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 2e-5}

CALLS = {
    "square": ((2, 4, 128, 128, 64), {}),
    "causal": ((2, 4, 128, 128, 64), {"is_causal": True}),
    "wide": ((1, 2, 128, 128, 128), {"is_causal": True}),
    "77 tokens": ((1, 2, 77, 77, 64), {}),
    "one query": ((2, 4, 1, 200, 64), {}),
    "scaled": ((1, 2, 64, 96, 80), {"scale": 0.5}),
    "groups": ((1, 8, 64, 64, 64), {"enable_gqa": True}),
}


def arguments(cuda, name, dtype):
    (batch, heads, queries, keys, width), options = CALLS[name]
    few = heads // 4 if options.get("enable_gqa") else heads
    query = cuda.random(batch, heads, queries, width, dtype=dtype)
    key, value = (cuda.random(batch, few, keys, width, dtype=dtype) for _ in range(2))
    return (query, key, value), options


@pytest.fixture(params=["flash", "cudnn", "efficient", "math"])
def kernel(request, cuda):
    with under(**{"cuda.sdp_priority": [request.param]}):
        yield request.param


def needs(cuda, kernel, arrays, dtype, options, operation=OPERATION):
    """Skip a call that this kernel does not serve, for its own reason."""
    asked = {name: value for name, value in options.items() if name != "scale"}
    shapes = [tuple(each.shape) for each in arrays]
    said = ops.explain(operation, shapes, dtype, device=cuda.place, **asked)
    if said.provider != kernel:
        why = "; ".join(r.why for r in said.reasons if r.provider == kernel) or said.because
        pytest.skip(f"needs a GPU that `{kernel}` serves this on: {why}")


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CALLS)
def test_attention_is_right(cuda, kernel, dtype, name):
    arrays, options = arguments(cuda, name, dtype)
    needs(cuda, kernel, arrays, dtype, options)
    result, by = served(ops.scaled_dot_product_attention, *arrays, **options)
    assert by == kernel
    wanted = theirs(*(each.double() for each in arrays), **options)
    assert (result.dtype, result.device) == (arrays[0].dtype, arrays[0].device)
    assert float((result.double() - wanted).abs().max()) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_mask_hides_what_it_says(cuda, kernel, dtype):
    arrays, _ = arguments(cuda, "square", dtype)
    mask = torch.rand(128, 128, device=cuda.device) < 0.7
    mask[:, 0] = True
    shapes = [tuple(each.shape) for each in arrays]
    said = ops.explain(OPERATION, [*shapes, (128, 128)], dtype, device=cuda.place)
    if said.provider != kernel:
        pytest.skip(f"needs a GPU that `{kernel}` serves a mask on")
    result = ops.scaled_dot_product_attention(*arrays, mask)
    wanted = theirs(*(each.double() for each in arrays), mask)
    assert float((result.double() - wanted).abs().max()) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_attention_has_the_same_bits(cuda, kernel, dtype):
    arrays, options = arguments(cuda, "causal", dtype)
    flags = {"determinism.algorithms": "deterministic", "cuda.sdp_priority": [kernel]}
    with under(**flags):
        needs(cuda, kernel, arrays, dtype, options)
        with cuda.busy():
            first = ops.scaled_dot_product_attention(*arrays, **options)
            for _ in range(cuda.times):
                again = ops.scaled_dot_product_attention(*arrays, **options)
                assert torch.equal(again, first)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_right(cuda, kernel, dtype, name):
    arrays, options = arguments(cuda, name, dtype)
    needs(cuda, kernel, arrays, dtype, options, f"{OPERATION}_backward")
    out, total = ops.scaled_dot_product_attention(*arrays, return_logsumexp=True, **options)
    grad_out = cuda.random(*out.shape, dtype=dtype)
    passed = grad_out, *arrays, out, total
    found, by = served(ops.scaled_dot_product_attention_backward, *passed, **options)
    assert by == kernel
    wide = [each.double().requires_grad_() for each in arrays]
    wanted = torch.autograd.grad(theirs(*wide, **options), wide, grad_out.double())
    for one, other, array in zip(found, wanted, arrays, strict=True):
        assert (one.dtype, one.shape) == (array.dtype, array.shape)
        bound = 4 * TOLERANCES[dtype] * (1 + float(other.abs().max()))
        assert float((one.double() - other).abs().max()) < bound


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_gradients_have_the_same_bits(cuda, kernel, dtype):
    arrays, options = arguments(cuda, "causal", dtype)
    needs(cuda, kernel, arrays, dtype, options, f"{OPERATION}_backward")
    out, total = ops.scaled_dot_product_attention(*arrays, return_logsumexp=True, **options)
    passed = out, *arrays, out, total
    with cuda.busy():
        first = ops.scaled_dot_product_attention_backward(*passed, **options)
        for _ in range(cuda.times):
            again = ops.scaled_dot_product_attention_backward(*passed, **options)
            assert all(map(torch.equal, again, first))


@pytest.mark.parametrize("shape", [(128, 128), (4, 1, 128), (2, 1, 128, 1)])
def test_a_mask_is_trained(cuda, shape):
    if not cuda.is_real:
        pytest.skip("needs a GPU: elsewhere gradients are not followed")
    arrays, _ = arguments(cuda, "square", "float32")
    mask = cuda.random(*shape, dtype="float32").requires_grad_()
    wide = mask.detach().double().requires_grad_()
    result, by = served(ops.scaled_dot_product_attention, *arrays, mask)
    assert by in ("efficient", "math")
    (found,) = torch.autograd.grad(result, mask, arrays[0])
    right = theirs(*(each.double() for each in arrays), wide)
    (wanted,) = torch.autograd.grad(right, wide, arrays[0].double())
    assert float((found.double() - wanted).abs().max()) < 1e-4 * (1 + float(wanted.abs().max()))


def test_a_graph_repeats_attention(cuda, kernel):
    if not cuda.is_real:
        pytest.skip("needs a GPU with graphs of its own")
    arrays, options = arguments(cuda, "causal", "bfloat16")
    needs(cuda, kernel, arrays, "bfloat16", options)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ops.scaled_dot_product_attention(*arrays, **options)
    cuda.wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = ops.scaled_dot_product_attention(*arrays, **options)
    arrays[0].copy_(cuda.random(*arrays[0].shape, dtype="bfloat16"))
    graph.replay()
    cuda.wait()
    wanted = theirs(*(each.double() for each in arrays), **options)
    assert float((result.double() - wanted).abs().max()) < TOLERANCES["bfloat16"]
