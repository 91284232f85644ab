"""What linear algebra on a device says to cuSOLVER: functions, numbers, memory, streams, flags."""

import re
import warnings

import numpy as np
import pytest
from device_arrays import OnDevice
from linalg_on_device import Matrix, matrices, positive, there, viewed
from products import under

from backendcfg import _native, ops
from backendcfg.errors import MissingLibraryError, TierNotKeptError
from backendcfg.gpu import linalg as linalg_calls
from backendcfg.gpu.libraries import opening
from backendcfg.gpu.linalg import steps as device_linalg
from backendcfg.gpu.linalg.steps import DEFAULTS, STEPS, LinalgRecipe, order
from backendcfg.ops import explanation, linalg
from backendcfg.ops.devices import CUDA
from backendcfg.schema.profile import defaults

NUMBERS = {"float32": (0, 0), "float64": (1, 1), "complex64": (4, 0), "complex128": (5, 1)}
PREFER = "cuda.preferred_linalg_library"
ALGORITHMS = "determinism.algorithms"


def steps(solver):
    """The calls that compute, without those that ask for sizes."""
    made = [call for call in solver.calls() if "deterministic" in call.arguments]
    return [call for call in made if not call.function.endswith("_bufferSize")]


def named(solver):
    return [call.function.removeprefix("cusolverDn") for call in steps(solver)]


def square(n=4, element="float64", stack=()):
    return there(positive((*stack, n, n), element))


CALLS = {
    "cholesky": (lambda a, b: linalg.cholesky(a), ["Xpotrf"]),
    "cholesky_solve": (linalg.cholesky_solve, ["Xpotrs"]),
    "cholesky_inverse": (lambda a, b: linalg.cholesky_inverse(a), ["Xpotrs"]),
    "lu_factor": (lambda a, b: linalg.lu_factor(a), ["Xgetrf"]),
    "lu": (lambda a, b: linalg.lu(a), ["Xgetrf", "Xgetrs"]),
    "solve": (linalg.solve, ["Xgetrf", "Xgetrs"]),
    "inv": (lambda a, b: linalg.inv(a), ["Xgetrf", "Xgetrs"]),
    "eigh": (lambda a, b: linalg.eigh(a), ["Xsyevd"]),
    "eigvalsh": (lambda a, b: linalg.eigvalsh(a), ["Xsyevd"]),
    "svd": (lambda a, b: linalg.svd(a), ["Xgesvd"]),
    "svdvals": (lambda a, b: linalg.svdvals(a), ["Xgesvd"]),
}


@pytest.mark.parametrize("element", NUMBERS)
@pytest.mark.parametrize("function", CALLS)
def test_a_function_is_its_steps_with_the_types_of_its_element(solver, function, element):
    call, expected = CALLS[function]
    call(square(element=element), square(element=element))
    assert named(solver) == expected
    kind, real = NUMBERS[element]
    for step in steps(solver):
        types = {name: step[name] for name in step.arguments if name.endswith("_type")}
        assert types.pop("a_type") == kind
        assert types.pop("compute_type", kind) == kind
        for name in ("b_type", "u_type", "vt_type"):
            assert types.pop(name, kind) == kind
        for name in ("s_type", "w_type"):
            assert types.pop(name, real) == real
        assert not types


@pytest.mark.parametrize(
    ("element", "name"),
    [
        ("float32", "Sorgqr"),
        ("float64", "Dorgqr"),
        ("complex64", "Cungqr"),
        ("complex128", "Zungqr"),
    ],
)
def test_q_is_made_by_the_function_of_its_type(solver, element, name):
    linalg.qr(there(matrices((5, 3), element)))
    assert named(solver) == ["Xgeqrf", name]
    made, q = steps(solver)
    assert (made["m"], made["n"], made["lda"], made["tau_type"]) == (5, 3, 5, NUMBERS[element][0])
    assert (q["m"], q["n"], q["k"], q["lda"]) == (5, 3, 3, 5)
    assert (q["a"], q["tau"]) == (made["a"], made["tau"])  # where the reflectors are


def test_a_whole_basis_is_made_beside_the_reflectors(solver):
    linalg.qr(there(matrices((5, 3))), "complete")
    made, q = steps(solver)
    assert (q["m"], q["n"], q["k"], q["lda"]) == (5, 5, 3, 5)
    assert q["a"] != made["a"]


