"""Gradients of attention by cuDNN: the graph that it is handed gives the right numbers."""

from pathlib import Path

import numpy as np
import pytest
from attention_on_device import normal, truths
from cudnn_gradients import NAME, passed, served, three
from device_arrays import OnDevice, aligned
from products import under
from programs import run

from backendcfg import ops
from backendcfg.gpu.attention import forward
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.schema.profile import defaults

pytestmark = pytest.mark.sweep

PROGRAM = Path(__file__).with_name("torch_cudnn_attention_on_device.py")
EXECUTE = "cudnnBackendExecute"
FIRST = {**defaults(), "cuda.sdp_priority": ("cudnn", "flash")}


@pytest.fixture(autouse=True)
def _forgotten():
    device_driver._capability.cache_clear()
    forward.forget()
    yield
    device_driver._capability.cache_clear()
    forward.forget()


def assert_same(found, wanted):
    """That they differ by what rounding weights, slopes and results to 16 bits allows."""
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        unit = {"bfloat16": 2**-8, "float16": 2**-11}[one.element]
        bound = 3 * unit * np.abs(other).max() + 1e-6
        assert np.abs(one.values() - other).max() < bound


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_gradients_are_right_in_both_element_types(devices, element, options):
    found, wanted = passed(*three(element=element), **options)
    assert_same(found, wanted)
    assert [each.element for each in found] == [element] * 3
    assert served() == ["cudnn"]


