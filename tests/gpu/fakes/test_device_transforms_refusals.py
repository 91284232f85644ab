"""What is wrong with a transform on a device is said, and nothing is left of one that failed."""

import gc

import numpy as np
import pytest
from device_arrays import ByCapsule, ByInterface, OnDevice
from products import under
from transforms import forget, on_device, signals

from backendcfg import ops
from backendcfg.errors import (
    DeviceFailedError,
    InvalidArgumentError,
    MissingLibraryError,
    TierNotKeptError,
)
from backendcfg.ops.fft import plan_cache


@pytest.fixture(autouse=True)
def _fresh():
    forget()
    yield
    forget()


def said(call, kind=InvalidArgumentError):
    with pytest.raises(kind) as caught:
        call()
    return caught.value.render()


INPUT = "  note: input: {} array of shape (3, 8) on cuda:0\n"


@pytest.mark.parametrize(
    ("function", "status", "name"),
    [
        ("cufftCreate", 2, "CUFFT_ALLOC_FAILED"),
        ("cufftSetAutoAllocation", 1, "CUFFT_INVALID_PLAN"),
        ("cufftXtMakePlanMany", 5, "CUFFT_INTERNAL_ERROR"),
        ("cufftXtMakePlanMany", 19, "CUFFT_NVJITLINK_FAILURE"),
        ("cufftSetStream", 1, "CUFFT_INVALID_PLAN"),
        ("cufftSetWorkArea", 4, "CUFFT_INVALID_VALUE"),
        ("cufftXtExec", 6, "CUFFT_EXEC_FAILED"),
        ("cufftXtExec", 99, "status"),
    ],
)
def test_a_failing_function_is_named_and_the_next_call_works(devices, function, status, name):
    array = on_device((3, 8))
    devices.cufft.fail(function, status, count=1)
    text = said(lambda: ops.fft.fft(array), DeviceFailedError)
    assert text.splitlines()[0] == (
        f"error[device-failed]: fft.fft: cuFFT failed: {function} returned {name} ({status})"
    )
    assert "state: the result was not computed; the next call starts anew" in text
    made = len(devices.cufft.calls("cufftCreate")) - (function == "cufftCreate")
    gc.collect()
    assert made - len(devices.cufft.calls("cufftDestroy")) == plan_cache[0].size
    np.testing.assert_allclose(ops.fft.fft(array).array, np.fft.fft(array.array))


def test_a_failure_tells_the_plan_and_what_to_do(devices):
    devices.cufft.fail("cufftCreate", 2)
    assert said(lambda: ops.fft.fft2(on_device((3, 8))), DeviceFailedError) == (
        "error[device-failed]: fft.fft2: cuFFT failed: cufftCreate returned CUFFT_ALLOC_FAILED (2)\n"
        + INPUT.format("complex128")
        + "  note: plan: 1 signal of (3, 8), cudaDataType 5 to 5\n"
        "  state: the result was not computed; the next call starts anew\n"
        "  help: free memory on the device, or make the workspace smaller"
    )


def test_a_failing_driver_is_named(devices):
    ops.fft.fft(on_device((3, 8)))
    devices.cuda.fail("cuCtxPushCurrent_v2", 700, count=1)
    text = said(lambda: ops.fft.fft(on_device((3, 8))), DeviceFailedError)
    assert text.splitlines()[0] == (
        "error[device-failed]: fft.fft: the device's driver failed: cuCtxPushCurrent returned "
        "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
    )
    ops.fft.fft(on_device((3, 8)))


def test_a_full_device_is_what_its_library_says_and_leaves_all_usable(devices, monkeypatch):
    array = on_device((3, 8))
    monkeypatch.setattr(OnDevice, "full", True)
    with pytest.raises(MemoryError, match="the device is full"):
        ops.fft.fft(array)
    monkeypatch.setattr(OnDevice, "full", False)
    np.testing.assert_allclose(ops.fft.fft(array).array, np.fft.fft(array.array))


def test_where_there_is_no_cufft_that_is_said(devices):
    devices.without("cufft")
    assert said(lambda: ops.fft.fft(on_device((3, 8))), MissingLibraryError) == (
        "error[missing-library]: fft.fft: no library can transform on cuda:0\n"
        "  note: cuFFT: no libcufft.so.12 was found\n"
        "  state: nothing was computed\n"
        "  help: transform on the CPU: move `input` there"
    )