@pytest.mark.parametrize("upper", [False, True])
def test_a_hermitian_matrix_is_read_by_its_other_triangle_where_it_lies_by_rows(solver, upper):
    linalg.cholesky(square(), upper=upper)
    linalg.eigvalsh(square(), "U" if upper else "L")
    linalg.eigvalsh(square(element="complex128"), "U" if upper else "L")
    assert [call["uplo"] for call in steps(solver)] == [int(not upper), int(not upper), int(upper)]


def test_vectors_are_made_where_they_are_wanted(solver):
    a = square()
    linalg.eigh(a)
    linalg.eigvalsh(a)
    assert [call["jobz"] for call in steps(solver)] == [1, 0]
    solver.reset()
    linalg.svd(a)
    linalg.svd(a, full_matrices=False)
    linalg.svdvals(a)
    assert [chr(call["jobu"]) + chr(call["jobvt"]) for call in steps(solver)] == ["AA", "SS", "NN"]


def test_of_a_matrix_with_more_columns_than_rows_the_transpose_is_decomposed(solver):
    linalg.svd(there(matrices((3, 5))))
    linalg.svd(there(matrices((5, 3))))
    sizes = [(c["m"], c["n"], c["lda"], c["ldu"], c["ldvt"]) for c in steps(solver)]
    assert sizes == [(5, 3, 5, 5, 3)] * 2


@pytest.mark.parametrize(
    ("left", "adjoint", "element", "operation"),
    [
        (True, False, "float64", 0),
        (True, True, "float64", 2),
        (False, False, "float64", 1),
        (False, True, "float64", 0),
        (False, True, "complex64", 0),
        (False, False, "complex64", 1),
    ],
)
def test_a_factor_is_solved_with_as_the_side_and_the_adjoint_ask(
    solver, left, adjoint, element, operation
):
    factors, pivots = linalg.lu_factor(square(element=element))
    solver.reset()
    linalg.lu_solve(factors, pivots, square(element=element), left=left, adjoint=adjoint)
    (call,) = steps(solver)
    assert (call["trans"], call["n"], call["nrhs"]) == (operation, 4, 4)
    assert call["a"] == factors.array.ctypes.data  # by columns already: read where it lies


def test_real_factors_by_rows_are_read_where_they_lie(solver):
    factor = linalg.cholesky(square())
    solver.reset()
    linalg.cholesky_solve(square(), factor)
    linalg.cholesky_solve(square(), viewed(factor, lambda x: np.asfortranarray(x)))
    calls = steps(solver)
    assert calls[0]["a"] == factor.array.ctypes.data
    assert [call["uplo"] for call in calls] == [1, 0]


def test_the_matrices_of_a_stack_are_served_one_after_the_other(solver, devices):
    devices.without("cublas")  # which has LU for whole stacks
    linalg.solve(square(stack=(3,)), there(matrices((3, 4, 2))))
    assert named(solver) == ["Xgetrf"] * 3 + ["Xgetrs"] * 3
    factored, solved = steps(solver)[:3], steps(solver)[3:]
    assert [call["a"] - factored[0]["a"] for call in factored] == [0, 128, 256]
    assert [call["ipiv"] - factored[0]["ipiv"] for call in factored] == [0, 32, 64]
    assert [call["info"] - factored[0]["info"] for call in factored] == [0, 4, 8]
    assert [call["b"] - solved[0]["b"] for call in solved] == [0, 64, 128]
    assert [call["a"] for call in solved] == [call["a"] for call in factored]
    assert len({call["device"] for call in factored}) == 1  # one workspace for all


def test_a_matrix_that_all_share_is_factorised_once(solver):
    linalg.solve(square(), there(matrices((3, 4, 2))))
    assert named(solver) == ["Xgetrf"] + ["Xgetrs"] * 3
    assert len({call["a"] for call in steps(solver)}) == 1


def test_eigenvalues_of_a_stack_are_one_call_where_the_library_has_it(solver):
    linalg.eigh(square(stack=(3,)))
    (call,) = steps(solver)
    assert call.function == "cusolverDnXsyevBatched"
    assert (call["batch"], call["n"], call["lda"]) == (3, 4, 4)


