"""What linear algebra on a device refuses, and how it fails: by name, without harm to what follows."""

import sys

import numpy as np
import pytest
from device_arrays import ByCapsule, ByInterface
from linalg_on_device import Matrix, matrices, positive, there
from products import under

from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu import own_library
from backendcfg.ops import linalg


def square(n=4, element="float64", stack=()):
    return there(positive((*stack, n, n), element))


def refused(call, *given, kind=InvalidArgumentError, **named):
    with pytest.raises(kind) as caught:
        call(*given, **named)
    return caught.value.render()


ARGUMENTS = [
    (linalg.inv, (there(np.ones((2, 3))),), {},
     "linalg.inv: `A` must be square in its last two dimensions"),
    (linalg.cholesky, (there(np.ones(3)),), {},
     "linalg.cholesky: `A` must have at least two dimensions"),
    (linalg.inv, (there(np.ones((2, 2), np.int32)),), {},
     "linalg.inv: `A` must hold float32, float64, complex64 or complex128, not int32"),
    (linalg.solve, (square(), square(element="float32")), {},
     "linalg.solve: `B` must hold float64, as `A` does, not float32"),
    (linalg.solve, (square(), there(np.ones((3, 2)))), {},
     "linalg.solve: `B` must have as many rows as `A`"),
    (linalg.solve, (square(), there(np.ones((2, 3)))), {"left": False},
     "linalg.solve: `B` must have as many columns as `A`, for left=False"),
    (linalg.solve, (square(), there(np.ones(4))), {"left": False},
     "linalg.solve: `B` must be a matrix, for left=False"),
    (linalg.solve, (square(stack=(2,)), there(np.ones((3, 4, 2)))), {},
     "linalg.solve: the leading dimensions of `A` and `B` must broadcast"),
    (linalg.cholesky_solve, (there(np.ones(4)), square()), {},
     "linalg.cholesky_solve: `B` must have at least two dimensions"),
    (linalg.cholesky, (square(),), {"upper": 1}, "linalg.cholesky: `upper` must be a bool, not 1"),
    (linalg.lu, (square(),), {"pivot": False},
     "linalg.lu: `pivot` must be true: no provider here factorises without pivoting"),
    (linalg.qr, (square(), "all"), {},
     'linalg.qr: `mode` must be "reduced", "complete" or "r", not \'all\''),
    (linalg.eigh, (square(), "X"), {}, 'linalg.eigh: `UPLO` must be "L" or "U", not \'X\''),
    (linalg.svd, (square(),), {"driver": "gesvdj"},
     'linalg.svd: `driver` must be None or "gesvd" on a device, not \'gesvdj\''),
    (linalg.lu_solve, (square(), there(np.ones(4, np.int64)), square()), {},
     "linalg.lu_solve: `pivots` must hold int32, as `lu_factor` gives them, not int64"),
    (linalg.lu_solve, (square(), there(np.ones(3, np.int32)), square()), {},
     "linalg.lu_solve: `pivots` must have the shape of `LU` without its last dimension"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "given", "named", "message"), ARGUMENTS)
def test_an_argument_that_does_not_fit_is_refused_before_anything_is_called(
    solver, call, given, named, message
):
    text = refused(call, *given, **named)
    assert text.splitlines()[0] == f"error[invalid-argument]: {message}"
    assert "  state: nothing was computed" in text.splitlines()
    assert " on cuda:0" in text
    assert solver.calls() == []


def test_a_refusal_says_where_the_arrays_are(solver):
    assert refused(linalg.solve, square(), square(element="float32")) == (
        "error[invalid-argument]: linalg.solve: `B` must hold float64, as `A` does, not float32\n"
        "  note: A: float64 array of shape (4, 4) on cuda:0\n"
        "  note: B: float32 array of shape (4, 4) on cuda:0\n"
        "  state: nothing was computed\n"
        "  help: convert one: nothing is converted on a device"
    )


