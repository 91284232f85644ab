"""Attention of device arrays by cuDNN: its graph, run by the fake, gives the right numbers."""

import gc
import weakref

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice, aligned, widened
from products import under

from backendcfg import ops
from backendcfg.gpu.attention import forward
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.libraries import opening
from backendcfg.schema.profile import defaults

pytestmark = pytest.mark.sweep

attention = ops.scaled_dot_product_attention

EXECUTE = "cudnnBackendExecute"
FIRST = {**defaults(), "cuda.sdp_priority": ("cudnn", "flash")}


@pytest.fixture(autouse=True)
def _forgotten():
    opening._capability.cache_clear()
    forward.forget()
    yield
    opening._capability.cache_clear()
    forward.forget()


def three(queries=(2, 3, 40, 64), keys=(2, 3, 70, 64), element="bfloat16"):
    return normal(queries, element), normal(keys, element, 1), normal(keys, element, 2)


def served():
    """Who served attention on the device since the fakes were new."""
    return [
        one.provider
        for one in ops.stats().operations
        if one.operation == "scaled_dot_product_attention" and "on a device" in one.because
    ]


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_attention_is_right_in_both_element_types(devices, element):
    arrays = three(element=element)
    result, logsumexp = attention(*arrays, return_logsumexp=True)
    wanted, sums = on_the_cpu(*arrays, return_logsumexp=True)
    assert (result.element, result.place) == (element, (2, 0))
    assert_near(result, wanted)
    assert logsumexp.element == "float32"
    assert_near(logsumexp, sums)
    assert len(devices.cudnn.calls(EXECUTE)) == 1
    assert served() == ["cudnn"]


