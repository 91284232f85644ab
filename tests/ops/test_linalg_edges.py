"""What ops.linalg does at the edges: no answer, no elements, no numbers, many threads."""

import gc
import os
import pickle
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import linalg
from backendcfg.ops.serving import WORDS
from backendcfg.transact.compiled import Compiled

pytestmark = pytest.mark.sweep

ORDERS = {"ours": ("reference",), "openblas": ("openblas",), "both": ("openblas", "reference")}


def under(*order, **values):
    return Scope(Prepared("p", Compiled("p", "none", values, order=order)), 0)


@pytest.fixture(params=ORDERS)
def provider(request):
    with under(*ORDERS[request.param]):
        yield request.param


def failed(call):
    with pytest.raises(linalg.LinAlgError) as caught:
        call()
    assert isinstance(caught.value, InvalidArgumentError)
    assert isinstance(caught.value, np.linalg.LinAlgError)
    assert pickle.loads(pickle.dumps(caught.value)).render() == caught.value.render()
    return caught.value.render()


def stack_with(matrix, at=(1, 0), shape=(2, 3)):
    stack = np.broadcast_to(np.eye(len(matrix)), (*shape, *np.shape(matrix))).copy()
    stack[at] = matrix
    return stack


def test_a_singular_matrix_is_named_with_its_place_in_the_stack_and_its_pivot(provider):
    singular = [[1.0, 2, 3], [2, 4, 7], [3, 6, 1]]
    assert failed(lambda: linalg.inv(stack_with(singular))) == (
        "error[invalid-argument]: linalg.inv: matrix (1, 0) of the stack is singular: the diagonal "
        "element 2 of its factor is zero\n"
        "  note: argument: float64 array of shape (2, 3, 3, 3)\n"
        "  state: nothing was returned\n"
        "  help: `linalg.inv_ex` gives `info` for each matrix and does not raise"
    )
    calls = {
        "solve": lambda: linalg.solve(np.array(singular), np.ones(3)),
        "lu_factor": lambda: linalg.lu_factor(np.array(singular)),
        "solve_ex": lambda: linalg.solve_ex(np.array(singular), np.ones(3), check_errors=True),
    }
    for name, call in calls.items():
        assert failed(call).splitlines()[0] == (
            f"error[invalid-argument]: linalg.{name}: the matrix is singular: the diagonal element "
            "2 of its factor is zero"
        )


def test_a_matrix_that_is_not_positive_definite_is_named_with_its_minor(provider):
    indefinite = [[1.0, 2], [2, 1]]
    assert failed(lambda: linalg.cholesky(stack_with(indefinite, (2,), (4,)))).splitlines()[0] == (
        "error[invalid-argument]: linalg.cholesky: matrix 2 of the stack is not "
        "positive-definite: its leading minor of order 2 is not positive"
    )
    got = linalg.cholesky_ex(stack_with(indefinite, (2,), (4,)))
    assert got.info.tolist() == [0, 0, 2, 0]
    assert np.array_equal(got.L[3], np.eye(2))
    assert "diagonal element 1" in failed(lambda: linalg.cholesky_inverse(np.zeros((2, 2))))


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_info_is_that_of_the_matrix_however_it_lies(provider, n, layout):
    a = np.random.default_rng(0).standard_normal((n, n)).round(1)
    a[:, 1] = 0  # the second column: its transpose has no zero pivot before the last
    got = linalg.inv_ex(np.array(a, order=layout))
    assert got.info == 2
    assert np.isnan(got.inverse).all()
    assert linalg.solve_ex(np.array(a, order=layout), np.ones((n, 2))).info == 2
    assert linalg.lu_factor_ex(np.array(a, order=layout)).info == 2


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("n", [3, 40])
def test_what_is_not_finite_is_carried_or_named(provider, n, value):
    a = np.eye(n)
    a[1, 1] = value
    for function in (linalg.eigh, linalg.eigvalsh, linalg.svd, linalg.svdvals):
        line = failed(lambda f=function: f(np.stack([np.eye(n), a]))).splitlines()[0]
        assert line.endswith("matrix 1 of the stack has NaN or infinity")
    nothing = np.full((n, n), np.nan)
    assert linalg.cholesky_ex(nothing).info == 1
    for got in (linalg.inv(nothing), linalg.solve(nothing, np.eye(n)), linalg.qr(nothing).Q):
        assert np.isnan(got).all()
    hidden = np.eye(n)
    hidden[0, 1] = value  # in the triangle that is not read
    assert linalg.eigvalsh(hidden).tolist() == [1] * n
    assert np.array_equal(linalg.cholesky(hidden), np.eye(n))