def test_arrays_of_two_places_are_refused(solver):
    far = there(np.ones((4, 2)), place=(2, 1))
    assert "linalg.solve: `B` must be on cuda:0, as `A` is, not on cuda:1" in refused(
        linalg.solve, square(), far
    )
    assert "linalg.solve: `B` must be an array on cuda:0, as `A` is" in refused(
        linalg.solve, square(), np.ones((4, 2))
    )
    assert "linalg.solve: `A` must be an array on a device" in refused(
        linalg.solve, np.eye(4), square()
    )


@pytest.mark.parametrize("wrap", [ByInterface, ByCapsule])
def test_arrays_whose_library_makes_none_are_refused(solver, wrap):
    text = refused(linalg.inv, wrap(np.eye(3), place=(2, 0)))
    assert text.splitlines()[0] == (
        "error[invalid-argument]: linalg.inv: `A` must be of a library that makes its results: "
        "PyTorch or CuPy"
    )


def test_arrays_of_two_libraries_are_refused(solver):
    text = refused(linalg.solve, square(), ByInterface(np.ones((4, 2)), place=(2, 0)))
    assert text == (
        "error[invalid-argument]: linalg.solve: `B` must be of the library that makes the results, "
        "not device_arrays.ByInterface\n"
        "  state: nothing was computed\n"
        "  help: pass all arrays as PyTorch's, or all as CuPy's"
    )


SINGULAR = [
    (linalg.inv, "is singular: the diagonal element 1 of its factor is zero"),
    (linalg.lu_factor, "is singular: the diagonal element 1 of its factor is zero"),
    (linalg.cholesky_inverse, "is singular: the diagonal element 1 of its factor is zero"),
    (lambda a: linalg.solve(a, there(np.ones((3, 2)))), "is singular: the diagonal element 1"),
    (linalg.cholesky, "is not positive-definite: its leading minor of order 1 is not positive"),
]


@pytest.mark.parametrize(("call", "what"), SINGULAR)
def test_a_singular_matrix_is_named_with_its_index_in_the_stack(solver, call, what):
    stack = np.stack([np.eye(3)] * 6).reshape(2, 3, 3, 3)
    stack[1, 1] = 0
    text = refused(call, there(stack), kind=linalg.LinAlgError)
    assert f"matrix (1, 1) of the stack {what}" in text
    assert "note: argument: float64 array of shape (2, 3, 3, 3) on cuda:0" in text
    assert "  state: nothing was returned" in text
    assert f"the matrix {what}" in refused(call, there(stack[1, 1]), kind=linalg.LinAlgError)


def test_functions_that_give_info_do_not_raise_and_leave_nan(solver):
    stack = np.stack([np.eye(3), np.zeros((3, 3))])
    result, info = linalg.inv_ex(there(stack))
    assert info.tolist() == [0, 1]
    assert info.element == "int32"
    assert np.array_equal(result.array[0], np.eye(3))
    assert np.isnan(result.array[1]).all()
    result, info = linalg.solve_ex(there(stack), there(np.ones((2, 3))))
    assert np.isnan(result.array[1]).all()
    assert np.array_equal(result.array[0], np.ones(3))
    result, info = linalg.solve_ex(there(stack[1]), there(np.ones((2, 3, 1))))
    assert info.tolist() == [1, 1]
    assert linalg.lu_factor_ex(there(stack)).info.tolist() == [0, 1]
    assert linalg.cholesky_ex(there(stack)).info.tolist() == [0, 1]
    for function in (linalg.inv_ex, linalg.lu_factor_ex, linalg.cholesky_ex):
        with pytest.raises(linalg.LinAlgError, match="matrix 1 of the stack"):
            function(there(stack), check_errors=True)


@pytest.mark.parametrize("call", [linalg.eigh, linalg.eigvalsh, linalg.svd, linalg.svdvals])
def test_a_decomposition_that_does_not_converge_raises(solver, call):
    stack = np.stack([np.eye(3), np.eye(3)])
    stack[1, 0, 0] = np.nan
    text = refused(call, there(stack), kind=linalg.LinAlgError)
    assert "matrix 1 of the stack was not decomposed: the iteration did not converge" in text


