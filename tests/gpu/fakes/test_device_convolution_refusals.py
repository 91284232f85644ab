"""What convolutions on a device refuse, and how failures are said; the next call works."""

import numpy as np
import pytest
from convolutions import assert_near, engines_run, normal, on_the_cpu
from device_arrays import OnDevice, aligned
from products import under

from backendcfg import ops
from backendcfg.errors import (
    DeviceFailedError,
    InvalidArgumentError,
    MissingLibraryError,
    TierNotKeptError,
)
from backendcfg.gpu import convolution
from backendcfg.gpu.libraries import opening

EXECUTION_FAILED, NOT_SUPPORTED, INTERNAL_ERROR, BAD_PARAM = 5000, 3000, 4000, 2000
SUBLIBRARY_LOADING_FAILED = 1008


@pytest.fixture
def arrays():
    return normal((2, 4, 8, 8)), normal((4, 4, 3, 3))


@pytest.fixture(autouse=True)
def _works_afterwards(devices, new_stream, arrays):
    convolution.forget()
    yield
    devices.reset()
    opening._latest.clear()
    OnDevice.full = False
    with under(cudnn__deterministic=True, cudnn__conv__fp32_precision="ieee"):
        assert_near(ops.conv2d(*arrays), on_the_cpu(*arrays))


def refused(*arguments, kind=InvalidArgumentError, **options):
    with pytest.raises(kind) as caught:
        ops.conv2d(*arguments, **options)
    return caught.value.render()


def test_an_array_on_the_cpu_is_not_moved(arrays):
    x, w = arrays
    assert refused(x, w.array) == (
        "error[invalid-argument]: conv2d: `weight` must be an array on cuda:0, as `input` is\n"
        "  note: input: float32 array of shape (2, 4, 8, 8) on cuda:0\n"
        "  note: weight: float32 array of shape (4, 4, 3, 3) on the CPU\n"
        "  state: nothing was computed\n"
        "  help: move it to where the others are"
    )


def test_what_does_not_fit_is_said_as_on_the_cpu(arrays):
    x, w = arrays
    for first, options in (
        (
            "`input` must have 8 channels, as `weight` has 4 in each of 2 groups, not 4",
            {"groups": 2},
        ),
        ("`stride` must be at least 1, not 0", {"stride": 0}),
        ("`bias` must have the shape (4,), not (3,)", {"bias": normal((3,))}),
    ):
        assert refused(x, w, **options).splitlines()[0].endswith(f"conv2d: {first}")
    assert "`weight` must hold float32, as `input` does, not float64" in refused(
        x, normal((4, 4, 3, 3), "float64")
    )


def test_complex_numbers_are_refused():
    x = OnDevice(aligned((1, 2, 5, 5), "complex64"))
    text = refused(x, OnDevice(aligned((2, 2, 3, 3), "complex64")))
    assert text.splitlines()[0] == ("error[invalid-argument]: conv2d: cuDNN convolves no complex64")
    assert text.splitlines()[-1] == "  help: convolve its parts by themselves"


def test_whole_numbers_are_refused():
    x = OnDevice(aligned((1, 2, 5, 5), "int64"))
    assert "`input` must hold float32, float64" in refused(x, x)


def test_channels_of_which_there_are_none_are_refused():
    x, w = normal((2, 0, 5, 5)), normal((4, 0, 3, 3))
    assert "`input` must have channels: cuDNN computes nothing of none" in refused(x, w)


def test_devices_of_amd_are_refused():
    x = OnDevice(aligned((1, 2, 5, 5), "float32"), place=(10, 0))
    text = refused(x, OnDevice(aligned((2, 2, 3, 3), "float32"), place=(10, 0)))
    assert "nothing convolves on rocm:0 yet" in text


def test_cudnn_that_is_turned_off_serves_nothing(arrays):
    with under(cudnn__enabled=False):
        text = refused(*arrays)
    assert text.splitlines()[0] == (
        "error[invalid-argument]: conv2d: `cudnn.enabled` is off, and nothing else convolves on a "
        "device"
    )
    assert text.splitlines()[-1] == "  help: turn it on, or copy the arrays to the host"


@pytest.mark.parametrize("tier", ["cross-machine", "batch-invariant"])
def test_a_tier_that_no_engine_keeps_is_refused(arrays, tier):
    with under(determinism__tier=tier):
        text = refused(*arrays, kind=TierNotKeptError)
    assert f"`determinism.tier` promises `{tier}`, which no library on a device keeps" in text


