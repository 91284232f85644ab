"""ops.linalg computes what its definitions say, within what the arithmetic allows."""

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg._native import Prepared, Scope
from backendcfg.ops import linalg
from backendcfg.transact.compiled import Compiled

pytestmark = pytest.mark.sweep

DTYPES = ("float32", "float64", "complex64", "complex128")
ORDERS = {"ours": ("reference",), "openblas": ("openblas",), "both": ("openblas", "reference")}


def under(*order, **values):
    """A scope whose linear algebra is served by these providers."""
    return Scope(Prepared("+".join(order), Compiled("test", "none", values, order=order)), 0)


@pytest.fixture(params=ORDERS)
def provider(request):
    with under(*ORDERS[request.param]):
        yield request.param


def numbers(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    parts = random.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if "complex" in dtype else parts[0]).astype(dtype)


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def laid(a, layout):
    """The same matrix by rows, by columns, every second element, or backwards."""
    if layout == "columns":
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(a, -1, -2)), -1, -2)
    if layout == "gaps":
        return np.repeat(np.repeat(a, 2, -1), 2, -2)[..., ::2, ::2]
    if layout == "backwards":
        return np.ascontiguousarray(a[..., ::-1, ::-1])[..., ::-1, ::-1]
    return np.ascontiguousarray(a)


LAYOUTS = st.sampled_from(("rows", "columns", "gaps", "backwards"))
SIZES = st.sampled_from((1, 2, 3, 4, 5, 7, 9, 17, 26, 33, 51))
STACKS = st.sampled_from(((), (1,), (3,), (2, 2)))
CASES = {"dtype": st.sampled_from(DTYPES), "layout": LAYOUTS, "seed": st.integers(0, 99)}
QUICK = settings(max_examples=examples(25), deadline=None)


def close(got, wanted, scale, n, dtype, times=20):
    """Whether a difference is within a few n eps of the type times a norm."""
    eps = np.finfo(dtype).eps
    error = np.linalg.norm(np.asarray(got, "D") - np.asarray(wanted, "D"))
    assert error <= times * max(n, 4) * eps * (np.linalg.norm(np.asarray(scale, "D")) + 1e-300)


def wide(a):
    return np.asarray(a, "D")


def spread(n, stack, dtype, seed):
    """Matrices with singular values from 1 to 100."""
    u, _, vh = np.linalg.svd(numbers((*stack, n, n), dtype, seed))
    return ((u * np.geomspace(1, 100, n)) @ vh).astype(dtype)


