"""The factorisations that the fakes of LAPACKs compute with agree with NumPy's and SciPy's."""

import ctypes

import numpy as np
import pytest

TYPES = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
AS_IS, TRANSPOSED, ADJOINT = 0, 1, 2
i64 = ctypes.c_int64

linalg = pytest.importorskip("scipy.linalg")
pytestmark = pytest.mark.parametrize("dtype", TYPES)


@pytest.fixture
def library(device_file):
    found = ctypes.CDLL(device_file("libfactorised.so"))
    for name in ("potrf", "getrf", "getri", "syevd", "gesvd"):
        getattr(found, name).restype = i64
    return found


@pytest.fixture
def close(dtype):
    tolerance = 2e-4 if dtype in {"float32", "complex64"} else 1e-11
    return lambda got, wanted: np.testing.assert_allclose(got, wanted, tolerance, tolerance)


@pytest.fixture
def random(dtype):
    generator = np.random.default_rng(3)

    def matrix(*shape):
        real = generator.standard_normal(shape)
        if dtype.startswith("complex"):
            real = real + 1j * generator.standard_normal(shape)
        return copy(real.astype(dtype))

    return matrix


def of(array):
    """The arguments of a matrix."""
    leading = max(array.strides[1] // array.itemsize, 1) if array.ndim == 2 else array.size
    return at(array), TYPES[str(array.dtype)], i64(leading)


def at(array):
    return ctypes.c_void_p(array.ctypes.data)


def copy(array):
    """Column-major, and with more memory between the columns than the matrix has rows."""
    held = np.full((len(array) + 2, array.shape[1]), 9, array.dtype, order="F")
    held[:-2] = array
    return held[:-2]


def applied(matrix, how):
    return {AS_IS: matrix, TRANSPOSED: matrix.T, ADJOINT: matrix.conj().T}[how]


def real_of(dtype):
    return np.zeros(0, dtype).real.dtype


@pytest.mark.parametrize("upper", [0, 1])
def test_cholesky_factors_solves_inverts_and_leaves_the_other_triangle(
    library, random, close, dtype, upper
):
    a, b = random(5, 5), random(5, 2)
    positive = a @ a.conj().T + 5 * np.eye(5, dtype=dtype)
    held = np.triu(positive) if upper else np.tril(positive)
    factor = np.asfortranarray(held + 7 * (np.tril(np.ones_like(a), -1) if upper else 0))
    assert library.potrf(*of(factor), upper, i64(5)) == 0
    close(np.triu(factor) if upper else np.tril(factor), linalg.cholesky(positive, lower=not upper))
    if upper:
        assert np.all(np.tril(factor, -1) == 7 * np.tril(np.ones((5, 5)), -1))
    x = copy(b)
    library.potrs(*of(factor), upper, i64(5), *of(x), i64(2))
    close(x, np.linalg.solve(positive, b))
    library.potri(*of(factor), upper, i64(5))
    inverse = np.linalg.inv(positive)
    close(*(np.triu(one) if upper else np.tril(one) for one in (factor, inverse)))


def test_cholesky_says_which_leading_minor_is_not_positive(library, dtype):
    a = np.asfortranarray(np.diag([1, 2, -1, 4])).astype(dtype)
    assert library.potrf(*of(a), 0, i64(4)) == 3
    a[0, 0] = np.nan
    assert library.potrf(*of(a), 0, i64(4)) == 1


@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (3, 5)])
def test_lu_factors_with_the_pivots_of_lapack(library, random, close, dtype, shape):
    a, few = random(*shape), min(shape)
    factors, pivots = copy(a), np.zeros(few, "int64")
    assert library.getrf(*of(factors), *map(i64, shape), at(pivots)) == 0
    getrf = linalg.get_lapack_funcs("getrf", (a,))
    wanted, their_pivots, _ = getrf(a)
    close(factors, wanted)
    np.testing.assert_array_equal(pivots - 1, their_pivots)


@pytest.mark.parametrize("how", [AS_IS, TRANSPOSED, ADJOINT])
def test_lu_solves_and_inverts(library, random, close, dtype, how):
    a, b = random(5, 5), random(5, 3)
    factors, pivots, x = copy(a), np.zeros(5, "int64"), copy(b)
    library.getrf(*of(factors), i64(5), i64(5), at(pivots))
    library.getrs(*of(factors), how, i64(5), at(pivots), *of(x), i64(3))
    close(x, np.linalg.solve(applied(a, how), b))
    assert library.getri(*of(factors), i64(5), at(pivots)) == 0
    close(factors, np.linalg.inv(a))


def test_lu_goes_on_after_a_pivot_of_zero_and_says_the_first(library, dtype):
    a = np.asfortranarray([[2, 4, 1], [4, 8, 3], [1, 2, 5]]).astype(dtype)
    factors, pivots = copy(a), np.zeros(3, "int64")
    assert library.getrf(*of(factors), i64(3), i64(3), at(pivots)) == 2
    unit, upper = np.tril(factors, -1) + np.eye(3), np.triu(factors)
    order = np.arange(3)
    for step, other in enumerate(pivots - 1):
        order[[step, other]] = order[[other, step]]
    np.testing.assert_allclose(unit @ upper, a[order], atol=1e-6)
    assert library.getri(*of(np.diag([1, 0]).astype(dtype, order="F")), i64(2), None) == 2


