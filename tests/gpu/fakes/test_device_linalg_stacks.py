"""Stacks of matrices on NVIDIA's devices, served by one call of each step: numbers, and what is said."""

import numpy as np
import pytest
from device_arrays import OnDevice
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
from products import under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.linalg import steps
from backendcfg.gpu.linalg.steps import LinalgChoice, LinalgRecipe, is_together
from backendcfg.ops import linalg

LETTERS = dict(zip(ELEMENTS, "SDCZ", strict=True))
CHOSEN = LinalgChoice(LinalgRecipe("cusolver", "float64"), blas=1)


@pytest.fixture
def blas(solver, devices):
    """cuBLAS's fake beside cuSOLVER's."""
    return devices.cublas


def batched(*fakes):
    return [call for fake in fakes for call in fake.calls() if "Batched" in call.function]


def close(result, expected, element):
    assert (type(result), result.shape) == (Matrix, expected.shape)
    assert result.element == expected.dtype.name
    assert np.allclose(result.array, expected, TOLERANCES[element], TOLERANCES[element])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_a_stack_gives_what_the_cpu_gives(solver, blas, element, layout):
    a, b = positive((2, 3, 4, 4), element), matrices((2, 3, 4, 2), element, 3)
    on_a, on_b = (viewed(there(each), LAYOUTS[layout]) for each in (a, b))
    for upper in (False, True):
        factor = linalg.cholesky(on_a, upper=upper)
        close(factor, linalg.cholesky(a, upper=upper), element)
        on_l, vector = viewed(there(factor.array), LAYOUTS[layout]), on_b[..., :1]
        close(linalg.cholesky_solve(vector, on_l, upper), np.linalg.solve(a, b[..., :1]), element)
    close(linalg.solve(on_a, on_b), np.linalg.solve(a, b), element)
    close(linalg.inv(on_a), np.linalg.inv(a), element)
    for result, expected in zip(linalg.lu_factor(on_a), linalg.lu_factor(a), strict=True):
        close(result, expected, element)
    for result, expected in zip(linalg.lu(on_a), linalg.lu(a), strict=True):
        close(result, expected, element)
    letter = LETTERS[element]
    assert {call.function for call in batched(solver, blas)} == {
        f"cusolverDn{letter}potrfBatched",
        f"cusolverDn{letter}potrsBatched",
        f"cublas{letter}getrfBatched",
        f"cublas{letter}getrsBatched",
    }
    assert not any("Xpotr" in call.function or "Xgetr" in call.function for call in solver.calls())


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("element", ELEMENTS)
def test_factors_of_a_stack_solve_from_both_sides(solver, blas, element, left, adjoint):
    a, b = matrices((3, 4, 4), element), matrices((3, 4, 2) if left else (3, 2, 4), element, 2)
    factors, pivots = linalg.lu_factor(there(a))
    solved = linalg.lu_solve(factors, pivots, there(b), left=left, adjoint=adjoint)
    expected = linalg.lu_solve(*linalg.lu_factor(a), b, left=left, adjoint=adjoint)
    close(solved, expected, element)
    if not adjoint:
        close(linalg.solve(there(a), there(b), left=left), linalg.solve(a, b, left=left), element)
    assert {call.function[7:] for call in batched(blas)} == {"getrfBatched", "getrsBatched"}


@pytest.mark.parametrize(
    "shapes", [((3, 4, 4), (4, 2)), ((2, 1, 4, 4), (3, 4, 2)), ((3, 4, 4), (3, 4))]
)
@pytest.mark.parametrize("element", ["float32", "complex128"])
def test_a_stack_is_broadcast(solver, blas, element, shapes):
    a, b = matrices(shapes[0], element), matrices(shapes[1], element, 2)
    close(linalg.solve(there(a), there(b)), linalg.solve(a, b), element)
    assert len(batched(blas)) == 2


@pytest.mark.parametrize("shapes", [((4, 4), (3, 4, 2)), ((1, 4, 4), (3, 4, 2))])
def test_a_factor_that_all_share_is_not_repeated(solver, blas, shapes):
    a, b = matrices(shapes[0]), matrices(shapes[1], seed=2)
    close(linalg.solve(there(a), there(b)), linalg.solve(a, b), "float64")
    assert batched(solver, blas) == []


@pytest.mark.parametrize("shape", [(0, 4, 4), (2, 0, 0), (2, 0, 4, 4)])
def test_an_empty_stack_calls_nobody(solver, blas, shape):
    empty = there(np.ones(shape))
    for function in (linalg.inv, linalg.cholesky):
        assert function(empty).shape == shape
    assert linalg.solve_ex(empty, empty).info.shape == shape[:-2]
    assert linalg.lu_factor_ex(empty).info.shape == shape[:-2]
    assert batched(solver, blas) == []


