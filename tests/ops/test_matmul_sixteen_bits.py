"""Products of bfloat16 and float16: sums in float32, rounded once, in whatever arrays they come."""

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import ops
from backendcfg.errors import InvalidArgumentError

UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
SMALLEST = {"bfloat16": 2.0**-133, "float16": 2.0**-24}


def dtype_of(element):
    if element == "float16":
        return np.dtype("float16")
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


def normal(shape, element, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype_of(element))


@pytest.mark.parametrize("element", UNITS)
@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.tuples(*[st.sampled_from((1, 2, 5, 16, 17, 64, 65, 300))] * 3),
    turned=st.tuples(st.booleans(), st.booleans()),
)
def test_the_error_is_that_of_float32_and_of_one_rounding(element, sizes, turned):
    m, n, k = sizes
    a, b = normal((m, k), element), normal((k, n), element, 1)
    left = np.asfortranarray(a) if turned[0] else a
    right = np.asfortranarray(b) if turned[1] else b
    got = ops.matmul(left, right)
    assert got.dtype == a.dtype
    wanted = a.astype("float64") @ b.astype("float64")
    size = abs(a.astype("float64")) @ abs(b.astype("float64"))
    sums = (min(k, 256) + -(-k // 256)) * 2.0**-24 * size
    bound = sums + UNITS[element] * (abs(wanted) + sums) + SMALLEST[element]
    assert (abs(got.astype("float64") - wanted) <= bound).all()


@pytest.mark.parametrize("element", UNITS)
def test_long_sums_do_not_stop_growing(element):
    """In 16 bits a sum of ones stays at 256 or 2048."""
    ones = np.ones((1, 4096), dtype_of(element))
    assert float(ops.matmul(ones, ones.T)[0, 0]) == 4096


def test_what_is_beyond_float16_is_infinity():
    large = np.full((2, 2), 300, "float16")
    assert np.isinf(ops.matmul(large, large)).all()


@pytest.mark.parametrize("element", UNITS)
def test_nan_and_infinity_stay_in_their_row(element):
    a = np.ones((20, 40), dtype_of(element))
    a[3, 7], a[5, 0] = np.nan, np.inf
    got = ops.matmul(a, np.ones((40, 30), a.dtype)).astype("float32")
    assert np.isnan(got[3]).all()
    assert np.isposinf(got[5]).all()
    assert (np.delete(got, (3, 5), 0) == 40).all()


def test_types_that_differ_promote_as_numpys_do():
    half, single, double = (np.ones((2, 2), t) for t in ("float16", "float32", "float64"))
    assert ops.matmul(half, single).dtype == np.float32
    assert ops.matmul(double, half).dtype == np.float64
    narrow = np.ones((2, 2), dtype_of("bfloat16"))
    assert ops.matmul(narrow, single).dtype == np.float32
    assert ops.matmul(narrow, half).dtype == np.float32  # the two have nothing smaller in common


@pytest.mark.parametrize("element", UNITS)
def test_they_are_served_by_our_own_kernels_alone_and_that_is_said(element):
    a = normal((3, 4), element)
    ops.reset_stats()
    ops.matmul(a, a.T)
    served = {each.provider: each.calls for each in ops.stats() if each.calls}
    said = ops.explain("matmul", ((3, 4), (4, 3)), a.dtype)
    assert served == {"native": {said.operation: 1}}
    assert said.provider == "native"
    assert {each.why for each in said.reasons} == {f"has no products of {element}"}


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64"])
def test_tensors_come_back_as_tensors(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
            for shape in ((2, 5, 33), (33, 7)))  # fmt: skip
    got, out = ops.matmul(a, b), torch.empty(2, 5, 7, dtype=dtype)
    assert ops.matmul(a, b, out) is out
    assert (got.dtype, got.shape) == (dtype, (2, 5, 7))
    assert torch.equal(got, out)
    torch.testing.assert_close(got, a @ b)


def test_a_tensor_and_an_array_give_a_tensor():
    torch = pytest.importorskip("torch")
    got = ops.matmul(np.ones((2, 3)), torch.ones(3, 2, dtype=torch.float64))
    assert torch.equal(got, torch.full((2, 2), 3.0, dtype=torch.float64))


def test_a_result_of_another_type_is_refused():
    torch = pytest.importorskip("torch")
    a = torch.ones(2, 2, dtype=torch.bfloat16)
    with pytest.raises(InvalidArgumentError, match="matmul: `out` must hold bfloat16, as the"):
        ops.matmul(a, a, torch.empty(2, 2))
    with pytest.raises(InvalidArgumentError, match="matmul: `out` must hold float32, as the"):
        ops.matmul(a.float(), a.float(), a)
