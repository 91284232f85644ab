"""The arrays of a call on a device: what they are taken for, made into, and refused for."""

import numpy as np
import pytest
from device_arrays import ByInterface, OnDevice

from backendcfg import _native
from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu.arrays import SIZES, Arguments


def taken(*names, **given):
    arguments = Arguments("cholesky", given)
    return arguments, [arguments.take(name) for name in names or given]


def refused(ask, *given):
    with pytest.raises(InvalidArgumentError) as caught:
        ask(*given)
    return caught.value.message


@pytest.mark.parametrize("element", SIZES)
def test_memory_of_each_type_is_made_by_the_library_of_the_first_array(devices, element):
    arguments, (_,) = taken(a=OnDevice(np.zeros((2, 2), np.float32)))
    made, held = arguments.make((3, 5), element)
    assert type(made) is OnDevice
    assert (made.element, made.shape, made.place) == (element, (3, 5), (2, 0))
    assert (held.element, held.shape, held.place) == (element, (3, 5), "cuda:0")
    assert held.address == made.array.ctypes.data
    assert held.byte_strides == (5 * SIZES[element], SIZES[element])
    assert held.is_dense


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64", "bool", "float32"])
def test_an_interface_tells_its_type(devices, name):
    described = _native.device_array(ByInterface(np.zeros((2, 3), name)))
    assert described[3] == name


def test_a_type_that_is_not_known_has_no_name(devices):
    assert _native.device_array(ByInterface(np.zeros(3, "uint16")))[3] == ""


def test_arrays_whose_rows_do_not_follow_each_other_are_copied_by_their_library(devices):
    array = OnDevice(np.arange(12.0).reshape(3, 4).T)
    arguments, (held,) = taken(a=array)
    assert not held.is_dense
    copy, dense = arguments.dense("a", array)
    assert copy is not array
    assert dense.is_dense
    assert np.array_equal(copy.array, array.array)
    assert arguments.dense("a", copy)[0] is copy


def test_streams_of_other_arrays_are_named_once_and_one_without_makes_the_call_wait(devices):
    arrays = [ByInterface(np.zeros(3), stream, place=(2, 0)) for stream in (7, 9, 9, None)]
    arguments, held = taken(**dict(zip("abcd", arrays, strict=True)))
    assert arguments.work(0, 5, *held[:3]) == (0, 5, 0, 7, (9,), False)
    assert arguments.work(3, 5, *held, None) == (3, 5, 0, 7, (0, 9), True)


def test_an_array_elsewhere_is_refused(devices):
    far = OnDevice(np.zeros(3), place=(2, 1))
    near = OnDevice(np.zeros(3))
    assert (
        refused(lambda: taken(a=near, b=far))
        == "cholesky: `b` must be on cuda:0, as `a` is, not on cuda:1"
    )
    assert (
        refused(lambda: taken(a=near, b=np.zeros(3)))
        == "cholesky: `b` must be an array on cuda:0, as `a` is"
    )
    assert refused(lambda: taken(a=np.zeros(3))) == "cholesky: `a` must be an array on a device"


def test_an_out_that_cannot_hold_the_result_is_refused(devices):
    room = np.zeros(8)
    a = OnDevice(room[:4])

    def out(array, shape=(4,), element="float64"):
        arguments, _ = taken("a", a=a, out=array)
        return arguments.out("out", shape, element, "a")

    assert out(OnDevice(room[4:])).shape == (4,)
    assert refused(out, OnDevice(np.zeros(3))) == "cholesky: `out` must have the shape (4,)"
    assert refused(out, OnDevice(np.zeros(4, np.float32))) == "cholesky: `out` must hold float64"
    assert (
        refused(out, OnDevice(np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,))))
        == "cholesky: `out` must not repeat an element"
    )
    assert refused(out, OnDevice(room[3:7])) == "cholesky: `out` must share no memory with `a`"
