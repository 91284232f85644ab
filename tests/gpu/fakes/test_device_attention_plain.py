"""Attention of device arrays that tensor cores of ours do not serve: `efficient`, and `math`."""

import numpy as np
import pytest
from attention_on_device import assert_near, normal, on_the_cpu, truths
from device_arrays import ByInterface, OnDevice
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.schema.profile import defaults

pytestmark = pytest.mark.sweep(2)

attention = ops.scaled_dot_product_attention
ELEMENTS = ["float32", "float64", "bfloat16", "float16"]
GEMM = "cublasGemmStridedBatchedEx_64"
KERNELS = ["efficient", "math"]


@pytest.fixture(name="serving", params=KERNELS)
def _serving(request, kernels):
    """The kernel that serves, asked for by the order."""
    with under(**{**defaults(), "cuda.sdp_priority": (request.param,)}), ops.trace() as calls:
        yield request.param
        assert set(served_by(calls)) <= {request.param}


def served_by(calls):
    """Who served attention; `math` calls on products, which are calls as well."""
    return [call.provider for call in calls if call.operation == "scaled_dot_product_attention"]


def three(queries=(2, 3, 40, 64), keys=(2, 3, 70, 64), element="float32", value=None):
    return normal(queries, element), normal(keys, element, 1), normal(value or keys, element, 2)


def both(kernels, arrays, mask=None, **options):
    """A call on the device, compared with one on the CPU."""
    kernels.reads(*arrays, *([] if mask is None else [mask]))
    result, logsumexp = attention(*arrays, mask, return_logsumexp=True, **options)
    assert kernels.fault == b""
    wanted, sums = on_the_cpu(*arrays, mask, return_logsumexp=True, **options)
    assert_near(result, wanted)
    assert_near(logsumexp, sums, arrays[0].element)
    return result, logsumexp


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_is_served(kernels, serving, element):
    result, logsumexp = both(kernels, three(element=element))
    assert (result.element, result.place) == (element, (2, 0))
    assert logsumexp.element == ("float64" if element == "float64" else "float32")


@pytest.mark.parametrize(("width", "value_width"), [(7, 130), (300, 20), (1, 1)])
def test_every_width_is_served(kernels, serving, width, value_width):
    value = (2, 3, 70, value_width)
    both(kernels, three((2, 3, 40, width), (2, 3, 70, width), value=value))


@pytest.mark.parametrize(
    ("queries", "keys"),
    [((40, 64), (70, 64)), ((3, 40, 64), (3, 70, 64)), ((1, 3, 40, 64), (2, 1, 70, 64))],
)
def test_leading_dimensions_broadcast(kernels, serving, queries, keys):
    both(kernels, three(queries, keys))


@pytest.mark.parametrize(
    "options",
    [{"is_causal": True}, {"scale": -0.3}, {"scale": 0.0}, {"dropout_p": 0.4, "seed": 2**64 - 3}],
    ids=str,
)
@pytest.mark.parametrize("element", ["float32", "float16"])
def test_options_mean_what_they_mean_on_the_cpu(kernels, serving, options, element):
    both(kernels, three(element=element), **options)


@pytest.mark.parametrize(
    ("element", "mask_element"),
    [("float32", "bool"), ("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float32")],
)
@pytest.mark.parametrize("shape", [(40, 70), (2, 1, 40, 70), (2, 3, 40, 1)])
def test_masks_broadcast_to_the_scores(kernels, serving, element, mask_element, shape):
    mask = truths(shape) if mask_element == "bool" else normal(shape, mask_element, 5)
    both(kernels, three(element=element), mask)


def test_a_query_that_sees_nothing_gives_zeros(kernels, serving):
    mask = truths((40, 70))
    mask.array[3] = False
    result, logsumexp = both(kernels, three(), mask)
    assert (result.array[:, :, 3] == 0).all()
    assert np.isneginf(logsumexp.array[:, :, 3]).all()


def test_heads_share_keys_where_they_are_told_to(kernels, serving):
    both(kernels, three((2, 6, 40, 64), (2, 2, 70, 64)), enable_gqa=True)


def test_math_lets_key_and_value_share_by_different_groups(kernels):
    arrays = three((2, 6, 40, 64), (2, 2, 70, 64), value=(2, 3, 70, 64))
    with ops.trace() as calls:
        both(kernels, arrays, enable_gqa=True)
    assert served_by(calls)[0] == "math"


