"""Attention on a GPU against float64, by each kernel that `explain` says can serve."""

import pytest
import torch
from gpu_arrays import served, under
from gpu_attention import CALLS, KERNELS, OPERATION, TOLERANCES, arguments, needs
from torch.nn.functional import scaled_dot_product_attention as theirs

from backendcfg import ops


@pytest.fixture(params=KERNELS)
def kernel(request, cuda):
    with under(**{"cuda.sdp_priority": [request.param]}):
        yield request.param


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
    mask = cuda.mask(128, 128)
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
