"""The gradients of `efficient` and `math` on devices: numbers, launches, and what is refused."""

import numpy as np
import pytest
from attention_on_device import normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.schema.profile import defaults

pytestmark = pytest.mark.sweep(1)

forward = ops.scaled_dot_product_attention
backward = ops.scaled_dot_product_attention_backward
ELEMENTS = ["float32", "float64", "bfloat16", "float16"]
NAME = "scaled_dot_product_attention_backward"
SHAPE = (1, 2, 40, 64)


@pytest.fixture(name="serving", params=["efficient", "math"])
def _serving(request, kernels):
    """The kernel that serves both passes, asked for by the order."""
    with under(**{**defaults(), "cuda.sdp_priority": (request.param,)}), ops.trace() as calls:
        yield request.param
        attended = [each for each in calls if each.operation.startswith("scaled_dot")]
        assert {each.provider for each in attended if each.because.startswith("on a")} <= {
            request.param
        }


def three(queries=(2, 3, 20, 32), keys=(2, 3, 70, 32), element="float32", value=None):
    return [normal(queries, element), normal(keys, element, 1), normal(value or keys, element, 2)]


def passed(kernels, arrays, mask=None, grad_out=None, **options):
    """The gradients of arrays on a device, and those of the CPU's kernels."""
    element = arrays[0].element
    shape = (*arrays[0].shape[:-1], arrays[2].shape[-1])
    grad_out = normal(shape, element, seed=9) if grad_out is None else grad_out
    kernels.reads(*arrays, grad_out, *([] if mask is None else [mask]))
    out, total = forward(*arrays, mask, return_logsumexp=True, **options)
    found = backward(grad_out, *arrays, out, total, mask, **options)
    assert kernels.fault == b""
    wide = [np.asarray(each.values(), "float32") for each in (grad_out, *arrays)]
    hidden = mask
    if mask is not None:
        hidden = mask.array if mask.element == "bool" else np.asarray(mask.values(), "float32")
    right, sums = on_the_cpu(*arrays, mask, return_logsumexp=True, **options)
    return found, backward(*wide, right, sums, hidden, **options)


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is OnDevice
        assert one.shape == other.shape
        unit = {"bfloat16": 3e-2, "float16": 5e-3}.get(one.element, 2e-5)
        np.testing.assert_allclose(
            np.asarray(one.values(), "float64"), other, rtol=unit, atol=unit * np.abs(other).max()
        )


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_has_gradients_of_its_own_type(kernels, serving, element):
    found, wanted = passed(kernels, three(element=element))
    assert [each.element for each in found] == [element] * 3
    same(found, wanted)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "value_width"), [(7, 130), (300, 20), (1, 1)])
def test_every_width_has_gradients(kernels, serving, width, value_width):
    arrays = three((1, 2, 20, width), (1, 2, 70, width), value=(1, 2, 70, value_width))
    same(*passed(kernels, arrays))


@pytest.mark.exhaustive
def test_math_has_gradients_of_values_that_no_other_kernel_takes(kernels):
    with ops.trace() as calls:
        same(*passed(kernels, three(value=(2, 3, 70, 257))))
    assert next(each.provider for each in calls if each.operation == NAME) == "math"


@pytest.mark.parametrize(
    "options",
    [{"is_causal": True}, {"scale": -0.3}, {"scale": 0.0}, {"dropout_p": 0.4, "seed": 2**64 - 3}],
    ids=str,
)
def test_options_mean_what_they_mean_on_the_cpu(kernels, serving, options):
    same(*passed(kernels, three(), **options))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("element", "mask_element"),
    [("float32", "bool"), ("float32", "float32"), ("float16", "float32")],
)
@pytest.mark.parametrize("shape", [(20, 70), (2, 1, 20, 70), (2, 3, 20, 1)])
def test_masks_are_obeyed(kernels, serving, element, mask_element, shape):
    mask = truths(shape) if mask_element == "bool" else normal(shape, mask_element, 5)
    same(*passed(kernels, three(element=element), mask))


def test_a_query_that_sees_nothing_has_no_gradient_and_gives_none(kernels, serving):
    mask = truths((20, 70))
    mask.array[3] = False
    found, wanted = passed(kernels, three(), mask)
    assert (found[0].array[:, :, 3] == 0).all()
    same(found, wanted)


