"""The gradients of attention of arrays on devices: numbers, launches, and what is refused."""

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice, aligned
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.schema.profile import defaults

pytestmark = pytest.mark.sweep(2)

forward = ops.scaled_dot_product_attention
backward = ops.scaled_dot_product_attention_backward
SHAPE = (1, 2, 40, 64)
NAME = "scaled_dot_product_attention_backward"
OTHERS = ("cuda.enable_mem_efficient_sdp", "cuda.enable_math_sdp")


def passed(kernels, *arrays, mask=None, **options):
    """The gradients of arrays on a device, and those of the CPU's kernels in float32."""
    grad_out = normal(arrays[0].shape, arrays[0].element, seed=9)
    kernels.reads(*arrays, grad_out, *([] if mask is None else [mask]))
    out, total = forward(*arrays, mask, return_logsumexp=True, **options)
    found = backward(grad_out, *arrays, out, total, mask, **options)
    wide = [np.asarray(each.values(), "float32") for each in (grad_out, *arrays)]
    hidden = mask
    if mask is not None:
        hidden = mask.array if mask.element == "bool" else np.asarray(mask.values(), "float32")
    right, sums = on_the_cpu(*arrays, mask, return_logsumexp=True, **options)
    return found, ops.scaled_dot_product_attention_backward(*wide, right, sums, hidden, **options)


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other)


def three(query=SHAPE, key=SHAPE, element="bfloat16"):
    return [normal(each, element, seed) for seed, each in enumerate((query, key, key))]


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": -0.2}, {"dropout_p": 0.3, "seed": 5},
])  # fmt: skip
def test_gradients_are_those_of_the_cpu(kernels, element, options):
    same(*passed(kernels, *three(element=element), **options))


@pytest.mark.parametrize("element", ["bool", "float32", "bfloat16"])
def test_a_mask_is_obeyed_and_gets_no_gradient(kernels, element):
    mask = truths((40, 40)) if element == "bool" else normal((2, 1, 40), element, 4)
    same(*passed(kernels, *three(), mask=mask))
    assert kernels.variants[-1].macros["MASK"] == {"bool": 1, "float32": 2, "bfloat16": 5}[element]


@pytest.mark.parametrize("lead", [(), (3,), (2, 4)])
def test_heads_may_have_any_leading_dimensions_and_share_keys(kernels, lead):
    query, key = (*lead, 40, 64), (*lead, 50, 64)
    same(*passed(kernels, *three(query, key)))
    if len(lead) == 2:
        arrays = three(query, (2, 2, 50, 64))
        same(*passed(kernels, *arrays, enable_gqa=True))


def test_without_queries_or_keys_gradients_are_zero(kernels):
    for query, key in (((1, 2, 0, 64), SHAPE), (SHAPE, (1, 2, 0, 64))):
        found, _ = passed(kernels, *three(query, key))
        assert [each.shape for each in found] == [query, key, key]
        assert all((each.array == 0).all() for each in found)


@pytest.mark.parametrize("heads", [0, 2])
def test_without_heads_of_queries_gradients_are_zero(kernels, heads):
    query, key = (2, 0, 40, 64), (2, heads, 40, 64)
    found, _ = passed(kernels, *three(query, key), enable_gqa=heads > 0)
    assert [each.shape for each in found] == [query, key, key]
    assert all((each.array == 0).all() for each in found)


def test_two_kernels_are_launched_one_after_the_other(kernels, devices):
    passed(kernels, *three())
    devices.cuda.reset()
    before = len(kernels.launched)
    passed(kernels, *three())
    functions = [call.function for call in devices.cuda.calls()]
    launch = ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuLaunchKernel", "cuCtxPopCurrent_v2"]
    assert functions == launch * 3
    kinds = [each[0] for each in kernels.launched[before:]]
    assert [each.name for each in kinds] == ["attention_forward", *["attention_backward"] * 2]
    assert [each.macros["OF_KEYS"] for each in kinds[1:]] == [0, 1]
    first, second = (each[4] for each in kernels.launched[-2:])
    assert first.delta == second.delta != 0


def test_a_gradient_whose_rows_are_spread_is_made_dense(kernels):
    arrays = three()
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    spread = OnDevice(aligned((1, 2, 40, 128), "uint16")[..., ::2], "bfloat16")
    dense = normal(SHAPE, seed=9)
    spread.array[...] = dense.array
    kernels.reads(dense)
    found = backward(spread, *arrays, out, total)
    wanted = backward(dense, *arrays, out, total)
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one.array, other.array)


def test_it_is_counted_and_traced(kernels):
    with ops.trace() as calls:
        passed(kernels, *three())
    because = "on a device; first in the order flash, efficient, math, cudnn"
    call = ops.Call(NAME, (1, 2, 40, 40, 64), "bfloat16", "flash", because)
    assert [each for each in calls if each.operation == NAME and each.dtype == "bfloat16"] == [call]


