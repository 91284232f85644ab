"""addmm, baddbmm and bmm: what PyTorch's functions of these names compute, for any arrays."""

from importlib.util import find_spec

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError

DTYPES = ("float32", "float64", "float16", "complex64", "complex128")
FACTORS = (0, 1, -1, 2.5, 0.1)


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@settings(max_examples=examples(80), deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    sizes=st.tuples(*[st.sampled_from((0, 1, 2, 7, 33))] * 3),
    factors=st.tuples(st.sampled_from(FACTORS), st.sampled_from(FACTORS)),
    added=st.sampled_from(("full", "row", "column", "one")),
)
def test_the_sum_is_within_the_bound_of_the_arithmetic(dtype, sizes, factors, added):
    (n, m, p), (beta, alpha) = sizes, factors
    shape = {"full": (n, p), "row": (p,), "column": (n, 1), "one": ()}[added]
    c, a, b = normal(shape, dtype), normal((n, m), dtype, 1), normal((m, p), dtype, 2)
    got = ops.addmm(c, a, b, beta=beta, alpha=alpha)
    wide = np.clongdouble if "complex" in dtype else np.longdouble
    terms = [x.astype(wide) for x in (c, a, b)]
    wanted = beta * terms[0] + alpha * (terms[1] @ terms[2])
    size = abs(beta) * abs(terms[0]) + abs(alpha) * (abs(terms[1]) @ abs(terms[2]))
    unit = np.finfo("float32" if dtype == "float16" else dtype).eps
    bound = 4 * (m + 4) * unit * size
    if dtype == "float16":
        bound = bound + 2.0**-11 * (abs(wanted) + bound) + 2.0**-24
    assert (got.dtype, got.shape) == (np.dtype(dtype), (n, p))
    assert (abs(got - wanted) <= bound).all()


@pytest.mark.parametrize("operation", ["addmm", "baddbmm"])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_it_agrees_with_pytorch(operation, name):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    batch = (3,) if operation == "baddbmm" else ()
    c, a, b = (torch.randn((*batch, *shape), generator=generator).to(getattr(torch, name))
               for shape in ((5, 7), (5, 20), (20, 7)))  # fmt: skip
    got = getattr(ops, operation)(c, a, b, beta=0.5, alpha=2)
    torch.testing.assert_close(got, getattr(torch, operation)(c, a, b, beta=0.5, alpha=2))


def test_bmm_agrees_with_pytorch():
    torch = pytest.importorskip("torch")
    a, b = torch.randn(4, 5, 6), torch.randn(4, 6, 3)
    torch.testing.assert_close(ops.bmm(a, b), torch.bmm(a, b))
    out = torch.empty(4, 5, 3)
    assert ops.bmm(a, b, out=out) is out


def test_what_is_not_added_is_not_read():
    nan, ones = np.full((2, 2), np.nan), np.ones((2, 2))
    np.testing.assert_array_equal(ops.addmm(nan, ones, ones, beta=0), ones + ones)
    assert np.isnan(ops.addmm(nan, ones, ones, beta=1)).all()
    # A product that is multiplied by 0 is still a product: NaN in it stays.
    assert np.isnan(ops.addmm(ones, nan, ones, alpha=0)).all()


def test_the_result_may_go_where_an_argument_lies():
    a = np.arange(4.0).reshape(2, 2)
    wanted = 2 * a + a @ a
    assert ops.addmm(a, a, a, beta=2, out=a) is a
    np.testing.assert_array_equal(a, wanted)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.addmm(x, x, x.astype("float32")), "addmm: `mat2` must hold float64, as"),
        (lambda x: ops.addmm(x.astype("float32"), x, x), "addmm: `input` must hold float64, as"),
        (lambda x: ops.addmm(x, x, np.ones((3, 2))), "addmm: `mat1` and `mat2` must fit"),
        (lambda x: ops.addmm(x, x, x, beta="1"), "addmm: `beta` must be a number that float64"),
        (lambda x: ops.addmm(x, x, x, alpha=1j), "addmm: `alpha` must be a number that float64"),
        (lambda x: ops.addmm(x, x, x, out=np.ones(2)), "addmm: `out` must have the shape of the"),
        (lambda x: ops.addmm(x, x, x, out=x.astype("float32")), "addmm: `out` must hold float64"),
        (lambda x: ops.addmm(x, [[1.0]], x), "addmm: `mat1` must be an array, not list"),
        (lambda x: ops.addmm(x, np.ones((2, 2, 2)), x), "addmm: `mat1` must have 2 dimensions"),
        (lambda x: ops.addmm(np.ones((2, 2, 2)), x, x), "addmm: `input` must broadcast to"),
        (lambda x: ops.baddbmm(x, x, x), "baddbmm: `batch1` must have 3 dimensions"),
        (lambda x: ops.bmm(np.ones((2, 2, 2)), np.ones((3, 2, 2))), "bmm: `input` and `mat2` must"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call(np.ones((2, 2)))


def test_integers_are_refused_with_a_way_out():
    whole = np.ones((2, 2), "int64")
    with pytest.raises(InvalidArgumentError, match="addmm: `mat1` must hold float32, float64"):
        ops.addmm(whole, whole, whole)


@pytest.mark.parametrize("factor", [1j, np.complex64(1j), np.complex128(1j)])
def test_a_complex_factor_of_real_arrays_is_refused(factor):
    a = normal((2, 2), "float32")
    with pytest.raises(
        InvalidArgumentError, match="`alpha` must be a number that float32 can hold"
    ):
        ops.addmm(a, a, a, alpha=factor)


@pytest.mark.parametrize("operation", ["addmm", "bmm"])
def test_an_out_in_the_other_byte_order_is_refused_and_not_lost(operation):
    a, out = normal((2, 2), "float32"), np.zeros((2, 2), ">f4")
    arguments, out = ((a, a, a), out) if operation == "addmm" else ((a[None], a[None]), out[None])
    with pytest.raises(InvalidArgumentError, match="`out` must be in this machine's byte order"):
        getattr(ops, operation)(*arguments, out=out)


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_an_out_that_is_a_lazy_conjugate_is_refused_and_not_lost():
    import torch

    a, out = torch.ones(2, 2, dtype=torch.complex64), torch.zeros(2, 2, dtype=torch.complex64)
    negative, real = out.conj().imag, torch.ones(2, 2)
    for call in (
        lambda: ops.matmul(a, a, out=out.conj()),
        lambda: ops.addmm(a, a, a, out=out.conj()),
        lambda: ops.matmul(real, real, out=negative),
    ):
        with pytest.raises(InvalidArgumentError, match="no lazy conjugate or negative"):
            call()
    assert ops.matmul(a, a, out=out.conj().conj()) is not None
