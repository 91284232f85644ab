"""Results for arrays whose library makes none for others: memory of the driver's, lent to anybody."""

import ctypes
import gc
import subprocess
import sys
import types

import numpy as np
import pytest
from device_arrays import ByCapsule, ByInterface, held, widened
from products import numbers, on_device

from backendcfg import _native, ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.products import DeviceArray, recipes
from backendcfg.gpu.products.gemm import ELEMENTS


def by_interface(shape, element="float32", seed=0):
    return ByInterface(numbers(shape, element, seed), 1, place=(2, 0))


def by_capsule(shape, element="float32", seed=0, place=(2, 0)):
    return ByCapsule(numbers(shape, element, seed), element, place)


def values(result):
    """What the fake's memory holds, which is the host's."""
    memory = np.empty(result.shape, held(result.dtype))
    ctypes.memmove(memory.ctypes.data, result._address, memory.nbytes)
    return widened(memory) if result.dtype == "bfloat16" else memory


def expected(shape_a, shape_b, element):
    arrays = [numbers(shape_a, element), numbers(shape_b, element, 1)]
    if element == "bfloat16":
        arrays = [widened(array) for array in arrays]
    return np.matmul(*(array.astype("complex128") for array in arrays))


@pytest.mark.parametrize("element", ELEMENTS)
def test_arrays_with_dlpack_alone_get_a_result(devices, element):
    result = ops.matmul(by_capsule((3, 5), element), by_capsule((5, 4), element, 1))
    assert type(result) is DeviceArray
    assert repr(result) == f"DeviceArray(shape=(3, 4), dtype={element}, device=cuda:0)"
    assert (result.ndim, result.__dlpack_device__()) == (2, (2, 0))
    assert np.array_equal(values(result).astype("complex128"), expected((3, 5), (5, 4), element))


@pytest.mark.parametrize("element", sorted(set(ELEMENTS) - {"bfloat16"}))
def test_arrays_with_an_interface_alone_get_a_result_with_one(devices, element):
    result = ops.matmul(by_interface((2, 3, 5), element), by_interface((5, 4), element, 1))
    said = result.__cuda_array_interface__
    assert said == {
        "shape": (2, 3, 4),
        "typestr": np.dtype(element).str,
        "data": (result._address, False),
        "strides": None,
        "stream": None,
        "version": 3,
    }
    wanted = expected((2, 3, 5), (5, 4), element)
    assert np.array_equal(values(result).astype("complex128"), wanted)


def test_what_no_interface_names_has_none(devices):
    result = ops.matmul(by_capsule((3, 5), "bfloat16"), by_capsule((5, 4), "bfloat16", 1))
    assert not hasattr(result, "__cuda_array_interface__")


def test_a_result_is_computed_when_the_call_returns(devices, new_stream):
    a = ByInterface(numbers((3, 5), "float32"), new_stream, place=(2, 0))
    ops.matmul(a, by_interface((5, 4)))
    assert new_stream in [call["stream"] for call in devices.cuda.calls("cuStreamSynchronize")]


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_a_result_is_an_operand_of_the_next_call(devices, element):
    a, b = by_capsule((3, 5), element), by_capsule((5, 4), element, 1)
    first = ops.matmul(a, b)
    second = ops.matmul(first, by_capsule((4, 2), element, 2))
    third = numbers((4, 2), element, 2)
    third = widened(third) if element == "bfloat16" else third
    assert np.allclose(values(second), expected((3, 5), (5, 4), element).real @ third, rtol=0.01)
    assert ops.matmul(a, b, out=first) is first


def test_a_vector_is_added_where_nothing_can_be_copied(devices):
    a, b, added = by_interface((3, 5)), by_interface((5, 4), seed=1), by_interface((4,), seed=2)
    result = ops.addmm(added, a, b)
    assert np.array_equal(values(result), added.array + a.array @ b.array)