def test_values_that_are_not_finite_are_found_where_the_library_says_nothing(solver, monkeypatch):
    def said(operation, value):
        return (
            [0] * int(np.prod(value.shape))
            if value.element == "int32"
            else value.reshape(-1).tolist()
        )

    monkeypatch.setattr(own_library, "numbers", said)
    stack = np.stack([np.eye(3), np.full((3, 3), np.nan)])
    text = refused(linalg.svdvals, there(stack), kind=linalg.LinAlgError)
    assert "linalg.svdvals: matrix 1 of the stack has NaN or infinity" in text


def test_pivots_outside_the_matrix_read_no_other_memory(solver):
    factors, _ = linalg.lu_factor(square())
    wild = there(np.array([0, -5, 900, 4], np.int32))
    linalg.lu_solve(factors, wild, there(np.ones((4, 1))))
    assert wild.array.tolist() == [0, -5, 900, 4]


def test_results_that_are_not_finite_are_refused_where_the_profile_says_so(solver):
    factors, pivots = linalg.lu_factor_ex(there(np.zeros((2, 2))))[:2]
    with under(**{"ops.check_finite": True}):
        linalg.inv(square())
        text = refused(linalg.lu_solve, factors, pivots, there(np.ones((2, 1))))
        assert text.splitlines()[0] == (
            "error[not-finite]: linalg.lu_solve: the result has NaN or infinity, which "
            "`ops.check_finite` refuses"
        )
        assert "  state: nothing was returned" in text
        linalg.inv_ex(there(np.zeros((2, 2))))  # `info` says it


def all_of(a, b):
    linalg.inv(a)
    linalg.cholesky(a)
    linalg.cholesky_solve(b, a)
    linalg.qr(a)
    linalg.eigh(a)
    linalg.svd(a)


STATUSES = {
    "cusolverDnXpotrf_bufferSize": "cholesky",
    "cusolverDnXpotrf": "cholesky",
    "cusolverDnXpotrs": "cholesky_solve",
    "cusolverDnXgetrf_bufferSize": "inv",
    "cusolverDnXgetrf": "inv",
    "cusolverDnXgetrs": "inv",
    "cusolverDnXgeqrf_bufferSize": "qr",
    "cusolverDnXgeqrf": "qr",
    "cusolverDnDorgqr_bufferSize": "qr",
    "cusolverDnDorgqr": "qr",
    "cusolverDnXsyevd_bufferSize": "eigh",
    "cusolverDnXsyevd": "eigh",
    "cusolverDnXgesvd_bufferSize": "svd",
    "cusolverDnXgesvd": "svd",
}


@pytest.mark.parametrize("function", STATUSES)
def test_each_failure_of_the_library_is_named_and_the_next_call_works(solver, devices, function):
    a, b = square(), square()
    solver.fail(function, 7, count=1)
    text = refused(all_of, a, b, kind=DeviceFailedError)
    operation = STATUSES[function]
    assert text.splitlines()[0] == (
        f"error[device-failed]: linalg.{operation}: cuSOLVER failed: {function} returned "
        "CUSOLVER_STATUS_INTERNAL_ERROR (7)"
    )
    assert "float64 array of shape (4, 4) on cuda:0" in text
    assert "  state: the result was not computed; the next call starts anew" in text
    pushed = len(devices.cuda.calls("cuCtxPushCurrent_v2"))
    assert pushed == len(devices.cuda.calls("cuCtxPopCurrent_v2"))
    all_of(a, b)


@pytest.mark.parametrize(
    "function",
    ["cusolverDnCreate", "cusolverDnSetStream", "cusolverDnCreateParams",
     "cusolverDnSetDeterministicMode"],
)  # fmt: skip
def test_a_handle_that_cannot_be_made_is_named_and_nothing_is_left(solver, new_stream, function):
    solver.fail(function, 2, count=1)
    text = refused(linalg.inv, square(), kind=DeviceFailedError)
    assert text.splitlines()[0] == (
        f"error[device-failed]: linalg.inv: cuSOLVER failed: {function} returned "
        "CUSOLVER_STATUS_ALLOC_FAILED (2)"
    )
    assert "  help: free memory on the device, or make the workspace smaller" in text
    made = len(solver.calls("cusolverDnCreate"))
    destroyed = len(solver.calls("cusolverDnDestroy"))
    assert destroyed == (1 if function in ("cusolverDnSetStream", "cusolverDnCreateParams") else 0)
    linalg.inv(square())
    kept = function == "cusolverDnSetDeterministicMode"
    assert len(solver.calls("cusolverDnCreate")) == made + (0 if kept else 1)


