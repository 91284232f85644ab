"""`conv2d` of arrays on a device: the numbers that come out, and how they lie."""

import numpy as np
import pytest
from convolutions import TOLERANCES, assert_near, attributes, engines_run, normal, on_the_cpu
from device_arrays import ByInterface, OnDevice, aligned
from products import under

from backendcfg import ops
from backendcfg.gpu import convolution

TENSOR, X, W, Y = 17, 1, 2, 3
STRIDES, DIMENSIONS, NUMBER = 903, 902, 906


@pytest.fixture(autouse=True)
def _chosen_anew(devices):
    convolution.forget()
    with under(cudnn__deterministic=True, cudnn__conv__fp32_precision="ieee"):
        yield


def strides(devices):
    """Of the tensors as cuDNN was told, by their numbers."""
    told = attributes(devices, TENSOR)
    return {each[NUMBER][1][0]: tuple(each[STRIDES][1]) for each in told}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("element", TOLERANCES)
def test_it_is_right_in_every_element_type_and_layout(devices, element, channels_last):
    x = normal((2, 4, 7, 6), element, channels_last=channels_last)
    w = normal((6, 4, 3, 2), element, 1, channels_last=channels_last)
    bias = normal((6,), element, 2)
    result = ops.conv2d(x, w, bias)
    assert (type(result), result.element, result.place) == (OnDevice, element, (2, 0))
    assert result.shape == (2, 6, 5, 5)
    assert_near(result, on_the_cpu(x, w, bias))


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2},
        {"stride": (1, 3)},
        {"padding": (2, 1)},
        {"padding": "valid"},
        {"padding": "same"},
        {"dilation": (2, 1), "padding": 1},
        {"stride": (2, 3), "padding": 1, "dilation": (1, 2)},
    ],
    ids=str,
)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_is_right_for_every_option(devices, options, groups):
    x, w = normal((2, 4, 9, 8)), normal((8, 4 // groups, 3, 3))
    result = ops.conv2d(x, w, groups=groups, **options)
    assert_near(result, on_the_cpu(x, w, groups=groups, **options))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (3, 5, 6)])
def test_an_odd_padding_is_a_copy_with_its_zeros_below_and_at_the_right(
    devices, shape, channels_last
):
    """The fake refuses, as most engines of cuDNN, more zeros there than above and left."""
    x = normal((2, *shape[-3:]), channels_last=channels_last)
    x = x if len(shape) == 4 else OnDevice(x.array[1])
    w = normal((4, 3, 2, 4), seed=1, channels_last=channels_last)
    result = ops.conv2d(x, w, padding="same")
    assert result.shape == (*shape[:-3], 4, 5, 6)
    assert_near(result, on_the_cpu(x, w, padding="same"))
    (told,) = attributes(devices, 1)
    assert (told[105], told[104]) == ((3, [0, 1]), (3, [0, 1]))


def test_one_image_without_a_batch_gives_one_back(devices):
    x, w, bias = normal((3, 6, 5)), normal((2, 3, 3, 3)), normal((2,))
    result = ops.conv2d(x, w, bias, padding=1)
    assert result.shape == (2, 6, 5)
    assert_near(result, on_the_cpu(x, w, bias, padding=1))


def test_what_lies_as_cudnn_wants_it_is_not_copied(devices):
    x, w = normal((2, 4, 7, 6)), normal((6, 4, 3, 3))
    result = ops.conv2d(x, w)
    (pack,) = attributes(devices, 16)
    numbers, addresses = pack[1000][1], pack[1001][1]
    wanted = {X: x, W: w, Y: result}
    assert dict(zip(numbers, addresses, strict=True)) == {
        number: each.array.ctypes.data for number, each in wanted.items()
    }


def test_a_result_lies_as_its_input_does(devices):
    x, w = normal((2, 4, 7, 6), channels_last=True), normal((6, 4, 3, 3), channels_last=True)
    result = ops.conv2d(x, w)
    assert strides(devices) == {X: (168, 1, 24, 4), W: (36, 1, 12, 4), Y: (120, 1, 24, 6)}
    assert result.array.transpose(0, 2, 3, 1).flags.c_contiguous


def test_channels_last_in_one_operand_are_enough_and_the_other_is_copied(devices):
    x, w = normal((2, 4, 7, 6)), normal((6, 4, 3, 3), channels_last=True)
    result = ops.conv2d(x, w)
    assert strides(devices)[X] == (168, 1, 24, 4)
    assert result.array.transpose(0, 2, 3, 1).flags.c_contiguous
    assert_near(result, on_the_cpu(x, w))


def test_float64_never_has_its_channels_last(devices):
    x = normal((2, 4, 7, 6), "float64", channels_last=True)
    w = normal((6, 4, 3, 3), "float64", channels_last=True)
    result = ops.conv2d(x, w)
    assert strides(devices) == {X: (168, 42, 6, 1), W: (36, 9, 3, 1), Y: (120, 20, 4, 1)}
    assert result.array.flags.c_contiguous
    assert_near(result, on_the_cpu(x, w))


def test_every_other_column_is_copied(devices):
    wide = normal((2, 3, 5, 12))
    x, w = OnDevice(wide.array[..., ::2], "float32"), normal((2, 3, 3, 3))
    assert_near(ops.conv2d(x, w), on_the_cpu(x, w))
    assert strides(devices)[X] == (90, 30, 6, 1)


def test_sizes_of_one_may_have_any_stride(devices):
    memory = normal((4, 1, 7, 6)).array[::4]  # a batch of one, 4 times as far
    x, w = OnDevice(memory, "float32"), normal((2, 1, 3, 3))
    assert_near(ops.conv2d(x, w), on_the_cpu(x, w))
    (pack,) = attributes(devices, 16)
    assert pack[1001][1][0] == memory.ctypes.data


def test_an_empty_batch_gives_an_empty_result_and_calls_nothing(devices):
    x = OnDevice(aligned((0, 3, 5, 5), "float32"))
    assert ops.conv2d(x, normal((2, 3, 3, 3))).shape == (0, 2, 3, 3)
    assert devices.cudnn.calls() == []


def test_the_engine_that_keeps_float32_does_and_the_one_with_tf32_does_not(devices):
    x, w = normal((1, 8, 6, 6)), normal((4, 8, 3, 3))
    wanted = on_the_cpu(x, w)
    with under(cudnn__deterministic=True):
        narrow = ops.conv2d(x, w)
    exact = ops.conv2d(x, w)
    assert engines_run(devices) == ["tensor", "winograd"]
    errors = [np.abs(each.values() - wanted).max() for each in (narrow, exact)]
    assert errors[0] > 1e-4 > 1e-5 > errors[1]


def test_an_array_whose_library_makes_none_is_refused(devices):
    from backendcfg.errors import InvalidArgumentError

    x = ByInterface(aligned((1, 3, 5, 5), "float32"), 1)
    with pytest.raises(InvalidArgumentError, match="`input` must be of a library that makes"):
        ops.conv2d(x, normal((2, 3, 3, 3)))


def test_what_is_not_finite_is_refused_where_that_is_checked(devices, monkeypatch):
    looked = []
    monkeypatch.setattr(
        "backendcfg.gpu.own_library.check_finite", lambda *given: looked.append(given)
    )
    x, w = normal((1, 3, 5, 5)), normal((2, 3, 3, 3))
    with under(ops__check_finite=True):
        result = ops.conv2d(x, w)
    assert looked == [("conv2d", result)]
