"""What gradients by cuDNN refuse and how their failures are said; nothing leaks, the next call works."""

import pytest
from attention_on_device import normal
from cudnn_gradients import NAME, served
from device_arrays import OnDevice
from products import under

from backendcfg import ops
from backendcfg.dispatch import attention
from backendcfg.dispatch.array_facts import ArrayFacts, row_major
from backendcfg.dispatch.attention_facts import AttentionFlags, Call, Device
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.attention import forward
from backendcfg.gpu.attention.rules import ON_DEVICES
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.schema.profile import defaults

EVERY = 1 << 3 | 1 << 2 | 1 << 1
OTHERS_OFF = {
    "cuda.enable_flash_sdp": False,
    "cuda.enable_mem_efficient_sdp": False,
    "cuda.enable_math_sdp": False,
}
SHAPE = (1, 2, 8, 32)


@pytest.fixture(autouse=True)
def _works_afterwards(devices):
    device_driver._capability.cache_clear()
    forward.forget()
    yield
    devices.reset()
    opening._latest.clear()
    forward.forget()
    gradients()
    forward.forget()


def attended(shape=SHAPE):
    """An array that attends to itself, the result, and its logarithms."""
    query = normal(shape)
    return query, *ops.scaled_dot_product_attention(query, query, query, return_logsumexp=True)


def back(query, out, total, grad_out=None):
    """The gradients of that."""
    grad_out = out if grad_out is None else grad_out
    return ops.scaled_dot_product_attention_backward(grad_out, query, query, query, out, total)


def gradients(shape=SHAPE):
    """Both passes."""
    return back(*attended(shape))


def failures(known):
    """What the gradients failed with."""
    try:
        back(*known)
    except DeviceFailedError as error:
        return [error.message]
    return []


def descriptors(devices):
    return devices.cudnn.library.fake_descriptors()


@pytest.mark.parametrize(
    ("function", "step"),
    [
        ("cudnnBackendCreateDescriptor", 7),
        ("cudnnBackendSetAttribute", 31),
        ("cudnnBackendFinalize", 7),
        ("cudnnBackendGetAttribute", 3),
    ],
)
def test_each_failure_while_the_graphs_are_described_is_told(devices, function, step):
    told, skip = 0, 0
    known = attended()
    before = descriptors(devices)
    while True:
        forward.forget()
        devices.cudnn.fail(function, 5000, skip=skip, count=1)
        if not (messages := failures(known)):
            break
        assert messages == [
            f"{NAME}: cuDNN failed: {function} returned CUDNN_STATUS_EXECUTION_FAILED (5000)"
        ]
        assert descriptors(devices) <= before + 128  # a search that ended stays until the next
        told, skip = told + 1, skip + step
    assert told > 5


@pytest.mark.parametrize(
    "function", ["cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute", "cudnnBackendFinalize"]
)
def test_a_failure_of_a_variant_pack_leaves_nothing(devices, function):
    gradients()
    known = attended()
    before = descriptors(devices)
    devices.cudnn.fail(function, 5000, count=1)
    with pytest.raises(DeviceFailedError, match=f"{function} returned"):
        back(*known)
    assert descriptors(devices) == before


def test_a_failure_of_a_run_is_told_with_all_arrays_and_what_cudnn_says(devices):
    gradients()
    known = attended()
    devices.cudnn.set(broken=1 << 3)
    with pytest.raises(DeviceFailedError) as caught:
        back(*known)
    text = caught.value.render().splitlines()
    array = "bfloat16 array of shape (1, 2, 8, 32) on cuda:0"
    assert text[:7] == [
        (
            f"error[device-failed]: {NAME}: cuDNN failed: cudnnBackendExecute "
            "returned CUDNN_STATUS_EXECUTION_FAILED (5000)"
        ),
        *(f"  note: {name}: {array}" for name in ("query", "key", "value", "grad_out", "out")),
        "  note: logsumexp: float32 array of shape (1, 2, 8) on cuda:0",
    ]
    assert text[7].startswith("  note: cuDNN says: ")
    assert text[8] == "  state: the result was not computed; the next call starts anew"