def test_the_numbers_are_those_of_cublas(solver, blas):
    a, b = there(matrices((3, 4, 4))), there(matrices((3, 4, 2), seed=2))
    linalg.solve(a, b)
    factored, solved = batched(blas)
    assert (factored.function, solved.function) == ("cublasDgetrfBatched", "cublasDgetrsBatched")
    assert (factored["n"], factored["lda"], factored["batch"]) == (4, 4, 3)
    assert [solved[name] for name in ("trans", "n", "nrhs", "lda", "ldb", "batch")] == [
        0, 4, 2, 4, 4, 3,
    ]  # fmt: skip
    assert (solved["a"], solved["pivots"]) == (factored["a"], factored["pivots"])
    assert solved["b"] != solved["a"]
    assert solved["info"] != factored["info"]  # on the host


@pytest.mark.parametrize("upper", [False, True])
def test_the_numbers_are_those_of_cusolver(solver, blas, upper):
    factor = linalg.cholesky(there(positive((3, 4, 4))), upper=upper)
    linalg.cholesky_solve(there(matrices((3, 4, 1))), factor, upper)
    factored, solved = batched(solver)
    # By rows it is read by its other triangle.
    assert (factored["uplo"], solved["uplo"]) == (int(not upper), int(not upper))
    assert (factored["n"], factored["lda"], factored["batch"]) == (4, 4, 3)
    assert [solved[name] for name in ("n", "nrhs", "lda", "ldb", "batch")] == [4, 1, 4, 4, 3]
    assert [call["deterministic"] for call in (factored, solved)] == [1, 1]


def test_pointers_are_made_by_the_arrays_library_on_the_device(solver, blas, monkeypatch):
    made = []
    fill = Matrix.fill_

    def filled(self, value):
        made.append((self.element, self.shape, value))
        return fill(self, value)

    monkeypatch.setattr(Matrix, "fill_", filled)
    linalg.solve(there(matrices((3, 4, 4))), there(matrices((3, 4, 2), seed=2)))
    assert made == [("int64", (3,), 128), ("int64", (3,), 64)]


def test_pivots_of_a_stack_are_int32_and_not_copied(solver, blas):
    pivots = linalg.lu_factor(there(matrices((3, 4, 4)))).pivots
    (call,) = batched(blas)
    assert call["pivots"] == pivots.array.ctypes.data
    assert pivots.element == "int32"


def test_pivots_outside_the_matrix_read_no_other_memory(solver, blas):
    factors, _ = linalg.lu_factor(there(matrices((2, 3, 3))))
    wild = there(np.array([[0, -5, 900], [1, 2, 3]], np.int32))
    linalg.lu_solve(factors, wild, there(np.ones((2, 3, 1))))
    assert wild.array.tolist() == [[0, -5, 900], [1, 2, 3]]


def test_all_is_put_on_the_stream_of_the_arrays(solver, blas, devices, new_stream):
    linalg.inv(there(matrices((3, 4, 4))))
    linalg.cholesky(there(positive((3, 4, 4))))
    assert {call["stream"] for call in batched(solver, blas)} == {new_stream}
    assert len(blas.calls("cublasCreate_v2")) == 1
    pushed = len(devices.cuda.calls("cuCtxPushCurrent_v2"))
    assert pushed == len(devices.cuda.calls("cuCtxPopCurrent_v2"))


def test_a_handle_that_multiplied_with_less_precision_factorises_with_all_of_it(
    solver, blas, devices, new_stream
):
    a = there(matrices((3, 4, 4), "float32"))
    with under(**{"cuda.matmul.fp32_precision": "tf32"}):
        ops.matmul(a, a)
        linalg.inv(a)
        assert {(call["math_mode"], call["atomics"]) for call in batched(blas)[1:]} == {(0, 0)}
        ops.matmul(a, a)
    product = [call for call in blas.calls() if "Gemm" in call.function]
    assert [call["math_mode"] for call in product] == [3, 3]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_has_no_answer_is_named_as_one_by_one(solver, blas, devices, at_once, monkeypatch):
    if not at_once:
        monkeypatch.setattr(steps, "is_together", lambda *asked: False)
    stack = np.stack([np.eye(3)] * 6).reshape(2, 3, 3, 3)
    stack[1, 1, 2, 2] = 0
    said = []
    for function in (linalg.inv, linalg.lu_factor, linalg.cholesky):
        with pytest.raises(linalg.LinAlgError) as caught:
            function(there(stack))
        said.append(caught.value.render().splitlines())
    which = "matrix (1, 1) of the stack"
    singular = f"{which} is singular: the diagonal element 3 of its factor is zero"
    minor = f"{which} is not positive-definite: its leading minor of order 3 is not positive"
    assert said[0][0].endswith(f"linalg.inv: {singular}")
    assert said[1][0].endswith(f"linalg.lu_factor: {singular}")
    assert said[2][0].endswith(f"linalg.cholesky: {minor}")
    argument = "  note: argument: float64 array of shape (2, 3, 3, 3) on cuda:0"
    assert [lines[1:3] for lines in said] == [[argument, "  state: nothing was returned"]] * 3
    result, info = linalg.solve_ex(there(stack), there(np.ones((2, 3, 3, 1))))
    assert info.tolist() == [[0, 0, 0], [0, 3, 0]]
    assert np.isnan(result.array[1, 1]).all()
    assert np.isfinite(result.array[0]).all()
    assert linalg.cholesky_ex(there(stack)).info.tolist() == [[0, 0, 0], [0, 3, 0]]
    assert bool(batched(solver, blas)) == at_once