def test_arrays_are_read_where_they_lie(kernels, serving):
    # (batch, length, heads, width), as a projection leaves them, and every other column of the keys.
    query, value = (normal((2, 40, 3, 64), "float32", seed) for seed in (0, 1))
    key = normal((2, 40, 3, 128), "float32", 2)
    arrays = [OnDevice(each.array.swapaxes(1, 2), "float32") for each in (query, key, value)]
    arrays[1] = OnDevice(arrays[1].array[..., ::2], "float32")
    both(kernels, arrays)


def test_without_keys_the_result_is_zeros_and_without_queries_it_is_nothing(kernels, serving):
    query, empty = normal((1, 2, 40, 64), "float32"), normal((1, 2, 0, 64), "float32")
    kernels.reads(query)
    result, logsumexp = attention(query, empty, empty, return_logsumexp=True)
    assert (result.array == 0).all()
    assert np.isneginf(logsumexp.array).all()
    assert attention(empty, query, query).shape == (1, 2, 0, 64)


def test_efficient_is_one_launch(kernels, devices):
    arrays = three()
    kernels.reads(*arrays)
    result = attention(*arrays)
    (call,) = devices.cuda.calls("cuLaunchKernel")
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")
    assert [call[name] for name in names] == [6, 1, 1, 128, 1, 1, 37888]
    assert OnDevice.allocated == [result.array.nbytes]
    block = kernels.launched[-1][4]
    assert [block.query, block.key, block.value, block.out] == [
        each.array.ctypes.data for each in (*arrays, result)
    ]


def test_a_kind_of_call_that_was_seen_is_launched_anew_with_its_own_arrays(kernels, devices):
    for seed in range(3):
        arrays = [normal((2, 3, 40, 64), "float64", 10 * seed + each) for each in range(3)]
        kernels.arrays = []
        both(kernels, arrays, dropout_p=0.3, seed=seed)
        assert kernels.launched[-1][4].query == arrays[0].array.ctypes.data
    assert [program.name for program, *_ in kernels.launched] == ["attention_efficient"] * 3


@pytest.mark.parametrize("element", ELEMENTS)
def test_math_multiplies_by_the_library_of_the_profile(kernels, devices, element):
    arrays = three(element=element)
    kernels.reads(*arrays)
    with under(**{**defaults(), "cuda.sdp_priority": ("math",)}):
        attention(*arrays)
    kind, compute = {"float64": (1, 70)}.get(element, (0, 68))
    calls = devices.cublas.calls(GEMM)
    assert [(call["a_type"], call["compute_type"]) for call in calls] == [(kind, compute)] * 2
    names = [program.name.removeprefix("attention_") for program, *_ in kernels.launched]
    ended = ["gather"] if element in ("bfloat16", "float16") else []
    assert names == ["gather", "gather", "gather", "softmax", *ended]


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_math_multiplies_in_sixteen_bits_where_it_may(kernels, devices, element):
    arrays = three(element=element)
    flags = {"cuda.sdp_priority": ("math",), "cuda.allow_fp16_bf16_reduction_math_sdp": True}
    with under(**{**defaults(), **flags}):
        both(kernels, arrays, scale=-0.2)
    calls = devices.cublas.calls(GEMM)
    assert [call["a_type"] for call in calls] == [{"bfloat16": 14, "float16": 2}[element]] * 2
    assert [program.name for program, *_ in kernels.launched][-1] == "attention_softmax"


def test_math_multiplies_in_tf32_where_it_may(kernels, devices):
    flags = {"cuda.sdp_priority": ("math",), "cuda.matmul.fp32_precision": "tf32"}
    arrays = three()
    kernels.reads(*arrays)
    with under(**{**defaults(), **flags}):
        attention(*arrays)
    calls = devices.cublas.calls(GEMM)
    assert [call["compute_type"] for call in calls] == [77, 77]


def test_the_programs_lie_on_the_stream_of_query(kernels, serving, devices, new_stream):
    arrays = three()
    kernels.reads(*arrays)
    attention(*arrays)
    calls = devices.cuda.calls("cuLaunchKernel")
    assert {call["stream"] for call in calls} == {new_stream}
    assert devices.cuda.calls("cuStreamSynchronize") == []


