"""A convolution on a device that is made again, alike or nearly, is as right as the first."""

import threading

import numpy as np
import pytest
from convolutions import ENGINES, assert_near, engines_run, normal, on_the_cpu
from device_arrays import ByInterface, OnDevice, aligned
from products import under

from backendcfg import _native, ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu import convolution as device_convolution
from backendcfg.gpu.cudnn import CudnnHandle

X, W = (2, 4, 8, 8), (4, 4, 3, 3)
EXECUTION_FAILED = 5000
POINTERS = 1001  # CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS


@pytest.fixture(autouse=True)
def _fresh(devices):
    device_convolution.forget()
    yield
    device_convolution.forget()


def exact():
    """A profile under which the fake computes as the CPU does."""
    return under(cudnn__deterministic=True, cudnn__conv__fp32_precision="ieee")


CASES = {
    "plain": (X, W, False, {}),
    "with a bias": (X, W, True, {"padding": 1}),
    "strided": (X, (4, 2, 3, 3), True, {"stride": 2, "groups": 2}),
    "same": (X, W, False, {"padding": "same"}),
    "two of each": (X, W, True, {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}),
    "one image": (X[1:], W, True, {}),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_a_repeated_convolution_is_the_cpus(case, element, channels_last):
    shape, kernel, shifted, options = CASES[case]
    last = channels_last and len(shape) == 4
    with exact():
        for seed in (0, 7):
            x = normal(shape, element, seed, channels_last=last)
            w = normal(kernel, element, seed + 1, channels_last=last)
            b = normal(kernel[:1], element, seed + 2) if shifted else None
            result = ops.conv2d(x, w, b, **options)
            assert_near(result, on_the_cpu(x, w, b, **options))
            if last:
                assert result.array.transpose(0, 2, 3, 1).flags.c_contiguous


def test_what_reaches_cudnn_is_what_python_hands_it(devices, new_stream):
    x, w = normal(X), normal(W)
    ops.conv2d(x, w)  # the handle of this stream is made, and the plan
    said = []
    for _ in range(2):
        devices.reset()
        OnDevice.allocated.clear()
        result = ops.conv2d(x, w)
        calls = devices.cudnn.calls()
        (pointers,) = (call["values"] for call in calls if call.arguments.get("name") == POINTERS)
        assert pointers == [each.array.ctypes.data for each in (x, w, result)]
        (run,) = devices.cudnn.calls("cudnnBackendExecute")
        assert run["stream"] == new_stream
        functions = [call.function for call in calls]
        said.append((functions, run["engine"], run["plan"], sorted(OnDevice.allocated)))
    assert said[0] == said[1]


def moved():
    memory = aligned((513,), "float32")
    memory[1:] = normal(X).array.reshape(-1)
    return OnDevice(memory[1:].reshape(X), "float32")


OTHERS = {
    "another shape": lambda: (normal((1, *X[1:])), normal(W), {}),
    "another type": lambda: (normal(X, "float16"), normal(W, "float16"), {}),
    "channels last": lambda: (normal(X, channels_last=True), normal(W), {}),
    "other alignment": lambda: (moved(), normal(W), {}),
    "a stride": lambda: (normal(X), normal(W), {"stride": 2}),
    "a padding": lambda: (normal(X), normal(W), {"padding": (0, 0)}),
    "a bias": lambda: (normal(X), normal(W), {"bias": normal(W[:1])}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_differs_is_looked_at_anew(other):
    with exact():
        ops.conv2d(normal(X), normal(W))
        x, w, options = OTHERS[other]()
        assert_near(ops.conv2d(x, w, **options), on_the_cpu(x, w, **options))


def test_true_is_not_one_and_what_may_change_is_looked_at_each_time():
    x, w = normal(X), normal(W)
    ops.conv2d(x, w, stride=1)
    with pytest.raises(InvalidArgumentError, match="`stride` must be a whole number, not True"):
        ops.conv2d(x, w, stride=True)
    for _ in range(2):
        ops.conv2d(x, w, stride=[1, 1])


def test_each_profile_has_its_engine_also_in_repeated_calls(devices):
    x, w = normal(X), normal(W)
    profiles = [under(), under(cudnn__deterministic=True)]
    for _ in range(2):
        for each in profiles:
            with each:
                ops.conv2d(x, w)
    assert engines_run(devices) == ["split", "tensor"] * 2


def test_a_result_that_is_to_be_checked_is_checked_each_time():
    with under(ops__check_finite=True):
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="cannot look into arrays"):
                ops.conv2d(normal(X), normal(W))


def test_operands_that_must_be_copied_are_copied_each_time():
    x = normal((2, 4, 8, 16))
    x = OnDevice(x.array[..., ::2], x.element)
    for _ in range(2):
        assert_near(ops.conv2d(x, normal(W)), on_the_cpu(x, normal(W)))
    for _ in range(2):
        ops.conv2d(normal(X), normal((4, 4, 2, 2)), padding="same")


def test_it_is_counted_traced_and_explained_like_any_other(devices):
    x, w = normal(X), normal(W)
    with ops.trace() as calls:
        for _ in range(3):
            ops.conv2d(x, w)
    first, *others = calls
    assert others == [first, first]
    (record,) = ops.stats().operations
    assert (record.operation, record.provider, record.calls) == ("conv2d", "cudnn", 3)
    assert "engine 5" in ops.explain("conv2d", (X, W), "float32", device="cuda:0").because


def test_an_engine_that_was_forgotten_is_chosen_again_and_explained(monkeypatch):
    for cache in (device_convolution._engines, device_convolution._latest):
        monkeypatch.setattr(cache, "most", 1)
    x, w = normal(X), normal(W)
    ops.conv2d(x, w)
    ops.conv2d(normal((1, *X[1:])), w)
    ops.conv2d(x, w)
    assert "engine 5" in ops.explain("conv2d", (X, W), "float32", device="cuda:0").because


@pytest.mark.parametrize("stream", [2, None])
def test_other_streams_are_put_in_order_each_time(devices, new_stream, stream):
    assert new_stream
    x, w = normal(X), normal(W)
    other = ByInterface(w.array, stream=stream, place=(2, 0))
    done = []
    with exact():
        ops.conv2d(x, other)
        for _ in range(2):
            devices.cuda.reset()
            assert_near(ops.conv2d(x, other), on_the_cpu(x, w))
            wanted = ("cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize")
            done.append([call.function for call in devices.cuda.calls(*wanted)])
    assert done[0] == done[1] != []


def test_another_stream_gets_the_plan_before_it_runs(devices, new_stream):
    x, w = normal(X), normal(W)
    with exact():
        for stream in (0, new_stream, new_stream, 0):
            OnDevice.stream = stream
            assert_near(ops.conv2d(x, w), on_the_cpu(x, w))


# --- failures ----------------------------------------------------------------------------------

FUNCTIONS = (
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendExecute",
)


def failing(devices, arrays, function, skip):
    devices.cudnn.fail(function, EXECUTION_FAILED, skip=skip, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        ops.conv2d(*arrays, padding=1)
    devices.reset()
    return caught.value.render()


@pytest.mark.parametrize(
    ("function", "skip"),
    [(each, skip) for each in FUNCTIONS for skip in range(3 if "Set" in each else 1)],
)
def test_a_failure_of_a_repeated_call_is_raised_and_leaves_nothing(
    devices, new_stream, function, skip
):
    arrays = normal(X), normal(W), normal(W[:1])
    with exact():
        ops.conv2d(*arrays, padding=1)
        kept = devices.cudnn.library.fake_descriptors()
        said = failing(devices, arrays, function, skip)
        assert f"conv2d: cuDNN failed: {function} returned CUDNN_STATUS_EXECUTION_FAILED" in said
        assert devices.cudnn.library.fake_descriptors() == kept
        assert_near(ops.conv2d(*arrays, padding=1), on_the_cpu(*arrays, padding=1))


def test_a_bias_that_cannot_be_added_is_refused_before_anything_is_computed(devices):
    bias = ByInterface(normal(W[:1]).array, place=(2, 0))
    for _ in range(2):
        with pytest.raises(InvalidArgumentError) as caught:
            ops.conv2d(normal(X), normal(W), bias)
    assert caught.value.render() == (
        "error[invalid-argument]: conv2d: arrays of device_arrays.ByInterface cannot be added to "
        "those of device_arrays.OnDevice on a device from here\n"
        "  state: nothing was computed\n"
        "  help: pass PyTorch's alone or CuPy's, or add it to the result yourself"
    )
    assert devices.cudnn.calls("cudnnBackendExecute") == []


def test_a_bias_of_another_library_is_refused_after_one_of_the_same(devices):
    x, w, b = normal(X), normal(W), normal(W[:1])
    ops.conv2d(x, w, b)
    with pytest.raises(InvalidArgumentError, match="cannot be added"):
        ops.conv2d(x, w, ByInterface(b.array, place=(2, 0)))


def test_a_plan_that_its_handle_dropped_is_made_again(devices, new_stream):
    assert new_stream
    x, w = normal(X), normal(W)
    with exact():
        ops.conv2d(x, w)
        for size in range(1, 601):  # 512 are kept with a handle
            ops.conv2d(normal((1, 1, 1, size)), normal((1, 1, 1, 1)))
        assert_near(ops.conv2d(x, w), on_the_cpu(x, w))


def test_threads_make_calls_of_one_kind(devices, new_stream):
    assert new_stream
    arrays = [(normal(X, seed=seed), normal(W, seed=seed)) for seed in range(4)]
    errors = []

    def work(x, w, wanted, profile):
        try:
            with profile:
                for _ in range(20):
                    assert_near(ops.conv2d(x, w), wanted)
        except BaseException as error:
            errors.append(error)

    profile = exact()
    threads = [
        threading.Thread(target=work, args=(x, w, on_the_cpu(x, w), profile)) for x, w in arrays
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert np.isfinite(ops.conv2d(*arrays[0]).values()).all()


def test_an_engine_that_had_no_room_does_not_serve_when_it_has_again(devices, monkeypatch):
    x, w = normal(X), normal(W)
    ops.conv2d(x, w)
    monkeypatch.setattr(OnDevice, "full", "uint8")
    ops.conv2d(x, w)
    monkeypatch.setattr(OnDevice, "full", False)
    for _ in range(2):
        ops.conv2d(x, w)
    first, *others = engines_run(devices)
    assert first == "split"
    assert others == [others[0]] * 3 != [first] * 3
    number = ENGINES.index(others[0])
    said = ops.explain("conv2d", (X, W), "float32", device="cuda:0").because
    assert f"engine {number}" in said


# --- profiles of other threads -----------------------------------------------------------------


def test_a_call_during_which_another_profile_comes_into_force_decides_nothing_for_that(
    devices, monkeypatch
):
    x, w = normal(X), normal(W)
    other = under(cudnn__deterministic=True)
    execute = CudnnHandle.run

    def run(*arguments):
        _native.set_base(other.prepared)  # as another thread does
        return execute(*arguments)

    before = _native.current()
    try:
        with monkeypatch.context() as while_it_runs:
            while_it_runs.setattr(CudnnHandle, "run", run)
            ops.conv2d(x, w)
        for _ in range(2):
            ops.conv2d(x, w)
    finally:
        _native.set_base(before)
    ops.conv2d(x, w)
    assert engines_run(devices) == ["split", "tensor", "tensor", "split"]