def test_what_a_step_needs_is_asked_once_and_made_by_the_arrays_library(solver):
    a = square()
    linalg.cholesky(a)
    asked = solver.calls("cusolverDnXpotrf_bufferSize")
    assert len(asked) == 1
    (call,) = steps(solver)
    assert (call["device_bytes"], call["host_bytes"]) == (4 * 8 + 16, 24)
    assert call["device_bytes"] in OnDevice.allocated
    linalg.cholesky(a)
    assert len(solver.calls("cusolverDnXpotrf_bufferSize")) == 1
    linalg.cholesky(square(5))
    assert len(solver.calls("cusolverDnXpotrf_bufferSize")) == 2


def test_all_is_put_on_the_stream_of_the_arrays_by_one_handle(solver, new_stream):
    linalg.solve(square(), there(matrices((4, 2))))
    linalg.qr(square())
    assert {call["stream"] for call in steps(solver)} == {new_stream}
    assert len(solver.calls("cusolverDnCreate")) == 1
    assert len({call["handle"] for call in steps(solver)}) == 1


def test_the_context_is_left_as_it_was(solver, devices):
    linalg.inv(square())
    pushed = devices.cuda.calls("cuCtxPushCurrent_v2")
    assert len(pushed) > 0
    assert len(pushed) == len(devices.cuda.calls("cuCtxPopCurrent_v2"))


@pytest.mark.parametrize("function", ["cholesky_ex", "inv_ex", "lu_factor_ex", "lu", "qr"])
def test_what_gives_info_or_cannot_fail_waits_for_nothing(solver, devices, monkeypatch, function):
    a = square()
    monkeypatch.setattr(Matrix, "tolist", None)  # would copy `info` to the host, and so wait for it
    getattr(linalg, function)(a)
    assert steps(solver) != []
    assert devices.cuda.calls("cuStreamSynchronize", "cuEventSynchronize") == []


def test_what_raises_where_a_matrix_is_singular_waits_for_its_info(solver, monkeypatch):
    a, read = square(), []
    tolist = Matrix.tolist
    monkeypatch.setattr(Matrix, "tolist", lambda self: read.append(self) or tolist(self))
    linalg.inv(a)
    assert len(read) == 1


def test_the_flags_have_the_defaults_of_the_schema():
    known = defaults()
    mine = {flag: known[flag] for flag in DEFAULTS}
    mine[PREFER] = mine[PREFER] or "default"
    assert mine == DEFAULTS


def test_every_function_of_the_cpu_has_its_steps():
    named_by_cpu = {f.removeprefix("linalg.") for f in explanation.names() if "linalg." in f}
    assert set(STEPS) == named_by_cpu


@pytest.mark.parametrize("flags", [{}, {ALGORITHMS: "deterministic"}, {PREFER: "cusolver"}])
def test_results_that_differ_from_run_to_run_are_never_allowed(solver, new_stream, flags):
    with under(**flags):
        linalg.cholesky(square())
    assert [call["deterministic"] for call in steps(solver)] == [1]
    assert [call["mode"] for call in solver.calls("cusolverDnSetDeterministicMode")] == [1]


def test_a_library_before_12_2_has_no_mode_and_promises_nothing():
    old, new = (11, 4, 5), (11, 5, 0)
    rule = device_linalg.PROVIDERS["cusolver"]
    assert rule(DEFAULTS, "float32", new).deterministic == 1
    assert rule(DEFAULTS, "float32", old) == LinalgRecipe(
        "cusolver", "float32", words="no mode to set"
    )
    for flags in ({ALGORITHMS: "deterministic"}, {"determinism.tier": "run-to-run"}):
        assert rule({**DEFAULTS, **flags}, "float32", old) == (
            "version 11.4 cannot be told to be deterministic, as `determinism.algorithms` or "
            "`determinism.tier` asks; 11.5 is the first that can"
        )


def test_an_old_library_is_called_without_what_it_lacks(solver, device, devices, monkeypatch):
    old = device("libcusolver.so.11", "VERSION=110400", "OLD=1")
    found = opening.DeviceFile(old.path, "cusolver", 11, "loaded")
    opened = opening._open(found)
    assert opened.version == (11, 4, 0)
    find = devices.find
    monkeypatch.setattr(devices, "find", lambda name: opened if name == "cusolver" else find(name))
    a = positive((3, 4, 4))
    values, vectors = linalg.eigh(there(a))
    assert np.allclose(a @ vectors.array, vectors.array * values.array[:, None, :])
    assert named(old) == ["Xsyevd"] * 3
    devices.without("magma")
    with under(**{ALGORITHMS: "deterministic"}), pytest.raises(MissingLibraryError) as caught:
        linalg.eigh(there(a))
    assert "cusolver: version 11.4 cannot be told to be deterministic" in caught.value.render()
    assert solver.calls() == []


