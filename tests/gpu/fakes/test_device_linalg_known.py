"""Calls of linear algebra on a device whose kind was seen: planned once, and nothing of them is kept."""

import gc
import weakref

import numpy as np
import pytest
from device_arrays import ByInterface, OnDevice, aligned
from linalg_on_device import Matrix, matrices, positive, there, viewed
from products import under

from backendcfg import _native, ops
from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu import linalg as device_linalg
from backendcfg.gpu import linalg as linalg_calls
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import Arguments
from backendcfg.gpu.libraries.calling import Session
from backendcfg.gpu.linalg.steps import MAKERS
from backendcfg.ops import linalg

pytestmark = pytest.mark.usefixtures("solver")


@pytest.fixture
def planned(monkeypatch):
    """The functions that were planned, each time that one was."""
    made = []
    plan = device_linalg._plan

    def noted(function, given, names):
        made.append(function)
        return plan(function, given, names)

    monkeypatch.setattr(device_linalg, "_plan", noted)
    return made


def square(n=4, element="float64", seed=0):
    return there(positive((n, n), element, seed))


def test_a_kind_is_planned_once_and_computes_anew(planned):
    linalg.inv(square())  # which opens the libraries
    for seed in range(3):
        a, b = positive((4, 4), seed=seed), matrices((4, 2), seed=seed)
        assert np.allclose(linalg.solve(there(a), there(b)).array, np.linalg.solve(a, b))
    assert planned == ["inv", "solve"]


def test_what_is_planned_while_another_profile_comes_into_force_is_planned_anew(
    planned, monkeypatch
):
    other, before, plan = under(ops__check_finite=True), _native.current(), device_linalg._plan

    def overtaken(*arguments):
        _native.set_base(other.prepared)  # as another thread does
        return plan(*arguments)

    linalg.inv(square())  # which opens the libraries
    linalg_calls.forget()
    try:
        with monkeypatch.context() as while_it_is_planned:
            while_it_is_planned.setattr(device_linalg, "_plan", overtaken)
            linalg.inv(square())
    finally:
        _native.set_base(before)
    linalg.inv(square())
    linalg.inv(square())
    assert planned == ["inv"] * 3


def test_a_call_of_a_known_kind_borrows_a_handle_once_for_all_its_steps(devices, monkeypatch):
    b = there(matrices((4, 2)))
    linalg.solve(square(), b)
    linalg.inv(square())
    devices.reset()
    calls = []
    begin = _native.device_begin
    monkeypatch.setattr(
        _native, "device_begin", lambda *given: calls.append(given) or begin(*given)
    )
    linalg.solve(square(), b)
    linalg.inv(square())
    assert len(calls) == 2
    assert len(devices.cusolver.calls("cusolverDnXgetrf")) == 2


KINDS = [
    lambda a: linalg.inv(a),
    lambda a: linalg.inv(viewed(a, lambda x: x.T)),
    lambda a: linalg.inv(viewed(a, lambda x: x[:3, :3])),
    lambda a: linalg.inv(there(a.array.astype("float32"))),
    lambda a: linalg.inv_ex(a),
    lambda a: linalg.cholesky(a),
    lambda a: linalg.cholesky(a, upper=True),
    lambda a: linalg.cholesky(a, upper=np.True_),
    lambda a: linalg.inv(there(a.array[None])),
]


def test_what_calls_differ_in_is_planned_apart(planned):
    a = square()
    for _ in range(2):
        for call in KINDS:
            call(a)
    assert len(planned) == len(KINDS)
    with under(**{"determinism.algorithms": "deterministic"}):
        linalg.inv(a)
    assert len(planned) == len(KINDS) + 1


def test_an_option_that_only_equals_a_known_one_is_still_refused():
    linalg.cholesky(square(), upper=True)
    for wrong in (1, [True], "U"):
        with pytest.raises(InvalidArgumentError, match="`upper` must be a bool"):
            linalg.cholesky(square(), upper=wrong)


def test_nothing_that_was_passed_or_made_is_kept():
    a = square()
    result = linalg.inv(a)
    alive = [weakref.ref(a), weakref.ref(result), weakref.ref(a.array)]
    del a, result
    gc.collect()
    assert [each() for each in alive] == [None] * 3


def test_what_failed_is_described_by_the_call_that_failed():
    linalg.inv(there(np.eye(3)))
    with pytest.raises(linalg.LinAlgError, match="the matrix is singular") as caught:
        linalg.inv(there(np.zeros((3, 3))))
    assert "note: argument: float64 array of shape (3, 3) on cuda:0" in caught.value.render()


def test_plans_are_forgotten_and_few(planned, monkeypatch):
    monkeypatch.setattr(linalg_calls._plans, "most", 2)
    for n in (1, 2, 3, 1):
        linalg.inv(square(n))
    assert planned == ["inv"] * 4
    assert len(linalg_calls._plans) == 2
    linalg.inv(square(1))
    assert planned == ["inv"] * 4
    linalg_calls.forget()
    linalg.inv(square(1))
    assert planned == ["inv"] * 5


def test_memory_that_nobody_sees_is_asked_for_once_a_call():
    b = there(matrices((4, 2)))
    linalg.solve(square(), b)
    OnDevice.allocated.clear()
    linalg.solve(square(), b)
    # The factors, the solution, `info`; and pivots, a number that nobody reads, and the workspace.
    assert OnDevice.allocated == [128, 4, 64, 256 + 256 + (16 * 8 + 16)]


