"""Calls of attention by cuDNN that are like an earlier one, or differ from it in one thing."""

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu
from device_arrays import OnDevice, aligned
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.attention import forward
from backendcfg.gpu.libraries import opening
from backendcfg.schema.profile import defaults

attention = ops.scaled_dot_product_attention
EXECUTE = "cudnnBackendExecute"
FIRST = {**defaults(), "cuda.sdp_priority": ("cudnn",)}


@pytest.fixture(name="planned", autouse=True)
def _planned(devices, monkeypatch):
    """The options of calls that were checked and planned; a plan is made once for a kind."""
    opening._capability.cache_clear()
    forward.forget()
    made, plan = [], forward._plan

    def record(given, held, trains, options, **keywords):
        made.append(options)
        return plan(given, held, trains, options, **keywords)

    monkeypatch.setattr(forward, "_plan", record)
    with under(**FIRST):
        yield made
    opening._capability.cache_clear()
    forward.forget()


def three(seed=0, keys=70, element="bfloat16"):
    shapes = ((2, 3, 40, 64), (2, 3, keys, 64), (2, 3, keys, 64))
    return [normal(shape, element, seed + n) for n, shape in enumerate(shapes)]


CASES = {
    "plain": ({}, None),
    "causal": ({"is_causal": True}, None),
    "a scale": ({"scale": 0.3}, None),
    "logsumexp": ({"return_logsumexp": True}, None),
    "added mask": ({}, (2, 1, 40, 70)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_a_call_like_an_earlier_one_computes_what_that_does(devices, planned, case, element):
    options, masked = CASES[case]
    for seed in (0, 7, 20):
        arrays = three(seed, element=element)
        mask = None if masked is None else normal(masked, element, seed + 9)
        found = attention(*arrays, mask, **options)
        wanted = on_the_cpu(*arrays, mask, **options)
        if "return_logsumexp" in options:
            assert_near(found[1], wanted[1])
            found, wanted = found[0], wanted[0]
        assert_near(found, wanted)
    assert len(planned) == 1
    assert len(devices.cudnn.calls(EXECUTE)) == 3


def test_each_call_has_its_own_scale_and_numpys_are_as_good(devices, planned):
    arrays = three()
    for scale in (0.3, 0.4, np.float64(0.5), 0.3):
        assert_near(attention(*arrays, scale=scale), on_the_cpu(*arrays, scale=scale))
    assert len(planned) == 1


def test_arrays_that_cudnn_cannot_read_are_not_served_as_those_that_it_can(devices, planned):
    arrays = three()
    alone = {f"cuda.enable_{other}_sdp": False for other in ("flash", "mem_efficient", "math")}
    with under(**{**FIRST, **alone}):
        attention(*arrays)
        memory = aligned((arrays[0].array.size + 1,), arrays[0].array.dtype)
        memory[1:] = arrays[0].array.reshape(-1)
        arrays[0] = OnDevice(memory[1:].reshape(2, 3, 40, 64), "bfloat16")
        with pytest.raises(Exception, match="no kernel can serve"):
            attention(*arrays)
    assert len(planned) == 2


def test_it_is_counted_and_traced_like_any_other(devices, planned):
    arrays = three()
    with ops.trace() as calls:
        for _ in range(3):
            attention(*arrays)
    first, *others = calls
    assert (first.provider, others) == ("cudnn", [first, first])
    assert len(planned) == 1


def test_another_stream_gets_the_plan_before_it_runs(devices, planned, new_stream):
    arrays = three()
    for stream in (0, new_stream, new_stream):
        OnDevice.stream = stream
        assert_near(attention(*arrays), on_the_cpu(*arrays))
    assert [call["stream"] for call in devices.cudnn.calls(EXECUTE)] == [
        None,
        new_stream,
        new_stream,
    ]
    assert len(planned) == 1


def test_a_full_device_is_an_error_of_memory(devices, planned, monkeypatch):
    arrays = three()
    attention(*arrays)
    monkeypatch.setattr(OnDevice, "full", True)
    with pytest.raises(MemoryError, match="the device is full"):
        attention(*arrays)


FUNCTIONS = (
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendFinalize",
    EXECUTE,
)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_failure_is_told_and_leaves_nothing(devices, planned, function):
    arrays, said = three(), []
    attention(*arrays)
    kept = devices.cudnn.library.fake_descriptors()
    for _ in range(2):
        devices.cudnn.fail(function, 5000, count=1)
        with pytest.raises(DeviceFailedError) as caught:
            attention(*arrays)
        devices.reset()
        said.append(caught.value.render())
        assert devices.cudnn.library.fake_descriptors() == kept
    assert said[0] == said[1]
    assert f"cuDNN failed: {function} returned CUDNN_STATUS_EXECUTION_FAILED (5000)" in said[0]
    assert_near(attention(*arrays), on_the_cpu(*arrays))
    assert len(planned) == 1
