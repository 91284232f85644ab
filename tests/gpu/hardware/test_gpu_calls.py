"""Streams, contexts, memory, graphs and processes: what docs/gpu-evidence.md says of calls on a GPU."""

import gc
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from gpu_arrays import CYCLES, PREFER, PROVIDERS, error, under

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def _real(cuda):
    if not cuda.is_real:
        pytest.skip("needs a GPU with streams of its own")


@pytest.fixture(params=PROVIDERS)
def provider(request):
    with under(**{PREFER: request.param}):
        yield request.param


def test_work_is_in_order_on_the_current_stream_and_nobody_waits(cuda, provider):
    stream = torch.cuda.Stream()
    a, b = torch.zeros(64, 64, device="cuda"), cuda.random(64, 64)
    with torch.cuda.stream(stream):
        ops.matmul(a, b)  # makes the handle
        stream.synchronize()
        torch.cuda._sleep(CYCLES)
        a.fill_(1)
        result = ops.matmul(a, b)
        assert not stream.query(), "the call waited for the device"
        stream.synchronize()
    assert error(result, a, b) < 1e-5


def test_memory_of_another_stream_is_waited_for(cuda, provider):
    """CuPy's and Numba's arrays name their stream; here PyTorch's memory does."""
    stream = torch.cuda.Stream()
    a, b = torch.zeros(64, 64, device="cuda"), cuda.random(64, 64)
    out = torch.empty(64, 64, device="cuda")

    class OnStream:
        def __init__(self, tensor):
            self.tensor, self.shape, self.dtype = tensor, tuple(tensor.shape), tensor.dtype

        @property
        def __cuda_array_interface__(self):
            return {
                **self.tensor.__cuda_array_interface__,
                "stream": stream.cuda_stream,
                "version": 3,
            }

    cuda.wait()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        a.fill_(1)
    ops.matmul(OnStream(a), b, out=out)
    cuda.wait()
    assert error(out, a, b) < 1e-5


def test_the_device_and_the_context_are_left_as_they_were(cuda, provider):
    device = torch.cuda.device_count() - 1
    a = cuda.random(32, 32).to(f"cuda:{device}")
    before = torch.cuda.current_device()
    result = ops.matmul(a, a)
    assert torch.cuda.current_device() == before
    assert result.device == a.device
    assert torch.empty(1, device="cuda").device.index == before


def test_a_result_is_memory_of_pytorch_s_allocator(cuda, provider):
    a = cuda.random(512, 512)
    ops.matmul(a, a)
    before = torch.cuda.memory_allocated()
    result = ops.matmul(a, a)
    assert torch.cuda.memory_allocated() - before == result.numel() * 4
    del result
    gc.collect()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("operation", ["matmul", "addmm"])
def test_a_graph_repeats_what_it_captured(cuda, provider, operation):
    a, b, added = cuda.random(64, 64), cuda.random(64, 64), cuda.random(64)
    out = torch.empty(64, 64, device="cuda")
    arguments = (a, b) if operation == "matmul" else (added, a, b)
    call = getattr(ops, operation)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(*arguments, out=out)
    cuda.wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call(*arguments, out=out)
    a.copy_(cuda.random(64, 64))
    out.zero_()
    graph.replay()
    cuda.wait()
    assert error(out, a, b, None if operation == "matmul" else added) < 1e-5


def test_a_full_device_is_said_and_passes(cuda, provider):
    a = cuda.random(1024, 1024)
    ops.matmul(a, a)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    held = []

    def fill():
        for _ in range(64):
            held.append(ops.matmul(a, a))  # noqa: PERF401 - what was made is held until it fails

    try:
        with pytest.raises((RuntimeError, MemoryError), match="memory"):
            fill()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    held.clear()
    assert error(ops.matmul(a, a), a, a) < 1e-5


def test_arrays_at_two_places_are_refused(cuda):
    a = cuda.random(8, 8)
    with pytest.raises(InvalidArgumentError, match="must be an array on cuda:0"):
        ops.matmul(a, a.cpu().numpy())


FORKS = """
import os, torch
from backendcfg import ops
from backendcfg.errors import InvalidArgumentError
a = torch.ones(8, 8, device="cuda")
ops.matmul(a, a)
child = os.fork()
if child == 0:
    try:
        ops.matmul(a, a)
    except InvalidArgumentError as error:
        print(str(error).splitlines()[0], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(float(ops.matmul(a, a)[0, 0]))
"""


def test_a_forked_child_is_told_and_the_parent_goes_on():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=dict(os.environ),
    )
    assert done.stdout == (
        "matmul: this process was forked from one that had used the device\n8.0\n"
    ), done.stderr


def test_detection_makes_no_context():
    """In a process of its own, which the driver then does not know."""
    code = (
        "import os, backendcfg, subprocess\n"
        "from backendcfg import ops\n"
        "print(ops.explain('matmul', ((8, 8), (8, 8)), device='cuda:0').provider)\n"
        "from ctypes import CDLL, byref, c_uint, c_int\n"
        "driver, flags, active = CDLL('libcuda.so.1'), c_uint(), c_int(-1)\n"
        "status = driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active))\n"
        "print('no context' if status == 3 or not active.value else 'a context')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["no context"], done.stderr


def test_cupy_s_arrays_are_multiplied_and_made():
    cupy = pytest.importorskip("cupy", reason="needs a GPU and CuPy, which is not installed")
    a, b = cupy.random.rand(32, 32, dtype="float32"), cupy.random.rand(32, 32, dtype="float32")
    with cupy.cuda.Stream(non_blocking=True):
        result = ops.matmul(a, b)
    assert isinstance(result, cupy.ndarray)
    assert cupy.allclose(result, a @ b, rtol=1e-4)


class ByInterface:
    """PyTorch's memory, under `__cuda_array_interface__` alone."""

    def __init__(self, tensor):
        self.tensor, self.shape, self.dtype = tensor, tuple(tensor.shape), tensor.dtype
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


def test_arrays_with_an_interface_alone_get_memory_of_the_driver(cuda, provider):
    a, b = cuda.random(256, 256), cuda.random(256, 256)
    cuda.wait()
    result = ops.matmul(ByInterface(a), ByInterface(b))
    again = ops.matmul(result, ByInterface(b))
    mine, second = torch.from_dlpack(result), torch.as_tensor(again, device="cuda")
    assert mine.data_ptr() == result.__cuda_array_interface__["data"][0]
    del result, again
    gc.collect()
    assert error(mine, a, b) < 1e-5
    assert error(second, mine, b) < 1e-5


JAX = """
import jax, numpy as np
from backendcfg import ops
try:
    device = jax.devices("cuda")[0]
except RuntimeError:
    raise SystemExit(3)
for dtype in ("float32", "bfloat16"):
    a, b = (jax.device_put(jax.random.normal(jax.random.key(i), (64, 64), dtype), device) for i in (0, 1))
    result = ops.matmul(a, b)
    assert isinstance(result, jax.Array) and result.devices() == {device}, result
    wanted = np.asarray(a, "float64") @ np.asarray(b, "float64")
    assert np.allclose(np.asarray(result, "float64"), wanted, rtol=0.02, atol=0.1)
    assert np.allclose(np.asarray(result + 1, "float64"), wanted + 1, rtol=0.02, atol=0.1)
"""


def test_jax_s_arrays_get_a_result_of_jax():
    if find_spec("jax") is None:
        pytest.skip("needs a GPU and JAX for CUDA, which is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JAX],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    if done.returncode == 3:
        pytest.skip("needs a GPU that this JAX can use")
    assert done.returncode == 0, done.stderr
