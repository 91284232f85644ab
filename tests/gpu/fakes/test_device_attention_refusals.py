"""What attention on devices refuses, and how failures of the driver are said; the next call works."""

import os

import numpy as np
import pytest
from attention_on_device import Sm90, assert_near, normal, on_the_cpu, truths
from device_arrays import ByCapsule, ByInterface, OnDevice, aligned
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError, MissingLibraryError
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.kernels import sources as cuda_compiler
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.schema.profile import defaults

attention = ops.scaled_dot_product_attention
SHAPE = (1, 2, 40, 64)


def refused(*arguments, kind=InvalidArgumentError, **keywords):
    with pytest.raises(kind) as caught:
        attention(*arguments, **keywords)
    return caught.value.render()


def first_line(*arguments, **keywords):
    return refused(*arguments, **keywords).splitlines()[0].partition(": ")[2]


ALONE = {"cuda.enable_mem_efficient_sdp": False, "cuda.enable_math_sdp": False}
"""Flags that leave flash alone."""


def against_flash(*arguments, flags=ALONE, **keywords):
    """What stands against flash, in a call that nothing can serve."""
    with under(**{**defaults(), **flags}):
        text = refused(*arguments, **keywords)
    assert "no kernel can serve it on" in text
    head = "  note: flash: "
    return [line.removeprefix(head) for line in text.splitlines() if line.startswith(head)]


@pytest.fixture(autouse=True)
def _works_afterwards(kernels, devices):
    yield
    devices.reset()
    query = normal(SHAPE)
    kernels.reads(query)
    assert_near(attention(query, query, query), on_the_cpu(query, query, query))


def test_a_call_that_nothing_serves_is_refused_with_every_reason(devices):
    query = OnDevice(aligned((2, 2, 40, 48), "float32")[..., ::2])
    value = OnDevice(aligned((2, 2, 40, 20), "float32"))
    query.requires_grad = True
    with under(
        **{**defaults(), "determinism.tier": "cross-machine", "cuda.enable_math_sdp": False}
    ):
        text = refused(query, query, value)
    assert text == (
        "error[invalid-argument]: scaled_dot_product_attention: no kernel can serve it on cuda:0\n"
        "  note: query: float32 array of shape (2, 2, 40, 24) on cuda:0\n"
        "  note: key: float32 array of shape (2, 2, 40, 24) on cuda:0\n"
        "  note: value: float32 array of shape (2, 2, 40, 20) on cuda:0\n"
        "  note: flash: It computes bfloat16 and float16, not float32.\n"
        "  note: flash: It needs value as wide as query, 24, not 20.\n"
        "  note: flash: It needs the last dimension to have stride 1. Got Query.stride(-1): 2, "
        "Key.stride(-1): 2, Value.stride(-1): 1\n"
        "  note: flash: `determinism.tier` promises `cross-machine`, which no kernel on a device "
        "keeps.\n"
        "  note: efficient: `determinism.tier` promises `cross-machine`, which no kernel on a device "
        "keeps.\n"
        "  note: math: Math attention has been runtime disabled.\n"
        "  note: math: `determinism.tier` promises `cross-machine`, which no kernel on a device "
        "keeps.\n"
        "  note: cudnn: `determinism.tier` promises `cross-machine`, which no kernel on a device "
        "keeps.\n"
        "  note: cudnn: cuDNN is left out.\n"
        "  note: cudnn: Expected query, key and value to all be of dtype: {float16, bfloat16}. Got "
        "Query dtype: float32, Key dtype: float32, and Value dtype: float32 instead.\n"
        "  note: cudnn: All fused kernels require the last dimension of the input to have stride 1. "
        "Got Query.stride(-1): 2, Key.stride(-1): 2, Value.stride(-1): 1\n"
        "  note: cudnn: It needs query, key and value at addresses that are multiples of 16 bytes, "
        "and strides above 0 that are multiples of 8 numbers.\n"
        "  note: cudnn: head_dim should be a multiple of 8\n"
        "  state: nothing was computed\n"
        "  help: meet what one of them needs, as its notes say, or compute on the CPU\n"
        '  help: ask `ops.explain(..., device="cuda:0")` what stands against each'
    )
    assert devices.cuda.calls("cuLaunchKernel") == []
    assert OnDevice.allocated == []


