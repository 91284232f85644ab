"""Convolution on a GPU against float64: layouts, options and what each flag does to the error."""

import pytest
import torch
from gpu_arrays import served, under
from torch.nn.functional import conv2d

from backendcfg import ops

PRECISION = "cudnn.conv.fp32_precision"
# Of the largest difference, relative to the sum of sizes of what was added up. Engines by Winograd
# and Fourier round more than a sum does, and less than TF32.
ROUNDING = {"float32": 5e-6, "float64": 2e-14, "float16": 2.0**-9, "bfloat16": 2.0**-6}
TF32 = 2.0**-10
EXACT = {PRECISION: "ieee"}
DETERMINISTIC = {"cudnn.deterministic": True, "determinism.tier": "run-to-run"}

CALLS = {
    "3 by 3": (((2, 16, 20, 18), (24, 16, 3, 3)), {"padding": 1}),
    "1 by 1": (((2, 16, 9, 9), (24, 16, 1, 1)), {}),
    "stride": (((2, 16, 20, 18), (24, 16, 5, 3)), {"stride": (2, 1), "padding": (2, 0)}),
    "dilation": (((1, 8, 20, 18), (8, 8, 3, 3)), {"dilation": (2, 3)}),
    "groups": (((2, 16, 12, 12), (32, 4, 3, 3)), {"groups": 4, "padding": 1}),
    "depthwise": (((2, 16, 12, 12), (16, 1, 3, 3)), {"groups": 16}),
    "same": (((1, 8, 12, 13), (8, 8, 4, 3)), {"padding": "same"}),
    "one image": (((8, 12, 13), (8, 8, 3, 3)), {}),
}


def arguments(cuda, name, dtype):
    (x, w), options = CALLS[name]
    return cuda.random(*x, dtype=dtype), cuda.random(*w, dtype=dtype), options


def error(result, x, w, bias=None, **options):
    """The largest error, relative to the sizes of what was added up."""
    x, w = x.double(), w.double()
    bias = None if bias is None else bias.double()
    wanted = conv2d(x, w, bias, **options)
    most = conv2d(x.abs(), w.abs(), None if bias is None else bias.abs(), **options)
    assert result.shape == wanted.shape
    return float(((result.double() - wanted).abs() / most).max())


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("last", [False, True])
def test_a_convolution_is_as_exact_as_its_type(cuda, dtype, name, last):
    x, w, options = arguments(cuda, name, dtype)
    if last and x.ndim == 4:
        x = x.to(memory_format=torch.channels_last)
    bias = cuda.random(w.shape[0], dtype=dtype)
    with under(**EXACT):
        result, by = served(ops.conv2d, x, w, bias, **options)
    assert (by, result.dtype, result.device) == ("cudnn", x.dtype, x.device)
    assert error(result, x, w, bias, **options) < ROUNDING[dtype]


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_explain_says_of_tf32_is_what_the_error_shows(cuda, deterministic):
    """It is cuDNN that chooses among the engines that the flags allow."""
    if cuda.capability < (8, 0):
        pytest.skip("needs a GPU of compute capability 8.0, which the first with TF32 has")
    x, w = cuda.random(4, 64, 16, 16), cuda.random(64, 64, 3, 3)
    flags = DETERMINISTIC if deterministic else {}
    for precision in ("ieee", "tf32"):
        with under(**{PRECISION: precision}, **flags):
            found = error(ops.conv2d(x, w, padding=1), x, w, padding=1)
            shapes = (tuple(x.shape), tuple(w.shape))
            said = ops.explain("conv2d", shapes, "float32", padding=1, device=cuda.place)
        if "TENSOR_CORE" in said.because:
            assert precision == "tf32"
            assert ROUNDING["float32"] < found < TF32
        else:
            assert found < ROUNDING["float32"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_fastest_of_several_engines_is_right(cuda, dtype):
    x, w, options = arguments(cuda, "3 by 3", dtype)
    with under(**EXACT, **{"cudnn.benchmark": True, "cudnn.benchmark_limit": 0}):
        for _ in range(3):
            assert error(ops.conv2d(x, w, **options), x, w, **options) < ROUNDING[dtype]


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["3 by 3", "groups", "stride"])
def test_a_deterministic_convolution_has_the_same_bits(cuda, precision, dtype, name):
    x, w, options = arguments(cuda, name, dtype)
    with under(**{PRECISION: precision, "cudnn.benchmark": True}, **DETERMINISTIC), cuda.busy():
        first = ops.conv2d(x, w, **options)
        for _ in range(cuda.times):
            assert torch.equal(ops.conv2d(x, w, **options), first)


def test_views_are_read_as_they_lie(cuda):
    x, w = cuda.random(4, 8, 20, 18), cuda.random(8, 8, 3, 3)
    views = (x[1:], x[..., ::2], x[:, :, 1:], x.mT, x[:1].expand(4, 8, 20, 18))
    with under(**EXACT):
        for view in views:
            assert error(ops.conv2d(view, w), view, w) < ROUNDING["float32"]
            assert error(ops.conv2d(view, w.mT), view, w.mT) < ROUNDING["float32"]


def test_a_graph_repeats_a_convolution(cuda):
    if not cuda.is_real:
        pytest.skip("needs a GPU with graphs of its own")
    x, w = cuda.random(2, 16, 20, 18), cuda.random(24, 16, 3, 3)
    stream = torch.cuda.Stream()
    with under(**EXACT):
        with torch.cuda.stream(stream):
            ops.conv2d(x, w)
        cuda.wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = ops.conv2d(x, w)
    x.copy_(cuda.random(*x.shape))
    graph.replay()
    cuda.wait()
    assert error(result, x, w) < ROUNDING["float32"]