def test_nothing_gives_nothing_of_the_right_shape(provider):
    none, stack, flat = np.ones((0, 0)), np.ones((0, 3, 3)), np.ones((2, 0, 3))
    for function in (linalg.inv, linalg.cholesky, linalg.cholesky_inverse):
        assert function(none).shape == (0, 0)
        assert function(stack).shape == (0, 3, 3)
    assert linalg.solve(none, np.ones((0, 2))).shape == (0, 2)
    assert linalg.solve(np.eye(3), np.ones((3, 0))).shape == (3, 0)
    assert linalg.lu_solve(*linalg.lu_factor(np.eye(3)), np.ones((3, 0))).shape == (3, 0)
    assert linalg.cholesky_solve(np.ones((3, 0)), np.eye(3)).shape == (3, 0)
    assert [x.shape for x in linalg.eigh(stack)] == [(0, 3), (0, 3, 3)]
    assert [x.shape for x in linalg.lu_factor_ex(flat)] == [(2, 0, 3), (2, 0), (2,)]
    assert [x.shape for x in linalg.lu(flat)] == [(2, 0, 0), (2, 0, 0), (2, 0, 3)]
    assert [x.shape for x in linalg.qr(flat)] == [(2, 0, 0), (2, 0, 3)]
    assert [x.shape for x in linalg.svd(flat, full_matrices=False)] == [
        (2, 0, 0),
        (2, 0),
        (2, 0, 3),
    ]
    u, s, vh = linalg.svd(flat)
    assert (u.shape, s.shape) == ((2, 0, 0), (2, 0))
    assert np.array_equal(vh, np.broadcast_to(np.eye(3), (2, 3, 3)))
    q, r = linalg.qr(np.ones((3, 0)), "complete")
    assert np.array_equal(q, np.eye(3))
    assert r.shape == (3, 0)
    assert linalg.svdvals(np.ones((4, 0))).shape == (0,)


@pytest.mark.parametrize("n", [2, 5, 13, 30, 60])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_stack_is_its_matrices_bit_for_bit(provider, dtype, n):
    random = np.random.default_rng(n)
    count = 300 if n < 20 else 12
    a = random.standard_normal((count, n, n)) + 1j * random.standard_normal((count, n, n))
    a = (a if dtype == "complex128" else a.real).astype(dtype)
    h, b = a @ np.conj(np.swapaxes(a, -1, -2)) + n * np.eye(n, dtype=dtype), a[:, :, :1]
    for call in (
        lambda i: linalg.inv(a[i]),
        lambda i: linalg.solve(a[i], b[i]),
        lambda i: linalg.cholesky(h[i]),
        lambda i: np.concatenate([x.ravel() for x in linalg.lu(a[i])]) if type(i) is int else None,
        lambda i: linalg.qr(a[i]).Q,
        lambda i: linalg.eigh(h[i]).eigenvectors,
        lambda i: linalg.svd(a[i]).U,
    ):
        whole = call(slice(None))
        for i in range(0, count, 7) if whole is not None else ():
            assert np.array_equal(whole[i], call(i))


