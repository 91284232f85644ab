"""Which way serves a convolution under which flags, and what is measured when."""

import sys
import types

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.cache import BoundedCache
from backendcfg.defaults import DEFAULTS
from backendcfg.dispatch.array_facts import dense_facts
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import convolution, serving
from backendcfg.ops.convolution import WAYS
from backendcfg.ops.convolution.shapes import geometry
from backendcfg.schema.profile import defaults
from backendcfg.transact.compiled import Compiled

X = np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32)
W = np.random.default_rng(1).standard_normal((4, 3, 3, 3), np.float32)


def under(**values):
    named = {name.replace("__", "."): value for name, value in values.items()}
    return Scope(
        Prepared("test", Compiled("test", "none", named, order=("openblas", "reference"))), 0
    )


def served(operation, provider):
    """How many calls a provider has served."""
    return sum(n for key, n in serving.counted().items() if key[:2] == (operation, provider))


def described(element):
    return geometry(dense_facts(X.shape, element), dense_facts(W.shape, element), None, 1, 0, 1, 1)


BENCHMARK = {"cudnn__benchmark": True}


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch):
    # Another test of this process may have loaded PyTorch, which brings a way of its own.
    monkeypatch.setitem(sys.modules, "torch", None)
    convolution.fastest.clear()
    yield
    convolution.fastest.clear()


@pytest.fixture
def calls(monkeypatch):
    """The ways that were called, in order."""
    found = []
    for name, way in list(WAYS.items()):

        def counted(call, switches, name=name, way=way):
            found.append(name)
            return way(call, switches)

        monkeypatch.setitem(WAYS, name, counted)
    return found


def test_defaults_are_those_of_the_schema():
    known = defaults()
    assert {flag: known[flag] for flag in DEFAULTS} == DEFAULTS


def test_without_a_profile_our_own_kernel_serves(calls):
    before = served("conv2d", "direct")
    ops.conv2d(X, W)
    assert calls == ["direct"]
    assert served("conv2d", "direct") == before + 1


def test_benchmark_measures_each_shape_once(calls):
    with under(**BENCHMARK):
        first = ops.conv2d(X, W)
        assert calls == ["direct", "direct", "im2col", "im2col"]
        calls.clear()
        ops.conv2d(X, W)
        fastest = {way for _, way in convolution.fastest.items()}
        assert calls == list(fastest)
        calls.clear()
        ops.conv2d(X[:1], W)
        assert len(calls) == 4
    assert np.allclose(first, ops.conv2d(X, W), atol=1e-5)


def test_the_fastest_that_was_measured_serves(monkeypatch, calls):
    turns = iter([0, 9, 9, 18, 18, 19, 19, 20])
    monkeypatch.setattr(convolution.time, "perf_counter", lambda: next(turns))
    with under(**BENCHMARK):
        ops.conv2d(X, W)
        calls.clear()
        ops.conv2d(X, W)
    assert calls == ["im2col"]


def test_a_kernel_of_one_by_one_is_tried_as_a_product(calls):
    with under(**BENCHMARK):
        got = ops.conv2d(X, W[:, :, :1, :1].copy())
    assert calls == ["direct", "direct", "pointwise", "pointwise"]
    assert np.allclose(got, np.einsum("nchw,oc->nohw", X, W[:, :, 0, 0]), atol=1e-5)


def test_benchmark_limit_bounds_what_is_tried(calls):
    with under(**BENCHMARK, cudnn__benchmark_limit=1):
        ops.conv2d(X, W)
    assert calls == ["direct", "direct"]


def test_a_benchmark_limit_of_0_tries_all(calls):
    with under(**BENCHMARK, cudnn__benchmark_limit=0):
        ops.conv2d(X, W)
    assert calls == ["direct", "direct", "im2col", "im2col"]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"determinism__tier": "run-to-run"}, "the tier is run-to-run"),
        ({"determinism__tier": "batch-invariant"}, "the tier is batch-invariant"),
        ({"determinism__algorithms": "deterministic"}, "`determinism.algorithms` is deterministic"),
        ({"cudnn__deterministic": True}, "`cudnn.deterministic` is on"),
        ({"mkldnn__deterministic": True}, "`mkldnn.deterministic` is on"),
        ({"cudnn__enabled": False}, "`cudnn.enabled` is off"),
    ],
)
def test_what_asks_for_the_same_bits_forbids_to_measure(calls, values, why):
    with under(**BENCHMARK, **values):
        ops.conv2d(X, W)
        assert convolution.fixed_by(FlagsInForce()) == why
    assert calls == ["direct"]


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(convolution, "fastest", BoundedCache(2))
    with under(**BENCHMARK):
        for size in (5, 6, 7):
            ops.conv2d(X[:, :, :size], W)
        assert [key[0].input[2] for key, _ in convolution.fastest.items()] == [6, 7]
        ops.conv2d(X[:, :, :6], W)
        ops.conv2d(X[:, :, :8], W)
    assert [key[0].input[2] for key, _ in convolution.fastest.items()] == [6, 8]


def test_why_onednn_does_not_serve(monkeypatch):
    call = described("float32")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert (
        convolution.unmet("onednn", call, FlagsInForce())
        == "PyTorch, which brings it, is not loaded"
    )
    with under(mkldnn__enabled=False):
        assert convolution.unmet("onednn", call, FlagsInForce()) == "`mkldnn.enabled` is off"
    mkldnn = types.SimpleNamespace(is_available=lambda: True)
    torch = types.SimpleNamespace(
        nn=0,
        backends=types.SimpleNamespace(mkldnn=mkldnn),
        _C=types.SimpleNamespace(_get_mkldnn_enabled=lambda: False),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert convolution.unmet("onednn", call, FlagsInForce()) == "PyTorch does not compute with it"
    torch._C._get_mkldnn_enabled = lambda: True
    assert convolution.unmet("onednn", call, FlagsInForce()) == ""
    for narrow in ("float16", "bfloat16", "complex64"):
        assert convolution.unmet("onednn", described(narrow), FlagsInForce()) == ""
    for wide in ("float64", "complex128"):
        assert (
            convolution.unmet("onednn", described(wide), FlagsInForce())
            == "PyTorch gives it no float64"
        )
