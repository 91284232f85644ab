"""Transforms on a GPU against float64: every function, norm, layout, and the cache of plans."""

import pytest
import torch
from gpu_arrays import served, under, wide

from backendcfg import ops
from backendcfg.ops.fft import plan_cache

ROUNDING = {"float32": 1e-6, "float64": 1e-14}
OF_COMPLEX = ("fft", "ifft", "hfft", "irfft", "fft2", "ifft2", "irfft2", "fftn", "ifftn", "irfftn")
OF_REAL = ("rfft", "ihfft", "rfft2", "rfftn", "fft", "fftn")
SINGLE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def error(result, wanted):
    """Of the norm, relative to that of what is wanted."""
    assert result.shape == wanted.shape
    return float(torch.linalg.norm(wide(result) - wanted) / torch.linalg.norm(wanted))


def check(operation, value, dtype, *arguments, **options):
    """A transform of an array that has to be left as it was."""
    before = value.clone()
    result, by = served(getattr(ops.fft, operation), value, *arguments, **options)
    wanted = getattr(torch.fft, operation)(wide(value.resolve_conj()), *arguments, **options)
    assert (by, result.device) == ("cufft", value.device)
    assert error(result, wanted) < ROUNDING[dtype]
    assert torch.equal(value, before)
    return result


def numbers(cuda, dtype, *shape, is_real=False):
    kind = dtype if is_real else {"float32": "complex64", "float64": "complex128"}[dtype]
    return cuda.random(*shape, dtype=kind)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("operation", OF_COMPLEX)
def test_a_transform_of_complex_numbers_is_right(cuda, dtype, norm, operation):
    check(operation, numbers(cuda, dtype, 3, 12, 10), dtype, norm=norm)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("operation", OF_REAL)
def test_a_transform_of_real_numbers_is_right(cuda, dtype, norm, operation):
    check(operation, numbers(cuda, dtype, 3, 12, 10, is_real=True), dtype, norm=norm)


@pytest.mark.parametrize("n", [1, 7, 11, 64, 97, 1000])
@pytest.mark.parametrize("operation", SINGLE)
def test_every_length_is_right(cuda, n, operation):
    n = min(n, 4 * cuda.size)
    is_real = operation in OF_REAL
    check(operation, numbers(cuda, "float32", 3, n + 2, is_real=is_real), "float32", n)
    check(operation, numbers(cuda, "float32", 3, 5, is_real=is_real), "float32", n)


LAYOUTS = {
    "the first dimension": (lambda x: x, {"dim": 0}),
    "the second": (lambda x: x, {"dim": 1}),
    "every other": (lambda x: x[..., ::2], {}),
    "turned": (lambda x: x.mT, {}),
    "one for all": (lambda x: x[:1].expand(4, 8, 10), {}),
    "beginning at an odd number": (lambda x: x.flatten()[1:81].view(8, 10), {}),
    "a conjugate": (torch.conj, {}),
}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", ["fft", "ifft", "irfft", "hfft", "rfft"])
def test_views_are_read_as_they_lie(cuda, dtype, layout, operation):
    view, options = LAYOUTS[layout]
    is_real = operation == "rfft"
    check(operation, view(numbers(cuda, dtype, 4, 8, 10, is_real=is_real)), dtype, **options)


def test_more_than_three_dimensions_are_right(cuda):
    check("fftn", numbers(cuda, "float32", 2, 3, 4, 5, 6), "float32")
    check("rfftn", numbers(cuda, "float32", 2, 3, 4, 5, 6, is_real=True), "float32")
    check("irfftn", numbers(cuda, "float32", 2, 3, 4, 5, 6), "float32")


def test_transforms_have_the_same_bits(cuda):
    x, real = numbers(cuda, "float32", 16, 1000), cuda.random(16, 997)
    with under(**{"determinism.tier": "run-to-run"}), cuda.busy():
        first = ops.fft.fft(x), ops.fft.rfft(real), ops.fft.fft(x, dim=0)
        for _ in range(cuda.times):
            again = ops.fft.fft(x), ops.fft.rfft(real), ops.fft.fft(x, dim=0)
            assert all(torch.equal(one, other) for one, other in zip(again, first, strict=True))


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_small_cache_of_plans_serves_shapes_in_turns(cuda, size):
    a, b = numbers(cuda, "float32", 4, 32), numbers(cuda, "float32", 4, 48)
    with under(**{"cuda.cufft_plan_cache.max_size": size}):
        for _ in range(cuda.times):
            check("fft", a, "float32")
            check("fft", b, "float32")
        assert plan_cache[cuda.place].size <= size
    plan_cache[cuda.place].clear()


def test_a_plan_serves_two_streams_in_turns(cuda):
    if not cuda.is_real:
        pytest.skip("needs a GPU with streams of its own")
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    x = numbers(cuda, "float32", 64, 4096)
    wanted = torch.fft.fft(wide(x))
    cuda.wait()
    results = []
    for turn in range(1000):
        with torch.cuda.stream(streams[turn % 2]):
            results.append(ops.fft.fft(x))
            del results[:-4]
    cuda.wait()
    assert all(error(result, wanted) < ROUNDING["float32"] for result in results)


def test_a_graph_repeats_a_transform(cuda):
    if not cuda.is_real:
        pytest.skip("needs a GPU with graphs of its own")
    x = numbers(cuda, "float32", 8, 100)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ops.fft.fft(x)
    cuda.wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = ops.fft.fft(x)
    x.copy_(numbers(cuda, "float32", 8, 100))
    graph.replay()
    cuda.wait()
    assert error(result, torch.fft.fft(wide(x))) < ROUNDING["float32"]
