"""Calls of attention on devices whose kind was seen are made by C, and are what Python makes of them."""

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice, aligned
from products import under

from backendcfg import _native, ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.attention import backward as device_gradients
from backendcfg.gpu.attention import forward
from backendcfg.gpu.attention.flash_backward_variants import BackwardArguments
from backendcfg.gpu.attention.flash_variants import Arguments
from backendcfg.schema.profile import defaults

attention = ops.scaled_dot_product_attention
SHAPE = (1, 2, 40, 64)


@pytest.fixture(name="planned", autouse=True)
def _planned(monkeypatch):
    """The options of calls that Python made."""
    made, attend = [], device_gradients.attend

    def record(arrays, options, **keywords):
        made.append(options)
        return attend(arrays, options, **keywords)

    monkeypatch.setattr(device_gradients, "attend", record)
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
def test_a_call_of_a_known_kind_computes_what_the_first_does(kernels, planned, case, element):
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


def test_its_argument_block_is_the_one_that_python_makes(kernels, planned):
    arrays, mask = three(), truths((40, 40))
    kernels.reads(*arrays, mask)
    options = {"dropout_p": 0.25, "return_logsumexp": True}
    made = [attention(*arrays, mask, seed=seed, **options) for seed in (3, 4)]
    forward.forget()
    made.append(attention(*arrays, mask, seed=4, **options))
    assert [each.seed for each in planned] == [3, 4]
    second, anew = (bytearray(each[4]) for each in kernels.launched[1:])
    assert kernels.launched[1][:4] == kernels.launched[2][:4]
    for block, (out, total) in zip((second, anew), made[1:], strict=True):
        given = Arguments.from_buffer(block)
        assert (given.out, given.logsumexp) == (out.array.ctypes.data, total.array.ctypes.data)
        given.out = given.logsumexp = 0
    assert second == anew


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
def test_what_differs_is_looked_at_anew(kernels, planned, other):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    kernels.arrays = []
    arrays, options = OTHERS[other]()
    kernels.reads(*arrays)
    found = attention(*arrays, **options)
    wanted = on_the_cpu(*arrays, **options)
    assert_near(*((found[0], wanted[0]) if "return_logsumexp" in options else (found, wanted)))
    assert len(planned) == 2


def test_other_flags_are_looked_at_anew(kernels, planned):
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
    attention(*arrays)
    assert len(planned) == 2


def test_results_that_are_to_be_checked_are_checked_each_time(kernels, planned):
    arrays = three()
    kernels.reads(*arrays)
    with under(**{**defaults(), "ops.check_finite": True}):
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="cannot look into arrays"):
                attention(*arrays)
    assert len(planned) == 2


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


def test_many_kinds_are_kept_and_then_all_are_forgotten(kernels, planned, monkeypatch):
    arrays = three()
    kernels.reads(*arrays)
    scales = [1 / (1 + each) for each in range(257)]
    for scale in scales[:256]:
        attention(*arrays, scale=scale)
    attention(*arrays, scale=scales[0])
    assert len(planned) == 256
    attention(*arrays, scale=scales[256])
    attention(*arrays, scale=scales[256])
    attention(*arrays, scale=scales[0])
    assert len(planned) == 258


RESULT = ("bfloat16", SHAPE)


@pytest.mark.parametrize(
    "changes",
    [
        {"argument": b"x" * 513},
        {"seed": (57,)},
        {"arrays": (0, 8, 64)},
        {"arrays": (0,) * 8},
        {"results": (-2,)},
        {"made": (RESULT,) * 6},
        {"made": (("complex", SHAPE),)},
        {"made": (("bfloat16", (1,) * 7),)},
        {"count": 9},
    ],
)
def test_what_does_not_fit_is_not_kept(kernels, changes):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    (plan,) = forward._plans.values()
    (kernel,) = plan.kernels.values()
    launch = {
        "kernel": kernel, "grid": 1, "threads": 32, "argument": bytes(64), "arrays": (0, 8, 16),
        "results": (24,), "seed": (), "made": (RESULT,), "count": 1, **changes,
    }  # fmt: skip
    count, made = launch.pop("count"), launch.pop("made")
    with pytest.raises(ValueError, match="more than is kept of a call"):
        _native.device_remember(
            tuple(arrays), ("x",), False, (tuple(launch.values()),) * count, made, ()
        )


def test_a_result_that_is_not_aligned_is_left_to_python(kernels, planned, monkeypatch):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    monkeypatch.setattr("device_arrays.aligned", askew)
    result = attention(*arrays)
    assert result.array.ctypes.data % 16 == 2
    assert_near(result, on_the_cpu(*arrays))
    assert [each.is_aligned for each in kernels.variants] == [True, False]
    assert len(planned) == 2


def askew(shape, dtype):
    memory = aligned((int(np.prod(shape)) + 1,), dtype)
    return memory[1:].reshape(shape)


backward = ops.scaled_dot_product_attention_backward


def test_gradients_of_a_known_kind_are_those_that_python_makes(kernels, monkeypatch):
    made, computed = [], device_gradients.computed
    monkeypatch.setattr(
        device_gradients,
        "computed",
        lambda *arguments, **keywords: made.append(1) or computed(*arguments, **keywords),
    )
    for seed in (0, 7):
        arrays, grad_out = three(seed), normal(SHAPE, seed=seed + 3)
        kernels.arrays = []
        kernels.reads(*arrays, grad_out)
        options = {"dropout_p": 0.25, "seed": seed, "is_causal": True}
        out, total = attention(*arrays, return_logsumexp=True, **options)
        found = backward(grad_out, *arrays, out, total, **options)
    assert len(made) == 1
    forward.forget()
    again = backward(grad_out, *arrays, out, total, **options)
    assert len(made) == 2
    for one, other in zip(found, again, strict=True):
        assert np.array_equal(one.array, other.array)
    blocks = [bytearray(each[4]) for each in kernels.launched[-4:]]
    for block in blocks:
        given = BackwardArguments.from_buffer(block)
        given.grad_query = given.grad_key = given.grad_value = given.delta = 0
    assert blocks[:2] == blocks[2:]


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


def test_gradients_of_a_known_kind_are_refused_under_flags_that_refuse_them(kernels):
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
