"""What C is told to keep of a call: steps that fit are made, others are refused or left to Python."""

import pytest
from device_arrays import ByInterface, OnDevice, aligned

from backendcfg import _native, ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu import replay

ABOUT = ("sum", "library", "why", (3,), "float32")
ADDED = replay.method_of(1, "add_", 0)
MADE = (("float32", (3,)),)


@pytest.fixture(autouse=True)
def _fresh(devices):
    yield
    _native.device_forget()


def ones(shape=(3,)):
    array = aligned(shape, "float32")
    array[...] = 1
    return OnDevice(array)


def remember(array, options=("sum",), steps=(ADDED,), made=MADE, given=-1):
    _native.device_remember((array,), options, True, steps, made, ABOUT, given)


ZEROED = replay.method(1, "zero_")


def test_steps_are_made_in_order_and_the_call_is_counted():
    remember(ones(), steps=(ZEROED, ADDED, ADDED, replay.method(1, "mul_", 3.0)))
    failed, result = _native.device_recall((ones(),), ("sum",))
    assert failed is None
    assert result.array.tolist() == [6.0] * 3
    (record,) = ops.stats().operations
    assert (record.operation, record.provider, record.calls) == ("sum", "library", 1)


def test_what_is_only_worked_in_is_not_given_back():
    steps = (replay.method(2, "zero_"), replay.method_of(2, "add_", 0))
    steps = (*steps, replay.method_of(1, "copy_", 2))
    remember(ones(), steps=steps, made=MADE * 2, given=1)
    found = _native.device_recall((ones(),), ("sum",))
    assert len(found) == 2
    assert found[1].array.tolist() == [1.0] * 3


def test_a_result_is_given_back_as_it_is_to_be_seen():
    made = (("float32", (2, 3), (("permute", (1, 0)), ("__getitem__", 0))),)
    remember(ones((2,)), steps=(ZEROED, ADDED), made=made)
    _, result = _native.device_recall((ones((2,)),), ("sum",))
    assert result.array.tolist() == [1.0, 1.0]
    assert result.array.strides == (12,)


def test_an_argument_may_be_seen_otherwise():
    seen = (("__getitem__", (slice(0, 1),)),)
    step = replay.method_of(1, "add_", 0, target_seen=seen, source_seen=seen)
    remember(ones(), steps=(ZEROED, step))
    _, result = _native.device_recall((ones(),), ("sum",))
    assert result.array.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "options",
    [([],), (object(),), (("a", []),), (type("Size", (int,), {})(3),)],
    ids=["a list", "an object", "a list in a tuple", "a kind of int"],
)
def test_options_that_may_change_are_not_kept(options):
    remember(ones(), options=options)
    assert _native.device_recall((ones(),), options) is None


def test_an_array_without_a_table_is_not_kept():
    array = ByInterface(aligned((3,), "float32"), place=(2, 0))
    remember(array)
    assert _native.device_recall((array,), ("sum",)) is None


WRONG = {
    "no such step": (("jump",), MADE, -1),
    "no step": ((), MADE, -1),
    "a text": ("method", MADE, -1),
    "no such array": (replay.method(2, "zero_"), MADE, -1),
    "an array below the first": (replay.method(-1, "zero_"), MADE, -1),
    "no such source": (replay.method_of(1, "add_", 7), MADE, -1),
    "two arguments": (replay.method(1, "add_", 1, 2), MADE, -1),
    "a view without a method": (replay.method(1, "zero_", seen=((1,),)), MADE, -1),
    "a view of three": (replay.method(1, "zero_", seen=(("a", 1, 2),)), MADE, -1),
    "a result seen wrongly": (ADDED, (("float32", (3,), ("permute",)),), -1),
    "no alignment": (ADDED, (("float32", (3,), (), 0),), -1),
    "more given than made": (ADDED, MADE, 2),
    "a graph without cudnn": (
        ("graph", 0, 0, 1, 0, (1,), (0,), b"", 0, ("cuDNN",)),
        MADE,
        -1,
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused(wrong):
    step, made, given = WRONG[wrong]
    with pytest.raises((ValueError, TypeError)):
        remember(ones(), steps=(step,), made=made, given=given)
    assert _native.device_recall((ones(),), ("sum",)) is None


def test_a_method_that_is_not_there_is_an_error_and_nothing_is_counted():
    remember(ones(), steps=(replay.method(1, "no_such"),))
    for _ in range(2):
        with pytest.raises(AttributeError, match="no_such"):
            _native.device_recall((ones(),), ("sum",))
    assert not ops.stats().operations


def test_a_result_that_is_not_aligned_is_left_to_python():
    remember(ones(), made=(("float32", (3,), (), 1 << 30),))
    assert _native.device_recall((ones(),), ("sum",)) is None


def test_a_failure_without_words_of_its_own_is_its_providers():
    found = (("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"), ABOUT, (object(), 1, 32))
    with pytest.raises(DeviceFailedError, match="sum: the device's driver failed: cuLaunchKernel"):
        replay.failed("sum", ("a",), (ones(),), found)


def test_what_is_kept_may_be_forgotten_while_it_is_made():
    class Forgets(OnDevice):
        def zero_(self):
            _native.device_forget()
            super().zero_()

    array = Forgets(ones().array)
    remember(array, steps=(replay.method(0, "zero_"), ZEROED, ADDED))
    _, result = _native.device_recall((array,), ("sum",))
    assert result.array.tolist() == [0.0] * 3
    assert _native.device_recall((array,), ("sum",)) is None