def test_an_amd_device_has_no_cufft(devices):
    array = on_device((3, 8), place=(10, 0))
    assert said(lambda: ops.fft.fft(array), MissingLibraryError) == (
        "error[missing-library]: fft.fft: no library can transform on rocm:0\n"
        "  note: cuFFT is NVIDIA's: it serves no rocm device\n"
        "  state: nothing was computed\n"
        "  help: transform on the CPU: move `input` there"
    )


@pytest.mark.parametrize("tier", ["cross-machine", "batch-invariant"])
def test_a_tier_that_cufft_does_not_keep_is_refused(devices, tier):
    with under(determinism__tier=tier):
        text = said(lambda: ops.fft.fft(on_device((3, 8))), TierNotKeptError)
    assert text == (
        f"error[tier-not-kept]: fft.fft: `determinism.tier` promises `{tier}`, "
        "which cuFFT does not keep\n"
        "  state: nothing was computed\n"
        "  help: transform on the CPU\n"
        "  help: use a profile of a lower tier"
    )


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_numbers_of_16_bits_are_refused_with_a_way_out(devices, element):
    array = OnDevice(np.zeros((3, 8), "float16" if element == "float16" else "uint16"), element)
    assert said(lambda: ops.fft.rfft(array)) == (
        "error[invalid-argument]: fft.rfft: `input` must hold float32, float64, complex64, "
        f"complex128 or integers, not {element}\n"
        "  state: nothing was computed\n"
        '  help: transform it in float32: `input.astype("float32")`'
    )


def test_arguments_are_refused_as_on_the_cpu(devices):
    array = on_device((3, 8))
    for call in (
        lambda x: ops.fft.rfft(x),
        lambda x: ops.fft.fft(x, dim=2),
        lambda x: ops.fft.fft(x, 0),
        lambda x: ops.fft.fft(x, norm="twice"),
        lambda x: ops.fft.fftn(x, (1, 2, 3)),
        lambda x: ops.fft.fftn(x, dim=(0, 0)),
        lambda x: ops.fft.irfftn(x, dim=()),
    ):
        assert said(lambda c=call: c(array)) == said(lambda c=call: c(array.array))
    assert not devices.cufft.calls()


@pytest.mark.parametrize("kind", [ByInterface, ByCapsule])
def test_an_array_whose_library_is_not_known_is_refused(devices, kind):
    array = kind(signals((3, 8)), place=(2, 0))
    text = "error[invalid-argument]: fft.{}: `input` must be PyTorch's or CuPy's\n"
    for name in ("fft", "fftshift"):
        told = said(lambda name=name: getattr(ops.fft, name)(array))
        assert told.startswith(text.format(name))


def test_a_result_that_is_not_finite_is_refused_where_that_is_asked(devices, monkeypatch):
    from backendcfg.gpu import own_library

    looked = []
    monkeypatch.setattr(own_library, "check_finite", lambda *call: looked.append(call))
    ops.fft.fft(on_device((3, 8)))
    assert not looked
    with under(**{"ops.check_finite": True}):
        result = ops.fft.fft(on_device((3, 8)))
    assert looked == [("fft.fft", result)]


def test_it_is_counted_and_traced(devices):
    with ops.trace() as calls:
        ops.fft.rfft(on_device((3, 8), "float32"))
    (call,) = calls
    assert (call.operation, call.provider, call.dtype) == ("fft.rfft", "cufft", "float32")
    (record,) = ops.stats().operations
    assert (record.operation, record.provider, record.calls) == ("fft.rfft", "cufft", 1)
    assert record.because == "it transforms on NVIDIA's devices"


def test_explain_says_what_a_call_would_do(devices):
    told = ops.explain("fft.rfft", [(3, 8)], "float32", device="cuda:0")
    assert (told.provider, told.because) == ("cufft", "it transforms on NVIDIA's devices")
    assert str(told).splitlines()[0] == "fft.rfft of (3, 8) on cuda:0 under no profile"
    assert told.flags["cuda.cufft_plan_cache.max_size"] == 4096
    devices.without("cufft")
    told = ops.explain("fft.rfft", [(3, 8)], "float32", device="cuda:0")
    assert [(one.provider, one.why) for one in told.reasons] == [
        ("cufft", "cuFFT: no libcufft.so.12 was found")
    ]
    with under(determinism__tier="batch-invariant"):
        told = ops.explain("fft.rfft", [(3, 8)], "float32", device="cuda:0")
    assert told.provider == ""
    assert told.reasons[0].why.startswith("`determinism.tier` promises `batch-invariant`")