def test_memory_is_given_back_with_the_last_who_holds_it(devices):
    a, b = by_interface((3, 5)), by_interface((5, 4))
    ops.matmul(a, b)  # makes the handle
    gc.collect()
    devices.cuda.reset()
    result = ops.matmul(a, b)
    (made,) = devices.cuda.calls("cuMemAlloc_v2")
    assert made["bytes"] == 48
    lent = result.__dlpack__()
    taken = _native.device_array(result)
    del result
    gc.collect()
    assert devices.cuda.calls("cuMemFree_v2") == []
    del lent, taken
    gc.collect()
    assert len(devices.cuda.calls("cuMemFree_v2")) == 1
    current = ctypes.c_void_p(1)
    devices.cuda.library.cuCtxGetCurrent(ctypes.byref(current))
    assert current.value is None


def test_no_thread_waits_for_the_interpreter_while_memory_waits_for_the_device(devices):
    """A function on a stream may be Python's: whoever waits for the device must let it run."""
    result = ops.matmul(by_interface((3, 5)), by_interface((5, 4)))
    devices.cuda.reset()  # a workspace of another size may have been given back
    holds = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    devices.cuda.set(asks=holds)
    del result
    gc.collect()
    assert [call["answer"] for call in devices.cuda.calls("cuMemFree_v2")] == [0]


def test_an_empty_result_needs_no_memory(devices):
    result = ops.matmul(by_capsule((0, 5)), by_capsule((5, 4)))
    assert (result.shape, result._address) == ((0, 4), 0)
    assert devices.cuda.calls("cuMemAlloc_v2") == []


def test_an_operand_without_numbers_may_have_any_strides(devices):
    a, b = np.empty((2, 0), "float32"), np.empty((0, 3), "float32")
    a, b = (np.lib.stride_tricks.as_strided(each, strides=(0, 0)) for each in (a, b))
    result = ops.matmul(ByInterface(a, 1, place=(2, 0)), ByInterface(b, 1, place=(2, 0)))
    assert np.array_equal(values(result), np.zeros((2, 3), "float32"))


def test_a_full_device_is_said_and_passes(devices):
    a, b = by_interface((3, 5)), by_interface((5, 4))
    devices.cuda.fail("cuMemAlloc_v2", 2)
    with pytest.raises(DeviceFailedError) as caught:
        ops.matmul(a, b)
    assert caught.value.render() == (
        "error[device-failed]: no memory for a result: the device's driver failed: cuMemAlloc "
        "returned CUDA_ERROR_OUT_OF_MEMORY (2)\n"
        "  note: float32 array of shape (3, 4) on cuda:0\n"
        "  state: nothing was computed\n"
        "  help: free memory on the device, or make the workspace smaller"
    )
    devices.reset()
    assert np.array_equal(values(ops.matmul(a, b)), a.array @ b.array)


def test_arrays_of_amd_s_devices_get_a_result_too(devices):
    place = (10, 0)
    result = ops.matmul(by_capsule((3, 5), place=place), by_capsule((5, 4), seed=1, place=place))
    assert result.device == "rocm:0"
    assert not hasattr(result, "__cuda_array_interface__")
    assert np.array_equal(values(result), expected((3, 5), (5, 4), "float32").real)
    del result
    gc.collect()
    assert len(devices.hip.calls("hipFree")) == 1


def test_an_array_of_jax_gets_one_of_jax(devices, monkeypatch):
    """A stand-in: JAX for the CPU has no arrays on a device."""

    class Array(ByCapsule):
        pass

    seen = []

    def from_dlpack(array, *, copy):
        seen.append(copy)
        made = Array(numbers((1,), "float32"))
        made.shape, made.lent = array.shape, array
        made.__class__ = Lent
        return made

    class Lent(Array):
        def __dlpack__(self, **keywords):
            return self.lent.__dlpack__(**keywords)

    jax = types.SimpleNamespace(Array=Array, dlpack=types.SimpleNamespace(from_dlpack=from_dlpack))
    monkeypatch.setitem(sys.modules, "jax", jax)
    a, b = Array(numbers((3, 5), "float32")), Array(numbers((5, 4), "float32", 1))
    result = ops.matmul(a, b)
    assert (type(result), seen) == (Lent, [False])
    assert np.array_equal(values(result.lent), expected((3, 5), (5, 4), "float32").real)