@pytest.mark.parametrize("lengths", [(1, 7), (40, 40), (70, 40)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths_may_differ(devices, lengths, is_causal):
    arrays = three((2, 3, lengths[0], 64), (2, 3, lengths[1], 64))
    assert_same(*passed(*arrays, is_causal=is_causal))
    assert served() == ["cudnn"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("heads", [(6, 2, 2), (6, 1, 1), (6, 6, 2), (6, 3, 2)])
def test_heads_that_share_keys_or_values_add_up(devices, heads):
    of_query, of_key, of_value = heads
    arrays = three((2, of_query, 40, 64), (2, of_key, 50, 64), (2, of_value, 50, 64))
    assert_same(*passed(*arrays, enable_gqa=True))
    assert served() == ["cudnn"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [8, 72, 256])
def test_values_may_be_of_another_width(devices, width):
    assert_same(*passed(*three(values=(2, 3, 70, width))))
    assert served() == ["cudnn"]


@pytest.mark.parametrize("shape", [(40, 70), (2, 1, 40, 70), (1, 3, 1, 70), (2, 3, 40, 1)])
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_an_added_mask_is_obeyed(devices, shape, element):
    with under(**FIRST):
        assert_same(*passed(*three(), mask=normal(shape, element, 5)))
    assert served() == ["cudnn"]


def test_a_query_that_a_mask_hides_everything_from_spoils_its_heads_alone(devices):
    mask = normal((2, 3, 40, 70), "float32", 5)
    mask.array[0, 1, 7] = -np.inf
    with under(**FIRST), np.errstate(invalid="ignore"):
        (of_query, of_key, of_value), _ = passed(*three(), mask=mask)
    spoilt = np.zeros((2, 3, 40), bool)
    spoilt[0, 1, 7] = True
    assert (np.isnan(of_query.values()).all(-1) == spoilt).all()
    for each in (of_key, of_value):
        assert (np.isnan(each.values()).all((2, 3)) == spoilt.any(2)).all()
        assert (np.isnan(each.values()).any((2, 3)) == spoilt.any(2)).all()


def test_arrays_are_read_where_they_lie(devices):
    # (batch, length, heads, width), as projections leave them; and what comes back.
    grad_out = OnDevice(normal((2, 40, 3, 64), seed=4).array.swapaxes(1, 2), "bfloat16")
    # Query, key and value lie in one array, of which they are a small part.
    packed = normal((3, 40, 6, 6, 64), seed=5).array[:2, :, :3].transpose(3, 0, 2, 1, 4)
    views = [OnDevice(each, "bfloat16") for each in packed[:3]]
    passed(*views, grad_out=grad_out)
    OnDevice.allocated.clear()
    assert_same(*passed(*views, grad_out=grad_out))
    numbers = 2 * 3 * 40 * 64
    # The result and its logarithms; three gradients, the sums of rows, and those of queries.
    rows, sixteen = 2 * 3 * 40 * 4, 2 * numbers
    workspace = 256
    assert OnDevice.allocated == [
        *(sixteen, rows, workspace),
        *(sixteen, sixteen, sixteen, rows, 4 * numbers, workspace),
    ]


def test_each_way_in_which_the_gradient_of_the_result_lies_has_a_plan(devices):
    arrays = three((2, 3, 40, 64), (2, 3, 40, 64))
    plain, lying = normal((2, 3, 40, 64)), normal((2, 40, 3, 64), seed=9)
    turned = OnDevice(lying.array.swapaxes(1, 2), "bfloat16")
    for grad_out in (plain, turned):
        assert_same(*passed(*arrays, grad_out=grad_out))
    devices.cudnn.reset()
    for grad_out in (plain, turned):
        assert_same(*passed(*arrays, grad_out=grad_out))
    finalised = devices.cudnn.calls("cudnnBackendFinalize")
    assert len(finalised) == len(devices.cudnn.calls(EXECUTE)) == 4  # variant packs alone


def test_a_gradient_that_lies_anew_each_time_is_made_dense_in_the_end(devices):
    arrays = three((1, 1, 8, 32), (1, 1, 8, 32))
    made = []
    for gap in range(8, 168, 8):
        memory = aligned((1, 1, 8, 32 + gap), "uint16")
        memory[...] = normal((1, 1, 8, 32 + gap), seed=9).array
        devices.cudnn.reset()
        assert_same(*passed(*arrays, grad_out=OnDevice(memory[..., :32], "bfloat16")))
        made.append(len(devices.cudnn.calls("cudnnBackendCreateDescriptor")) > 2)
    # With that of a dense one there are 16.
    assert made == [True] * 15 + [False] * 5


@pytest.mark.parametrize("start", [1, 4])
def test_a_gradient_that_begins_anywhere_or_is_spread_is_made_dense(devices, start):
    memory = aligned((2, 3, 40, 64 + start), "uint16")
    memory[...] = normal((2, 3, 40, 64 + start), seed=9).array
    spread = OnDevice(memory[..., start:], "bfloat16")
    assert_same(*passed(*three(), grad_out=spread))
    memory = aligned((2, 3, 40, 128), "uint16")
    memory[...] = normal((2, 3, 40, 128), seed=9).array
    assert_same(*passed(*three(), grad_out=OnDevice(memory[..., ::2], "bfloat16")))
    repeated = OnDevice(np.broadcast_to(normal((64,), seed=9).array, (2, 3, 40, 64)), "bfloat16")
    assert_same(*passed(*three(), grad_out=repeated))


@pytest.mark.parametrize(
    ("flags", "engine", "tensors"),
    [
        ({}, 3, [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 15, 14]),
        ({"determinism.algorithms": "warn"}, 3, [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 15, 14]),
        ({"determinism.algorithms": "deterministic"}, 2, [1, 2, 3, 4, 5, 7, 8, *range(9, 14), 15]),
        ({"determinism.tier": "run-to-run"}, 2, [1, 2, 3, 4, 5, 7, 8, *range(9, 14), 15]),
    ],
)
def test_where_bits_must_repeat_no_block_adds_to_anothers_sum(devices, flags, engine, tensors):
    with under(**{**defaults(), **flags}):
        assert_same(*passed(*three(), is_causal=True))
    assert [call["engine"] for call in devices.cudnn.calls(EXECUTE)] == [engine] * 2
    numbers = [
        call["values"]
        for call in devices.cudnn.calls("cudnnBackendSetAttribute")
        if call["name"] == 1000
    ]
    assert numbers == [[1, 2, 3, 4, 5, 7, 8], tensors]


def test_the_run_lies_on_the_stream_of_the_arrays(devices, new_stream):
    assert_same(*passed(*three()))
    assert [call["stream"] for call in devices.cudnn.calls(EXECUTE)] == [new_stream] * 2


def test_it_is_counted_and_traced(devices):
    with ops.trace() as calls:
        passed(*three())
    because = "on a device; first in the order cudnn, flash, efficient, math"
    assert [*calls][-1] == ops.Call(NAME, (2, 3, 40, 70, 64), "bfloat16", "cudnn", because)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "call",
    [
        {"mask": truths((40, 70))},
        {"scale": -0.3},
        {"dropout_p": 0.4, "seed": 7},
        {"keys": (2, 3, 1, 64)},
    ],
    ids=lambda call: "-".join(call),
)
def test_what_cudnn_would_do_otherwise_has_gradients_of_our_own_kernel(both, call):
    call = dict(call)
    arrays = three(keys=call.pop("keys", (2, 3, 70, 64)))
    mask, grad_out = call.pop("mask", None), normal((2, 3, 40, 64), seed=9)
    both.reads(*arrays, grad_out, *([mask] if mask is not None else []))
    with under(**FIRST):
        out, total = ops.scaled_dot_product_attention(*arrays, mask, return_logsumexp=True, **call)
        ops.scaled_dot_product_attention_backward(grad_out, *arrays, out, total, mask, **call)
    assert served() == ["flash"]


def test_explain_tells_who_serves_by_the_scale_too(both):
    passed(*three())  # explain starts no driver
    said = {}
    for scale in (0.3, np.float32(2), 0, -0.3):
        said[scale] = ops.explain(
            NAME, [(2, 3, 40, 64)] * 3, "bfloat16", device="cuda:0", scale=scale
        )
    assert [each.provider for each in said.values()] == ["cudnn", "cudnn", "flash", "flash"]
    against = {each.provider: each.why for each in said[-0.3].reasons}
    assert against["cudnn"] == "It needs a scale above 0, not -0.3."


HELD = """\
all three ['cudnn', 'cudnn']
float16 ['cudnn', 'cudnn']
query alone ['cudnn', 'cudnn']
value alone ['cudnn', 'cudnn']
groups ['cudnn', 'cudnn']
values of other heads ['cudnn', 'cudnn']
projected ['cudnn', 'cudnn']
a sum of itself ['cudnn', 'cudnn']
saved densely ['cudnn', 'cudnn']
saved spread ['cudnn', 'cudnn']
saved anywhere ['cudnn', 'cudnn']
a mask ['cudnn', 'cudnn']
under flags: scaled_dot_product_attention_backward: on a device it has no gradients of its own
attn_mask requires a gradient, which cuDNN attention does not give.
"""


@pytest.mark.torch
def test_autograd_of_pytorch_comes_back_through_cudnn(device_file):
    libraries = [device_file(name) for name in ("libexchange.so", "libcuda.so.1", "libcudnn.so.9")]
    assert run(PROGRAM, *libraries) == HELD