@pytest.mark.parametrize("lengths", [(1, 7), (40, 40), (40, 70), (70, 40)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_options_mean_what_they_mean_on_the_cpu(devices, lengths, options):
    arrays = three((2, 3, lengths[0], 64), (2, 3, lengths[1], 64))
    assert_near(attention(*arrays, **options), on_the_cpu(*arrays, **options))
    assert served() == ["cudnn"]


@pytest.mark.parametrize("heads", [(6, 2), (6, 1), (6, 6)])
def test_heads_share_keys_where_they_are_told_to(devices, heads):
    arrays = three((2, heads[0], 40, 64), (2, heads[1], 70, 64))
    wanted = on_the_cpu(*arrays, enable_gqa=True)
    assert_near(attention(*arrays, enable_gqa=True), wanted)
    assert served() == ["cudnn"]


@pytest.mark.parametrize("width", [8, 72, 128, 256])
def test_values_may_be_of_another_width(devices, width):
    query, key, _ = three()
    value = normal((2, 3, 70, width), seed=2)
    assert_near(attention(query, key, value), on_the_cpu(query, key, value))
    assert served() == ["cudnn"]


@pytest.mark.parametrize(
    "shape", [(40, 70), (1, 70), (2, 3, 40, 70), (2, 1, 40, 70), (1, 3, 1, 70), (2, 3, 40, 1)]
)
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_masks_are_added_and_broadcast_to_the_scores(devices, shape, element):
    arrays, mask = three(), normal(shape, element, 5)
    with under(**FIRST):
        result, logsumexp = attention(*arrays, mask, return_logsumexp=True)
    wanted, sums = on_the_cpu(*arrays, mask, return_logsumexp=True)
    assert_near(result, wanted)
    assert_near(logsumexp, sums)
    assert served() == ["cudnn"]


def test_a_query_that_a_mask_hides_everything_from_is_left_to_our_own_kernel(both):
    arrays, mask = three(), normal((40, 70), "float32", 5)
    mask.array[7] = -np.inf
    both.reads(*arrays, mask)
    result = attention(*arrays, mask)
    assert_near(result, on_the_cpu(*arrays, mask))
    assert (result.array[:, :, 7] == 0).all()
    with under(**FIRST):
        result = attention(*arrays, mask)
    assert np.isnan(widened(result.array[:, :, 7])).all()
    assert served() == ["flash", "cudnn"]


def test_arrays_are_read_where_they_lie(devices):
    # (batch, length, heads, width), as a projection leaves them, and every other row of the keys.
    arrays = [normal((2, 40, 3, 64), seed=seed) for seed in range(3)]
    views = [OnDevice(each.array.swapaxes(1, 2), each.element) for each in arrays]
    views[1:] = [OnDevice(each.array[:, :, ::2], each.element) for each in views[1:]]
    result = attention(*views)
    assert_near(result, on_the_cpu(*views))
    # Nothing is copied: the result, and what the engine asks for to work in.
    assert OnDevice.allocated == [result.array.nbytes, 256]
    assert served() == ["cudnn"]


def test_a_call_like_an_earlier_one_is_one_variant_pack_and_one_run(devices):
    arrays = three()
    attention(*arrays, is_causal=True)
    devices.cudnn.reset()
    result, logsumexp = attention(*arrays, is_causal=True, return_logsumexp=True)
    devices.cudnn.reset()
    result, logsumexp = attention(*arrays, is_causal=True, return_logsumexp=True)
    pointers, numbers, workspace = devices.cudnn.calls("cudnnBackendSetAttribute")
    assert [call.function for call in devices.cudnn.calls()] == [
        "cudnnBackendCreateDescriptor",
        *["cudnnBackendSetAttribute"] * 3,
        "cudnnBackendFinalize",
        EXECUTE,
        "cudnnBackendDestroyDescriptor",
    ]
    assert (numbers["name"], numbers["values"]) == (1000, [1, 2, 3, 4, 5, 7, 8])
    scale, hidden = pointers["values"][4:6]
    assert (pointers["name"], hidden - scale) == (1001, 4)
    assert [*pointers["values"][:4], pointers["values"][6]] == [
        each.array.ctypes.data for each in (*arrays, result, logsumexp)
    ]
    assert (workspace["name"], workspace["count"]) == (1003, 1)


def test_the_run_lies_on_the_stream_of_the_arrays_and_in_order_with_others(devices, new_stream):
    query, key, value = three(element="float16")
    others = [ByInterface(each.array, stream=2, place=(2, 0)) for each in (key, value)]
    attention(query, *others)
    devices.reset()
    assert_near(attention(query, *others), on_the_cpu(query, key, value))
    (run,) = devices.cudnn.calls(EXECUTE)
    assert run["stream"] == new_stream
    events = ("cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize")
    assert [(call.function, call["stream"]) for call in devices.cuda.calls(*events)] == [
        ("cuEventRecord", 2),
        ("cuStreamWaitEvent", new_stream),
        ("cuEventRecord", new_stream),
        ("cuStreamWaitEvent", 2),
    ]


def test_another_stream_has_plans_of_its_own(devices, new_stream):
    arrays = three()
    first = attention(*arrays)
    OnDevice.stream = 0
    second = attention(*arrays)
    assert (first.array == second.array).all()
    streams = [call["stream"] for call in devices.cudnn.calls(EXECUTE)]
    assert streams == [new_stream, None]


def test_nothing_is_kept_alive(devices):
    arrays = three()
    seen = [weakref.ref(each) for each in (*arrays, attention(*arrays))]
    del arrays
    gc.collect()
    assert [ref() for ref in seen] == [None] * 4


@pytest.mark.parametrize(
    ("version", "capability", "first"),
    [
        (91501, 90, "cudnn"),
        (92800, 100, "cudnn"),
        (92800, 103, "cudnn"),
        (91500, 90, "flash"),
        (92800, 80, "flash"),
        (92800, 120, "flash"),
        (0, 90, "flash"),
    ],
)
def test_cudnn_is_the_first_where_pytorch_has_it_first(
    both, devices, monkeypatch, version, capability, first
):
    monkeypatch.setattr(loading, "cudnn", lambda: (version, "" if version else "None here."))
    devices.cuda.set(capability=capability)
    arrays = three()
    both.reads(*arrays)
    attention(*arrays)
    assert served() == [first]
    shapes = [each.shape for each in arrays]
    said = ops.explain("scaled_dot_product_attention", shapes, "bfloat16", device="cuda:0")
    assert said.provider == first


@pytest.mark.parametrize(
    ("order", "first"), [(("flash",), "flash"), (("cudnn", "math", "flash"), "cudnn")]
)
def test_an_order_that_somebody_says_holds(both, order, first):
    arrays = three()
    both.reads(*arrays)
    with under(**{**defaults(), "cuda.sdp_priority": order}):
        assert_near(attention(*arrays), on_the_cpu(*arrays))
    assert served() == [first]


def test_the_switch_turns_it_off(both, devices):
    arrays = three()
    both.reads(*arrays)
    with under(**{**defaults(), "cuda.enable_cudnn_sdp": False}):
        attention(*arrays)
    assert (served(), devices.cudnn.calls(EXECUTE)) == (["flash"], [])


@pytest.mark.parametrize(
    ("flags", "engine"),
    [
        ({}, 3),
        ({"determinism.algorithms": "warn"}, 3),
        ({"determinism.algorithms": "deterministic"}, 2),
        ({"determinism.tier": "run-to-run"}, 2),
    ],
)
def test_an_engine_that_may_vary_serves_only_where_it_may(devices, flags, engine):
    arrays = three()
    with under(**{**defaults(), **flags}):
        attention(*arrays)
    assert [call["engine"] for call in devices.cudnn.calls(EXECUTE)] == [engine]


def test_the_next_engine_serves_what_the_first_does_not_take(devices):
    devices.cudnn.set(unsupported=1 << 3 | 1 << 2)
    arrays = three()
    assert_near(attention(*arrays), on_the_cpu(*arrays))
    assert [call["engine"] for call in devices.cudnn.calls(EXECUTE)] == [1]
    # That one needs nothing to work in.
    assert len(OnDevice.allocated) == 1


def test_what_no_engine_takes_is_served_by_the_next_kernel(both, devices):
    devices.cudnn.set(unsupported=1 << 3 | 1 << 2 | 1 << 1)
    arrays = three()
    both.reads(*arrays)
    with ops.trace() as calls:
        result = attention(*arrays)
    assert_near(result, on_the_cpu(*arrays))
    (call,) = calls
    assert call.provider == "flash"
    assert call.because == (
        "on a device; cudnn needs: cuDNN 9 is here, and has an engine for the call"
    )
    assert len(devices.cudnn.calls("cudnnBackendFinalize")) > 0
    assert devices.cudnn.calls(EXECUTE) == []


@pytest.mark.parametrize(
    "call",
    [
        {"mask": truths((40, 70))},
        {"scale": -0.3},
        {"scale": 0.0},
        {"dropout_p": 0.4, "seed": 7},
        {"queries": (3, 40, 64), "keys": (3, 70, 64)},
        {"keys": (1, 3, 70, 64)},
        {"keys": (2, 3, 1, 64)},
        {"queries": (2, 3, 40, 136), "keys": (2, 3, 70, 136), "capability": 80},
    ],
    ids=lambda call: "-".join(call),
)
def test_what_cudnn_would_do_otherwise_is_served_by_our_own_kernel(both, devices, call):
    call = dict(call)
    devices.cuda.set(capability=call.pop("capability", 90))
    arrays = three(call.pop("queries", (2, 3, 40, 64)), call.pop("keys", (2, 3, 70, 64)))
    mask = call.pop("mask", None)
    both.reads(*arrays, *([mask] if mask is not None else []))
    with under(**FIRST):
        assert_near(attention(*arrays, mask, **call), on_the_cpu(*arrays, mask, **call))
    assert served() == ["flash"]


def test_rows_that_begin_anywhere_are_left_to_our_own_kernel(both):
    memory = aligned((1, 1, 40, 68), "uint16")
    memory[...] = normal((1, 1, 40, 68)).array
    query, plain = OnDevice(memory[..., 4:], "bfloat16"), normal((1, 1, 40, 64))
    both.reads(query, plain)
    assert_near(attention(query, plain, plain), on_the_cpu(query, plain, plain))
    assert_near(attention(plain, plain, plain), on_the_cpu(plain, plain, plain))
    assert sorted(served()) == ["cudnn", "flash"]


def test_hidden_scores_are_what_the_version_of_cudnn_takes(device_file):
    from backendcfg.gpu.attention.cudnn import hidden_score

    assert hidden_score(91000) == -np.inf
    assert hidden_score(90999) == np.finfo("float32").min