@pytest.mark.parametrize("width", [24, 68, 264])
def test_heads_of_other_widths_are_refused(width):
    query = normal((1, 2, 40, width))
    assert against_flash(query, query, query) == [
        f"It needs heads that are 32 to 256 wide, a multiple of 8, not {width}."
    ]


def test_a_switch_that_is_off_is_kept():
    query = normal(SHAPE)
    flags = {**ALONE, "cuda.enable_flash_sdp": False}
    told = ["Flash attention has been runtime disabled."]
    assert against_flash(query, query, query, flags=flags) == told


@pytest.mark.parametrize("order", [("flash",), ("cudnn", "flash", "efficient", "math")])
def test_flash_serves_from_any_place_in_the_order(kernels, order):
    query = normal(SHAPE)
    kernels.reads(query)
    with under(**{**defaults(), "cuda.sdp_priority": order}):
        assert_near(attention(query, query, query), on_the_cpu(query, query, query))


@pytest.mark.parametrize("capability", [75, 70])
def test_a_device_without_the_instructions_of_flash_is_told(devices, capability):
    devices.cuda.set(capability=capability)
    device_driver._capability.cache_clear()
    query = normal(SHAPE)
    found = against_flash(query, query, query)
    devices.cuda.set(capability=90)
    device_driver._capability.cache_clear()
    assert found == [f"It needs sm_80 or newer, and this is sm_{capability}."]


def test_a_device_of_another_vendor_is_refused():
    query = normal(SHAPE, place=(10, 0))
    assert against_flash(query, query, query) == ["It is for NVIDIA devices alone."]


def test_a_missing_compiler_is_told_with_what_to_install(monkeypatch):
    def missing():
        raise MissingLibraryError("no CUDA compiler, NVRTC, was found", notes=["nowhere"])

    monkeypatch.setattr(cuda_compiler, "compiler", missing)
    query = normal(SHAPE)
    assert against_flash(query, query, query) == [
        "It is compiled by NVRTC when it is needed: no CUDA compiler, NVRTC, was found; nowhere"
    ]
    monkeypatch.setattr(cuda_compiler, "compiler", Sm90)


def test_a_missing_driver_is_told(monkeypatch):
    missing = opening.Unusable("cuda", ("no libcuda.so.1 was found",))
    with monkeypatch.context() as patch:
        patch.setattr(loading, "open_device", lambda name: missing)
        query = normal(SHAPE)
        assert against_flash(query, query, query) == [
            "NVIDIA's driver cannot be used: no libcuda.so.1 was found"
        ]


def test_arrays_that_are_elsewhere_are_refused_by_name():
    query, host = normal(SHAPE), np.zeros(SHAPE, "float16")
    for name, arrays in (("key", (query, host, query)), ("value", (query, query, host))):
        line = first_line(*arrays)
        assert line == (
            f"scaled_dot_product_attention: `{name}` must be an array on cuda:0, as `query` is"
        )
    line = first_line(query, query, query, np.ones((40, 40), bool))
    assert line.endswith("`attn_mask` must be an array on cuda:0, as `query` is")
    line = first_line(query, normal(SHAPE, place=(2, 1)), query)
    assert line.endswith("`key` must be on cuda:0, as `query` is, not on cuda:1")
    line = first_line(host, query, query)
    assert line.endswith("`key` must be on the CPU, not on CUDA:0")