def test_a_singular_matrix_that_is_broadcast_is_named_by_its_place_in_the_whole_stack(solver, blas):
    a, b = np.stack([np.eye(3)] * 3).reshape(3, 1, 3, 3), there(np.ones((3, 2, 3, 1)))
    a[1] = 0
    with pytest.raises(linalg.LinAlgError, match=r"solve: matrix \(1, 0\) of the stack"):
        linalg.solve(there(a), b)
    assert linalg.solve_ex(there(a), b).info.tolist() == [[0, 0], [1, 1], [0, 0]]
    with pytest.raises(linalg.LinAlgError, match=r"solve: matrix \(0, 0\) of the stack"):
        linalg.solve(there(a[1, 0]), b)


@pytest.mark.parametrize("shape", [(3, 3), (1, 3, 3)])
def test_a_singular_matrix_that_an_empty_stack_shares_is_not_looked_at(solver, blas, shape):
    zeros = np.zeros(shape)
    for stack in ((0,), (2, 0)):
        b = np.ones((*stack, 3, 1))
        assert linalg.solve(there(zeros), there(b)).shape == linalg.solve(zeros, b).shape
        assert linalg.solve_ex(there(zeros), there(b)).info.shape == stack
        pivots = there(np.ones(shape[:-1], np.int32))
        assert linalg.lu_solve(there(zeros), pivots, there(b)).shape == b.shape
        assert linalg.cholesky_solve(there(b), there(zeros)).shape == b.shape