def test_streams_of_other_arrays_wait_and_are_waited_for(devices, new_stream):
    a, b = square(), there(matrices((4, 2)))
    linalg.solve(a, b)
    for settles in (False, True):
        other = ByInterface(b.array, place=(2, 0), stream=None if settles else 2)
        given = Arguments("linalg.solve", {"A": a, "B": other})
        library, driver = (devices.find(name) for name in ("cusolver", "cuda"))
        work = given.work(library, driver.handle, given.take("A"), given.take("B"))
        devices.reset()
        with Session(work, MAKERS["cusolver"].handle) as handle:
            assert handle.stream == new_stream
        recorded = [call["stream"] for call in devices.cuda.calls("cuEventRecord")]
        waiting = [call["stream"] for call in devices.cuda.calls("cuStreamWaitEvent")]
        second = None if settles else 2
        assert (recorded, waiting) == ([second, new_stream], [new_stream, second])
        assert bool(devices.cuda.calls("cuStreamSynchronize")) == settles


@pytest.mark.parametrize("other", [there(np.ones((4, 2)), place=(2, 1)), np.ones((4, 2))])
def test_arrays_at_two_places_or_none_make_no_call(devices, other):
    devices.reset()
    with pytest.raises(InvalidArgumentError, match="`B` must be"):
        linalg.solve(square(), other)
    assert devices.cusolver.calls() == []


TOO_LARGE = "its 32-bit integers are too small for matrices of this size"


@pytest.mark.parametrize(
    ("function", "shapes", "served"),
    [
        ("lu_factor", ((46340, 46340),), True),
        ("lu_factor", ((46341, 46341),), False),
        ("eigh", ((32000, 32000),), True),
        ("eigh", ((32768, 32768),), False),
        ("svdvals", ((23171, 23171),), False),
        ("inv", ((0, 0),), True),
    ],
)
def test_explain_tells_that_a_matrix_is_too_large_for_magma(devices, function, shapes, served):
    devices.bring("magma")
    with under(**{"cuda.preferred_linalg_library": "magma"}):
        said = ops.explain(f"linalg.{function}", shapes, "float32", device="cuda:0")
    assert said.provider == ("magma" if served else "")
    assert (TOO_LARGE in str(said)) != served


def test_explain_tells_that_a_stack_goes_at_once():
    def because(*shapes):
        return ops.explain("linalg.solve", shapes, "float64", device="cuda:0").because

    assert because((3, 4, 4), (3, 4, 2)).endswith("; the stack at once")
    assert because((3, 4, 4), (4, 2)).endswith("; the stack at once")
    assert because((3, 4, 4), (3, 4)).endswith("; the stack at once")
    for alone in (((4, 4), (4, 2)), ((4, 4), (3, 4, 2)), ((3, 600, 600), (3, 600, 1))):
        assert "at once" not in because(*alone)
    with pytest.raises(InvalidArgumentError, match="do not broadcast"):
        because((3, 4, 4), (2, 4, 2))


def test_explain_takes_a_matrix_for_a_vector_only_where_the_call_does():
    # Of the shape of a vector for each matrix, which `solve` alone reads so.
    a, b = there(positive((4, 4, 4))), there(matrices((4, 4)))
    said = ops.explain("linalg.cholesky_solve", ((4, 4), (4, 4, 4)), "float64", device="cuda:0")
    with ops.trace() as traced:
        linalg.cholesky_solve(b, linalg.cholesky(a))
    assert said.sizes == (4, 4, 4)
    assert "at once" not in said.because
    assert [each.because for each in traced][-1] == "on a device; the first of the order"
    for operation, shapes in (
        ("cholesky_solve", ((4,), (4, 4, 4))),
        ("lu_solve", ((4, 4, 4), (4,))),
    ):
        with pytest.raises(InvalidArgumentError, match="takes matrices as right-hand sides"):
            ops.explain(f"linalg.{operation}", shapes)


class Plain(Matrix):
    """A matrix whose library has no table of functions, as CuPy's arrays."""

    __dlpack_c_exchange_api__ = None

    def _with(self, array):
        return Plain(array, array.dtype.name, self.place)

    @property
    def __cuda_array_interface__(self):
        return ByInterface(self.array, 2).__cuda_array_interface__


def test_where_a_library_has_no_table_python_makes_the_memory(monkeypatch, devices):
    def make(like, shape, element, kind, index):
        assert (type(like), kind) == (Plain, 2)
        made.append((element, shape))
        return Plain(aligned(shape, element))

    made = []
    monkeypatch.setattr(own_library, "make", make)
    a, b = positive((3, 4, 4)), matrices((3, 4, 2))
    for _ in range(2):
        result, info = linalg.solve_ex(Plain(a.copy()), Plain(b.copy()))
        assert (type(result), type(info)) == (Plain, Plain)
        assert np.allclose(result.array, np.linalg.solve(a, b))
    assert made[: len(made) // 2] * 2 == made
    assert ("int64", (3,)) in made
    assert {call["stream"] for call in devices.cublas.calls("cublasDgetrfBatched")} == {2}
