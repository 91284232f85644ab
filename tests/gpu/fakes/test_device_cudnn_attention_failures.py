"""What attention by cuDNN refuses and how its failures are said; nothing leaks, the next call works."""

import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import OnDevice
from products import under

from backendcfg import ops
from backendcfg.dispatch import attention
from backendcfg.dispatch.array_facts import ArrayFacts, row_major
from backendcfg.dispatch.attention_facts import AttentionFlags, Call, Device
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.attention import forward as device_attention
from backendcfg.gpu.attention.rules import ON_DEVICES
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.schema.profile import defaults

OTHERS_OFF = {
    "cuda.enable_flash_sdp": False,
    "cuda.enable_mem_efficient_sdp": False,
    "cuda.enable_math_sdp": False,
}
SHAPE = (1, 2, 40, 64)


def attend(**options):
    query = normal(SHAPE)
    return query, ops.scaled_dot_product_attention(query, query, query, **options)


def descriptors(devices):
    return devices.cudnn.library.fake_descriptors()


@pytest.fixture(autouse=True)
def _works_afterwards(devices):
    device_driver._capability.cache_clear()
    device_attention.forget()
    yield
    devices.reset()
    opening._latest.clear()
    query, result = attend()
    assert_near(result, on_the_cpu(query, query, query))
    device_attention.forget()