def test_the_preferred_library_is_first():
    assert order(CUDA, "default")[0] == "cusolver"
    assert order(CUDA, "cusolver")[0] == "cusolver"


def test_a_tier_that_no_library_keeps_is_refused(solver):
    with under(**{"determinism.tier": "cross-machine"}), pytest.raises(TierNotKeptError) as caught:
        linalg.inv(square())
    assert caught.value.render() == (
        "error[tier-not-kept]: linalg.inv: `determinism.tier` promises `cross-machine`, which no "
        "library on a device keeps\n"
        "  state: nothing was computed\n"
        "  help: compute on the CPU: our own code keeps it\n"
        "  help: use a profile of a lower tier"
    )
    assert solver.calls() == []


def test_without_the_library_nothing_is_served(solver, devices):
    devices.without("cusolver", "magma")
    with pytest.raises(MissingLibraryError) as caught:
        linalg.inv(square())
    first, *notes = caught.value.render().splitlines()
    assert first == ("error[missing-library]: linalg.inv: no library can serve float64 on cuda:0")
    assert "  note: cusolver: cuSOLVER: no libcusolver.so.12 was found" in notes
    assert notes[-1] == "  help: import the framework that made the array: it brings its libraries"


def test_a_library_that_cannot_serve_is_passed_over_loudly(solver, devices):
    devices.without("magma")
    with under(**{PREFER: "magma"}):
        with pytest.warns(UserWarning, match=f"not by `magma`, which `{PREFER}` prefers: ") as told:
            linalg.inv(square())
        assert [each.filename for each in told] == [__file__]
        assert str(told[0].message).startswith("linalg.inv is served by cuSOLVER, not by `magma`")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            linalg.inv(square())  # it was said
        said = str(ops.explain("linalg.inv", ((4, 4),), "float64", device="cuda:0"))
    assert "in place of `magma`, which `cuda.preferred_linalg_library` prefers" in said
    assert re.search(r"^  magma  ", said, re.MULTILINE)


def test_a_library_that_is_loaded_later_serves_as_explain_says(solver, devices, monkeypatch):
    devices.without("magma")
    with under(**{PREFER: "magma"}):
        with pytest.warns(UserWarning, match="not by `magma`"):
            linalg.inv(square())
        devices._absent.clear()
        devices.bring("magma")
        loads, unloads = _native.mapped()
        monkeypatch.setattr(_native, "mapped", lambda: (loads + 1, unloads))
        with ops.trace() as traced:
            linalg.inv(square())
        said = ops.explain("linalg.inv", ((4, 4),), "float64", device="cuda:0")
    (entry,) = traced
    assert entry.provider == said.provider == "magma"


def test_explain_says_what_a_call_does(solver):
    answer = ops.explain("linalg.solve", ((4, 4), (4, 2)), "complex64", device="cuda:0")
    text = str(answer)
    assert text.startswith("linalg.solve of (4, 4) complex64 and 2 right-hand sides on cuda:0")
    assert "mode CUSOLVER_DETERMINISTIC_RESULTS" in text
    assert solver.path in text
    assert solver.calls("cusolverDnCreate") == []
    with under(**{"determinism.tier": "cross-machine"}):
        text = str(ops.explain("linalg.inv", ((4, 4),), "float64", device="cuda:0"))
    assert "promises `cross-machine`, which no library on a device keeps" in text


def test_calls_are_counted_and_traced(solver):
    a, b = square(stack=(3,)), there(matrices((3, 4, 2)))
    with ops.trace() as traced:
        linalg.solve(a, b)
    (entry,) = traced
    assert (entry.operation, entry.provider, entry.dtype) == ("linalg.solve", "cusolver", "float64")
    assert tuple(entry.sizes) == (3, 4, 4, 2)
    (counted,) = [each for each in ops.stats().operations if each.operation == "linalg.solve"]
    assert (counted.provider, counted.calls) == ("cusolver", 1)


def test_what_was_remembered_is_forgotten(solver):
    linalg.inv(square())
    linalg_calls.forget()
    solver.reset()
    linalg.inv(square())
    assert len(solver.calls("cusolverDnXgetrf_bufferSize")) == 1
