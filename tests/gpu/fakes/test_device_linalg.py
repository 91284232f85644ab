"""Linear algebra of device arrays: the CPU's results, in every element type and layout."""

import numpy as np
import pytest
from linalg_on_device import (
    ELEMENTS,
    LAYOUTS,
    TOLERANCES,
    Matrix,
    matrices,
    positive,
    there,
    viewed,
)

from backendcfg.ops import linalg

pytestmark = pytest.mark.usefixtures("solver")


def close(result, expected, element):
    assert type(result) is Matrix
    assert (result.element, result.place) == (expected.dtype.name, (2, 0))
    assert result.shape == expected.shape
    assert np.allclose(result.array, expected, TOLERANCES[element], TOLERANCES[element])


def is_identity(product, element):
    expected = np.broadcast_to(np.eye(product.shape[-1]), product.shape)
    assert np.allclose(product, expected, atol=TOLERANCES[element])


def adjoint(array):
    return array.conj().swapaxes(-1, -2)


STACKS = [(4, 4), (3, 4, 4), (2, 3, 4, 4), (1, 1), (0, 0), (0, 4, 4), (2, 0, 0)]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", STACKS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_cholesky_factor_is_that_of_the_cpu(element, shape, upper):
    a = positive(shape, element)
    close(linalg.cholesky(there(a), upper=upper), linalg.cholesky(a, upper=upper), element)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("element", ["float64", "complex128"])
def test_only_the_triangle_that_is_named_is_read(element, upper):
    a = positive((4, 4), element)
    hidden = np.tril(np.full((4, 4), np.nan), -1) if upper else np.triu(np.full((4, 4), np.nan), 1)
    close(linalg.cholesky(there(a + hidden), upper=upper), linalg.cholesky(a, upper=upper), element)
    name = "U" if upper else "L"
    close(linalg.eigvalsh(there(a + hidden), name), linalg.eigvalsh(a, name), element)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ["float64", "complex64"])
def test_a_matrix_may_lie_as_it_likes(element, layout):
    a, b = positive((3, 4, 4), element), matrices((3, 4, 2), element, 7)
    there_a, there_b = (viewed(there(each), LAYOUTS[layout]) for each in (a, b))
    close(linalg.cholesky(there_a), linalg.cholesky(a), element)
    close(linalg.solve(there_a, there_b), np.linalg.solve(a, b), element)
    close(linalg.inv(there_a), np.linalg.inv(a), element)
    close(linalg.svdvals(there_b), np.linalg.svd(b, compute_uv=False), element)
    close(linalg.eigvalsh(there_a), np.linalg.eigvalsh(a), element)
    factor = linalg.cholesky(a)
    there_l = viewed(there(factor), LAYOUTS[layout])
    close(linalg.cholesky_solve(there_b, there_l), np.linalg.solve(a, b), element)
    close(linalg.cholesky_inverse(there_l), np.linalg.inv(a), element)
    there_a.array[...] = positive((3, 4, 4), element, 5)  # what was passed was not written


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_passed_is_not_written(layout):
    a, b = positive((2, 4, 4)), matrices((2, 4, 4), seed=3)
    there_a, there_b = (viewed(there(each), LAYOUTS[layout]) for each in (a, b))
    for function in (linalg.cholesky, linalg.inv, linalg.lu_factor, linalg.lu, linalg.qr,
                     linalg.eigh, linalg.eigvalsh, linalg.svd, linalg.svdvals):  # fmt: skip
        function(there_a)
        assert np.array_equal(there_a.array, a), function
    for function in (linalg.solve, lambda a, b: linalg.solve(a, b, left=False)):
        function(there_a, there_b)
        assert np.array_equal(there_a.array, a)
        assert np.array_equal(there_b.array, b)


SIDES = [
    ((4, 4), (4, 2)),
    ((4, 4), (4,)),
    ((3, 4, 4), (3, 4)),
    ((3, 4, 4), (3, 4, 2)),
    ((3, 4, 4), (4, 2)),
    ((4, 4), (3, 4, 2)),
    ((1, 4, 4), (3, 4, 2)),
    ((2, 1, 4, 4), (3, 4, 2)),
    ((4, 4), (4, 0)),
    ((0, 0), (0, 2)),
    ((0, 4, 4), (4, 2)),
]