@pytest.mark.parametrize("stack", [(), (3,)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_info_is_that_of_the_matrix_however_it_lies(solver, blas, stack, layout):
    a = matrices((*stack, 4, 4))
    a[..., :, 1] = 0  # the second column: its transpose has no zero pivot before the last
    on, b = viewed(there(a), LAYOUTS[layout]), there(np.ones((*stack, 4, 4)))
    for _, info in (
        linalg.inv_ex(on),
        linalg.solve_ex(on, b),
        linalg.solve_ex(on, b, left=False),
        linalg.lu_factor_ex(on)[1:],
    ):
        assert (info.array == 2).all()


def test_nan_is_carried_on_in_its_own_matrix(solver, blas):
    stack = positive((3, 4, 4))
    stack[1, 0, 0] = np.nan
    solved = linalg.solve_ex(there(stack), there(np.ones((3, 4, 1)))).result.array
    assert np.isnan(solved[1]).any()
    assert np.isfinite(solved[[0, 2]]).all()
    assert linalg.cholesky_ex(there(stack)).info.tolist() == [0, 1, 0]


FAILING = {
    "cublasDgetrfBatched": ("inv", "cuBLAS", 14, "CUBLAS_STATUS_INTERNAL_ERROR"),
    "cublasDgetrsBatched": ("inv", "cuBLAS", 13, "CUBLAS_STATUS_EXECUTION_FAILED"),
    "cusolverDnDpotrfBatched": ("cholesky", "cuSOLVER", 7, "CUSOLVER_STATUS_INTERNAL_ERROR"),
    "cusolverDnDpotrsBatched": ("cholesky_solve", "cuSOLVER", 3, "CUSOLVER_STATUS_INVALID_VALUE"),
}


@pytest.mark.parametrize("function", FAILING)
def test_each_failure_is_named_by_its_library_and_the_next_call_works(solver, blas, function):
    def all_of():
        a = there(positive((3, 4, 4)))
        linalg.inv(a)
        linalg.cholesky_solve(there(matrices((3, 4, 1))), linalg.cholesky(a))

    operation, library, status, name = FAILING[function]
    (blas if library == "cuBLAS" else solver).fail(function, status, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        all_of()
    assert caught.value.render().splitlines()[0] == (
        f"error[device-failed]: linalg.{operation}: {library} failed: {function} returned "
        f"{name} ({status})"
    )
    all_of()


@pytest.mark.parametrize("function", ["cublasCreate_v2", "cublasSetStream_v2"])
def test_a_handle_that_cannot_be_made_ready_is_named(solver, blas, new_stream, function):
    blas.fail(function, 3, count=1)
    with pytest.raises(DeviceFailedError) as caught:
        linalg.inv(there(matrices((3, 4, 4))))
    said = function.removesuffix("_v2")
    assert f"cuBLAS failed: {said} returned CUBLAS_STATUS_ALLOC_FAILED (3)" in str(caught.value)
    linalg.inv(there(matrices((3, 4, 4))))


def test_traces_and_counts_tell_that_a_stack_went_at_once(solver, blas):
    with ops.trace() as traced:
        linalg.inv(there(matrices((3, 4, 4))))
        linalg.inv(there(matrices((4, 4))))
    assert [(each.provider, each.because) for each in traced] == [
        ("cusolver", "on a device; the first of the order; the stack at once"),
        ("cusolver", "on a device; the first of the order"),
    ]


RULES = [
    ("cholesky", 2, (600, 600, 0), True),
    ("cholesky", 1, (4, 4, 0), False),
    ("cholesky_solve", 2, (4, 4, 1), True),
    ("cholesky_solve", 2, (4, 4, 2), False),
    ("cholesky_inverse", 2, (1, 1, 1), False),
    ("lu_factor", 2, (511, 511, 0), True),
    ("lu_factor", 2, (512, 512, 0), False),
    ("lu_factor", 9, (4, 3, 0), False),
    ("lu", 9, (3, 4, 0), False),
    ("solve", 2, (63, 63, 1), True),
    ("solve", 2, (64, 64, 1), False),
    ("solve_ex", 3, (64, 64, 1), True),
    ("inv", 3, (512, 512, 0), False),
    ("lu_solve", 2, (64, 64, 1), False),
    ("lu_solve", 3, (600, 600, 1), True),
    ("solve", 1 << 31, (4, 4, 1), False),
    ("solve", 0, (4, 4, 1), False),
    ("cholesky", 3, (0, 0, 0), False),
    ("qr", 3, (4, 4, 0), False),
    ("eigh", 3, (4, 4, 0), False),
]


@pytest.mark.parametrize(("function", "count", "sizes", "expected"), RULES)
def test_stacks_go_at_once_where_pytorch_found_it_faster(function, count, sizes, expected):
    assert is_together(CHOSEN, function, count, sizes) is expected
    for other in ("hipsolver", "magma"):
        chosen = LinalgChoice(LinalgRecipe(other, "float64"), blas=1)
        assert not is_together(chosen, function, count, sizes)


def test_each_library_refuses_what_it_has_not_for_stacks(solver, blas, devices):
    def is_served(library, kind, k=1, matrices=3, n=4, together=True):
        step = steps.Step(
            devices.find(library), kind, "float64", False, "N", "N", 0, matrices, 4, n, k,
            steps.Stack(0), a_pointers=steps.Stack(0 if together else -1),
        )  # fmt: skip
        return steps.MAKERS[library].supports(step)

    kinds = range(8)
    assert [kind for kind in kinds if is_served("cusolver", kind)] == [0, 1]
    assert [kind for kind in kinds if is_served("cublas", kind)] == [2, 3]
    assert not is_served("cusolver", 1, k=2)
    assert not is_served("cublas", 2, n=5)
    for library, kind in (("cusolver", 0), ("cublas", 2)):
        assert not is_served(library, kind, matrices=1 << 31)
    assert not is_served("cublas", 2, together=False)


def test_without_cublas_lu_goes_one_after_the_other(solver, devices):
    devices.without("cublas")
    a = matrices((3, 4, 4))
    close(linalg.inv(there(a)), np.linalg.inv(a), "float64")
    assert len(solver.calls("cusolverDnXgetrf")) == 3
    linalg.cholesky(there(positive((3, 4, 4))))
    assert len(solver.calls("cusolverDnDpotrfBatched")) == 1


def test_a_stack_at_once_waits_for_nothing_that_gives_info(solver, blas, monkeypatch):
    a = there(positive((3, 4, 4)))
    monkeypatch.setattr(Matrix, "tolist", None)
    for function in (linalg.inv_ex, linalg.cholesky_ex, linalg.lu_factor_ex, linalg.lu):
        function(a)
    assert OnDevice.full is False
