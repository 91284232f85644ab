"""ops.matmul computes what np.matmul computes, whatever the layout."""

import os
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.dispatch import snapshots
from backendcfg.transact.compiled import Compiled

DTYPES = ("float32", "float64", "complex64", "complex128")


def under(*order, **values):
    """A scope whose products are served by these providers."""
    return Scope(Prepared("+".join(order), Compiled("test", "none", values, order=order)), 0)


def whole(shape, dtype, seed=0):
    """Small whole numbers, so that every sum is exact whatever its order."""
    random = np.random.default_rng(seed)
    parts = random.integers(-4, 5, (2, *shape))
    return (parts[0] + 1j * parts[1] if "complex" in dtype else parts[0]).astype(dtype)


def equal(got, wanted):
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    assert np.array_equal(got, wanted)


@st.composite
def strided(draw, shape, dtype):
    """An array of this shape: dense, transposed, reversed, every second, shifted or repeated."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from((1, 1, 2, -1, -2))) for _ in shape]
    repeated = draw(st.booleans()) and len(shape) > 2
    inner = [1 if repeated and axis == 0 else abs(s) * n for axis, (n, s) in
             enumerate(zip(shape, steps, strict=True))]  # fmt: skip
    base = whole([inner[axis] for axis in order], dtype, draw(st.integers(0, 3)))
    array = base.transpose(np.argsort(order))
    if repeated:
        array = np.broadcast_to(array, (shape[0], *array.shape[1:]))
        steps[0] = 1
    return array[tuple(slice(None, None, s) for s in steps)]


@st.composite
def operands(draw):
    size = st.sampled_from((0, 1, 2, 3, 5, 8))
    m, n, k = draw(size), draw(size), draw(size)
    batch = draw(st.lists(st.sampled_from((1, 2, 3)), max_size=2))
    a_shape, b_shape = (m, k), (k, n)
    if draw(st.booleans()):
        a_shape = (*batch, m, k)
    if draw(st.booleans()):
        b_shape = (*(1 if draw(st.booleans()) else s for s in batch), k, n)
    if len(a_shape) == 2 and draw(st.integers(0, 5)) == 0:
        a_shape = (k,)
    if len(b_shape) == 2 and draw(st.integers(0, 5)) == 0:
        b_shape = (k,)
    a_type, b_type = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(DTYPES))
    return draw(strided(a_shape, a_type)), draw(strided(b_shape, b_type))


@pytest.mark.parametrize("provider", ["openblas", "native", "reference"])
@settings(max_examples=examples(400), deadline=None)
@given(pair=operands())
def test_any_shapes_strides_and_types_give_what_numpy_gives(provider, pair):
    a, b = pair
    with under(provider):
        equal(ops.matmul(a, b), np.matmul(a, b))


@settings(max_examples=examples(200), deadline=None)
@given(pair=operands(), data=st.data())
def test_any_layout_of_out_is_filled(pair, data):
    a, b = pair
    wanted = np.matmul(a, b)
    out = data.draw(strided(wanted.shape, wanted.dtype.name).filter(lambda x: x.flags.writeable))
    assert ops.matmul(a, b, out=out) is out
    equal(out, wanted)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 6), st.integers(-3, 3), st.booleans(), st.booleans())
def test_out_may_lie_over_the_operands(n, shift, left, transpose):
    block = whole((n * n + 8,), "float64")
    a = block[4 : 4 + n * n].reshape(n, n)
    b = a.T if transpose else whole((n, n), "float64", 1)
    out = block[4 + shift : 4 + shift + n * n].reshape(n, n)
    a, b = (a, b) if left else (b, a)
    wanted = np.matmul(a, b)
    ops.matmul(a, b, out)
    equal(out, wanted)


@pytest.mark.parametrize("provider", ["openblas", "native", "reference"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(200, 150, 170), (1, 400, 300), (400, 1, 300), (1, 1, 500)])
def test_larger_products_agree_to_rounding(provider, dtype, shape):
    m, n, k = shape
    random = np.random.default_rng(1)
    a = (random.standard_normal((m, k)) + 1j * random.standard_normal((m, k))).astype("D")
    b = (random.standard_normal((k, n)) + 1j * random.standard_normal((k, n))).astype("D")
    if "complex" not in dtype:
        a, b = a.real, b.real
    wanted = np.matmul(a, b)
    with under(provider):
        got = ops.matmul(a.astype(dtype), b.astype(dtype))
    tolerance = 1e-4 if dtype in {"float32", "complex64"} else 1e-12
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * 30)


def test_rows_and_columns_that_share_memory_are_read_right():
    row = whole((9,), "float64")
    windows = np.lib.stride_tricks.sliding_window_view(row, 4)
    b = whole((4, 5), "float64")
    for a in (np.broadcast_to(row[:4], (6, 4)), windows, windows[:, ::-1]):
        equal(ops.matmul(a, b), np.matmul(a, b))
        equal(ops.matmul(b.T, a.T), np.matmul(b.T, a.T))
        equal(ops.matmul(a, b[:, 0]), np.matmul(a, b[:, 0]))


def test_vectors_give_scalars_as_in_numpy():
    a = whole((5,), "float32")
    got = ops.matmul(a, a)
    assert type(got) is np.float32
    assert got == np.matmul(a, a)
    out = np.empty((), "float32")
    assert ops.matmul(a, a, out=out) is out


def test_swapped_unaligned_read_only_and_subclassed_operands_are_fine():
    a, b = whole((3, 4), "float64"), whole((4, 5), "float64")
    wanted = np.matmul(a, b)
    unaligned = np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view("float64").reshape(3, 4)
    frozen = b.copy()
    frozen.flags.writeable = False
    equal(ops.matmul(a.astype(">f8"), frozen), wanted)
    equal(ops.matmul(unaligned, b), wanted)
    got = ops.matmul(a.view(np.recarray), b)
    assert type(got) is np.ndarray
    equal(got, wanted)


def test_a_product_over_nothing_is_zero_and_an_empty_one_is_empty():
    out = np.full((2, 3), 9.0)
    ops.matmul(np.empty((2, 0)), np.empty((0, 3)), out=out)
    equal(out, np.zeros((2, 3)))
    equal(ops.matmul(np.empty((0, 4)), np.empty((4, 3))), np.empty((0, 3)))


def test_old_content_of_out_does_not_matter():
    for n in (1, 5, 40):
        out = np.full((40, n), np.nan)
        a, b = whole((40, 40), "float64"), whole((40, n), "float64")
        equal(ops.matmul(a, b, out=out), np.matmul(a, b))


def test_calls_leave_no_references_and_no_memory():
    a, b, out = (whole((6, 6), "float64") for _ in range(3))
    odd = whole((12, 12), "complex64")[::2, ::2]

    def calls():
        for _ in range(2_000):
            ops.matmul(a, b)
            ops.matmul(a, b, out=out)
            ops.matmul(odd, b)
            with pytest.raises(ValueError, match="dimension"):
                ops.matmul(a, b[:3])

    with pytest.raises(ValueError, match="dimension"):
        ops.matmul(a, b[:3])
    ops.matmul(odd, b)
    counts = [sys.getrefcount(array) for array in (a, b, out, odd)]
    tracemalloc.start()
    for _ in range(200):
        ops.matmul(odd, b)
        ops.matmul(a, b, out=out)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 4_000
    calls()
    assert counts == [sys.getrefcount(array) for array in (a, b, out, odd)]


def test_switching_providers_two_thousand_times_leaves_every_product_right():
    a, b = whole((24, 30), "float64"), whole((30, 28), "float64")
    wanted = np.matmul(a, b)
    scopes = [under("openblas", "reference"), under("reference")]
    wrong, done = [], threading.Event()

    def multiply():
        while not done.is_set():
            if not np.array_equal(ops.matmul(a, b), wanted):
                wrong.append(1)

    from backendcfg import _native

    threads = [threading.Thread(target=multiply) for _ in range(4)]
    for thread in threads:
        thread.start()
    base = _native.current()
    try:
        for i in range(2_000):
            _native.set_base(scopes[i % 2].prepared)
            with scopes[(i + 1) % 2]:
                if not np.array_equal(ops.matmul(a, b), wanted):
                    wrong.append(2)
    finally:
        _native.set_base(base)
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_forked_child_multiplies():
    a = whole((64, 64), "float64")
    wanted = ops.matmul(a, a)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(ops.matmul(a, a), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_snapshot_of_a_call_is_that_of_its_context():
    outside = native.describe(native.ordered(snapshots.default(), "dgemm")[0]).name
    with under("reference"):
        assert ops.explain("matmul", ((4, 4), (4, 4))).provider == "reference"
    assert ops.explain("matmul", ((4, 4), (4, 4))).provider == outside