def test_lu_without_pivots_swaps_nothing(library, close, dtype):
    a = np.asfortranarray([[1, 2], [4, 3]]).astype(dtype)
    factors = copy(a)
    assert library.getrf(*of(factors), i64(2), i64(2), None) == 0
    close(factors, [[1, 2], [4, -5]])


@pytest.mark.parametrize("how", [AS_IS, TRANSPOSED, ADJOINT])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("unit", [0, 1])
def test_triangles_are_solved_from_both_sides(library, random, close, dtype, how, upper, unit):
    a, b = random(4, 4) + 3 * np.eye(4, dtype=dtype), random(4, 3)
    a = np.asfortranarray(a)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(triangle, 1)
    x, y = copy(b), copy(b.T)
    library.trsm(*of(a), upper, how, unit, 0, i64(4), *of(x), i64(3))
    close(x, np.linalg.solve(applied(triangle, how), b))
    library.trsm(*of(a), upper, how, unit, 1, i64(4), *of(y), i64(3))
    close(y @ applied(triangle, how), b.T)


@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (3, 5), (1, 1), (4, 1)])
def test_qr_has_the_reflectors_of_lapack(library, random, close, dtype, shape):
    (m, n), few = shape, min(shape)
    a = random(*shape)
    reflectors, tau = copy(a), np.zeros(few, dtype)
    library.geqrf(*of(reflectors), i64(m), i64(n), at(tau))
    geqrf = linalg.get_lapack_funcs("geqrf", (a,))
    wanted, their_tau, _, _ = geqrf(a)
    close(reflectors, wanted)
    close(tau, their_tau)

    q = np.zeros((m, m), dtype, order="F")
    q[:, :few] = reflectors[:, :few]
    library.orgqr(*of(q), at(tau), i64(m), i64(m), i64(few))
    close(q.conj().T @ q, np.eye(m))
    r = np.triu(reflectors)
    close(q @ r, a)
    for adjoint in (0, 1):
        c = random(m, 3)
        wanted = (q.conj().T if adjoint else q) @ c
        sizes = map(i64, (m, 3, few))
        library.ormqr(*of(reflectors), at(tau), adjoint, *sizes, *of(c))
        close(c, wanted)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_eigenvalues_ascend_and_vectors_belong_to_them(library, random, close, dtype, upper, n):
    a = random(n, n)
    whole = a + a.conj().T
    held = np.asfortranarray(np.triu(whole) if upper else np.tril(whole))
    values = np.zeros(n, real_of(dtype))
    vectors = copy(held)
    assert library.syevd(*of(vectors), upper, i64(n), 1, at(values)) == 0
    close(values, np.linalg.eigvalsh(whole))
    close(vectors.conj().T @ vectors, np.eye(n))
    close(whole @ vectors, vectors * values)


def test_equal_eigenvalues_keep_their_vectors_apart(library, close, dtype):
    vectors, values = np.eye(4, dtype=dtype, order="F"), np.zeros(4, real_of(dtype))
    assert library.syevd(*of(vectors), 0, i64(4), 1, at(values)) == 0
    close(values, np.ones(4))
    close(vectors.conj().T @ vectors, np.eye(4))


@pytest.mark.parametrize("shape", [(5, 5), (6, 4), (3, 5), (1, 3)])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("rank", [9, 2])
def test_singular_values_descend_and_vectors_belong_to_them(
    library, random, close, dtype, shape, full, rank
):
    (m, n), few = shape, min(shape)
    a = copy(random(m, min(rank, n)) @ random(min(rank, n), n))
    before, values = a.copy(), np.zeros(few, real_of(dtype))
    u = np.zeros((m, m if full else few), dtype, order="F")
    vh = np.zeros((n if full else few, n), dtype, order="F")
    sizes = i64(m), i64(n)
    wanted = i64(u.shape[1]), i64(vh.shape[0])
    assert library.gesvd(*of(a), *sizes, at(values), *of(u), wanted[0], *of(vh), wanted[1]) == 0
    np.testing.assert_array_equal(a, before)
    close(values, np.linalg.svd(a, compute_uv=False))
    close(u.conj().T @ u, np.eye(u.shape[1]))
    close(vh @ vh.conj().T, np.eye(vh.shape[0]))
    close((u[:, :few] * values) @ vh[:few], a)


def test_a_matrix_that_is_not_a_number_does_not_converge(library, dtype):
    a, values = np.ones((3, 3), dtype, order="F"), np.zeros(3, real_of(dtype))
    a[1, 1] = np.nan
    nothing = None, TYPES[dtype], i64(1)
    assert library.gesvd(*of(a), i64(3), i64(3), at(values), *nothing, i64(0), *nothing, i64(0))
    assert library.syevd(*of(a), 0, i64(3), 1, at(values)) == 1