@pytest.mark.parametrize("shapes", SIDES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_solution_is_that_of_the_cpu(element, shapes):
    a, b = matrices(shapes[0], element), matrices(shapes[1], element, 2)
    close(linalg.solve(there(a), there(b)), linalg.solve(a, b), element)
    solved = linalg.solve_ex(there(a), there(b))
    expected = linalg.solve_ex(a, b)
    close(solved.result, expected.result, element)
    close(solved.info, expected.info, "float64")


@pytest.mark.parametrize("shapes", [((4, 4), (2, 4)), ((3, 4, 4), (2, 4)), ((4, 4), (3, 2, 4))])
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_system_may_be_solved_from_the_right(element, shapes):
    a, b = matrices(shapes[0], element), matrices(shapes[1], element, 2)
    solved = linalg.solve(there(a), there(b), left=False)
    close(solved, linalg.solve(a, b, left=False), element)


@pytest.mark.parametrize("shape", STACKS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_an_inverse_is_that_of_the_cpu(element, shape):
    a = matrices(shape, element)
    close(linalg.inv(there(a)), linalg.inv(a), element)


@pytest.mark.parametrize("shapes", [((4, 4), (4, 2)), ((3, 4, 4), (4, 2)), ((4, 4), (3, 4, 2))])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_factor_solves_and_is_inverted(element, upper, shapes):
    a, b = positive(shapes[0], element), matrices(shapes[1], element, 2)
    factor = linalg.cholesky(a, upper=upper)
    solved = linalg.cholesky_solve(there(b), there(factor), upper)
    close(solved, linalg.cholesky_solve(b, factor, upper), element)
    close(linalg.cholesky_inverse(there(factor), upper), np.linalg.inv(a), element)


SHAPES = [(4, 4), (5, 3), (3, 5), (2, 5, 3), (2, 3, 5), (1, 3), (3, 1), (3, 0), (0, 3), (0, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_lu_factors_are_those_of_the_cpu(element, shape):
    a = matrices(shape, element)
    for result, expected in zip(linalg.lu_factor(there(a)), linalg.lu_factor(a), strict=True):
        close(result, expected, element)
    factored = linalg.lu_factor_ex(there(a))
    close(factored.info, linalg.lu_factor_ex(a).info, element)
    for result, expected in zip(linalg.lu(there(a)), linalg.lu(a), strict=True):
        close(result, expected, element)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("stacks", [((), ()), ((3,), (3,)), ((), (3,)), ((3,), ())])
@pytest.mark.parametrize("element", ELEMENTS)
def test_lu_factors_solve(element, stacks, left, adjoint):
    a = matrices((*stacks[0], 4, 4), element)
    b = matrices((*stacks[1], *((4, 2) if left else (2, 4))), element, 2)
    factors, pivots = linalg.lu_factor(a)
    expected = linalg.lu_solve(factors, pivots, b, left=left, adjoint=adjoint)
    for change in LAYOUTS.values():
        solved = linalg.lu_solve(
            viewed(there(factors), change), there(pivots), there(b), left=left, adjoint=adjoint
        )
        close(solved, expected, element)
    own = linalg.lu_factor(there(a))
    solved = linalg.lu_solve(own.LU, own.pivots, there(b), left=left, adjoint=adjoint)
    close(solved, expected, element)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_q_and_r_make_the_matrix(element, shape, mode):
    a = matrices(shape, element)
    q, r = linalg.qr(there(a), mode)
    expected = linalg.qr(a, mode)
    assert (q.shape, r.shape) == (expected.Q.shape, expected.R.shape)
    assert np.array_equal(r.array, np.triu(r.array))
    close(r, expected.R, element)
    if mode != "r":
        assert np.allclose(q.array @ r.array, a, atol=TOLERANCES[element])
        is_identity(adjoint(q.array) @ q.array, element)


@pytest.mark.parametrize("triangle", ["L", "U", "u"])
@pytest.mark.parametrize("shape", STACKS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_eigenvalues_are_those_of_the_cpu_and_vectors_belong_to_them(element, shape, triangle):
    a = positive(shape, element)
    values, vectors = linalg.eigh(there(a), triangle)
    close(values, linalg.eigvalsh(a), element)
    close(linalg.eigvalsh(there(a), triangle), linalg.eigvalsh(a), element)
    v = vectors.array
    scale = max(1.0, float(np.abs(a).max(initial=0)))
    assert np.allclose(a @ v, v * values.array[..., None, :], atol=TOLERANCES[element] * scale)
    is_identity(adjoint(v) @ v, element)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_singular_values_and_vectors_make_the_matrix(element, shape, full):
    a = matrices(shape, element)
    u, s, vh = linalg.svd(there(a), full)
    expected = linalg.svd(a, full)
    assert [each.shape for each in (u, s, vh)] == [each.shape for each in expected]
    close(s, expected.S, element)
    close(linalg.svdvals(there(a), driver="gesvd"), expected.S, element)
    count = s.shape[-1]
    product = (u.array[..., :count] * s.array[..., None, :]) @ vh.array[..., :count, :]
    assert np.allclose(product, a, atol=TOLERANCES[element])
    is_identity(adjoint(u.array) @ u.array, element)
    is_identity(vh.array @ adjoint(vh.array), element)