def test_a_driver_that_fails_is_told_as_the_driver(devices):
    gradients()
    known = attended()
    devices.cuda.fail("cuCtxPushCurrent_v2", 719, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        back(*known)
    assert caught.value.message == (
        f"{NAME}: the device's driver failed: cuCtxPushCurrent returned "
        "CUDA_ERROR_LAUNCH_FAILED (719)"
    )


def test_a_full_device_leaves_everything_usable(devices):
    gradients()
    known = attended()
    before = descriptors(devices)
    OnDevice.full = True
    try:
        with pytest.raises(Exception, match=r"full|memory"):
            back(*known)
    finally:
        OnDevice.full = False
    assert descriptors(devices) == before


def test_a_call_whose_gradients_no_engine_gives_is_another_kernels_from_the_start(both, devices):
    devices.cudnn.set(untrained=EVERY)
    with ops.trace() as calls:
        known = attended()
        both.reads(*known)
        back(*known)
    assert [call.provider for call in calls] == ["cudnn", "flash"]
    assert [*calls][1].because == (
        "on a device; cudnn needs: cuDNN 9 is here, and has an engine for the call"
    )
    with under(**{**defaults(), **OTHERS_OFF}), pytest.raises(InvalidArgumentError) as caught:
        back(*known)
    (why,) = [note for note in caught.value.notes if note.startswith("cudnn: ")]
    assert why.startswith("cudnn: cuDNN 9.28.0 has no engine for its gradients: engine 3 (")
    assert why.count("CUDNN_STATUS_NOT_SUPPORTED") == 3


def test_the_next_engine_gives_what_the_first_does_not(devices):
    devices.cudnn.set(untrained=1 << 3)
    gradients()
    assert [call["engine"] for call in devices.cudnn.calls("cudnnBackendExecute")] == [3, 2]


def test_a_gradient_that_lies_as_no_engine_takes_it_is_made_dense(devices):
    known = attended()
    wanted = back(*known)
    devices.cudnn.set(untrained=EVERY)
    array = known[1].array
    turned = OnDevice(array.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3), "bfloat16")
    assert not turned.array.flags.c_contiguous
    for one, other in zip(back(*known, turned), wanted, strict=True):
        assert (one.array == other.array).all()
    assert served() == ["cudnn"]


def test_the_backward_pass_is_explained_too(devices):
    said = ops.explain(NAME, [SHAPE] * 3, "bfloat16", device="cuda:0")
    assert (said.provider, said.because) == (
        "cudnn",
        "on a device; first in the order cudnn, flash, efficient, math",
    )


def against(*shape, version=92800, capability=(9, 0), keys=None, **switches):
    def on_device(*lengths):
        return ArrayFacts(lengths, row_major(lengths), "bfloat16", "cuda", requires_grad=True)

    keys = on_device(*(keys or shape))
    device = Device("nvidia", capability, cudnn=version)
    return attention.reasons(
        "cudnn",
        Call(on_device(*shape), keys, keys),
        device,
        AttentionFlags(**switches),
        ON_DEVICES,
    )


VARIES = (
    "On sm_10x its gradients may differ from run to run, which `determinism.algorithms` or "
    "`determinism.tier` forbids."
)


@pytest.mark.parametrize(
    ("why", "options"),
    [
        ((), {}),
        ((), {"deterministic": True}),
        ((), {"version": 91500, "keys": (2, 3, 256, 64)}),
        ((), {"version": 91501}),
        (
            ("Its gradients need cuDNN 9.6 or newer: older ones add to what they find in memory.",),
            {"version": 90501},
        ),
        (
            (
                (
                    "Its gradients of 40 keys, which is no multiple of 128, need a cuDNN after "
                    "9.15.0."
                ),
            ),
            {"version": 91500},
        ),
        ((VARIES,), {"capability": (10, 0), "deterministic": True}),
        ((VARIES,), {"capability": (10, 3), "tier": "run-to-run"}),
        ((), {"capability": (10, 0)}),
        ((), {"capability": (12, 0), "deterministic": True}),
    ],
)
def test_each_requirement_of_training_is_told_in_its_words(why, options):
    assert against(2, 3, 40, 64, **options) == why
