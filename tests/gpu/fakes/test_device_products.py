"""Products of device arrays: the right numbers from wherever BLAS can read, by one call each."""

import ctypes
import gc

import numpy as np
import pytest
from device_arrays import OnDevice, aligned
from numpy.lib.stride_tricks import as_strided
from products import GEMMS, PREFER, numbers, on_device, under, view

from backendcfg import ops
from backendcfg.gpu.products.gemm import ELEMENTS

pytestmark = pytest.mark.sweep

PROVIDERS = ("cublas", "cublaslt")


def expected(*arrays):
    a, b = (array.values() for array in arrays)
    return np.matmul(a.astype("complex128"), b.astype("complex128"))


def assert_product(result, a, b):
    assert type(result) is OnDevice
    assert (result.element, result.place) == (a.element, a.place)
    assert np.array_equal(result.values().astype("complex128"), expected(a, b))


@pytest.fixture(params=PROVIDERS)
def provider(request, devices):
    with under(**{PREFER: request.param}):
        yield request.param


@pytest.mark.parametrize("element", ELEMENTS)
def test_a_product_is_right_in_every_element_type(provider, element):
    a, b = on_device((3, 5), element), on_device((5, 4), element, 1)
    assert_product(ops.matmul(a, b), a, b)


SHAPES = [
    ((3, 5), (5, 4)),
    ((1, 5), (5, 1)),
    ((1, 1), (1, 1)),
    ((5,), (5, 4)),
    ((3, 5), (5,)),
    ((5,), (5,)),
    ((6, 3, 5), (6, 5, 4)),
    ((6, 3, 5), (5, 4)),
    ((3, 5), (6, 5, 4)),
    ((6, 1, 5), (5, 4)),
    ((2, 1, 3, 5), (6, 5, 4)),
    ((2, 6, 3, 5), (2, 6, 5, 4)),
    ((2, 6, 3, 5), (6, 5, 4)),
    ((2, 1, 3, 5), (1, 6, 5, 4)),
    ((6, 3, 5), (5,)),
    ((5,), (6, 5, 4)),
    ((1, 3, 5), (1, 5, 4)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_a_product_has_numpy_s_shape_and_numbers(provider, left, right):
    a, b = on_device(left), on_device(right, seed=1)
    result = ops.matmul(a, b)
    assert result.shape == expected(a, b).shape
    assert_product(result, a, b)


VIEWS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    "with longer rows": lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3)])[..., :-3],
    "transposed, with longer columns": lambda x: (
        np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, 2), (0, 0)]).swapaxes(-1, -2).copy()
    )[..., :-2].swapaxes(-1, -2),
    "every other matrix": lambda x: np.repeat(x, 2, axis=0)[::2] if x.ndim > 2 else x,
    "one repeated": lambda x: np.broadcast_to(x[:1], x.shape) if x.ndim > 2 else x,
}  # fmt: skip


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("right", VIEWS)
@pytest.mark.parametrize("left", VIEWS)
def test_what_blas_can_read_is_read_where_it_lies(provider, left, right, batch, monkeypatch):
    monkeypatch.setattr(OnDevice, "contiguous", None)
    a, b = on_device((*batch, 4, 5)), on_device((*batch, 5, 6), seed=1)
    a, b = view(a, VIEWS[left]), view(b, VIEWS[right])
    assert_product(ops.matmul(a, b), a, b)


@pytest.mark.parametrize(
    "change",
    [lambda x: x[:, ::2], lambda x: x[::-1, ::-1], lambda x: np.broadcast_to(x[:1, :1], x.shape)],
)
def test_what_blas_cannot_read_is_copied_by_its_own_library(provider, change):
    a = view(on_device((4, 6)), change)
    b = on_device((a.shape[1], 3), seed=1)
    assert_product(ops.matmul(a, b), a, b)
    a = view(on_device((6, 4)), change)
    b = on_device((2, 6), seed=1)
    assert_product(ops.matmul(b, a), b, a)


def test_an_array_that_nobody_can_copy_is_refused_by_name(devices, monkeypatch):
    monkeypatch.delattr(OnDevice, "contiguous")
    with pytest.raises(ops.products.InvalidArgumentError) as caught:
        ops.matmul(on_device((4, 3)), view(on_device((6, 4)), lambda x: x[::2, ::2]))
    assert caught.value.render() == (
        "error[invalid-argument]: matmul: `b` must lie in memory as a BLAS can read it\n"
        "  note: b: float32 array of shape (3, 2) on cuda:0\n"
        "  state: nothing was computed\n"
        "  help: copy it, so that its rows follow each other"
    )
    assert devices.calls(*GEMMS) == []


OUTS = {
    "dense": lambda x: x,
    "by columns": lambda x: np.array(x, order="F"),
    "with longer rows": lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3)])[..., :-3],
    "every other column": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
}


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("kind", OUTS)
def test_out_is_written_where_it_lies(provider, kind, shape):
    a, b = on_device((*shape[:-1], 5)), on_device((5, 4), seed=1)
    before = on_device(shape, seed=2)
    out = view(before, OUTS[kind])
    assert ops.matmul(a, b, out=out) is out
    assert np.array_equal(out.array, a.array @ b.array)


def test_what_lies_around_out_is_not_touched(provider):
    memory = aligned((4, 9), "float32")
    memory[...] = 7
    a, b = on_device((2, 5)), on_device((5, 4), seed=1)
    ops.matmul(a, b, out=OnDevice(memory[1:3, 2:6]))
    assert np.array_equal(memory[1:3, 2:6], a.array @ b.array)
    memory[1:3, 2:6] = 7
    assert (memory == 7).all()


