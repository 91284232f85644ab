"""Calls of attention on devices that are like an earlier one, or differ from it in one thing."""

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice, aligned
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.attention import forward
from backendcfg.schema.profile import defaults

attention = ops.scaled_dot_product_attention
SHAPE = (1, 2, 40, 64)


@pytest.fixture(name="planned", autouse=True)
def _planned(monkeypatch):
    """The options of calls that were checked and planned; a plan is made once for a kind."""
    made, plan = [], forward._plan

    def record(given, held, trains, options, **keywords):
        made.append(options)
        return plan(given, held, trains, options, **keywords)

    monkeypatch.setattr(forward, "_plan", record)
    return made


def three(seed=0, shape=SHAPE, element="bfloat16"):
    return [normal(shape, element, seed + n) for n in range(3)]


ORDER = ("cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernel", "cuStreamSynchronize")
CASES = {
    "plain": ({}, None),
    "causal": ({"is_causal": True, "scale": -0.3}, None),
    "logsumexp": ({"return_logsumexp": True}, None),
    "dropout": ({"dropout_p": 0.4, "seed": 2**63 + 5}, None),
    "bool mask": ({}, truths((40, 40))),
    "added mask": ({}, normal((2, 1, 40), "float32", 4)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_a_call_like_an_earlier_one_computes_what_that_does(kernels, planned, case, element):
    options, mask = CASES[case]
    for seed in (0, 7, 20):
        kernels.arrays = []
        arrays = three(seed, element=element)
        kernels.reads(*arrays, *([] if mask is None else [mask]))
        found = attention(*arrays, mask, **options)
        wanted = on_the_cpu(*arrays, mask, **options)
        if "return_logsumexp" in options:
            assert_near(found[1], wanted[1])
            found, wanted = found[0], wanted[0]
        assert_near(found, wanted)
    assert len(planned) == 1


def test_a_seed_is_no_part_of_a_kind(kernels, planned):
    arrays = three()
    kernels.reads(*arrays)
    for seed in (1, 2, 2**64 - 1):
        assert_near(
            attention(*arrays, dropout_p=0.5, seed=seed),
            on_the_cpu(*arrays, dropout_p=0.5, seed=seed),
        )
    assert len(planned) == 1


def spread(array):
    memory = aligned((*SHAPE[:-1], 128), array.array.dtype)
    memory[..., :64] = array.array
    return OnDevice(memory[..., :64], array.element)


def shifted(array):
    memory = aligned((array.array.size + 8,), array.array.dtype)
    memory[1 : 1 + array.array.size] = array.array.reshape(-1)
    return OnDevice(memory[1 : 1 + array.array.size].reshape(SHAPE), array.element)


OTHERS = {
    "another dtype": lambda: (three(element="float16"), {}),
    "another shape": lambda: (three(shape=(1, 2, 41, 64)), {}),
    "other strides": lambda: ([spread(each) for each in three()], {}),
    "other alignment": lambda: ([shifted(each) for each in three()], {}),
    "causal": lambda: (three(), {"is_causal": True}),
    "a scale": lambda: (three(), {"scale": 0.5}),
    "dropout": lambda: (three(), {"dropout_p": 0.5, "seed": 1}),
    "logsumexp": lambda: (three(), {"return_logsumexp": True}),
    "a mask": lambda: ([*three(), truths((40, 40))], {}),
    "groups": lambda: (three(), {"enable_gqa": True}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_call_that_differs_in_one_thing_is_served_rightly(kernels, other):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    kernels.arrays = []
    arrays, options = OTHERS[other]()
    kernels.reads(*arrays)
    found = attention(*arrays, **options)
    wanted = on_the_cpu(*arrays, **options)
    assert_near(*((found[0], wanted[0]) if "return_logsumexp" in options else (found, wanted)))


def test_a_plan_does_not_outlive_its_flags(kernels, planned):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    off = dict.fromkeys(("flash", "mem_efficient", "math"), False)
    flags = {f"cuda.enable_{name}_sdp": value for name, value in off.items()}
    with (
        under(**{**defaults(), **flags}),
        pytest.raises(InvalidArgumentError, match="no kernel can serve it"),
    ):
        attention(*arrays)
    attention(*arrays)
    assert len(planned) == 2


def test_an_array_that_needs_a_gradient_is_not_served_as_one_that_needs_none(kernels, planned):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    arrays[1].requires_grad = True
    with pytest.raises(InvalidArgumentError, match="gradients are recorded"):
        attention(*arrays)
    arrays[1].requires_grad = False
    assert_near(attention(*arrays), on_the_cpu(*arrays))
    assert len(planned) == 2


def test_results_that_are_to_be_checked_are_checked_each_time(kernels, planned):
    arrays = three()
    kernels.reads(*arrays)
    with under(**{**defaults(), "ops.check_finite": True}):
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="cannot look into arrays"):
                attention(*arrays)
    assert len(planned) == 1


def test_it_is_counted_and_traced_like_any_other(kernels, planned):
    arrays = three()
    kernels.reads(*arrays)
    with ops.trace() as calls:
        for _ in range(3):
            attention(*arrays)
    first, *others = calls
    assert others == [first, first]
    assert len(planned) == 1


def test_it_is_put_on_the_stream_that_is_current_now(kernels, devices, new_stream):
    arrays = three()
    kernels.reads(*arrays)
    for stream in (0, new_stream):
        OnDevice.stream = stream
        attention(*arrays)
    assert [each["stream"] for each in devices.cuda.calls("cuLaunchKernel")] == [None, new_stream]


@pytest.mark.parametrize("stream", [2, None])
def test_other_streams_are_put_in_order_each_time(kernels, devices, planned, new_stream, stream):
    query, *rest = three(element="float16")
    others = [ByInterface(each.array, stream=stream, place=(2, 0)) for each in rest]
    kernels.reads(query, *others)
    assert new_stream
    done = []
    for _ in range(2):
        devices.cuda.reset()
        assert_near(attention(query, *others), on_the_cpu(query, *rest))
        done.append([call.function for call in devices.cuda.calls()])
    first, second = ([each for each in calls if each in ORDER] for calls in done)
    assert first == second
    assert second.count("cuStreamWaitEvent") == 2
    assert second.count("cuStreamSynchronize") == (stream is None)
    assert len(planned) == 1


@pytest.mark.parametrize(
    ("function", "status", "name"),
    [("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"), ("cuCtxPushCurrent_v2", 201, "status")],
)
def test_a_failure_is_said_and_the_next_call_works(
    kernels, devices, planned, function, status, name
):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    devices.cuda.fail(function, status)
    with pytest.raises(DeviceFailedError) as caught:
        attention(*arrays)
    assert caught.value.message == (
        "scaled_dot_product_attention: the device's driver failed: "
        f"{function.removesuffix('_v2')} returned {name} ({status})"
    )
    assert caught.value.notes[0] == "query: bfloat16 array of shape (1, 2, 40, 64) on cuda:0"
    devices.reset()
    assert_near(attention(*arrays), on_the_cpu(*arrays))
    assert len(planned) == 1


def test_a_full_device_is_an_error_of_memory(kernels, devices, monkeypatch):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    monkeypatch.setattr(OnDevice, "full", True)
    devices.cuda.reset()
    with pytest.raises(MemoryError):
        attention(*arrays)
    assert devices.cuda.calls("cuLaunchKernel") == []


def test_a_result_that_is_not_aligned_gets_another_variant(kernels, planned, monkeypatch):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    monkeypatch.setattr("device_arrays.aligned", askew)
    result = attention(*arrays)
    assert result.array.ctypes.data % 16 == 2
    assert_near(result, on_the_cpu(*arrays))
    assert [each.macros["ALIGNED"] for each in kernels.variants] == [1, 0]
    assert len(planned) == 1


def test_the_cache_of_plans_is_bounded(kernels, planned, monkeypatch):
    monkeypatch.setattr(forward._plans, "most", 2)
    arrays = three()
    kernels.reads(*arrays)
    for options in ({}, {"is_causal": True}, {"enable_gqa": True}, {}):
        assert_near(attention(*arrays, **options), on_the_cpu(*arrays, **options))
    assert len(planned) == 4
    assert len(forward._plans) == 2


def askew(shape, dtype):
    memory = aligned((int(np.prod(shape)) + 1,), dtype)
    return memory[1:].reshape(shape)


backward = ops.scaled_dot_product_attention_backward


def test_a_second_launch_that_fails_is_said(kernels, devices):
    arrays = three()
    kernels.reads(*arrays)
    out, total = attention(*arrays, return_logsumexp=True)
    backward(out, *arrays, out, total)
    devices.cuda.fail("cuLaunchKernel", 700, skip=1)
    with pytest.raises(DeviceFailedError) as caught:
        backward(out, *arrays, out, total)
    assert caught.value.message.startswith("scaled_dot_product_attention_backward: the device's")
    assert caught.value.notes[3] == "grad_out: bfloat16 array of shape (1, 2, 40, 64) on cuda:0"
    devices.reset()
    assert len(backward(out, *arrays, out, total)) == 3


def test_gradients_are_refused_under_flags_that_refuse_them(kernels):
    arrays = three()
    kernels.reads(*arrays)
    out, total = attention(*arrays, return_logsumexp=True)
    backward(out, *arrays, out, total)
    off = dict.fromkeys(("flash", "mem_efficient", "math"), False)
    flags = {f"cuda.enable_{name}_sdp": value for name, value in off.items()}
    with (
        under(**{**defaults(), **flags}),
        pytest.raises(InvalidArgumentError, match="no kernel can serve it"),
    ):
        backward(out, *arrays, out, total)


def test_gradients_of_a_call_like_an_earlier_one_are_those_of_a_first_call(kernels):
    options = {"dropout_p": 0.25, "is_causal": True}
    for seed in (0, 7):
        arrays, grad_out = three(seed), normal(SHAPE, seed=seed + 3)
        kernels.arrays = []
        kernels.reads(*arrays, grad_out)
        out, total = attention(*arrays, return_logsumexp=True, seed=seed, **options)
        found = backward(grad_out, *arrays, out, total, seed=seed, **options)
    forward.forget()
    again = backward(grad_out, *arrays, out, total, seed=seed, **options)
    for one, other in zip(found, again, strict=True):
        assert np.array_equal(one.array, other.array)