def test_arrays_of_other_streams_are_waited_for(kernels, serving, devices, new_stream):
    query, key, value = three()
    kernels.reads(query, key, value)
    others = [ByInterface(each.array, stream=2, place=(2, 0)) for each in (key, value)]
    assert_near(attention(query, *others), on_the_cpu(query, key, value))
    waits = devices.cuda.calls("cuStreamWaitEvent")
    assert {call["stream"] for call in waits} == {new_stream, 2}
    # The other stream waits for the launch that reads its arrays last; math goes on without them.
    order = [
        (call.function, call["stream"])
        for call in devices.cuda.calls("cuStreamWaitEvent", "cuLaunchKernel")
    ]
    last = order[: len(order) - order[::-1].index(("cuStreamWaitEvent", 2))]
    reading = {"efficient": 1, "math": 3}[serving]
    assert last.count(("cuLaunchKernel", new_stream)) == reading


CALLS = {
    "cuModuleLoadData": (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    "cuLaunchKernel": (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
}


@pytest.mark.parametrize("function", CALLS)
def test_a_failing_driver_is_named_and_the_next_call_works(kernels, serving, devices, function):
    arrays = three()
    kernels.reads(*arrays)
    status, name = CALLS[function]
    devices.cuda.fail(function, status)
    with pytest.raises(DeviceFailedError) as caught:
        attention(*arrays)
    assert caught.value.message == (
        "scaled_dot_product_attention: the device's driver failed: "
        f"{function} returned {name} ({status})"
    )
    devices.cuda.reset()
    both(kernels, arrays)


def test_a_failing_library_is_told_as_attention_s(kernels, devices):
    arrays = three()
    kernels.reads(*arrays)
    devices.cublas.fail(GEMM, 13)
    with (
        under(**{**defaults(), "cuda.sdp_priority": ("math",)}),
        pytest.raises(DeviceFailedError) as caught,
    ):
        attention(*arrays)
    assert caught.value.message == (
        "scaled_dot_product_attention: `math`: cublas failed: "
        "cublasGemmStridedBatchedEx returned CUBLAS_STATUS_EXECUTION_FAILED (13)"
    )
    assert caught.value.notes[0] == "query: float32 array of shape (2, 3, 40, 64) on cuda:0"
    devices.cublas.reset()
    both(kernels, arrays)


def test_without_a_library_that_multiplies_math_does_not_serve(kernels, devices):
    arrays = three(value=(2, 3, 70, 257))
    kernels.reads(*arrays)
    devices.without("cublas", "cublaslt")
    flags = {**defaults(), "cuda.sdp_priority": ("math",), "cuda.cublas_workspace_size": 4096}
    with under(**flags), pytest.raises(InvalidArgumentError) as caught:
        attention(*arrays)
    assert caught.value.message == (
        "scaled_dot_product_attention: no kernel can serve it on cuda:0"
    )
    assert (
        "math: No library can multiply float32 there: cublas: cuBLAS: no libcublas.so.13 was found; "
        "cublaslt: cuBLASLt: no libcublasLt.so.13 was found."
    ) in caught.value.notes
    arrays = three()
    kernels.arrays = []
    kernels.reads(*arrays)
    with under(**flags), ops.trace() as calls:
        attention(*arrays)
    assert served_by(calls) == ["efficient"]


def test_a_full_device_is_a_memory_error(kernels, serving):
    arrays = three()
    OnDevice.full = True
    with pytest.raises(MemoryError, match="the device is full"):
        attention(*arrays)


@pytest.mark.parametrize("order", [("efficient", "math"), ("math", "efficient")])
def test_explain_says_what_a_call_does(kernels, order):
    arrays = three()
    kernels.reads(*arrays)
    shapes = [each.shape for each in arrays]
    with under(**{**defaults(), "cuda.sdp_priority": order}), ops.trace() as calls:
        attention(*arrays)
        said = ops.explain("scaled_dot_product_attention", shapes, "float32", device="cuda:0")
    (done,) = [call for call in calls if call.operation == said.operation]
    assert (done.provider, said.provider) == (order[0], order[0])
    assert (done.because, done.sizes) == (said.because, said.sizes)


def test_what_flash_lacks_goes_to_efficient_and_what_that_lacks_to_math(kernels):
    for arrays, served in (
        (three(element="bfloat16"), "flash"),
        (three(), "efficient"),
        (three((1, 1, 40, 20), (1, 1, 70, 20), "bfloat16"), "efficient"),
        (three(value=(2, 3, 70, 257)), "math"),
    ):
        kernels.arrays = []
        kernels.reads(*arrays)
        with ops.trace() as calls:
            attention(*arrays)
        assert served_by(calls) == [served]
