"""A stored calibration in use: who serves, who may not, and what is said of it."""

import numpy as np
import pytest

from backendcfg import native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.dispatch import providers, snapshots
from backendcfg.transact.compiled import Compiled

SMALL, LARGE = 4, 64  # size classes 6 and 18


def record(provider, path):
    return {"provider": provider, "path": path, "owner": "system", "interface": "lp64"}


def under(order, libraries=(), tier="none", named=(), asked=("threads.count",), **values):
    values = {"threads.count": 1, **values}
    plan = Compiled(
        "p", tier, values, asked, order=tuple(order), named=named, libraries=tuple(libraries)
    )
    return Scope(Prepared("p", plan), 0)


def served(scope, n=SMALL, dtype="float64"):
    """Who serves a product in a scope; the product is right."""
    a = np.arange(n * n, dtype=dtype).reshape(n, n) % 7
    ops.reset_stats()
    with scope:
        assert np.array_equal(ops.matmul(a, a), a @ a)
    return [s.provider for s in ops.stats() if s.calls]


def unused(scope):
    """What `explain` says of the calibration."""
    with scope:
        return ops.explain("matmul", ((SMALL, SMALL), (SMALL, SMALL))).calibration


@pytest.fixture(name="fast")
def _fast(fake):
    """A library that is in the process: `fast(name)` is its file."""

    def fast(name):
        path = fake("lp64", f"{name}_calibrated")
        providers.open_file(name, providers.LibraryFile(path, "", "", "lp64"))
        return path

    return fast


def times(small, large=None):
    return {"dgemm": {6: small, **({18: large} if large else {})}}


def test_the_fastest_of_each_size_serves(stored, fast):
    blis = fast("blis")
    files = {"reference": native.file(), "blis": blis}
    slow_first = {"reference": 2e-6, "blis": 1e-6}
    stored(files, times(slow_first, {"reference": 1e-6, "blis": 2e-6}), pools={"reference": ""})
    scope = under(["reference", "blis"], [record("blis", blis)])
    assert served(scope) == ["blis"]
    assert served(scope, LARGE) == ["reference"]
    assert served(scope, dtype="float32") == ["reference"]  # not measured


def test_why_is_counted_and_explained(stored, fast):
    blis = fast("blis")
    stored({"reference": native.file(), "blis": blis}, times({"reference": 3e-6, "blis": 1e-6}))
    scope = under(["reference", "blis"], [record("blis", blis)])
    assert served(scope) == ["blis"]
    (counted,) = ops.stats().operations
    assert (counted.operation, counted.provider, counted.calls) == ("dgemm", "blis", 1)
    assert counted.because == "measured to be the fastest for its size"
    with scope:
        said = ops.explain("matmul", ((SMALL, SMALL), (SMALL, SMALL)))
    assert (said.provider, said.because) == ("blis", "measured to be the fastest for its size")
    why = {r.provider: r.why for r in said.reasons}
    assert why["reference"] == "behind `blis`, which was measured to be 3 times as fast"
    assert said.calibration == "used: measured 2027-01-15 with 1 thread"
    assert said.flags["ops.calibration"] is True


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ops.calibration": False}, "`ops.calibration` is off"),
        (
            {"tier": "run-to-run"},
            "profile `p` has tier `run-to-run`: speed decides no bits",
        ),
        (
            {"tier": "batch-invariant"},
            "profile `p` has tier `batch-invariant`: speed decides no bits",
        ),
        ({"named": ("reference",)}, "`blas.library` names `reference` alone"),
        ({"threads.count": 3}, "there is none for 3 threads, only for 1"),
    ],
)
def test_who_must_not_go_by_speed_does_not_and_says_why(stored, fast, options, why):
    blis = fast("blis")
    stored({"reference": native.file(), "blis": blis}, times({"reference": 2e-6, "blis": 1e-6}))
    scope = under(["reference", "blis"], [record("blis", blis)], **options)
    assert served(scope) == ["reference"]
    assert unused(scope) == f"not used: {why}"


def test_a_library_named_by_its_file_serves_whatever_was_measured(stored, fast):
    blis = fast("blis")
    stored({"reference": native.file(), "blis": blis}, times({"reference": 1e-6, "blis": 2e-6}))
    scope = under(["blis", "reference"], **{"blas.path": blis})
    assert served(scope) == ["blis"]
    assert unused(scope) == "not used: `blas.path` says which library serves"


def test_without_a_table_it_says_so(stored):
    assert unused(under(["reference"])) == ("not used: there is none: `backendcfg tune` makes one")


def test_a_forbidden_provider_is_never_chosen(stored, fast):
    blis = fast("blis")
    stored({"reference": native.file(), "blis": blis}, times({"reference": 2e-6, "blis": 1e-6}))
    assert served(under(["reference"], [record("blis", blis)])) == ["reference"]


