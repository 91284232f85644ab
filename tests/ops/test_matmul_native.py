"""Products by our own kernels: within the bounds of the arithmetic, and the same bits always."""

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import _native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.transact.compiled import Compiled

ISAS = tuple(name for name, runs, _ in _native.kernel_isas() if runs)


def native(threads=0, tier="none"):
    """A scope in which our own kernels serve, with as many threads as are said."""
    values = {"threads.count": threads, "determinism.tier": tier}
    return Scope(Prepared("p", Compiled("p", tier, values, order=("native",))), 0)


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


@pytest.fixture
def forced():
    yield _native.force_kernel_isa
    _native.force_kernel_isa(None)


sizes = st.one_of(st.integers(1, 9), st.sampled_from((15, 16, 17, 63, 64, 65, 130, 257, 300)))
layouts = st.sampled_from(("rows", "columns", "reversed", "stepped"))


def laid_out(array, layout):
    """The same numbers, lying otherwise."""
    if layout == "columns":
        return np.asfortranarray(array)
    if layout == "reversed":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if layout == "stepped":
        wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    return array


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_the_error_is_within_the_bound_of_the_arithmetic(data):
    """|error| <= (n + 2) u |a| |b| element by element, n the longest chain of roundings."""
    dtype = data.draw(st.sampled_from(("float32", "float64")))
    m, n, k = (data.draw(sizes) for _ in range(3))
    a = laid_out(normal((m, k), dtype), data.draw(layouts))
    b = laid_out(normal((k, n), dtype, 1), data.draw(layouts))
    with native(data.draw(st.sampled_from((1, 2, 3)))):
        got = ops.matmul(a, b)
    wide = np.longdouble if dtype == "float64" else np.float64
    wanted = a.astype(wide) @ b.astype(wide)
    unit = np.finfo(dtype).eps / 2
    roundings = min(k, 256) + -(-k // 256) + 2
    bound = roundings * unit * (abs(a).astype(wide) @ abs(b).astype(wide))
    assert (abs(got - wanted) <= bound).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
@pytest.mark.parametrize("shape", [(1, 1, 700), (200, 300, 260), (513, 65, 64), (7, 1000, 33),
                                   (1000, 1, 300), (1, 1000, 300), (128, 128, 128)])  # fmt: skip
def test_any_number_of_threads_gives_the_same_bits(dtype, shape):
    m, n, k = shape
    a, b, found = normal((m, k), dtype), normal((k, n), dtype, 1), set()
    for threads in (1, 2, 3, 7):
        with native(threads):
            found.add(bits(ops.matmul(a, b)))
    assert len(found) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_row_and_a_column_have_the_same_bits_alone_and_in_any_product(dtype, layout):
    a, b = normal((70, 300), dtype), laid_out(normal((300, 90), dtype, 1), layout)
    with native():
        whole = ops.matmul(a, b)
        for i in (0, 5, 6, 69):
            assert bits(ops.matmul(a[i], b)) == bits(whole[i])
            assert bits(ops.matmul(a[i : i + 1], b)) == bits(whole[i])
        for j in (0, 15, 16, 89):
            assert bits(ops.matmul(a, b[:, j])) == bits(whole[:, j])
            assert bits(ops.matmul(a[3], b[:, j])) == bits(whole[3, j])
        assert bits(ops.matmul(a[10:33], b[:, 7:40])) == bits(whole[10:33, 7:40])
        assert bits(ops.matmul(b.T, a.T).T) == bits(whole)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_matrix_has_the_same_bits_alone_and_in_a_batch(dtype):
    a, b = normal((3, 5, 40, 260), dtype), normal((5, 260, 33), dtype, 1)
    with native():
        whole = ops.matmul(a, b)
        for i in range(3):
            for j in range(5):
                assert bits(ops.matmul(a[i, j], b[j])) == bits(whole[i, j])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex128"])
@pytest.mark.parametrize("shape", [(70, 90, 600), (1, 77, 300), (77, 1, 300), (6, 16, 1)])
def test_every_instruction_set_gives_the_same_bits(forced, dtype, shape):
    m, n, k = shape
    a, b, found = normal((m, k), dtype), normal((k, n), dtype, 1), set()
    with native(2):
        for isa in ISAS:
            forced(isa)
            before = {name: count for name, _, count in _native.kernel_isas()}
            found.add(bits(ops.matmul(a, b)))
            after = {name: count for name, _, count in _native.kernel_isas()}
            ran = {name for name in after if after[name] != before[name]}
            assert ran == (set() if dtype == "complex128" else {isa})
    assert len(found) == 1


@pytest.mark.parametrize("shape", [(70, 90, 600), (1, 77, 300), (77, 1, 300), (6, 16, 1)])
def test_bfloat16_has_the_same_bits_on_every_instruction_set_where_the_tier_asks(forced, shape):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    m, n, k = shape
    a, b = normal((m, k), bfloat16), normal((k, n), bfloat16, 1)
    with native(2, tier="cross-machine"):
        found = set()
        for isa in ISAS:
            forced(isa)
            found.add(bits(ops.matmul(a, b)))
    assert len(found) == 1


def test_numbers_that_are_not_finite_stay_where_they_belong():
    a, b = np.ones((20, 300), "float32"), np.ones((300, 40), "float32")
    a[3, 7], a[5, 299], b[2, 1] = np.nan, np.inf, -np.inf
    with native():
        got = ops.matmul(a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.matmul(a, b))


def test_subnormal_numbers_are_not_flushed():
    tiny = np.full((4, 300), 1e-42, "float32")
    with native():
        got = ops.matmul(tiny, np.ones((300, 4), "float32"))
    np.testing.assert_array_equal(got, np.full((4, 4), tiny[0].astype("float64").sum(), "float32"))


def test_what_it_served_is_counted_by_matrix():
    with native():
        ops.reset_stats()
        ops.matmul(np.ones((2, 3, 4, 5)), np.ones((5, 6)))
        said = ops.explain("matmul", ((4, 5), (5, 6)))
        served = {each.provider: each.calls for each in ops.stats() if each.calls}
    assert (said.provider, said.path) == ("native", "")
    assert served == {"native": {"dgemm": 6}}
