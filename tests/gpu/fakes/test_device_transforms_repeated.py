"""A transform on a device that is made again, alike or nearly, is as right as the first."""

import gc
import threading

import numpy as np
import pytest
from device_arrays import ByInterface, OnDevice, aligned
from products import under
from transforms import forget, on_device, signals

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.ops.fft import plan_cache

MAX_SIZE = "cuda.cufft_plan_cache.max_size"


@pytest.fixture(autouse=True)
def _fresh(devices):
    forget()
    gc.collect()  # plans of other tests, in the tracebacks of what they caught
    devices.reset()
    yield
    forget()


CASES = {
    "fft": ("fft", "complex128", {}),
    "single": ("fft", "complex64", {"norm": "ortho"}),
    "of real numbers": ("fft", "float64", {}),
    "ifft": ("ifft", "complex128", {}),
    "along another dimension": ("fft", "complex128", {"dim": 0}),
    "rfft": ("rfft", "float64", {"norm": "forward"}),
    "irfft": ("irfft", "complex128", {}),
    "hfft": ("hfft", "complex128", {"n": 7}),
    "ihfft": ("ihfft", "float64", {}),
    "padded": ("rfft", "float64", {"n": 9}),
    "cropped": ("fft", "complex128", {"n": 3}),
    "padded and cropped": ("fftn", "complex128", {"s": [5, 3], "dim": [0, -1]}),
    "fft2": ("fft2", "complex64", {}),
    "inner dimensions": ("fftn", "complex128", {"dim": (0, 2)}),
    "irfftn": ("irfftn", "complex128", {"dim": (2, 0)}),
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("case", CASES)
def test_a_repeated_transform_is_the_cpus(devices, case):
    operation, dtype, options = CASES[case]
    for seed in (0, 7):
        array = OnDevice(signals((4, 3, 6), dtype, seed))
        before = array.array.copy()
        result = getattr(ops.fft, operation)(array, **options)
        wanted = getattr(ops.fft, operation)(before, **options)
        assert result.element == wanted.dtype.name
        np.testing.assert_allclose(result.array, wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(array.array, before)


def test_repeated_passes_over_more_than_three_dimensions_are_right(devices):
    for seed in (0, 1):
        array = OnDevice(signals((2, 3, 2, 3, 4), seed=seed))
        result = ops.fft.irfftn(array, norm="forward")
        np.testing.assert_allclose(
            result.array, ops.fft.irfftn(array.array, norm="forward"), atol=1e-12
        )


def test_what_reaches_cufft_is_what_python_hands_it(devices, new_stream):
    array = on_device((3, 8))
    said = []
    for _ in range(2):
        devices.reset()
        OnDevice.allocated.clear()
        ops.fft.ifft(array)
        calls = [
            (call.function, {**call.arguments, "output": None, "area": None})
            for call in devices.cufft.calls()
            if call.function.startswith(("cufftSet", "cufftXtExec"))
        ]
        said.append((calls[-3:], sorted(OnDevice.allocated)))
    assert said[0] == said[1]
    assert said[1][0][2][1]["stream"] == new_stream


def test_it_is_put_on_the_stream_that_is_current_now(devices, new_stream):
    for stream in (0, new_stream):
        OnDevice.stream = stream
        ops.fft.fft(on_device((8,)))
    assert [run["stream"] for run in devices.cufft.calls("cufftXtExec")] == [None, new_stream]


def shifted():
    memory = aligned((65,), "float64")
    memory[1:] = signals((64,), "float64")
    return OnDevice(memory[1:].reshape(8, 8))


OTHERS = {
    "another shape": lambda: (on_device((8, 9), "float64"), {}),
    "other strides": lambda: (OnDevice(signals((8, 16), "float64")[:, ::2]), {}),
    "another type": lambda: (on_device((8, 8), "float32"), {}),
    "other alignment": lambda: (shifted(), {}),
    "a size": lambda: (on_device((8, 8), "float64"), {"n": 8}),
    "a dimension": lambda: (on_device((8, 8), "float64"), {"dim": 1}),
    "a norm": lambda: (on_device((8, 8), "float64"), {"norm": "backward"}),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("other", OTHERS)
def test_what_differs_is_looked_at_anew(devices, other):
    ops.fft.rfft(on_device((8, 8), "float64"))
    array, options = OTHERS[other]()
    result = ops.fft.rfft(array, **options)
    np.testing.assert_allclose(result.array, ops.fft.rfft(array.array, **options), rtol=1e-5)


def test_options_that_are_equal_but_of_another_type_are_refused(devices):
    array = on_device((3, 8))
    ops.fft.fft(array, n=1, dim=1)
    for options, said in (
        ({"n": True, "dim": 1}, "`n` must be whole numbers, not True"),
        ({"n": 1.0, "dim": 1}, "`n` must be whole numbers, not 1.0"),
        ({"n": 1, "dim": True}, "`dim` must be a whole number, not True"),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            ops.fft.fft(array, **options)


def test_options_that_may_change_are_looked_at_each_time(devices):
    for size in (4, 5):
        assert ops.fft.fft(on_device((8,)), n=np.int64(size)).shape == (size,)
    for sizes in ([4], (4,), [4]):  # lists are as good as tuples
        assert ops.fft.fftn(on_device((8,)), s=sizes).shape == (4,)


def test_other_flags_are_looked_at_anew(devices):
    array = on_device((8,))
    ops.fft.fft(array)
    with under(ops__check_finite=True):
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="cannot look into arrays"):
                ops.fft.fft(array)
    ops.fft.fft(array)


def test_whole_numbers_are_converted_as_the_framework_says_at_each_call(devices):
    for _ in range(2):
        ops.fft.fft(OnDevice(np.arange(8)))


def test_arrays_of_a_library_without_a_table_are_not_tried(devices):
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="must be PyTorch's or CuPy's"):
            ops.fft.fft(ByInterface(signals((8,)), place=(2, 0)))
    assert ops.fft.fft(signals((8,))).shape == (8,)


def test_it_is_counted_and_traced_like_any_other(devices):
    array = on_device((3, 8))
    with ops.trace() as calls:
        for _ in range(3):
            ops.fft.fft(array)
    first, *others = calls
    assert others == [first, first]
    (record,) = ops.stats().operations
    assert (record.operation, record.provider, record.calls) == ("fft.fft", "cufft", 3)


# --- plans -------------------------------------------------------------------------------------


def plans(devices):
    return len(devices.cufft.calls("cufftXtMakePlanMany"))


def destroyed(devices):
    return len(devices.cufft.calls("cufftDestroy"))


def test_a_plan_that_is_cleared_is_destroyed_and_made_again(devices):
    array = on_device((8,))
    for _ in range(2):
        ops.fft.fft(array)
    plan_cache[0].clear()
    assert (plan_cache[0].size, destroyed(devices)) == (0, 1)
    for _ in range(2):
        ops.fft.fft(array)
    assert (plan_cache[0].size, plans(devices)) == (1, 2)


def test_a_call_keeps_its_plan_from_being_dropped(devices):
    with under(**{MAX_SIZE: 2}):
        for size in (4, 5, 4, 4, 6):  # the plan of 5 was not used for longest
            ops.fft.fft(on_device((size,)))
        assert (plan_cache[0].size, destroyed(devices)) == (2, 1)
        ops.fft.fft(on_device((4,)))
        assert plans(devices) == 3
        ops.fft.fft(on_device((5,)))
        assert plans(devices) == 4


def test_no_call_uses_a_plan_that_went(devices):
    with under(**{MAX_SIZE: 1}):
        for size in (4, 5, 4, 5):
            array = on_device((size,))
            np.testing.assert_allclose(ops.fft.fft(array).array, np.fft.fft(array.array))
    assert (plans(devices), destroyed(devices)) == (4, 3)


def test_a_cache_of_0_keeps_no_plan_and_no_call(devices):
    with under(**{MAX_SIZE: 0}):
        for _ in range(3):
            ops.fft.fft(on_device((8,)))
    gc.collect()
    assert plans(devices) == destroyed(devices) == 3


def test_a_smaller_limit_holds_at_the_next_call_under_it(devices):
    small = under(**{MAX_SIZE: 1})
    with small:
        ops.fft.fft(on_device((4,)))
    for size in (4, 5, 6):
        ops.fft.fft(on_device((size,)))
    assert len(plan_cache[0]._plans) == 3
    with small:
        ops.fft.fft(on_device((4,)))
    assert len(plan_cache[0]._plans) == 1


def test_a_plan_that_a_captured_graph_refers_to_is_not_destroyed(devices, new_stream):
    assert new_stream
    for size in (7, 8):
        ops.fft.fft(on_device((size,)))
    devices.cuda.set(capturing=1)
    ops.fft.fft(on_device((8,)))
    devices.cuda.set(capturing=0)
    ops.fft.fft(on_device((8,)))
    plan_cache[0].clear()
    assert (plan_cache[0].size, destroyed(devices)) == (0, 1)


# --- failures ----------------------------------------------------------------------------------

FUNCTIONS = ("cufftSetStream", "cufftSetWorkArea", "cufftXtExec", "cuCtxPushCurrent_v2")


def failing(devices, function):
    library = devices.cuda if function.startswith("cuCtx") else devices.cufft
    library.fail(function, 11 if library is devices.cufft else 201)
    with pytest.raises(DeviceFailedError) as caught:
        ops.fft.ifft(on_device((3, 8)))
    devices.reset()
    return caught.value.render()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_failure_of_a_repeated_call_is_raised_and_the_next_call_works(devices, function):
    ops.fft.ifft(on_device((3, 8)))
    assert function.removesuffix("_v2") in failing(devices, function)
    array = on_device((3, 8))
    np.testing.assert_allclose(ops.fft.ifft(array).array, np.fft.ifft(array.array))


def test_the_message_has_the_plan(devices):
    ops.fft.ifft(on_device((3, 8)))
    assert failing(devices, "cufftXtExec") == (
        "error[device-failed]: fft.ifft: cuFFT failed: cufftXtExec returned "
        "CUFFT_INVALID_DEVICE (11)\n"
        "  note: input: complex128 array of shape (3, 8) on cuda:0\n"
        "  note: plan: 3 signals of (8,), cudaDataType 5 to 5\n"
        "  state: the result was not computed; the next call starts anew"
    )


def test_a_full_device_is_an_error_of_memory(devices, monkeypatch):
    array = on_device((3, 8))
    ops.fft.fft(array)
    devices.reset()
    for full in (True, "uint8", "complex128"):
        monkeypatch.setattr(OnDevice, "full", full)
        with pytest.raises(MemoryError, match="the device is full"):
            ops.fft.fft(array)
    assert devices.cufft.calls("cufftXtExec") == []
    monkeypatch.setattr(OnDevice, "full", False)
    np.testing.assert_allclose(ops.fft.fft(array).array, np.fft.fft(array.array))


def test_a_method_of_the_arrays_library_that_raises_is_heard(devices, monkeypatch):
    array = on_device((3, 8))
    ops.fft.ifft(array)

    def broken(self, factor):
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(OnDevice, "mul_", broken)
        with pytest.raises(RuntimeError, match="no"):
            ops.fft.ifft(array)
    np.testing.assert_allclose(ops.fft.ifft(array).array, np.fft.ifft(array.array))


def test_threads_make_calls_of_one_kind_while_plans_are_cleared(devices):
    arrays = [OnDevice(signals((8,), seed=seed)) for seed in range(4)]
    wrong, errors = [], []

    def work(array):
        wanted = np.fft.ifft(array.array)
        try:
            results = [ops.fft.ifft(array).array for _ in range(50)]
            wrong.extend(each for each in results if not np.allclose(each, wanted))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for _ in range(50):
        plan_cache[0].clear()
    for thread in threads:
        thread.join()
    assert (wrong, errors) == ([], [])
    plan_cache[0].clear()
    gc.collect()
    assert plans(devices) == destroyed(devices)