@QUICK
@given(n=SIZES, stack=STACKS, **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_an_inverse_times_its_matrix_is_the_identity(order, n, stack, dtype, layout, seed):
    a = laid(spread(n, stack, dtype, seed), layout)
    with under(*ORDERS[order]):
        got = linalg.inv(a)
        again = linalg.inv_ex(a)
    assert got.dtype == a.dtype
    assert got.shape == a.shape
    size = np.linalg.norm(wide(got)) * np.linalg.norm(wide(a))
    close(wide(got) @ wide(a), np.broadcast_to(np.eye(n), a.shape), size, n, dtype)
    assert np.array_equal(again.inverse, got)
    assert not again.info.any()
    assert again.info.dtype == np.int32
    assert again.info.shape == stack


@QUICK
@given(n=SIZES, k=st.sampled_from((1, 2, 5)), stack=STACKS, left=st.booleans(), **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_solution_solves_backward_stably(order, n, k, stack, left, dtype, layout, seed):
    a = laid(spread(n, stack, dtype, seed), layout)
    b = laid(numbers((*stack, n, k) if left else (*stack, k, n), dtype, seed + 7), layout)
    with under(*ORDERS[order]):
        x = linalg.solve(a, b, left=left)
        lu, pivots = linalg.lu_factor(a)
        again = linalg.lu_solve(lu, pivots, b, left=left)
        turned = linalg.lu_solve(lu, pivots, b, left=left, adjoint=True)
    for got, of in ((x, wide(a)), (again, wide(a)), (turned, adjoint(wide(a)))):
        product = of @ wide(got) if left else wide(got) @ of
        close(product, b, np.linalg.norm(of) * np.linalg.norm(got), n, dtype)


@QUICK
@given(n=SIZES, stack=STACKS, **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_right_side_may_be_a_vector(order, n, stack, dtype, layout, seed):
    a, b = laid(spread(n, stack, dtype, seed), layout), numbers((n,), dtype, seed)
    with under(*ORDERS[order]):
        one, many = linalg.solve(a, b), linalg.solve(a, np.broadcast_to(b, (*stack, n)))
    assert one.shape == (*stack, n)
    assert np.array_equal(one, many)
    product = (wide(a) @ wide(one)[..., None])[..., 0]
    size = np.linalg.norm(wide(a)) * np.linalg.norm(one)
    close(product, np.broadcast_to(b, one.shape), size, n, dtype)


@QUICK
@given(n=SIZES, stack=STACKS, upper=st.booleans(), **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_cholesky_and_what_uses_its_factor(order, n, stack, upper, dtype, layout, seed):
    root = spread(n, stack, dtype, seed)
    a = root @ adjoint(root)
    other = np.tri(n, k=-1, dtype=bool)
    hidden = laid(np.where(other if upper else other.T, np.array(9e9, dtype), a), layout)
    b = numbers((*stack, n, 2), dtype, seed)
    with under(*ORDERS[order]):
        factor = linalg.cholesky(hidden, upper=upper)
        x = linalg.cholesky_solve(b, laid(factor, layout), upper=upper)
        inverse = linalg.cholesky_inverse(laid(factor, layout), upper=upper)
    assert not (np.tril(factor, -1) if upper else np.triu(factor, 1)).any()
    product = (
        adjoint(wide(factor)) @ wide(factor) if upper else wide(factor) @ adjoint(wide(factor))
    )
    close(product, a, a, n, dtype)
    size = np.linalg.norm(wide(a)) * np.linalg.norm(x)
    close(product @ wide(x), b, size, n, dtype)
    assert np.array_equal(inverse, adjoint(inverse))
    size = 100 * np.linalg.norm(wide(a)) * np.linalg.norm(wide(inverse))
    close(product @ wide(inverse), np.broadcast_to(np.eye(n), a.shape), size, n, dtype)


@QUICK
@given(m=SIZES, n=SIZES, stack=STACKS, **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_factors_of_rectangles_multiply_to_them(order, m, n, stack, dtype, layout, seed):
    a, least = laid(numbers((*stack, m, n), dtype, seed), layout), min(m, n)
    with under(*ORDERS[order]):
        p, l, u = linalg.lu(a)  # noqa: E741
        together = linalg.lu_factor_ex(a)
        q, r = linalg.qr(a)
        whole = linalg.qr(a, "complete")
        only = linalg.qr(a, mode="r")
    assert [x.shape[-2:] for x in (p, l, u)] == [(m, m), (m, least), (least, n)]
    close(wide(p) @ wide(l) @ wide(u), a, a, m, dtype)
    assert np.array_equal(np.tril(l, -1)[..., :least], np.tril(together.LU, -1)[..., :least])
    assert np.array_equal(u, np.triu(together.LU)[..., :least, :])
    assert together.pivots.dtype == np.int32
    assert together.pivots.shape == (*stack, least)
    assert (np.abs(l) <= 1 + 1e-6).all() or "complex" in dtype
    for one, other in ((q, r), whole):
        assert one.shape[-1] == other.shape[-2]
        assert not np.tril(other, -1).any()
        close(wide(one) @ wide(other), a, a, m, dtype)
        orthonormal(one, m)
    assert whole.Q.shape[-2:] == (m, m)
    assert only.Q.shape == (0,)
    assert np.array_equal(only.R, r)


def orthonormal(q, n):
    product = adjoint(wide(q)) @ wide(q)
    size = max(1, q.size) ** 0.5
    close(product, np.broadcast_to(np.eye(q.shape[-1]), product.shape), size, n, q.dtype)


@QUICK
@given(n=SIZES, stack=STACKS, word=st.sampled_from("LUlu"), **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_eigenvalues_ascend_and_vectors_are_orthonormal(order, n, stack, word, dtype, layout, seed):
    half = numbers((*stack, n, n), dtype, seed)
    a = half + adjoint(half)
    other = np.tri(n, k=-1, dtype=bool)
    hidden = laid(np.where(other.T if word in "Ll" else other, np.array(np.nan, dtype), a), layout)
    with under(*ORDERS[order]):
        values, vectors = linalg.eigh(hidden, UPLO=word)
        alone = linalg.eigvalsh(hidden, word)
    assert values.dtype == a.real.dtype
    assert (np.diff(values) >= 0).all()
    close(wide(vectors) * values[..., None, :], wide(a) @ wide(vectors), a, n, dtype)
    orthonormal(vectors, n)
    close(alone, np.linalg.eigvalsh(wide(a)), a, n, dtype)


@QUICK
@given(m=SIZES, n=SIZES, stack=STACKS, full=st.booleans(), **CASES)
@pytest.mark.parametrize("order", ORDERS)
def test_singular_values_descend_and_vectors_are_orthonormal(
    order, m, n, stack, full, dtype, layout, seed
):
    a, least = laid(numbers((*stack, m, n), dtype, seed), layout), min(m, n)
    with under(*ORDERS[order]):
        u, s, vh = linalg.svd(a, full_matrices=full)
        alone = linalg.svdvals(a)
    assert u.shape == (*stack, m, m if full else least)
    assert vh.shape == (*stack, n if full else least, n)
    assert s.dtype == a.real.dtype
    assert (np.diff(s) <= 0).all()
    product = (wide(u)[..., :least] * s[..., None, :]) @ wide(vh)[..., :least, :]
    close(product, a, a, max(m, n), dtype)
    orthonormal(u, m)
    orthonormal(adjoint(vh), n)
    close(alone, np.linalg.svd(wide(a), compute_uv=False), a, max(m, n), dtype)


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (5, 9), (40, 30)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_of_zero_singular_values_are_orthonormal_too(provider, dtype, shape, rank):
    a = numbers((shape[0], rank), dtype) @ numbers((rank, shape[1]), dtype, 1)
    u, s, vh = linalg.svd(a)
    orthonormal(u, shape[0])
    orthonormal(adjoint(vh), shape[1])
    assert (s[rank:] <= 1e-5 * max(1, s[0])).all()
    q, _ = linalg.qr(a, "complete")
    orthonormal(q, shape[0])


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_sizes_near_the_ends_of_the_range_neither_vanish_nor_overflow(provider, scale):
    a = numbers((12, 12), "float64")
    sym = a + a.T
    np.testing.assert_allclose(linalg.svdvals(a * scale), linalg.svdvals(a) * scale, rtol=1e-10)
    np.testing.assert_allclose(
        linalg.eigvalsh(sym * (scale / 4)), linalg.eigvalsh(sym) * (scale / 4), rtol=1e-10, atol=0
    )
    np.testing.assert_allclose(linalg.eigh(sym * (scale / 4)).eigenvalues, linalg.eigvalsh(sym) * (scale / 4), rtol=1e-9)  # fmt: skip
    np.testing.assert_allclose(np.abs(linalg.qr(a * scale).R), np.abs(linalg.qr(a).R) * scale, rtol=1e-9)  # fmt: skip
    np.testing.assert_allclose(linalg.inv(a * scale) * scale, linalg.inv(a), rtol=1e-8)


def test_repeated_eigenvalues_and_singular_values_are_served(provider):
    for n in (1, 4, 30, 60):
        for a in (np.eye(n), np.zeros((n, n)), np.ones((n, n))):
            orthonormal(linalg.eigh(a).eigenvectors, n)
            orthonormal(linalg.svd(a).U, n)


@pytest.mark.parametrize("more", [(), (2,)])
def test_a_singular_matrix_that_is_broadcast_is_named_by_its_place_in_the_whole_stack(more):
    a, b = np.stack([np.eye(3)] * 3).reshape(3, 1, 3, 3), np.ones((*more, 3, 2, 3, 1))
    a[1] = 0
    for matrix, place in ((a, (1, 0)), (a[1, 0], (0, 0))):
        whole = (0,) * len(more) + place
        with pytest.raises(linalg.LinAlgError) as caught:
            linalg.solve(matrix, b)
        assert f"linalg.solve: matrix {whole} of the stack is singular" in str(caught.value)
    assert linalg.solve_ex(a, b).info.reshape(-1, 3, 2)[0].tolist() == [[0, 0], [1, 1], [0, 0]]
