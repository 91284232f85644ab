"""Handles of libraries are kept with their streams, but not without end: what of that calls see."""

import ctypes
import gc

import numpy as np
import pytest
from convolutions import assert_near, normal, on_the_cpu
from device_arrays import ByInterface, OnDevice, _alive
from products import GEMMS, PREFER, numbers, on_device, under

from backendcfg import ops

IDLE = 64  # BCFG_IDLE_HANDLES
SMALL = {"cuda.cublas_workspace_size": 12288, "cuda.cublaslt_workspace_size": 12288}


@pytest.fixture(autouse=True)
def _small_workspaces():
    with under(**SMALL):
        yield


@pytest.fixture
def streams(devices):
    """`streams(count)`: makes streams that nobody has used."""
    cuda, context = devices.cuda.library, ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)

    def make(count):
        made = (ctypes.c_void_p * count)()
        cuda.cuCtxPushCurrent_v2(context)
        for at in range(count):
            assert cuda.cuStreamCreate(ctypes.byref(made, 8 * at), 0) == 0
        cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        return list(made)

    return make


def multiply(stream=None):
    if stream is not None:
        OnDevice.stream = stream
    a, b = on_device((3, 5)), on_device((5, 4), seed=1)
    result = ops.matmul(a, b)
    assert np.array_equal(result.array, a.array @ b.array)


def workspaces():
    """How many workspaces the arrays' library has lent."""
    gc.collect()
    return sum(owner.array.nbytes == 12288 for _, owner in _alive.values())


def test_a_program_that_makes_streams_without_end_keeps_a_bounded_number_of_workspaces(
    devices, streams
):
    captured = workspaces()  # those that captured graphs of earlier tests may refer to
    for stream in streams(IDLE + 10):
        multiply(stream)
    made, ended = (devices.cublas.calls(f"cublas{name}_v2") for name in ("Create", "Destroy"))
    assert len(made) == IDLE + 10
    assert len(ended) >= 10
    assert workspaces() <= captured + IDLE + 1  # with the last one, which none was ended for since


def test_a_stream_whose_handle_was_ended_gets_another(devices, streams):
    first, *others = streams(IDLE + 2)
    multiply(first)
    for stream in others:
        multiply(stream)
    devices.cublas.reset()
    multiply(first)
    (call,) = devices.cublas.calls(*GEMMS)
    assert call["stream"] == first
    assert call["workspace_bytes"] == 12288
    assert len(devices.cublas.calls("cublasCreate_v2")) == 1


def test_a_captured_graph_keeps_its_handle_and_its_workspace(devices, streams):
    captured, *others = streams(IDLE + 3)
    multiply(captured)
    devices.cuda.set(capturing=1)
    multiply(captured)
    devices.cuda.set(capturing=0)
    (workspace,) = {call["workspace"] for call in devices.cublas.calls(*GEMMS)}
    for stream in others:
        multiply(stream)
    devices.cublas.reset()
    multiply(captured)
    (call,) = devices.cublas.calls(*GEMMS)
    assert call["workspace"] == workspace
    assert devices.cublas.calls("cublasCreate_v2") == []


def test_a_captured_graph_keeps_its_workspace_also_when_another_profile_wants_another_size(
    devices, streams
):
    (stream,) = streams(1)
    multiply(stream)
    devices.cuda.set(capturing=1)
    multiply(stream)
    devices.cuda.set(capturing=0)
    before = workspaces()
    sizes = [{**SMALL, "cuda.cublas_workspace_size": size} for size in (24576, 12288)]
    for profile in (*sizes, *sizes):
        with under(**profile):
            multiply(stream)
    # The graph's, and the one of now; those between them went back.
    assert workspaces() == before + 1


@pytest.mark.slow
def test_a_captured_graph_keeps_the_plans_of_cudnn_that_it_runs(devices, streams):
    (OnDevice.stream,) = streams(1)
    ran = set()
    devices.cuda.set(capturing=1)
    for size in range(1, 541):  # 512 are kept with a handle
        ops.conv2d(normal((1, 1, 1, size)), normal((1, 1, 1, 1)))
        for call in devices.cudnn.calls("cudnnBackendExecute", "cudnnBackendDestroyDescriptor"):
            if call.function == "cudnnBackendExecute":
                ran.add(call["plan"])
            else:  # what is at this address now has not run; its memory is used again
                assert call["place"] not in ran
        devices.cudnn.reset()
    devices.cuda.set(capturing=0)
    assert len(ran) == 540


def test_a_handle_that_cannot_be_ended_is_forgotten_and_its_workspace_goes_back(devices, streams):
    for stream in streams(IDLE):
        multiply(stream)
    before = workspaces()
    devices.cublas.reset()
    devices.cublas.fail("cublasDestroy_v2", 14)
    for stream in streams(3):
        multiply(stream)
    assert len(devices.cublas.calls("cublasDestroy_v2")) == 3
    assert workspaces() == before


def test_what_a_handle_of_cublaslt_kept_is_destroyed_with_it(devices, streams):
    made, destroyed = "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy"
    with under(**{PREFER: "cublaslt", **SMALL}):
        for stream in streams(IDLE):  # that the following then are the oldest
            multiply(stream)
        devices.cublaslt.reset()
        for stream in streams(IDLE):
            multiply(stream)
        lent = len(devices.cublaslt.calls(made))
        devices.cublaslt.reset()
        for stream in streams(IDLE):
            multiply(stream)
    assert lent == 3 * IDLE
    assert len(devices.cublaslt.calls(destroyed)) == lent
    assert len(devices.cublaslt.calls("cublasLtDestroy")) == IDLE


def test_plans_of_cudnn_are_destroyed_with_their_handle_and_made_again(devices, streams):
    x, w = normal((1, 2, 5, 5)), normal((2, 2, 3, 3))
    for stream in streams(IDLE):
        OnDevice.stream = stream
        ops.conv2d(x, w)
    devices.cudnn.reset()
    before = devices.cudnn.library.fake_descriptors()
    for stream in streams(8):
        OnDevice.stream = stream
        assert_near(ops.conv2d(x, w), on_the_cpu(x, w))
    assert devices.cudnn.library.fake_descriptors() == before
    assert len(devices.cudnn.calls("cudnnDestroy")) == 8


def test_no_thread_waits_for_the_interpreter_while_a_workspace_waits_for_the_device(
    devices, streams
):
    """The driver's memory is given back when all is done; a function on a stream may be Python's."""
    a, b = ByInterface(numbers((3, 5), "float32")), ByInterface(numbers((5, 4), "float32"))
    for stream in streams(IDLE):
        a.stream = b.stream = stream
        ops.matmul(a, b)
    gc.collect()
    devices.cuda.reset()
    holds = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    devices.cuda.set(asks=holds)
    (a.stream,) = (b.stream,) = streams(1)
    result = ops.matmul(a, b)
    freed = devices.cuda.calls("cuMemFree_v2")
    assert [call["answer"] for call in freed] == [0]
    del result