def test_a_failure_of_the_driver_is_the_driver_s(solver, devices):
    devices.cuda.fail("cuCtxPushCurrent_v2", 201, count=1)
    text = refused(linalg.inv, square(), kind=DeviceFailedError)
    assert "linalg.inv: the device's driver failed: cuCtxPushCurrent" in text
    linalg.inv(square())


def test_a_full_device_is_a_memory_error_and_the_next_call_works(solver, monkeypatch):
    monkeypatch.setattr(Matrix, "full", True)
    with pytest.raises(MemoryError, match="the device is full"):
        linalg.inv(square())
    monkeypatch.setattr(Matrix, "full", False)
    linalg.inv(square())


def test_a_device_that_fails_before_its_answer_is_read_is_told(solver, monkeypatch):
    def tolist(self):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(Matrix, "tolist", tolist)
    assert refused(linalg.inv, square(), kind=DeviceFailedError) == (
        "error[device-failed]: linalg.inv: the device failed before its answer could be read\n"
        "  note: CUDA error: an illegal memory access was encountered\n"
        "  state: the result was not computed\n"
        "  help: an earlier kernel may have failed: see `compute-sanitizer`"
    )


def test_what_numpy_can_do_for_cupy_s_arrays_is_done_by_its_functions(monkeypatch):
    """CuPy's functions are NumPy's by name and meaning: NumPy stands for it here."""
    monkeypatch.setitem(sys.modules, "cupy", np)
    value = matrices((2, 3, 3), "complex128")
    both = {upper: own_library.triangle(value, upper=upper) for upper in (True, False)}
    assert np.array_equal(both[True], np.triu(value))
    assert np.array_equal(both[False], np.tril(value))
    assert np.array_equal(own_library.triangle(value, upper=True, within=1), np.triu(value, 1))
    kept = value.copy()
    own_library.keep_triangle(kept, upper=False)
    assert np.array_equal(kept, np.tril(value))
    own_library.unit_diagonal(kept)
    assert np.array_equal(kept.diagonal(0, -2, -1), np.ones((2, 3)))
    own_library.identity(kept)
    assert np.array_equal(kept, np.stack([np.eye(3)] * 2))
    own_library.conjugate(kept)
    own_library.zero(kept)
    assert not kept.any()
    counts = np.empty((2, 4), np.int64)
    own_library.count_up(counts)
    assert counts.tolist() == [[1, 2, 3, 4]] * 2
    own_library.clamp(counts, 2)
    assert counts.tolist() == [[1, 2, 2, 2]] * 2
    conjugated = value.copy()
    own_library.conjugate(conjugated)
    assert np.array_equal(conjugated, value.conj())
    own_library.spoil(conjugated, np.array([0, 3], np.int32))
    assert np.array_equal(conjugated[0], value[0].conj())
    assert np.isnan(conjugated[1]).all()
    assert own_library.are_finite(np.array([[1.0, np.inf], [1, 2]])).tolist() == [False, True]
    zeros = own_library.zeros_on_diagonal(np.stack([np.eye(2), np.zeros((2, 2))]))
    assert own_library.numbers("linalg.inv", zeros) == [False, False, True, True]
    pivots = np.empty(3, np.int32)
    own_library.copy_argument("linalg.lu_factor", "pivots", pivots, np.array([3, 2, 3], np.int64))
    assert pivots.tolist() == [3, 2, 3]


def test_the_diagonal_of_cupy_s_arrays_is_set_at_once(monkeypatch):
    class Counted(np.ndarray):
        kernels = 0

        def __setitem__(self, index, value):
            Counted.kernels += 1
            super().__setitem__(index, value)

    monkeypatch.setitem(sys.modules, "cupy", np)
    value = np.zeros((2, 5, 3)).view(Counted)
    own_library.unit_diagonal(value)
    assert np.array_equal(value.diagonal(0, -2, -1), np.ones((2, 3)))
    assert value.sum() == 6
    assert Counted.kernels == 1