def test_cudnn_that_is_not_there_is_named(devices, arrays):
    devices.without("cudnn")
    text = refused(*arrays, kind=MissingLibraryError)
    assert text.splitlines()[:2] == [
        "error[missing-library]: cannot use cuDNN",
        "  note: cuDNN: no libcudnn.so.9 was found",
    ]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (8907, "has version 8.9; 9 is the oldest that is served"),
        (100000, "has version 10.0; 9 is the newest whose interface is known"),
    ],
)
def test_another_major_version_is_not_opened(device_file, version, said):
    path = device_file("libcudnn.so.9", f"VERSION={version}")
    answer = opening._open(opening.DeviceFile(path, "cudnn", 9, "loaded"))
    assert answer == f"{path} {said}"


def test_a_call_that_no_engine_takes_is_refused_with_the_reason_of_each(devices, arrays):
    devices.cudnn.set(unsupported=0b111111)
    with under(cudnn__deterministic=True):
        text = refused(*arrays)
    assert text == (
        "error[invalid-argument]: conv2d: no engine of cuDNN can serve it on cuda:0\n"
        "  note: input: float32 array of shape (2, 4, 8, 8) on cuda:0\n"
        "  note: weight: float32 array of shape (4, 4, 3, 3) on cuda:0\n"
        "  note: engine 2 (TENSOR_CORE, DOWN_CONVERT_INPUTS): DOWN_CONVERT_INPUTS: it narrows what "
        "it reads\n"
        "  note: engine 5 (REDUCED_PRECISION_REDUCTION, NONDETERMINISTIC): NONDETERMINISTIC: its "
        "bits may differ from run to run, and `cudnn.deterministic` is on\n"
        "  note: engine 1 (TENSOR_CORE): CUDNN_STATUS_NOT_SUPPORTED: "
        "(setting_unsupported >> chosen->engine & 1) == 0\n"
        "  note: engine 3 (WINOGRAD, WINOGRAD_TILE_4x4): CUDNN_STATUS_NOT_SUPPORTED: "
        "(setting_unsupported >> chosen->engine & 1) == 0\n"
        "  note: engine 4 (FFT): CUDNN_STATUS_NOT_SUPPORTED: "
        "(setting_unsupported >> chosen->engine & 1) == 0\n"
        "  note: engine 0: CUDNN_STATUS_NOT_SUPPORTED: "
        "(setting_unsupported >> chosen->engine & 1) == 0\n"
        "  state: nothing was computed\n"
        "  help: allow what the notes name, or copy the arrays to the host: all is computed there"
    )


def test_an_engine_that_does_not_take_a_call_is_passed_over(devices, arrays):
    devices.cudnn.set(unsupported=0b100010)
    ops.conv2d(*arrays)
    assert engines_run(devices) == ["winograd"]


@pytest.mark.parametrize("status", [NOT_SUPPORTED, INTERNAL_ERROR])
def test_an_engine_that_fails_to_run_is_passed_over_where_another_may_do(devices, arrays, status):
    devices.cudnn.fail("cudnnBackendExecute", status, count=1)
    ops.conv2d(*arrays)
    assert engines_run(devices) == ["split", "tensor"]


def test_a_failed_execution_is_said_with_what_cudnn_says(devices, arrays):
    devices.cudnn.set(broken=1 << 5)
    text = refused(*arrays, kind=DeviceFailedError)
    assert text == (
        "error[device-failed]: conv2d: cuDNN failed: cudnnBackendExecute returned "
        "CUDNN_STATUS_EXECUTION_FAILED (5000)\n"
        "  note: input: float32 array of shape (2, 4, 8, 8) on cuda:0\n"
        "  note: weight: float32 array of shape (4, 4, 3, 3) on cuda:0\n"
        "  note: cuDNN says: (setting_broken >> made->engine & 1) == 0\n"
        "  state: the result was not computed; the next call starts anew\n"
        "  help: an earlier kernel may have failed: see `compute-sanitizer`"
    )


def test_a_part_of_cudnn_that_cannot_be_loaded_is_explained(devices, arrays):
    devices.cudnn.fail("cudnnBackendFinalize", SUBLIBRARY_LOADING_FAILED, count=1)
    assert refused(*arrays, kind=DeviceFailedError).splitlines()[-1] == (
        "  help: a part of cuDNN cannot be loaded: its files, libcudnn_*.so.9, must lie beside "
        "each other and be of one version, and the engines that it compiles need NVIDIA's driver"
    )


FUNCTIONS = (
    "cudnnCreate",
    "cudnnSetStream",
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendGetAttribute",
    "cudnnBackendExecute",
)


