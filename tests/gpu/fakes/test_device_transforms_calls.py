"""What transforms on devices ask of cuFFT: plans, layouts, streams, work areas, and how plans are kept."""

import gc
import threading

import numpy as np
import pytest
from device_arrays import OnDevice
from products import under
from transforms import forget, on_device, signals

from backendcfg import ops
from backendcfg.gpu.fft import plans as device_fft
from backendcfg.ops.fft import plan_cache

MAX_SIZE = "cuda.cufft_plan_cache.max_size"
R_32F, R_64F, C_32F, C_64F = 0, 1, 4, 5


@pytest.fixture(autouse=True)
def _fresh():
    forget()
    yield
    forget()


def plans(devices):
    return devices.cufft.calls("cufftXtMakePlanMany")


def runs(devices):
    return devices.cufft.calls("cufftXtExec")


def numbers_of(plan, *names):
    return tuple(plan[name] for name in names)


@pytest.mark.parametrize(
    ("operation", "dtype", "types"),
    [
        ("fft", "complex64", (C_32F, C_32F, C_32F)),
        ("fft", "complex128", (C_64F, C_64F, C_64F)),
        ("fft", "float32", (C_32F, C_32F, C_32F)),
        ("ifft", "complex64", (C_32F, C_32F, C_32F)),
        ("rfft", "float32", (R_32F, C_32F, C_32F)),
        ("rfft", "float64", (R_64F, C_64F, C_64F)),
        ("irfft", "complex64", (C_32F, R_32F, C_32F)),
        ("hfft", "complex128", (C_64F, R_64F, C_64F)),
        ("ihfft", "float32", (R_32F, C_32F, C_32F)),
    ],
)
def test_each_type_has_its_numbers_at_the_abi(devices, operation, dtype, types):
    getattr(ops.fft, operation)(on_device((3, 8), dtype))
    (plan,) = plans(devices)
    assert numbers_of(plan, "input_type", "output_type", "execution_type") == types
    (run,) = runs(devices)
    assert run["direction"] == (-1 if operation in ("fft", "rfft", "ihfft") else 1)


LAYOUT = (
    *("rank", "n0", "n1", "in1", "input_stride", "input_distance"),
    *("out1", "output_stride", "output_distance", "batch"),
)


@pytest.mark.parametrize(
    ("call", "layout"),
    [
        (lambda: ops.fft.fft(on_device((3, 8))), (1, 8, 0, 0, 1, 8, 0, 1, 8, 3)),
        (lambda: ops.fft.fft(on_device((3, 8)), dim=0), (1, 3, 0, 0, 8, 1, 0, 8, 1, 8)),
        (lambda: ops.fft.rfft(on_device((3, 8), "float64")), (1, 8, 0, 0, 1, 8, 0, 1, 5, 3)),
        (lambda: ops.fft.irfft(on_device((3, 5))), (1, 8, 0, 0, 1, 5, 0, 1, 8, 3)),
        (lambda: ops.fft.fft2(on_device((2, 3, 8))), (2, 3, 8, 8, 1, 24, 8, 1, 24, 2)),
        (
            lambda: ops.fft.fft2(OnDevice(signals((2, 4, 16))[:, :3, :16:2])),
            (2, 3, 8, 8, 2, 64, 8, 1, 24, 2),
        ),
        (
            lambda: ops.fft.fft2(on_device((4, 6, 5)), dim=(0, 1)),
            (2, 4, 6, 6, 5, 1, 6, 5, 1, 5),
        ),
    ],
)
def test_arrays_are_read_and_written_where_they_lie(devices, call, layout):
    call()
    (plan,) = plans(devices)
    assert numbers_of(plan, *LAYOUT) == layout


def test_an_input_that_lies_well_is_not_copied(devices):
    array = on_device((3, 8))
    OnDevice.allocated.clear()
    result = ops.fft.fft(array)
    (run,) = runs(devices)
    assert run["input"] == array.array.ctypes.data
    assert run["output"] == result.array.ctypes.data
    assert sorted(OnDevice.allocated) == [3 * 8 * 8, 3 * 8 * 16]  # the work area and the result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_numbers_that_begin_where_no_complex_ones_may_are_copied(devices, dtype):
    signal = signals((3, 10), dtype)
    for first in (0, 1, 2):  # one plan, which all three need
        part = signal[:, first : first + 7]
        result = ops.fft.rfft(OnDevice(part))
        assert np.allclose(result.array, np.fft.rfft(part), rtol=1e-5)
        assert (runs(devices)[-1]["input"] == part.ctypes.data) == (first != 1)


def test_what_becomes_real_numbers_is_copied_because_cufft_overwrites_it(devices):
    array = on_device((3, 5))
    before = array.array.copy()
    ops.fft.irfft(array)
    (run,) = runs(devices)
    assert run["input"] != array.array.ctypes.data
    np.testing.assert_array_equal(array.array, before)


def test_a_plan_allocates_nothing_and_works_in_memory_of_the_arrays_library(devices):
    result = ops.fft.fft(on_device((3, 8)))
    names = [call.function for call in devices.cufft.calls()]
    assert names == [
        *("cufftCreate", "cufftSetAutoAllocation", "cufftXtMakePlanMany"),
        *("cufftSetStream", "cufftSetWorkArea", "cufftXtExec"),
    ]
    assert devices.cufft.calls("cufftSetAutoAllocation")[0]["allocates"] == 0
    assert runs(devices)[0]["area"] is not None
    assert result.element == "complex128"


def test_a_plan_that_needs_no_memory_gets_none(devices):
    devices.cufft.set(work=0)
    ops.fft.fft(on_device((3, 8)))
    assert not devices.cufft.calls("cufftSetWorkArea")
    assert OnDevice.allocated == [3 * 8 * 16]