def test_leading_dimensions_broadcast_as_in_torch():
    a, b = np.eye(3) * np.arange(1, 5).reshape(4, 1, 1, 1), np.ones((1, 2, 3, 5))
    assert linalg.solve(a, b).shape == (4, 2, 3, 5)
    assert np.array_equal(linalg.solve(a, b)[3, 1], np.ones((3, 5)) / 4)
    # A vector is a right side with one dimension, or one for each matrix of the stack.
    stack = np.broadcast_to(np.eye(3), (4, 3, 3))
    assert linalg.solve(stack, np.ones((4, 3))).shape == (4, 3)
    assert linalg.solve(stack, np.ones((3, 2))).shape == (4, 3, 2)
    assert linalg.solve(stack, np.ones(3)).shape == (4, 3)
    factor = np.broadcast_to(2 * np.eye(3), (2, 1, 3, 3))
    assert np.array_equal(linalg.cholesky_solve(b, factor), np.full((2, 2, 3, 5), 0.25))
    lu, pivots = linalg.lu_factor(2 * np.eye(3))
    assert np.array_equal(linalg.lu_solve(lu, pivots, b), b / 2)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: linalg.inv(np.ones((2, 3))), "inv: `A` must be square in its last two dimensions"),
        (lambda: linalg.inv(np.ones(3)), "inv: `A` must have at least two dimensions"),
        (lambda: linalg.qr(np.ones((2, 2), "e")), "qr: `A` must hold float32, float64, complex64 or complex128, not float16"),
        (lambda: linalg.svd(np.ones((2, 2), int)), "svd: `A` must hold float32, float64, complex64 or complex128, not int64"),
        (lambda: linalg.inv([[1.0]]), "inv: `A` must be an array, not list"),
        (lambda: linalg.solve(np.eye(2), np.ones(2, "f")), "solve: `B` must hold float64, as `A` does, not float32"),
        (lambda: linalg.solve(np.eye(2), np.ones(3)), "solve: `B` must have as many rows as `A`"),
        (lambda: linalg.solve(np.eye(2), np.ones((2, 3)), left=False), "solve: `B` must have as many columns as `A`, for left=False"),
        (lambda: linalg.solve(np.eye(2), np.ones(2), left=False), "solve: `B` must be a matrix, for left=False"),
        (lambda: linalg.solve(np.ones((2, 1, 1)), np.ones((3, 1, 1))), "solve: the leading dimensions of `A` and `B` must broadcast"),
        (lambda: linalg.cholesky_solve(np.ones(2), np.eye(2)), "cholesky_solve: `B` must have at least two dimensions"),
        (lambda: linalg.cholesky_solve(np.ones((3, 1)), np.eye(2)), "cholesky_solve: `B` must have as many rows as `L`"),
        (lambda: linalg.lu_factor(np.eye(2), pivot=False), "lu_factor: `pivot` must be true: no provider here factorises without pivoting"),
        (lambda: linalg.lu_solve(np.eye(2), np.array([1, 2]), np.eye(2)), "lu_solve: `pivots` must hold int32, as `lu_factor` gives them, not int64"),
        (lambda: linalg.lu_solve(np.eye(2), np.array([1], "i"), np.eye(2)), "lu_solve: `pivots` must have the shape of `LU` without its last dimension"),
        (lambda: linalg.lu_solve(np.eye(2), np.array([1, 3], "i"), np.eye(2)), "lu_solve: `pivots` must be places from 1 to the size of `LU`, not 3"),
        (lambda: linalg.qr(np.eye(2), "economic"), "qr: `mode` must be \"reduced\", \"complete\" or \"r\", not 'economic'"),
        (lambda: linalg.eigh(np.eye(2), "X"), "eigh: `UPLO` must be \"L\" or \"U\", not 'X'"),
        (lambda: linalg.svd(np.eye(2), driver="gesvd"), "svd: `driver` must be None: it chooses among the ways of cuSOLVER, which is for GPUs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(call, line):
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert not isinstance(caught.value, linalg.LinAlgError)
    assert caught.value.message.startswith(f"linalg.{line}")
    assert caught.value.state == "nothing was computed"


def test_wrong_calls_are_type_errors_with_the_signature():
    for call in (lambda: linalg.solve(np.eye(2)), lambda: linalg.solve(np.eye(2), np.eye(2), True),
                 lambda: linalg.solve(np.eye(2), np.eye(2), right=True)):  # fmt: skip
        with pytest.raises(TypeError, match=r"^solve takes \(A, B, \*, left=True\)$"):
            call()


def test_swapped_unaligned_read_only_and_empty_strides_are_fine(provider):
    a = np.random.default_rng(3).standard_normal((5, 5)) + 5 * np.eye(5)
    wanted = linalg.inv(a)
    unaligned = np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view("float64").reshape(5, 5)
    assert np.array_equal(linalg.inv(a.astype(">f8")), wanted)
    assert np.array_equal(linalg.inv(unaligned), wanted)
    assert np.array_equal(linalg.inv(np.broadcast_to(a, (3, 5, 5)))[2], wanted)
    factor = linalg.cholesky(a @ a.T)
    shifted = np.frombuffer(b"x" + factor.tobytes(), np.uint8)[1:].view("float64").reshape(5, 5)
    b = np.ones((5, 2))
    assert np.array_equal(linalg.cholesky_solve(b, shifted), linalg.cholesky_solve(b, np.asfortranarray(factor)))  # fmt: skip
    before = a.copy()
    for name in ("lu_factor", "qr", "eigh", "svd", "eigvalsh", "svdvals", "cholesky_ex", "lu"):
        getattr(linalg, name)(a)
    assert np.array_equal(a, before)


@pytest.mark.torch
def test_tensors_come_back_as_tensors_over_the_results_memory():
    import torch

    a = torch.eye(3, dtype=torch.complex64) * 2
    inverse, info = linalg.inv_ex(a)
    assert isinstance(inverse, torch.Tensor)
    assert torch.equal(inverse, a / 4)
    assert (info.dtype, tuple(info.shape)) == (torch.int32, ())
    lu, pivots = linalg.lu_factor(a)
    assert torch.equal(linalg.lu_solve(lu, pivots, B=a), torch.eye(3, dtype=torch.complex64))
    assert type(linalg.qr(a)).__name__ == "Qr"
    with pytest.raises(
        InvalidArgumentError, match=r"^linalg\.inv: `A` must hold .* not torch.bfloat16"
    ):
        linalg.inv(torch.eye(2, dtype=torch.bfloat16))
    with pytest.raises(linalg.LinAlgError, match=r"^linalg\.solve: the matrix is singular"):
        linalg.solve(torch.zeros(2, 2), torch.ones(2))


@pytest.mark.torch
def test_what_torch_answers_at_the_edges_we_answer_too(provider):
    import torch

    z = torch.zeros(2, 3, 3)
    z[0] = torch.eye(3)
    for name in ("inv_ex", "cholesky_ex", "lu_factor_ex"):
        mine, theirs = getattr(linalg, name)(z), getattr(torch.linalg, name)(z)
        assert set(mine._fields) <= set(dir(theirs))
        assert torch.equal(mine.info, theirs.info)
        assert torch.equal(mine[0][0], theirs[0][0])
    for shape in ((2, 0, 3), (0, 3, 2), (2, 3, 0)):
        a = torch.ones(shape)
        for name, options in (("qr", ({}, {"mode": "complete"})), ("svd", ({}, {"full_matrices": False})), ("lu", ({},))):  # fmt: skip
            for option in options:
                mine, theirs = (getattr(of, name)(a, **option) for of in (linalg, torch.linalg))
                assert [x.shape for x in mine] == [x.shape for x in theirs]


def test_calls_leave_no_references_and_no_memory(provider):
    a, b, singular = np.eye(6), np.ones((6, 2)), np.zeros((2, 6, 6))

    def calls():
        linalg.inv(a), linalg.solve(a, b), linalg.lu(a), linalg.svd(a), linalg.inv_ex(singular)
        with pytest.raises(linalg.LinAlgError):
            linalg.inv(singular)
        with pytest.raises(InvalidArgumentError):
            linalg.solve(a, b[:3])

    calls()
    counts = [sys.getrefcount(x) for x in (a, b, singular)]
    tracemalloc.start()
    for _ in range(100):
        calls()
    gc.collect()  # errors and their tracebacks hold each other
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 20_000
    assert [sys.getrefcount(x) for x in (a, b, singular)] == counts


def test_many_threads_and_forked_children_get_what_one_thread_gets():
    a = np.random.default_rng(0).standard_normal((400, 8, 8))
    wanted, wrong = linalg.inv(a), []

    def work():
        wrong.extend(1 for _ in range(20) if not np.array_equal(linalg.inv(a), wanted))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(linalg.inv(a), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_explain_counters_and_traces_name_who_serves():
    with under("openblas", "reference"):
        for n, who, why in ((4, "reference", "small"), (100, "openblas", "first")):
            said = ops.explain("linalg.solve", ((n, n), (n, 3)))
            ops.reset_stats()
            with ops.trace() as calls:
                linalg.solve(np.eye(n), np.ones((n, 3)))
            (record,) = (x for x in ops.stats().operations if x.operation.startswith("linalg"))
            assert (record.operation, record.provider, record.calls) == ("linalg.solve", who, 1)
            assert said.provider == who
            assert said.sizes == (n, n, 3)
            assert record.because == said.because
            assert [(c.operation, c.provider) for c in calls] == [("linalg.solve", who)]
            assert said.because == WORDS[why]
    lines = str(said).splitlines()
    assert lines[0] == "linalg.solve of (100, 100) float64 and 3 right-hand sides under profile `p`"
    assert any("reference" in line and "behind `openblas`" in line for line in lines)


def test_a_tier_that_promises_its_bits_is_served_by_our_own_code():
    a = np.random.default_rng(0).standard_normal((90, 90))
    with under("openblas", "reference", **{"determinism.tier": "thread-invariant"}):
        said = ops.explain("linalg.inv", (a.shape,))
        got = linalg.inv(a)
    assert said.provider == "reference"
    assert {r.provider: r.why for r in said.reasons}["openblas"] == (
        "its bits may change with its threads, which `determinism.tier` rules out"
    )
    with under("reference"):
        assert np.array_equal(linalg.inv(a), got)
    pinned = {"determinism.tier": "thread-invariant", "threads.count": 1}
    with under("openblas", "reference", **pinned):
        assert ops.explain("linalg.inv", (a.shape,)).provider == "openblas"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("linalg.inv", ((2, 3),)), "explain: `shapes` must be those of square matrices, not ((2, 3),)"),
        (("linalg.inv", (3, 3)), "explain: `shapes` must be a sequence of one shape, ((..., m, n),), not (3, 3)"),
        (("linalg.solve", ((2, 2), (3, 1))), "explain: `shapes` ((2, 2), (3, 1)) do not fit `solve`"),
        (("linalg.svd", ((2, 2),), "float16"), "explain: `dtype` must be one of float32, float64, complex64, complex128, not 'float16'"),
    ],
)  # fmt: skip
def test_wrong_questions_are_refused(arguments, message):
    with pytest.raises(InvalidArgumentError) as caught:
        ops.explain(*arguments)
    assert caught.value.message == message