def test_arguments_that_make_no_call_of_attention_are_refused():
    query, other = normal(SHAPE), normal((1, 2, 40, 32))
    assert first_line(query, other, query).endswith("`key` must be as wide as `query`, 64, not 32")
    assert first_line(query, normal(SHAPE, "float16"), query).endswith(
        "`key` must hold bfloat16, as `query` does, not float16"
    )
    assert first_line(query, query, query, truths((3, 40))).endswith(
        "`attn_mask` of shape (3, 40) must broadcast to the scores, (1, 2, 40, 40)"
    )
    assert first_line(query, query, query, truths((40, 40)), is_causal=True).endswith(
        "`attn_mask` must not be given with `is_causal`"
    )
    assert first_line(query, query, query, dropout_p=0.5).endswith(
        "`seed` must be given where `dropout_p` is not 0"
    )
    whole = OnDevice(np.ones(SHAPE, "int64"))
    assert first_line(whole, whole, whole).endswith(
        "`query` must hold float32, float64, bfloat16 or float16, not int64"
    )


def test_arrays_whose_library_makes_none_for_others_are_refused(devices):
    query = normal(SHAPE, "float16")
    alone = ByCapsule(query.array)
    told = "`query` must be of a library that makes its results: PyTorch or CuPy"
    assert first_line(alone, query, query) == f"scaled_dot_product_attention: {told}"
    alone = ByInterface(query.array, place=(2, 0))
    assert first_line(alone, query, query) == f"scaled_dot_product_attention: {told}"
    assert devices.cuda.calls("cuLaunchKernel") == []


CALLS = {
    "cuModuleLoadData": (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    "cuModuleGetFunction": (500, "CUDA_ERROR_NOT_FOUND"),
    "cuFuncSetAttribute": (1, "CUDA_ERROR_INVALID_VALUE"),
    "cuLaunchKernel": (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "cuCtxPushCurrent_v2": (201, "status"),
}


@pytest.mark.parametrize("function", CALLS)
def test_a_failing_driver_is_named_and_the_context_is_as_it_was(kernels, devices, function):
    query = normal((1, 1, 40, 128))
    kernels.reads(query)
    status, name = CALLS[function]
    devices.cuda.fail(function, status)
    text = refused(query, query, query, kind=DeviceFailedError)
    assert text.splitlines()[0] == (
        "error[device-failed]: scaled_dot_product_attention: the device's driver failed: "
        f"{function.removesuffix('_v2')} returned {name} ({status})"
    )
    assert "  state: the result was not computed; the next call starts anew" in text
    assert "blas" not in text
    pushed, popped = (
        len(devices.cuda.calls(each)) for each in ("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    )
    assert popped == (0 if function == "cuCtxPushCurrent_v2" else pushed)
    unloaded = function in ("cuModuleGetFunction", "cuFuncSetAttribute")
    assert len(devices.cuda.calls("cuModuleUnload")) == unloaded
    devices.cuda.reset()
    assert_near(attention(query, query, query), on_the_cpu(query, query, query))


def test_a_late_failure_waits_for_what_was_put_on_the_stream(kernels, devices, new_stream):
    query = normal(SHAPE, "float16")
    kernels.reads(query)
    other = ByInterface(query.array, stream=2, place=(2, 0))
    devices.cuda.fail("cuEventRecord", 719, skip=1)
    line = first_line(query, other, other, kind=DeviceFailedError)
    assert line.endswith("cuEventRecord returned CUDA_ERROR_LAUNCH_FAILED (719)")
    assert len(kernels.launched) == 1
    (waited,) = devices.cuda.calls("cuStreamSynchronize")
    assert waited["stream"] == new_stream


def test_a_full_device_is_a_memory_error():
    query = normal(SHAPE)
    OnDevice.full = True
    with pytest.raises(MemoryError, match="the device is full"):
        attention(query, query, query)
    OnDevice.full = False


def test_a_result_that_nobody_can_look_into_is_refused_where_it_must_be_finite(kernels):
    query = normal(SHAPE)
    kernels.reads(query)
    with under(**{**defaults(), "ops.check_finite": True}):
        line = first_line(query, query, query)
    assert "`ops.check_finite` cannot look into arrays of" in line


def test_a_forked_child_is_told(kernels):
    query = normal(SHAPE)
    kernels.reads(query)
    attention(query, query, query)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = refused(query, query, query).splitlines()[0]
        except BaseException as error:
            text = repr(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == (
            "error[invalid-argument]: scaled_dot_product_attention: "
            "this process was forked from one that had used the device"
        )