def test_work_goes_onto_the_stream_that_is_current(devices, new_stream):
    ops.fft.fft(on_device((3, 8)))
    assert runs(devices)[0]["stream"] == new_stream
    OnDevice.stream = 0
    ops.fft.fft(on_device((3, 8)))
    assert [run["stream"] for run in runs(devices)] == [new_stream, None]
    assert len(plans(devices)) == 1


def test_the_context_is_left_as_it_was(devices):
    ops.fft.fft(on_device((3, 8)))
    pushed, popped = (devices.cuda.calls(f"cuCtx{what}Current_v2") for what in ("Push", "Pop"))
    assert len(pushed) == len(popped) > 0


def test_passes_over_more_than_three_dimensions_work_in_the_result(devices):
    ops.fft.fftn(on_device((5, 2, 3, 4, 6)), dim=(1, 2, 3, 4))
    first, second = plans(devices)
    assert numbers_of(first, "rank", "n0", "n1", "n2", "batch") == (3, 3, 4, 6, 10)
    assert numbers_of(second, "rank", "n0", "batch", "input_stride") == (1, 2, 72, 72)
    start, *rest = runs(devices)
    assert [run["output"] - start["output"] for run in rest] == [i * 144 * 16 for i in range(5)]
    assert all(run["input"] == run["output"] for run in rest)


def test_a_layout_that_cufft_cannot_describe_is_none():
    def side(shape, strides, axes):
        return device_fft.side(shape, strides, axes, "complex64")

    assert side((2, 3, 4), (12, 4, 1), (1, 2)) == (device_fft.Side((3, 4), 1, 12, 4), 2)
    assert side((2, 3, 4), (12, 4, 1), (1,)) is None  # two batches that do not follow each other
    assert side((3, 4), (1, 3), (0, 1)) is None  # columns
    assert side((3, 4), (4, -1), (1,)) is None
    assert side((3, 4), (0, 1), (1,)) is None
    assert side((3, 4), (3, 1), (0, 1)) is None  # rows that overlap
    assert side((3, 4), (9, 2), (0, 1)) is None  # rows at no multiple of the stride
    assert side((1, 1), (7, 9), (0, 1)) == (device_fft.Side((1, 1), 1, 1, 4), 1)


def test_a_plan_is_made_once_for_a_layout(devices):
    for _ in range(3):
        ops.fft.fft(on_device((3, 8)))
    assert (len(plans(devices)), plan_cache["cuda:0"].size) == (1, 1)
    ops.fft.fft(on_device((4, 8)))
    ops.fft.ifft(on_device((3, 8)))  # one plan serves both directions
    assert (len(plans(devices)), plan_cache["cuda:0"].size) == (2, 2)


def test_the_plan_that_was_not_used_for_longest_goes_first(devices):
    with under(**{MAX_SIZE: 2}):
        for size in (4, 5, 4, 6):
            ops.fft.fft(on_device((size,)))
        assert plan_cache[0].size == 2
        assert len(devices.cufft.calls("cufftDestroy")) == 1
        ops.fft.fft(on_device((4,)))
        assert len(plans(devices)) == 3
        ops.fft.fft(on_device((5,)))
        assert len(plans(devices)) == 4
        assert plan_cache[0].max_size == 2


def test_a_cache_of_0_keeps_no_plan(devices):
    with under(**{MAX_SIZE: 0}):
        for _ in range(2):
            ops.fft.fft(on_device((4,)))
        assert plan_cache[0].size == 0
    gc.collect()
    assert len(plans(devices)) == len(devices.cufft.calls("cufftDestroy")) == 2


def test_each_device_has_its_plans_and_clearing_one_leaves_the_other(devices):
    devices.cuda.set(devices=2)
    for index in (0, 1):
        ops.fft.fft(on_device((4,), place=(2, index)))
    assert len(plans(devices)) == 2
    plan_cache["cuda:1"].clear()
    assert (plan_cache[0].size, plan_cache[1].size) == (1, 0)
    assert len(devices.cufft.calls("cufftDestroy")) == 1


def test_a_smaller_max_size_holds_at_once(devices):
    for size in (4, 5, 6):
        ops.fft.fft(on_device((size,)))
    with under(**{MAX_SIZE: 1}):
        assert plan_cache[0].size == 1


def test_threads_that_share_a_plan_take_turns(devices):
    arrays = [on_device((8,)) for _ in range(8)]
    wanted, wrong = np.fft.fft(arrays[0].array), []

    def work(array):
        results = [ops.fft.fft(array).array for _ in range(20)]
        wrong.extend(one for one in results if not np.allclose(one, wanted))

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    # Between setting a plan's stream and running it nobody else comes in.
    names = [c.function for c in devices.cufft.calls() if c["plan"] is not None][3:]
    turn = ["cufftSetStream", "cufftSetWorkArea", "cufftXtExec"]
    if len(plans(devices)) == 1:
        assert names == turn * 160


def test_a_plan_that_is_dropped_while_a_call_runs_lives_until_that_ends(devices):
    ops.fft.fft(on_device((8,)))
    (plan,) = plan_cache[0]._plans.values()
    plan_cache[0].clear()
    assert not devices.cufft.calls("cufftDestroy")
    del plan
    assert len(devices.cufft.calls("cufftDestroy")) == 1


def test_cuda_12s_cufft_is_called_in_the_same_way(device, device_file):
    from backendcfg.gpu.libraries import opening

    device("libcuda.so.1")
    file = opening.DeviceFile(device_file("libcufft.so.11"), "cufft", 11, "loaded")
    opened = opening._open(file)
    assert (opened.name, opened.version) == ("cufft", (11, 4, 1))
