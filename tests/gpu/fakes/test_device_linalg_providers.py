"""Linear algebra on devices by hipSOLVER and by both builds of MAGMA: the CPU's results."""

import device_arrays
import numpy as np
import pytest
from linalg_on_device import ELEMENTS, TOLERANCES, Matrix, matrices, positive, there
from products import under

from backendcfg.gpu import linalg as linalg_calls
from backendcfg.ops import linalg

pytestmark = pytest.mark.sweep

CUDA, ROCM = (2, 0), (10, 0)
LIBRARY = "cuda.preferred_linalg_library"


@pytest.fixture(params=[("hipsolver", ROCM), ("magma", CUDA), ("magma", ROCM)])
def place(request, devices, monkeypatch):
    """Where each of them serves."""
    name, where = request.param
    monkeypatch.setattr(device_arrays, "OnDevice", Matrix)
    monkeypatch.setattr(Matrix, "stream", 0)
    linalg_calls.forget()
    devices.bring("magma", "magma_hip")
    with under(**{LIBRARY: "default" if name == "hipsolver" else name}):
        yield where
    linalg_calls.forget()
    fake = getattr(devices, "magma_hip" if where == ROCM and name == "magma" else name)
    assert fake.calls(), "another library served"


def close(result, expected, element):
    assert result.shape == expected.shape
    assert result.element == expected.dtype.name
    assert np.allclose(result.array, expected, TOLERANCES[element], TOLERANCES[element])


def is_identity(product, element):
    expected = np.broadcast_to(np.eye(product.shape[-1]), product.shape)
    assert np.allclose(product, expected, atol=TOLERANCES[element])


def adjoint(array):
    return array.conj().swapaxes(-1, -2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(5, 5), (3, 4, 4)])
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_cholesky_factor_solves_and_is_inverted(place, element, shape, upper):
    a, b = positive(shape, element), matrices((*shape[:-1], 2), element, 2)
    factor = linalg.cholesky(there(a, place), upper=upper)
    close(factor, linalg.cholesky(a, upper=upper), element)
    solved = linalg.cholesky_solve(there(b, place), factor, upper)
    close(solved, np.linalg.solve(a, b), element)
    close(linalg.cholesky_inverse(factor, upper), np.linalg.inv(a), element)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 5)])
@pytest.mark.parametrize("element", ELEMENTS)
def test_lu_factors_are_those_of_the_cpu(place, element, shape):
    a = matrices(shape, element)
    for result, expected in zip(
        linalg.lu_factor(there(a, place)), linalg.lu_factor(a), strict=True
    ):
        close(result, expected, element)
    for result, expected in zip(linalg.lu(there(a, place)), linalg.lu(a), strict=True):
        close(result, expected, element)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("element", ELEMENTS)
def test_lu_factors_solve(place, element, left, adjoint):
    a, b = matrices((3, 4, 4), element), matrices((3, 4, 2) if left else (3, 2, 4), element, 2)
    factors, pivots = linalg.lu_factor(there(a, place))
    solved = linalg.lu_solve(factors, pivots, there(b, place), left=left, adjoint=adjoint)
    expected = linalg.lu_solve(*linalg.lu_factor(a), b, left=left, adjoint=adjoint)
    close(solved, expected, element)


@pytest.mark.parametrize("shapes", [((4, 4), (4,)), ((3, 4, 4), (4, 2)), ((4, 4), (3, 4, 2))])
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_solution_and_an_inverse_are_those_of_the_cpu(place, element, shapes):
    a, b = matrices(shapes[0], element), matrices(shapes[1], element, 2)
    close(linalg.solve(there(a, place), there(b, place)), linalg.solve(a, b), element)
    close(linalg.inv(there(a, place)), np.linalg.inv(a), element)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 5), (1, 3)])
@pytest.mark.parametrize("element", ELEMENTS)
def test_q_and_r_make_the_matrix(place, element, shape, mode):
    a = matrices(shape, element)
    q, r = linalg.qr(there(a, place), mode)
    close(r, linalg.qr(a, mode).R, element)
    if mode != "r":
        assert np.allclose(q.array @ r.array, a, atol=TOLERANCES[element])
        is_identity(adjoint(q.array) @ q.array, element)


@pytest.mark.parametrize("triangle", ["L", "U"])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 5, 5)])
@pytest.mark.parametrize("element", ELEMENTS)
def test_eigenvalues_are_those_of_the_cpu_and_vectors_belong_to_them(
    place, element, shape, triangle
):
    a = positive(shape, element)
    values, vectors = linalg.eigh(there(a, place), triangle)
    close(values, linalg.eigvalsh(a), element)
    close(linalg.eigvalsh(there(a, place), triangle), linalg.eigvalsh(a), element)
    v, scale = vectors.array, np.abs(a).max()
    assert np.allclose(a @ v, v * values.array[..., None, :], atol=TOLERANCES[element] * scale)
    is_identity(adjoint(v) @ v, element)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 5), (3, 1)])
@pytest.mark.parametrize("element", ELEMENTS)
def test_singular_values_and_vectors_make_the_matrix(place, element, shape, full):
    a = matrices(shape, element)
    u, s, vh = linalg.svd(there(a, place), full)
    assert [each.shape for each in (u, s, vh)] == [each.shape for each in linalg.svd(a, full)]
    close(s, np.linalg.svd(a, compute_uv=False), element)
    close(linalg.svdvals(there(a, place)), s.array, element)
    count = s.shape[-1]
    product = (u.array[..., :count] * s.array[..., None, :]) @ vh.array[..., :count, :]
    assert np.allclose(product, a, atol=TOLERANCES[element])
    is_identity(adjoint(u.array) @ u.array, element)
    is_identity(vh.array @ adjoint(vh.array), element)


def test_what_has_no_answer_is_said_as_on_the_cpu(place):
    a = positive((3, 4, 4))
    a[1] = np.diag([1, 1, 0, 1])
    info = linalg.cholesky_ex(there(a, place)).info
    assert info.array.tolist() == [0, 3, 0]
    assert linalg.solve_ex(there(a, place), there(a, place)).info.array.tolist() == [0, 3, 0]
    for function in (linalg.cholesky, linalg.inv):
        with pytest.raises(linalg.LinAlgError) as on_device:
            function(there(a, place))
        with pytest.raises(linalg.LinAlgError) as on_cpu:
            function(a)
        assert str(on_device.value).splitlines()[0] == str(on_cpu.value).splitlines()[0]
    with pytest.raises(linalg.LinAlgError):
        linalg.eigvalsh(there(np.full((2, 2), np.nan), place))