@pytest.mark.parametrize(
    ("left", "right"), [((0, 5), (5, 4)), ((3, 5), (5, 0)), ((0, 3, 5), (5, 4))]
)
def test_an_empty_result_asks_nobody(devices, left, right):
    a, b = on_device(left), on_device(right)
    devices.cublas.reset()
    assert ops.matmul(a, b).shape == expected(a, b).shape
    # No step of an array without elements means anything.
    out = view(on_device(expected(a, b).shape), lambda x: as_strided(x, x.shape, [0] * x.ndim))
    assert ops.matmul(a, b, out=out) is out
    assert devices.calls(*GEMMS) == []


@pytest.mark.parametrize("kind", OUTS)
def test_an_inner_dimension_of_nothing_gives_zeros(provider, kind):
    a, b = on_device((2, 3, 0)), on_device((2, 0, 4))
    out = view(on_device((2, 3, 4)), OUTS[kind])
    out.array[...] = np.nan
    ops.matmul(a, b, out=out)
    assert (out.array == 0).all()


def test_one_product_is_one_call_of_the_library(devices):
    a, b = on_device((3, 5)), on_device((5, 4), seed=1)
    ops.matmul(a, b)
    devices.reset()
    result = ops.matmul(a, b)
    (call,) = devices.cublas.calls()
    assert call.function == "cublasGemmEx_64"
    assert [call[name] for name in ("a", "b", "c")] == [
        array.array.ctypes.data for array in (b, a, result)
    ]
    assert [call[name] for name in ("m", "n", "k", "lda", "ldb", "ldc")] == [4, 3, 5, 4, 5, 4]
    assert [call[name] for name in ("transa", "transb")] == [0, 0]


def test_a_batch_is_one_call_and_one_matrix_for_many_is_one_product(devices):
    ops.matmul(on_device((2, 3, 4, 5)), on_device((2, 3, 5, 6)))
    (call,) = devices.cublas.calls("cublasGemmStridedBatchedEx_64")
    assert [call[name] for name in ("batch", "a_stride", "b_stride", "c_stride")] == [6, 30, 20, 24]
    devices.reset()
    ops.matmul(on_device((2, 3, 4, 5)), on_device((5, 6)))
    (call,) = devices.cublas.calls()
    assert call.function == "cublasGemmEx_64"
    assert [call[name] for name in ("m", "n", "k")] == [6, 24, 5]


@pytest.mark.parametrize("operation", ["addmm", "baddbmm"])
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", [(3, 4), (4,), (1, 4), (3, 1), ()])
def test_products_with_a_sum_are_right(provider, operation, element, shape):
    batch = (2,) if operation == "baddbmm" else ()
    a, b = on_device((*batch, 3, 5), element), on_device((*batch, 5, 4), element, 1)
    added = on_device(shape, element, 2)
    result = getattr(ops, operation)(added, a, b, beta=2, alpha=-0.5)
    wanted = 2 * added.values().astype("complex128") - 0.5 * expected(a, b)
    tolerance = 0.02 if element in ("bfloat16", "float16") else 1e-5
    assert np.allclose(result.values().astype("complex128"), wanted, rtol=tolerance)
    assert np.array_equal(added.array, numbers(shape, element, 2))


def test_complex_factors_are_complex(provider):
    a, b, added = (on_device((3, 3), "complex64", seed) for seed in range(3))
    result = ops.addmm(added, a, b, beta=1j, alpha=2 - 1j)
    assert np.allclose(result.array, 1j * added.array + (2 - 1j) * (a.array @ b.array))


def test_what_is_added_is_not_read_where_beta_is_zero(provider):
    a, b = on_device((3, 5)), on_device((5, 4), seed=1)
    added = on_device((3, 4))
    added.array[...] = np.nan
    assert_product(ops.addmm(added, a, b, beta=0), a, b)


def test_a_sum_may_be_made_in_place(provider):
    a, b, added = on_device((3, 5)), on_device((5, 4), seed=1), on_device((3, 4), seed=2)
    wanted = added.array + a.array @ b.array
    assert ops.addmm(added, a, b, out=added) is added
    assert np.array_equal(added.array, wanted)


def test_a_sum_without_a_product_is_the_sum(provider):
    added = on_device((3, 4))
    result = ops.addmm(added, on_device((3, 0)), on_device((0, 4)), beta=3)
    assert np.array_equal(result.array, 3 * added.array)


def test_bmm_is_a_product_of_two_batches(provider):
    a, b = on_device((2, 3, 5)), on_device((2, 5, 4), seed=1)
    assert_product(ops.bmm(a, b), a, b)
    out = on_device((2, 3, 4))
    assert ops.bmm(a, b, out=out) is out
    assert np.array_equal(out.array, a.array @ b.array)


class Restless(OnDevice):
    """An array that forgets the numbers that it lent whenever it is asked anything."""

    def is_conj(self):
        self.numbers = None
        self.others = [(ctypes.c_int64 * 2)(1, 1) for _ in range(100)]
        return False

    is_neg = is_conj


@pytest.mark.parametrize("element", ["float32", "complex64"])
def test_borrowed_numbers_are_read_before_their_owner_runs_again(devices, element):
    a = Restless(numbers((3, 5), element), element)
    b = Restless(numbers((5, 4), element, 1), element)
    assert np.array_equal(ops.matmul(a, b).array, a.array @ b.array)


def test_nothing_is_kept_alive(devices):
    import weakref

    a, b = on_device((3, 5)), on_device((5, 4), seed=1)
    seen = [weakref.ref(a), weakref.ref(b), weakref.ref(ops.matmul(a, b))]
    del a, b
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3