def test_whatever_fails_nothing_is_left_and_the_next_call_works(devices, arrays):
    """Each call of each function fails in turn: of a plan that is made, run and measured."""
    cudnn = devices.cudnn
    with under(cudnn__deterministic=True):
        convolution.forget()
        ops.conv2d(*arrays)
        counts = {name: len(cudnn.calls(name)) for name in FUNCTIONS}
        for name in FUNCTIONS[2:]:
            for skip in range(0, counts[name], 3):
                devices.reset()
                convolution.forget()
                before = cudnn.library.fake_descriptors()
                cudnn.fail(name, BAD_PARAM, skip=skip, count=1)
                text = refused(*arrays, kind=DeviceFailedError)
                assert f"{name} returned CUDNN_STATUS_BAD_PARAM (2000)" in text
                # A plan that was made stays; a pack is made after that.
                made = any(each["type"] == 16 for each in cudnn.calls(FUNCTIONS[2]))
                cuda = devices.cuda
                pushed = cuda.calls("cuCtxPushCurrent_v2")
                assert len(pushed) == len(cuda.calls("cuCtxPopCurrent_v2")) > 0
                devices.reset()
                convolution.forget()
                ops.conv2d(*arrays)
                assert cudnn.library.fake_descriptors() <= before + 1 + made


@pytest.mark.parametrize("name", ["cudnnCreate", "cudnnSetStream"])
def test_a_handle_that_cannot_be_made_is_said(devices, arrays, name):
    devices.cudnn.fail(name, 1001, count=1)
    text = refused(*arrays, kind=DeviceFailedError)
    assert f"conv2d: cuDNN failed: {name} returned CUDNN_STATUS_NOT_INITIALIZED (1001)" in text
    assert text.splitlines()[-1] == (
        "  help: the library could not start on this device: is its memory full?"
    )


def test_a_device_without_room_for_a_workspace_takes_an_engine_that_needs_none(devices, arrays):
    make = convolution.Arguments.make

    def narrow(given, shape, element):
        if element == "uint8":
            raise MemoryError("the device is full")
        return make(given, shape, element)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution.Arguments, "make", narrow)
        ops.conv2d(*arrays)
        assert engines_run(devices) == ["implicit"]
        devices.cudnn.set(unsupported=1)
        convolution.forget()
        text = refused(*arrays, kind=DeviceFailedError)
    assert text.splitlines()[0] == (
        "error[device-failed]: conv2d: cuda:0 is full: no engine of cuDNN that may serve has room "
        "to work in"
    )
    assert "engine 1 (TENSOR_CORE): the device has no room for its 4096 bytes" in text
    assert text.splitlines()[-1] == "  help: free memory on the device"


def test_a_known_engine_that_finds_no_room_is_chosen_anew(devices, arrays, monkeypatch):
    with under(cudnn__deterministic=True):
        ops.conv2d(*arrays)
        monkeypatch.setattr(OnDevice, "full", "uint8")
        ops.conv2d(*arrays)
    assert engines_run(devices) == ["tensor", "implicit"]


def test_a_full_device_has_no_room_for_the_result(devices, arrays, monkeypatch):
    monkeypatch.setattr(OnDevice, "full", True)
    with pytest.raises(MemoryError, match="the device is full"):
        ops.conv2d(*arrays)


def test_nothing_is_timed_while_a_graph_is_captured(devices, arrays):
    devices.cuda.set(capturing=1)
    with under(cudnn__benchmark=True):
        text = refused(*arrays, kind=DeviceFailedError)
    assert text.splitlines()[0] == (
        "error[device-failed]: conv2d: the device's driver failed: cuEventSynchronize returned "
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)"
    )
    assert text.splitlines()[-1] == (
        "  help: call it once on the capture's stream before: nothing must be set up in it"
    )
    assert devices.cudnn.calls("cudnnBackendExecute") == []


@pytest.mark.parametrize(
    "name",
    ["cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"],
)
def test_events_that_fail_are_the_drivers_failures(devices, arrays, name):
    devices.cuda.fail(name, 999, count=1)
    with under(cudnn__benchmark=True):
        text = refused(*arrays, kind=DeviceFailedError)
    assert f"the device's driver failed: {name} returned" in text
    made = len(devices.cuda.calls("cuEventCreate")) - (name == "cuEventCreate")
    assert len(devices.cuda.calls("cuEventDestroy_v2")) == made


def test_a_device_that_fails_once_serves_the_next_call(devices, arrays):
    devices.cudnn.fail("cudnnBackendExecute", EXECUTION_FAILED, count=1)
    refused(*arrays, kind=DeviceFailedError)
    assert np.isfinite(ops.conv2d(*arrays).values()).all()