@pytest.mark.parametrize(
    "function",
    [
        "cudnnBackendCreateDescriptor",
        "cudnnBackendSetAttribute",
        "cudnnBackendFinalize",
        "cudnnBackendGetAttribute",
    ],
)
@pytest.mark.parametrize("skip", [0, 1, 5])
def test_a_failure_while_the_graph_is_described_is_told(devices, function, skip):
    before = descriptors(devices)
    devices.cudnn.fail(function, 5000, skip=skip, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        attend(is_causal=True, scale=0.1 + skip)
    assert caught.value.message == (
        f"scaled_dot_product_attention: cuDNN failed: {function} returned "
        "CUDNN_STATUS_EXECUTION_FAILED (5000)"
    )
    # A search that ended, of an earlier problem, may have been given up for this one.
    assert descriptors(devices) <= before


def test_a_failure_of_a_run_is_told_with_the_arrays_and_what_cudnn_says(devices):
    attend()
    before = descriptors(devices)
    devices.cudnn.set(broken=1 << 3)
    with pytest.raises(DeviceFailedError) as caught:
        attend()
    text = caught.value.render().splitlines()
    assert text[:4] == [
        (
            "error[device-failed]: scaled_dot_product_attention: cuDNN failed: cudnnBackendExecute "
            "returned CUDNN_STATUS_EXECUTION_FAILED (5000)"
        ),
        *(
            f"  note: {name}: bfloat16 array of shape (1, 2, 40, 64) on cuda:0"
            for name in ("query", "key", "value")
        ),
    ]
    assert text[4].startswith("  note: cuDNN says: ")
    assert text[5] == "  state: the result was not computed; the next call starts anew"
    assert descriptors(devices) == before


@pytest.mark.parametrize(
    "function", ["cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute", "cudnnBackendFinalize"]
)
def test_a_failure_of_a_variant_pack_leaves_nothing(devices, function):
    attend()
    before = descriptors(devices)
    devices.cudnn.fail(function, 5000, count=1)
    with pytest.raises(DeviceFailedError, match=f"{function} returned"):
        attend()
    assert descriptors(devices) == before


def test_a_driver_that_fails_is_told_as_the_driver(devices):
    attend()
    devices.cuda.fail("cuCtxPushCurrent_v2", 719, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        attend()
    assert caught.value.message == (
        "scaled_dot_product_attention: the device's driver failed: cuCtxPushCurrent returned "
        "CUDA_ERROR_LAUNCH_FAILED (719)"
    )


def test_a_full_device_leaves_everything_usable(devices):
    attend()
    before = descriptors(devices)
    query = normal(SHAPE)
    OnDevice.full = True
    try:
        with pytest.raises(Exception, match=r"full|memory"):
            ops.scaled_dot_product_attention(query, query, query)
    finally:
        OnDevice.full = False
    assert descriptors(devices) == before


def test_a_call_that_no_engine_takes_is_refused_with_what_each_says(devices):
    devices.cudnn.set(unsupported=1 << 3 | 1 << 2 | 1 << 1)
    with under(**{**defaults(), **OTHERS_OFF}), pytest.raises(InvalidArgumentError) as caught:
        attend()
    (why,) = [note for note in caught.value.notes if note.startswith("cudnn: ")]
    assert why.startswith("cudnn: cuDNN 9.28.0 has no engine for it: engine 3 (")
    assert why.count("CUDNN_STATUS_NOT_SUPPORTED") == 3


def test_engines_that_may_vary_are_all_refused_where_results_must_repeat(devices):
    devices.cudnn.set(unsupported=1 << 2 | 1 << 1)
    flags = {**defaults(), **OTHERS_OFF, "determinism.algorithms": "deterministic"}
    with under(**flags), pytest.raises(InvalidArgumentError) as caught:
        attend()
    (why,) = [note for note in caught.value.notes if note.startswith("cudnn: ")]
    assert "its results may differ from run to run" in why


def test_without_cudnn_the_reason_says_what_was_looked_for(devices):
    devices.without("cudnn")
    with under(**{**defaults(), **OTHERS_OFF}), pytest.raises(InvalidArgumentError) as caught:
        attend()
    (why,) = [note for note in caught.value.notes if note.startswith("cudnn: ")]
    assert why == "cudnn: cuDNN cannot be used: cuDNN: no libcudnn.so.9 was found"


def test_a_bool_mask_is_not_converted(devices):
    query = normal(SHAPE)
    with under(**{**defaults(), **OTHERS_OFF}), pytest.raises(InvalidArgumentError) as caught:
        ops.scaled_dot_product_attention(query, query, query, truths((40, 40)))
    assert [note for note in caught.value.notes if note.startswith("cudnn: ")] == [
        "cudnn: It adds a mask to the scores, and attn_mask is bool: nothing is converted."
    ]
    assert devices.cudnn.calls("cudnnBackendExecute") == []


def on_device(*shape, **more):
    more = {"element": "bfloat16", "device": "cuda", "strides": row_major(shape), **more}
    return ArrayFacts(shape, **more)


H200 = Device("nvidia", (9, 0), cudnn=92800)


def against(call, device=H200, **switches):
    return attention.reasons("cudnn", call, device, AttentionFlags(**switches), ON_DEVICES)


def call_of(*shape, keys=None, **more):
    return Call(on_device(*shape), on_device(*(keys or shape)), on_device(*(keys or shape)), **more)


@pytest.mark.parametrize(
    ("call", "device", "why"),
    [
        (call_of(2, 3, 40, 64), H200, ()),
        (
            call_of(2, 3, 40, 64),
            Device("amd"),
            ("It is for NVIDIA devices alone.",),
        ),
        (
            call_of(2, 3, 40, 64),
            Device("nvidia", (7, 5), cudnn=92800),
            (
                (
                    "cuDNN MHA only supports gpu architectures in the range [sm80, sm121]. Attempting "
                    "to run on a sm 7.5 gpu."
                ),
                (
                    "Expected query, key and value to all be of dtype: {float16}. Got Query dtype: "
                    "bfloat16, Key dtype: bfloat16, and Value dtype: bfloat16 instead."
                ),
            ),
        ),
        (
            call_of(2, 3, 40, 64),
            Device("nvidia", (9, 0), cudnn=91001),
            (
                (
                    "SDPA FP16/BF16 forward is not supported on cuDNN 9.10.0/9.10.1 due to known bugs. "
                    "Please consider upgrading to 9.10.2 or newer."
                ),
            ),
        ),
        (
            call_of(2, 3, 1, 64, keys=(2, 3, 40, 64), is_causal=True),
            Device("nvidia", (9, 0), cudnn=90900),
            (
                (
                    "decode only mode, i.e. s_q == 1, not supported with masking (right_bound is set) "
                    "for backend version 9.9 or below"
                ),
            ),
        ),
        (
            call_of(70000, 3, 40, 64),
            H200,
            (
                (
                    "cuDNN SDPA does not support batch size or num_heads greater than 65535. Got batch "
                    "size: 70000, num_heads: 3"
                ),
            ),
        ),
        (
            call_of(2, 3, 40, 20),
            H200,
            (
                (
                    "It needs query, key and value at addresses that are multiples of 16 bytes, and "
                    "strides above 0 that are multiples of 8 numbers."
                ),
                "head_dim should be a multiple of 8",
            ),
        ),
        (call_of(0, 3, 40, 64), H200, ("It computes nothing of arrays without numbers.",)),
        (
            Call(*[on_device(2, 3, 40, 0, strides=(0, 8, 8, 1))] * 2, on_device(2, 3, 40, 8)),
            H200,
            (
                "It computes nothing of arrays without numbers.",
                (
                    "It needs query, key and value at addresses that are multiples of 16 bytes, and "
                    "strides above 0 that are multiples of 8 numbers."
                ),
            ),
        ),
        (call_of(2, 3, 40, 264), H200, ("head_dim should be no more than 256",)),
        (
            call_of(2, 3, 40, 64, keys=(2, 3, 1, 64)),
            H200,
            ("cudnn SDPA does not support key/value sequence length 1.",),
        ),
        (call_of(2, 3, 40, 64, scale=-0.5), H200, ("It needs a scale above 0, not -0.5.",)),
        (
            call_of(2, 3, 40, 64, dropout=0.5),
            H200,
            ("A seed drops the same weights wherever it is used, and cuDNN would drop others.",),
        ),
        (
            call_of(2, 3, 40, 64, is_aligned=False),
            H200,
            (
                (
                    "It needs query, key and value at addresses that are multiples of 16 bytes, and "
                    "strides above 0 that are multiples of 8 numbers."
                ),
            ),
        ),
        (
            Call(*[on_device(2, 3, 40, 64, strides=(0, 2560, 64, 1))] * 3),
            H200,
            (
                (
                    "It needs query, key and value at addresses that are multiples of 16 bytes, and "
                    "strides above 0 that are multiples of 8 numbers."
                ),
            ),
        ),
    ],
)
def test_each_requirement_is_told_in_its_words(call, device, why):
    assert against(call, device) == why


def test_a_promise_that_no_device_keeps_is_refused():
    assert against(call_of(2, 3, 40, 64), tier="batch-invariant") == (
        "`determinism.tier` promises `batch-invariant`, which no kernel on a device keeps.",
    )
    assert against(call_of(2, 3, 40, 64), deterministic=True) == ()