def refused(*arguments, **keywords):
    with pytest.raises(InvalidArgumentError) as caught:
        backward(*arguments, **keywords)
    return caught.value


def test_what_does_not_fit_is_refused_by_name(kernels):
    query, total = normal(SHAPE), normal(SHAPE[:-1], "float32")
    one, wide = normal((1, 1, 40, 64)), normal(SHAPE, "float16")
    said = [
        refused(query, query, one, query, query, total),
        refused(query, one, query, query, query, total),
        refused(wide, query, query, query, query, total),
        refused(query, query, query, query, one, total),
        refused(query, query, query, query, query, query),
        refused(query, query, query, query, query, normal((1, 2, 41), "float32")),
        refused(query, query, query, query, query, np.zeros(SHAPE[:-1], "float32")),
    ]
    assert [each.message.removeprefix(f"{NAME}: ") for each in said] == [
        "`key` must have the leading dimensions of `query`",
        "`key` must have the leading dimensions of `query`",
        "`grad_out` must hold bfloat16",
        "`out` must have the shape (1, 2, 40, 64)",
        "`logsumexp` must hold float32",
        "`logsumexp` must have the shape (1, 2, 40)",
        "`logsumexp` must be an array on cuda:0, as `query` is",
    ]
    assert said[0].helps == ("expand it, and sum its gradient over what it was expanded by",)
    assert kernels.launched == []


def test_what_no_kernel_serves_is_refused_with_every_reason(kernels):
    query, total = normal(SHAPE, "float32"), normal(SHAPE[:-1], "float32")
    with under(**{**defaults(), **dict.fromkeys(OTHERS, False)}):
        error = refused(query, query, query, query, query, total)
    assert error.message == f"{NAME}: no kernel can serve it on cuda:0"
    assert "efficient: Memory Efficient attention has been runtime disabled." in error.notes
    assert "flash: It computes bfloat16 and float16, not float32." in error.notes
    types = (
        "Expected query, key and value to all be of dtype: {float16, bfloat16}. "
        "Got Query dtype: float32, Key dtype: float32, and Value dtype: float32 instead."
    )
    of_cudnn = [each for each in error.notes if each.startswith("cudnn: ")]
    assert of_cudnn == ["cudnn: cuDNN is left out.", f"cudnn: {types}"]


@pytest.mark.parametrize("place", [(2, 0), (10, 0)])
def test_of_a_cudnn_that_nobody_could_look_at_no_version_is_told(devices, place):
    devices.without("cuda")
    query, total = normal(SHAPE, place=place), normal(SHAPE[:-1], "float32", place=place)
    notes = refused(query, query, query, query, query, total, is_causal=True).notes
    of_cudnn = [each for each in notes if each.startswith("cudnn: ")]
    assert of_cudnn == [
        "cudnn: It is for NVIDIA devices alone."
        if place[0] == 10
        else "cudnn: NVIDIA's driver cannot be used: the CUDA driver: no libcuda.so.1 was found"
    ]


def test_gradients_are_recorded_for_pytorch_alone(kernels):
    query = normal(SHAPE)
    query.requires_grad = True
    with pytest.raises(InvalidArgumentError) as caught:
        forward(query, query, query)
    assert caught.value.message == (
        "scaled_dot_product_attention: gradients are recorded where all arrays are PyTorch's alone"
    )
    assert kernels.launched == []


def test_a_result_that_is_not_finite_is_refused_where_that_is_checked(kernels):
    arrays = three()
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    with under(**{**defaults(), "ops.check_finite": True}):
        error = refused(normal(SHAPE), *arrays, out, total)
    assert error.message.startswith(f"{NAME}: `ops.check_finite` cannot look into arrays of ")


@pytest.mark.parametrize("skip", [0, 1])
def test_a_launch_that_fails_is_said_and_the_next_pass_works(kernels, devices, skip):
    arrays = three()
    kernels.reads(*arrays)
    out, total = forward(*arrays, return_logsumexp=True)
    devices.cuda.fail("cuLaunchKernel", 700, skip=skip)
    with pytest.raises(DeviceFailedError) as caught:
        backward(out, *arrays, out, total)
    assert caught.value.message == (
        f"{NAME}: the device's driver failed: "
        "cuLaunchKernel returned CUDA_ERROR_ILLEGAL_ADDRESS (700)"
    )
    assert caught.value.notes[3] == "grad_out: bfloat16 array of shape (1, 2, 40, 64) on cuda:0"
    devices.reset()
    same(*passed(kernels, *three()))


def test_arrays_whose_library_makes_none_for_others_are_refused(kernels, devices):
    total = normal(SHAPE[:-1], "float32")
    alone = ByInterface(normal(SHAPE, "float16").array, place=(2, 0))
    error = refused(alone, alone, alone, alone, alone, total)
    told = "`query` must be of a library that makes its results: PyTorch or CuPy"
    assert error.message == f"{NAME}: {told}"
    assert devices.cuda.calls("cuLaunchKernel") == []