class OnTheHost:
    """Memory of NumPy's, lent as a result on a device is."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, *, max_version=None, **_):
        array, versioned = self.array, max_version is not None
        return _native.device_lend(self, array.ctypes.data, 1, 0, 2, 32, array.shape, versioned)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 0, 4)])
def test_what_is_lent_is_what_dlpack_says(shape):
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    owner = OnTheHost(array)
    taken = np.from_dlpack(owner)
    assert taken.ctypes.data == array.ctypes.data or array.size == 0
    assert np.array_equal(taken, array)
    before = sys.getrefcount(owner)
    for version in (None, (1, 0)):
        for _ in range(3):
            owner.__dlpack__(max_version=version)
    assert sys.getrefcount(owner) == before
    del taken
    assert sys.getrefcount(owner) == before - 1


@pytest.mark.torch
def test_a_tensor_may_end_what_it_borrowed_on_another_thread():
    code = (
        "import sys, threading; sys.path.insert(0, sys.argv[1])\n"
        "import torch, numpy as np\n"
        "from test_device_results import OnTheHost\n"
        "owner = OnTheHost(np.arange(6, dtype='float32').reshape(2, 3))\n"
        "before = sys.getrefcount(owner)\n"
        "held = [torch.from_dlpack(owner)]\n"
        "assert held[0].tolist() == [[0, 1, 2], [3, 4, 5]]\n"
        "thread = threading.Thread(target=held.clear)\n"
        "thread.start(); thread.join()\n"
        "assert sys.getrefcount(owner) == before\n"
    )
    folder = str(__file__).rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, folder],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_library_may_end_what_it_borrowed_when_the_interpreter_is_gone():
    """As one does whose own memory is torn down at the end of the process."""
    code = (
        "import ctypes, sys\n"
        "from backendcfg import _native\n"
        "api = ctypes.pythonapi\n"
        "api.PyCapsule_GetPointer.restype = ctypes.c_void_p\n"
        "api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]\n"
        "api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]\n"
        "capsule = _native.device_lend(object(), 0, 2, 0, 2, 32, (0,), False)\n"
        "tensor = api.PyCapsule_GetPointer(capsule, b'dltensor')\n"
        "taken = b'used_dltensor'\n"
        "api.PyCapsule_SetName(capsule, taken)\n"
        "end = ctypes.c_void_p.from_address(tensor + 56).value\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.__cxa_atexit.argtypes = [ctypes.c_void_p] * 3\n"
        "assert libc.__cxa_atexit(end, tensor, None) == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_lent_where_it_is_and_not_copied(devices):
    result = ops.matmul(by_capsule((3, 5)), by_capsule((5, 4)))
    for keywords in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="it is lent where it is, and not copied"):
            result.__dlpack__(**keywords)
    result.__dlpack__(copy=False, dl_device=(2, 0), stream=2)


def test_libraries_that_make_their_own_still_do(devices):
    result = ops.matmul(on_device((3, 5)), on_device((5, 4)))
    assert type(result) is not DeviceArray


def test_what_no_caller_asks_is_refused_by_the_native_part(devices):
    for driver, size in ((0, 8), (recipes.driver_of(2), -1)):
        with pytest.raises(ValueError, match="device_memory: no driver or size"):
            _native.device_memory(driver, 0, size)
    with pytest.raises(ValueError, match="device_lend: too many dimensions"):
        _native.device_lend(None, 0, 2, 0, 2, 32, (1,) * 33, False)
