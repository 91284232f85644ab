"""What operations take and give: memory shared with any library, and refusals by name."""

import gc
import re
import sys
import types
import weakref

import numpy as np
import pytest
from capsules import Export

from backendcfg import _native, ops
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import arrays

assert ops


def take(value):
    return arrays.take(value, "a", "matmul")


def refused(value):
    with pytest.raises(InvalidArgumentError) as caught:
        take(value)
    return caught.value.render()


class ByCapsule:
    """An array that only speaks DLPack, as its tensor does."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class OfOld(ByCapsule):
    """As `ByCapsule`, from before DLPack 1.0."""

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__()


@pytest.mark.parametrize("element", ["float32", "float64", "float16", "complex64", "bool", "int64"])
def test_a_numpy_array_is_taken_as_it_is(element):
    array = np.ones((2, 3), element)
    taken = take(array)
    assert taken.array is array
    assert (taken.element, taken.framework) == (element, "numpy")
    assert arrays.give(array, taken) is array


def test_a_subclass_is_taken_as_a_plain_array(tmp_path):
    class Own(np.ndarray):
        pass

    mapped = np.memmap(tmp_path / "file", np.float32, "w+", shape=(2, 3))
    for array in (mapped, np.ones((2, 3)).view(Own), np.float32(3)):
        taken = take(array)
        assert type(taken.array) is np.ndarray
        assert np.array_equal(taken.array, array)
    assert np.shares_memory(take(mapped).array, mapped)


def test_a_mask_is_refused_because_it_would_be_lost():
    assert refused(np.ma.masked_array([1.0, 2.0], [True, False])) == (
        "error[invalid-argument]: matmul: `a` must have no mask: it would be lost\n"
        "  state: nothing was computed\n"
        "  help: fill it: `a.filled(value)`"
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"shape": (-1, 3)}, "negative dimensions are not allowed"),
        ({"shape": (2**62, 2**62)}, "array is too big"),
        ({"strides": (2**60, 4)}, "it reaches beyond all memory"),
        ({"strides": (-(2**60), 4)}, "it reaches beyond all memory"),
        ({"data": bytearray(24), "strides": (1000, 4)}, "it reaches beyond its buffer"),
        ({"data": bytearray(24), "offset": -4}, "it reaches beyond its buffer"),
        ({"data": bytearray(24), "strides": (-12, 4)}, "it reaches beyond its buffer"),
        ({"mask": np.ones((2, 3), bool)}, "it has a mask, which would be lost"),
    ],
)
def test_an_interface_that_cannot_be_true_is_refused(changed, text):
    numbers = np.ones((2, 3), np.float32)
    given = {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": (numbers.ctypes.data, False)}
    holder = types.SimpleNamespace(__array_interface__=given | changed)
    assert f"matmul: `a` cannot be read: {text}" in refused(holder)


def test_a_buffer_is_read_as_its_interface_says():
    numbers = bytearray(np.arange(6, dtype=np.float32).tobytes())
    given = {"version": 3, "shape": (3, 2), "typestr": "<f4", "data": numbers, "strides": (-8, 4)}
    holder = types.SimpleNamespace(__array_interface__=given | {"offset": 16})
    assert take(holder).array.tolist() == [[4, 5], [2, 3], [0, 1]]


def test_the_owner_of_memory_lives_as_long_as_what_was_taken():
    class Owner:
        def __init__(self):
            self.numbers = np.ones(3)

        @property
        def __array_interface__(self):
            return self.numbers.__array_interface__

    owner = Owner()
    taken, alive = take(owner), weakref.ref(owner)
    del owner
    assert alive() is not None
    del taken
    assert alive() is None


def test_foreign_byte_order_is_copied_into_ours():
    taken = take(np.array([1.0, 2.0], ">f4"))
    assert taken.element == "float32"
    assert taken.array.dtype == np.float32
    assert taken.array.tolist() == [1.0, 2.0]


def test_bfloat16_of_ml_dtypes_is_read_as_uint16_and_given_back():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.0, -2.0], ml_dtypes.bfloat16)
    taken = take(array)
    assert (taken.element, taken.framework) == ("bfloat16", "numpy")
    assert taken.array.dtype == np.uint16
    assert taken.array.ctypes.data == array.ctypes.data
    given = arrays.give(taken.array, taken)
    assert given.dtype == ml_dtypes.bfloat16
    assert given.ctypes.data == array.ctypes.data


@pytest.mark.parametrize(
    "element", ["float32", "float64", "float16", "bfloat16", "complex128", "bool", "int32"]
)
def test_a_torch_tensor_is_taken_and_given_without_a_copy(element):
    torch = pytest.importorskip("torch")
    tensor = torch.ones(4, 6).to(getattr(torch, element)).T[1:, ::2]
    taken = take(tensor)
    assert (taken.element, taken.framework) == (element, "torch")
    assert taken.array.ctypes.data == tensor.data_ptr()
    assert taken.array.shape == tuple(tensor.shape)
    assert [step // taken.array.itemsize for step in taken.array.strides] == list(tensor.stride())
    given = arrays.give(taken.array, taken)
    assert given.dtype is tensor.dtype
    assert given.data_ptr() == tensor.data_ptr()
    assert torch.equal(given, tensor)


@pytest.mark.parametrize("element", ["float32", "complex128", "bfloat16"])
def test_the_product_of_two_vectors_of_torch_is_a_tensor_without_dimensions(element):
    torch = pytest.importorskip("torch")
    vector = torch.ones(3, dtype=getattr(torch, element))
    product = ops.matmul(vector, vector)
    assert torch.equal(product, torch.tensor(3, dtype=vector.dtype))


def test_a_torch_tensor_that_needs_a_gradient_is_read_without_it():
    torch = pytest.importorskip("torch")
    tensor = torch.nn.Parameter(torch.ones(3))
    taken = take(tensor)
    assert taken.array.ctypes.data == tensor.data_ptr()
    assert not arrays.give(taken.array, taken).requires_grad


def test_lazy_conjugates_and_negatives_of_torch_are_made_real():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert take(tensor.conj()).array.tolist() == [1 - 2j, 3 + 4j]
    assert take(tensor.conj().imag).array.tolist() == [-2.0, 4.0]


def test_a_torch_tensor_elsewhere_is_refused_with_its_place():
    torch = pytest.importorskip("torch")
    assert refused(torch.ones(2, device="meta")) == (
        "error[invalid-argument]: matmul: `a` must be on the CPU, not on meta\n"
        "  state: nothing was computed\n"
        "  help: move it: `a.cpu()`"
    )


def test_a_sparse_torch_tensor_is_refused_with_the_way_out():
    torch = pytest.importorskip("torch")
    assert refused(torch.ones(2, 2).to_sparse()) == (
        "error[invalid-argument]: matmul: `a` must be dense, not torch.sparse_coo\n"
        "  state: nothing was computed\n"
        "  help: `a.to_dense()`"
    )


def test_a_tensor_that_torch_traces_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidArgumentError, match="matmul: `a` cannot be read: "):
        torch.vmap(take)(torch.ones(2, 3))


def test_an_object_with_an_array_interface_is_taken_without_a_copy():
    array = np.arange(6.0).reshape(2, 3)
    holder = types.SimpleNamespace(__array_interface__=array.__array_interface__)
    taken = take(holder)
    assert (taken.element, taken.framework) == ("float64", "other")
    assert taken.array.ctypes.data == array.ctypes.data
    assert arrays.give(taken.array, taken) is taken.array


def test_a_bad_array_interface_is_refused():
    holder = types.SimpleNamespace(__array_interface__={"version": 3})
    with pytest.raises(InvalidArgumentError, match="matmul: `a` cannot be read: "):
        take(holder)


@pytest.mark.parametrize("kind", [ByCapsule, OfOld])
def test_dlpack_alone_is_taken_without_a_copy(kind):
    torch = pytest.importorskip("torch")
    for element in ("float32", "bfloat16", "float16", "complex64", "bool", "uint8"):
        tensor = torch.ones(4, 6).to(getattr(torch, element)).T[1:, ::2]
        taken = take(kind(tensor))
        assert (taken.element, taken.framework) == (element, "other")
        assert taken.array.ctypes.data == tensor.data_ptr()
        assert [step // taken.array.itemsize for step in taken.array.strides] == [1, 12]
        assert np.array_equal(taken.array, take(tensor).array)


def test_memory_that_may_not_be_written_stays_so_through_dlpack():
    array = np.arange(3.0)
    array.flags.writeable = False
    assert not take(ByCapsule(array)).array.flags.writeable
    assert take(ByCapsule(np.arange(3.0))).array.flags.writeable


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
def test_scalars_and_empty_arrays_pass_through_dlpack(shape):
    assert take(ByCapsule(np.ones(shape))).array.shape == shape


def test_a_capsule_is_used_once():
    capsule = np.ones(3).__dlpack__()
    array, element = _native.from_dlpack(capsule)
    assert (array.tolist(), element) == ([1.0, 1.0, 1.0], "float64")
    with pytest.raises(ValueError, match="its DLPack capsule is none, or was used before"):
        _native.from_dlpack(capsule)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_memory_lives_as_long_as_the_array_and_no_longer(version):
    source = np.ones(1000)
    before = sys.getrefcount(source)
    views = [_native.from_dlpack(source.__dlpack__(max_version=version))[0] for _ in range(100)]
    assert sys.getrefcount(source) == before + 100
    part = views[0][5:]
    del views
    gc.collect()
    assert sys.getrefcount(source) == before + 1
    assert part[0] == 1.0
    del part
    assert sys.getrefcount(source) == before


def test_many_rounds_of_taking_leave_nothing_behind():
    torch = pytest.importorskip("torch")
    sources = [np.ones(8), torch.ones(8), torch.ones(8, dtype=torch.bfloat16)]
    sources += [ByCapsule(each) for each in sources]

    def blocks():
        for _ in range(200):
            for each in sources:
                taken = take(each)
                arrays.give(taken.array, taken)
        gc.collect()
        return sys.getallocatedblocks()

    blocks()
    before = blocks()
    assert abs(blocks() - before) < 100


def test_elements_that_nobody_here_knows_are_refused():
    torch = pytest.importorskip("torch")
    exotic = torch.ones(2, dtype=torch.float8_e4m3fn)
    with pytest.raises(InvalidArgumentError, match="matmul: `a` cannot be read: its elements"):
        take(ByCapsule(exotic))
    with pytest.raises(InvalidArgumentError, match="matmul: `a` cannot be read: "):
        take(exotic)


@pytest.mark.parametrize(
    ("device", "place"), [((2, 1), "CUDA:1"), ((10, 0), "ROCm:0"), ((99, 0), "DLPack device 99:0")]
)
def test_an_array_on_a_device_is_refused_with_its_place(device, place):
    holder = types.SimpleNamespace(__dlpack_device__=lambda: device, __dlpack__=None)
    assert refused(holder) == (
        f"error[invalid-argument]: matmul: `a` must be on the CPU, not on {place}\n"
        "  state: nothing was computed\n"
        "  help: copy it to the host"
    )


def test_an_array_of_cuda_without_dlpack_is_refused_with_its_place():
    holder = types.SimpleNamespace(__cuda_array_interface__={})
    assert refused(holder) == (
        "error[invalid-argument]: matmul: `a` must be on the CPU, not on a CUDA device\n"
        "  state: nothing was computed\n"
        "  help: copy it to the host"
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [([[1.0]], "list"), (1.0, "float"), (None, "NoneType"), (np.ndarray, "type")],
)
def test_what_is_no_array_is_refused_with_the_way_out(value, kind):
    assert refused(value) == (
        f"error[invalid-argument]: matmul: `a` must be an array, not {kind}\n"
        "  state: nothing was computed\n"
        "  help: pass `numpy.asarray(x)`"
    )


def test_the_error_of_an_exporter_is_told_in_one_line():
    def fail(**options):
        raise BufferError("no\nmore")

    holder = types.SimpleNamespace(__dlpack_device__=lambda: (1, 0), __dlpack__=fail)
    assert refused(holder).splitlines()[0] == (
        "error[invalid-argument]: matmul: `a` cannot be read: no"
    )


def test_memory_is_given_back_once_and_not_before_the_last_view_is_gone():
    export = Export()
    capsule = export.capsule()
    array, element = _native.from_dlpack(capsule)
    assert (array.tolist(), element) == ([[0, 1, 2], [3, 4, 5]], "float32")
    part = array[1]
    del array, capsule
    assert export.deleted == 0
    assert part.tolist() == [3, 4, 5]
    del part
    assert export.deleted == 1


def test_offsets_and_strides_of_a_capsule_count_bytes_and_elements():
    export = Export(shape=(2, 2), strides=(1, 2), byte_offset=4)
    array, _ = _native.from_dlpack(export.capsule())
    assert array.tolist() == [[1, 3], [2, 4]]
    assert array.flags.writeable
    assert not _native.from_dlpack(Export(flags=1).capsule())[0].flags.writeable


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"major": 2}, "DLPack 2.0 is newer than what is known here"),
        ({"device": (2, 0)}, "its DLPack device 2 is not the CPU"),
        ({"dimensions": -1}, "it has -1 dimensions"),
        ({"dimensions": 65}, "it has 65 dimensions"),
        ({"lanes": 4}, "its elements (DLPack code 2, 32 bits, 4 lanes) are not known"),
        ({"code": 3}, "its elements (DLPack code 3, 32 bits, 1 lanes) are not known"),
        ({"shape": (2, -3)}, "its shape is negative"),
        ({"shape": (2**40, 2**40)}, "its size does not fit 64 bits"),
        ({"strides": (2**62, 1)}, "its strides do not fit 64 bits"),
        ({"strides": (2**60, 1)}, "it reaches beyond all memory"),
        ({"strides": (-(2**60), 1)}, "it reaches beyond all memory"),
        ({"byte_offset": 2**64 - 1}, "it reaches beyond all memory"),
        ({"byte_offset": 2**63}, "it reaches beyond all memory"),
        ({"byte_offset": 2**56}, "it reaches beyond all memory"),
        ({"data": 8, "strides": (-8, 1)}, "it reaches beyond all memory"),
        ({"shape": None}, "it has dimensions and no shape"),
        ({"data": None}, "it has no memory"),
    ],
)
def test_a_capsule_that_cannot_be_read_is_left_to_its_owner(changed, text):
    export = Export(**changed)
    capsule = export.capsule()
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        _native.from_dlpack(capsule)
    assert export.deleted == 0
    del capsule
    gc.collect()
    assert export.deleted == 0


def test_a_view_is_broadcast_without_a_copy_and_cannot_be_written():
    array = np.ones((3, 1))
    array[1] = 2
    view = _native.broadcast(array, (2, 3, 4))
    assert np.array_equal(view, np.broadcast_to(array, (2, 3, 4)))
    assert view.strides == (0, 8, 0)
    assert np.shares_memory(view, array)
    assert not view.flags.writeable
    before = sys.getrefcount(array)
    del view
    assert sys.getrefcount(array) == before - 1


@pytest.mark.parametrize("shape", [(2, 4), (3,), (2, -3, 4)])
def test_a_view_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"^broadcast: the array does not fit the shape$"):
        _native.broadcast(np.ones((3, 1)), shape)