@pytest.mark.parametrize("heads", [2, 3])
def test_heads_that_share_keys_and_values_sum_what_they_give(kernels, serving, heads):
    if serving == "efficient" and heads == 3:
        heads = 2  # it needs as many heads of values as of keys
    arrays = three((1, 6, 20, 32), (1, 2, 70, 32), value=(1, heads, 70, 32))
    kernels.reads(*arrays)
    same(*passed(kernels, arrays, enable_gqa=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("lead", [(), (3,)])
def test_arrays_may_have_fewer_dimensions(kernels, serving, lead):
    same(*passed(kernels, three((*lead, 20, 32), (*lead, 70, 32)), normal((20, 70), "float32", 4)))


def test_without_queries_or_keys_gradients_are_zero(kernels, serving):
    for query, key in (((1, 2, 0, 64), SHAPE), (SHAPE, (1, 2, 0, 64))):
        arrays = three(query, key)
        found, _ = passed(kernels, arrays)
        assert [each.shape for each in found] == [query, key, key]
        assert all((each.array == 0).all() for each in found)


@pytest.mark.parametrize("heads", [0, 2])
def test_without_heads_of_queries_gradients_are_zero(kernels, serving, heads):
    query, key = (2, 0, 40, 64), (2, heads, 40, 64)
    found, _ = passed(kernels, three(query, key), enable_gqa=heads > 0)
    assert [each.shape for each in found] == [query, key, key]
    assert all((each.array == 0).all() for each in found)


def test_arrays_and_the_gradient_are_read_where_they_lie(kernels, serving):
    arrays = [normal((1, 40, 2, 32), "float32", seed) for seed in range(3)]
    grad_out = normal((1, 40, 2, 64), "float32", 7)
    spread = OnDevice(grad_out.array.swapaxes(1, 2)[..., ::2], "float32")
    arrays = [OnDevice(each.array.swapaxes(1, 2), "float32") for each in arrays]
    same(*passed(kernels, arrays, grad_out=spread))
    of_rows = [each[4] for each in kernels.launched if each[0].name == "attention_delta"]
    assert of_rows[0].grad_out == spread.array.ctypes.data  # no copy was made of it


def test_each_gradient_is_one_launch_after_the_sums_of_rows(kernels, devices):
    arrays = three()
    passed(kernels, arrays)
    kernels.launched.clear()
    OnDevice.allocated.clear()
    passed(kernels, arrays)
    names = [each[0].name.removeprefix("attention_") for each in kernels.launched]
    assert names == ["efficient", "delta", *["efficient_backward"] * 3]
    assert [each[0].macros["OF"] for each in kernels.launched[2:]] == [0, 1, 2]
    assert kernels.launched[1][4].delta == kernels.launched[2][4].delta != 0
    sizes = [each.array.nbytes for each in arrays]
    rows = 2 * 3 * 20 * 4
    assert OnDevice.allocated[-4:] == [rows, *sizes]


def test_a_logsumexp_that_is_not_dense_is_copied_each_time(kernels):
    arrays = three()
    grad_out = normal((2, 3, 20, 32), "float32", 9)
    kernels.reads(*arrays, grad_out)
    out, total = forward(*arrays, return_logsumexp=True)
    wide = OnDevice(np.repeat(total.array, 2, -1)[..., ::2], "float32")
    kernels.reads(wide)
    wanted = backward(grad_out, *arrays, out, total)
    for _ in range(2):
        found = backward(grad_out, *arrays, out, wide)
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one.array, other.array)


def test_the_kernels_lie_on_the_stream_of_query_and_others_wait(kernels, devices, new_stream):
    arrays = three()
    out, total = None, None
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    devices.cuda.reset()
    grad_out = normal(out.shape, "float32", 9)
    kernels.reads(grad_out)
    backward(ByInterface(grad_out.array, stream=2, place=(2, 0)), *arrays, out, total)
    launches = devices.cuda.calls("cuLaunchKernel")
    assert {call["stream"] for call in launches} == {new_stream}
    assert len(launches) == 4
    assert {call["stream"] for call in devices.cuda.calls("cuStreamWaitEvent")} == {new_stream, 2}


@pytest.mark.parametrize("skip", range(4))
def test_a_launch_that_fails_is_said_and_the_next_pass_works(kernels, devices, skip):
    arrays = three()
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    for _ in range(2):  # made by Python; and not kept, since it failed
        devices.cuda.fail("cuLaunchKernel", 700, skip=skip)
        with pytest.raises(DeviceFailedError) as caught:
            backward(out, *arrays, out, total)
        assert caught.value.message == (
            f"{NAME}: the device's driver failed: "
            "cuLaunchKernel returned CUDA_ERROR_ILLEGAL_ADDRESS (700)"
        )
        devices.reset()
    same(*passed(kernels, arrays))
    devices.cuda.fail("cuLaunchKernel", 700, skip=skip)
    with pytest.raises(DeviceFailedError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        backward(out, *arrays, out, total)


def test_a_full_device_is_a_memory_error(kernels):
    arrays = three()
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    OnDevice.full = True
    with pytest.raises(MemoryError, match="the device is full"):
        backward(out, *arrays, out, total)


def test_logsumexp_must_be_of_the_type_that_sums_are_of(kernels):
    query, total = normal(SHAPE, "float64"), normal(SHAPE[:-1], "float32")
    with pytest.raises(InvalidArgumentError) as caught:
        backward(query, query, query, query, query, total)
    assert caught.value.message == f"{NAME}: `logsumexp` must hold float64"


def test_a_result_that_is_not_finite_is_refused_where_that_is_checked(kernels):
    arrays = three()
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    with (
        under(**{**defaults(), "ops.check_finite": True}),
        pytest.raises(InvalidArgumentError, match="cannot look into arrays of "),
    ):
        backward(out, *arrays, out, total)