def test_a_result_that_is_not_finite_is_refused_where_the_profile_says_so():
    ill = np.array([[1e-200, 0.0], [0.0, 1e-200]])
    with under("openblas", "reference", **{"ops.check_finite": True}):
        assert np.isfinite(ops.linalg.inv(np.eye(2))).all()
        with pytest.raises(
            InvalidArgumentError,
            match=r"^linalg\.solve: the result has NaN or infinity, which `ops\.check_finite` ref",
        ):
            ops.linalg.solve(ill, np.full(2, 1e200))
        # What comes with `info` says by it what is of no use.
        assert not np.isfinite(ops.linalg.solve_ex(ill, np.full(2, 1e200)).result).all()
    assert not np.isfinite(ops.linalg.solve(ill, np.full(2, 1e200))).all()


def test_nan_below_the_diagonal_is_not_lost_in_qr():
    with under("reference"):
        (_, upper) = linalg.qr(np.array([[1, 2], [np.nan, 3], [0, 4.0]]))
    assert np.isnan(upper[np.triu_indices(2)]).all()


def test_more_scratch_than_can_be_is_no_memory_on_any_number_of_threads():
    huge = np.broadcast_to(np.float64(1), (8, 1 << 28, 1 << 28))
    for count in (1, 8):
        with under("reference", **{"threads.count": count}), pytest.raises(MemoryError):
            linalg.eigvalsh(huge)


def test_a_thread_with_a_small_stack_can_call():
    found = []
    before = threading.stack_size(40960)
    try:
        thread = threading.Thread(target=lambda: found.append(linalg.inv(np.eye(3))))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found[0].tolist() == np.eye(3).tolist()