def test_a_library_that_was_replaced_is_not_gone_by(stored, fast):
    blis = fast("blis")
    table = stored({"reference": native.file(), "blis": blis}, times({"reference": 2e-6}))
    stored({"reference": "/elsewhere.so", "blis": blis}, table.to_dict() and times({"blis": 1e-6}))
    said = unused(under(["reference", "blis"], [record("blis", blis)]))
    assert said.startswith("not used: `reference` was /elsewhere.so when it was made, and is ")


def test_nothing_is_opened_for_speed_that_the_profile_does_not_name(stored, fake):
    idle = fake("lp64", "idle_calibrated")
    stored({"reference": native.file(), "blis": idle}, times({"reference": 9e-6, "blis": 1e-6}))
    scope = under(["reference", "blis"], [record("blis", idle)])
    assert served(scope) == ["reference"]
    assert not providers.is_loaded(idle)


def test_what_the_profile_names_is_opened_where_it_is_worth_it(stored, fake):
    worth = fake("lp64", "worth_calibrated")
    stored({"reference": native.file(), "blis": worth}, times({"reference": 9e-6, "blis": 1e-6}))
    names = ("reference", "blis")
    scope = under(names, [record("blis", worth)], named=names)
    assert served(scope) == ["blis"]
    assert providers.is_loaded(worth)
    with scope:
        assert "blis" not in snapshots.listing_here().reasons


def test_speed_never_goes_past_those_that_the_profile_names(stored, fast):
    blis, other = fast("blis"), fast("scipy-openblas")
    files = {"reference": native.file(), "blis": blis, "scipy-openblas": other}
    stored(files, times({"reference": 9e-6, "blis": 5e-6, "scipy-openblas": 1e-6}))
    # Before SciPy's own, which another test may have brought into the process.
    libraries = [record("blis", blis), record("scipy-openblas", other) | {"owner": "scipy"}]
    order = ("reference", "blis", "scipy-openblas")
    assert served(under(order, libraries)) == ["scipy-openblas"]
    assert served(under(order, libraries, named=("reference", "blis"))) == ["blis"]


def test_a_hazard_keeps_the_fastest_out(stored, fake, monkeypatch):
    risky = fake("lp64", "risky_calibrated")
    stored({"reference": native.file(), "blis": risky}, times({"reference": 9e-6, "blis": 1e-6}))
    monkeypatch.setattr(providers, "hazard", lambda name: "not now" if name == "blis" else "")
    names = ("reference", "blis")
    scope = under(names, [record("blis", risky)], named=names)
    assert served(scope) == ["reference"]
    with scope:
        said = ops.explain("matmul", ((4, 4), (4, 4)))
    assert {r.provider: r.why for r in said.reasons}["blis"] == "not now"
    assert not providers.is_loaded(risky)


def test_a_first_that_was_not_measured_keeps_its_place(stored, fast):
    blis = fast("blis")
    stored({"blis": blis}, times({"blis": 1e-6}))
    scope = under(["reference", "blis"], [record("blis", blis)])
    assert served(scope) == ["reference"]
    assert unused(scope) == "not used: `reference`, which serves, was not measured"


def test_without_a_profile_the_calibration_holds_too(stored, fast, monkeypatch):
    blis = fast("blis")
    openblas = next(
        library["path"] for library in snapshots._in_process() if library["provider"] == "openblas"
    )
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    files = {"openblas": openblas, "blis": blis, "reference": native.file()}
    stored(files, times({"openblas": 3e-6, "blis": 2e-6, "reference": 1e-6}))
    monkeypatch.setattr(snapshots, "_default", snapshots.Listing())
    assert snapshots.default()
    listing = snapshots.listing_here()
    assert listing.table is not None
    assert listing.decision.fastest["dgemm"][6] == "reference"
    monkeypatch.setenv("BACKENDCFG_DISABLE", "1")
    assert snapshots.default()
    listing = snapshots.listing_here()
    assert (listing.table, listing.unused) == (None, "BACKENDCFG_DISABLE turns it off")


def test_who_cannot_serve_a_size_does_not_however_fast(stored, fast):
    blis = fast("blis")
    large = 2**31
    files = {"reference": native.file(), "blis": blis}
    row = {native.size_class(large, 4, 4): {"reference": 2e-6, "blis": 1e-6}}
    stored(files, {"dgemm": row})
    with under(["reference", "blis"], [record("blis", blis)]):
        said = ops.explain("matmul", ((large, 4), (4, 4)))
    assert (said.provider, said.because) == ("reference", "the first of the order")
    why = {r.provider: r.why for r in said.reasons}
    assert why["blis"] == "a size does not fit its 32-bit integers"
