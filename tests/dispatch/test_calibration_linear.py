"""A stored calibration in linear algebra: it changes who serves, and a promise forbids it."""

import numpy as np
import pytest

from backendcfg import native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.dispatch import snapshots
from backendcfg.ops import linalg
from backendcfg.transact.compiled import Compiled

N = 100  # size class 19, which goes by 18
WORDS = "measured to be the fastest for its size"
CALLS = {
    "getrf": (linalg.inv, linalg.lu_factor, linalg.lu, lambda a: linalg.solve(a, a)),
    "potrf": (linalg.cholesky, linalg.cholesky_inverse, lambda a: linalg.cholesky_solve(a, a)),
    "geqrf": (linalg.qr,),
    "syevd": (linalg.eigh, linalg.eigvalsh),
    "gesdd": (linalg.svd, linalg.svdvals),
}


@pytest.fixture(name="openblas")
def _openblas():
    """NumPy's own library, which is in the process and has LAPACK."""
    found = (one for one in snapshots._in_process() if one["provider"] == "openblas")
    library = next(found, None)
    if library is None:
        pytest.skip("NumPy computes with another library than OpenBLAS here")
    return library


@pytest.fixture(name="faster")
def _faster(stored, openblas):
    """A table in which OpenBLAS is three times as fast for some factorisations."""

    def faster(*operations):
        row = {18: {"reference": 3e-6, "openblas": 1e-6}}
        files = {"reference": native.file(), "openblas": openblas["path"]}
        return stored(files, dict.fromkeys(operations, row), pools={"reference": ""})

    return faster


def under(openblas, tier="none", **values):
    values = {"threads.count": 1, "determinism.tier": tier, **values}
    plan = Compiled(
        "p",
        tier,
        values,
        ("threads.count",),
        order=("reference", "openblas"),
        libraries=(openblas,),
    )
    return Scope(Prepared("p", plan), 0)


def served(call, matrix):
    ops.reset_stats()
    call(matrix)
    return {(one.provider, one.because) for one in ops.stats().operations}


def matrix(dtype="float64", n=N):
    random = np.random.default_rng(0).standard_normal((n, n))
    return (random @ random.T + n * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("routine", CALLS)
def test_the_fastest_serves_all_that_rests_on_a_factorisation(faster, openblas, routine):
    faster(f"d{routine}")
    with under(openblas):
        for name, calls in CALLS.items():
            expected = ("openblas", WORDS) if name == routine else None
            for call in calls:
                (one,) = served(call, matrix())
                assert one == (expected or ("reference", "the first of the order"))


def test_each_type_goes_by_its_own_row_and_small_matrices_by_none(faster, openblas):
    faster("sgetrf", "zheevd")
    first = {("reference", "the first of the order")}
    with under(openblas):
        assert served(linalg.inv, matrix("float32")) == {("openblas", WORDS)}
        assert served(linalg.eigh, matrix("complex128")) == {("openblas", WORDS)}
        assert served(linalg.inv, matrix("float64")) == first
        assert served(linalg.eigh, matrix("complex64")) == first
        assert served(linalg.inv, matrix("float32", n=16)) == first


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tier": "run-to-run"}, "profile `p` has tier `run-to-run`: speed decides no bits"),
        (
            {"tier": "thread-invariant"},
            "profile `p` has tier `thread-invariant`: speed decides no bits",
        ),
        ({"ops.calibration": False}, "`ops.calibration` is off"),
        ({"threads.count": 3}, "there is none for 3 threads, only for 1"),
    ],
)
def test_a_promise_forbids_it_and_explain_says_so(faster, openblas, options, why):
    faster("dgetrf")
    with under(openblas, **options):
        assert served(linalg.inv, matrix()) == {("reference", "the first of the order")}
        said = ops.explain("linalg.inv", ((N, N),))
    assert (said.provider, said.calibration) == ("reference", f"not used: {why}")


def test_explain_tells_how_much_faster_and_asks_the_same_function(faster, openblas):
    faster("dgetrf")
    with under(openblas):
        said = ops.explain("linalg.solve", ((N, N), (N,)))
        assert served(lambda a: linalg.solve(a, a[0]), matrix()) == {(said.provider, said.because)}
    assert (said.provider, said.because) == ("openblas", WORDS)
    why = {one.provider: one.why for one in said.reasons}
    assert why["reference"] == "behind `openblas`, which was measured to be 3 times as fast"
    assert said.calibration == "used: measured 2027-01-15 with 1 thread"
    assert said.flags["ops.calibration"] is True
    with under(openblas):
        said = ops.explain("linalg.qr", ((N, N),))
    assert said.provider == "reference"
    assert said.calibration == (
        "used: measured 2027-01-15 with 1 thread; it says nothing of dgeqrf"
    )


def test_results_are_those_of_the_library_that_serves(faster, openblas):
    faster("dgetrf")
    a = matrix()
    with under(openblas):
        fast = linalg.inv(a)
    with under(openblas, **{"ops.calibration": False}):
        plain = linalg.inv(a)
    np.testing.assert_allclose(fast @ a, np.eye(N), atol=1e-12)
    np.testing.assert_allclose(plain @ a, np.eye(N), atol=1e-12)
