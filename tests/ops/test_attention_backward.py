"""Attention's gradients are those of its definition, to the bit the same on any number of threads."""

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import _native, ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.transact.compiled import Compiled

pytestmark = pytest.mark.sweep

# Of the largest number in a gradient: rounding of the arithmetic, and of what was passed.
BOUNDS = {"float32": 5e-6, "float64": 1e-13, "float16": 5e-3}
ISAS = [name for name, runs, _ in _native.kernel_isas() if runs]


@pytest.fixture(params=ISAS)
def isa(request):
    """One instruction set, and the proof that it was used."""
    before = {name: served for name, _, served in _native.kernel_isas()}
    _native.force_kernel_isa(request.param)
    try:
        yield request.param
    finally:
        _native.force_kernel_isa(None)
    after = {name: served for name, _, served in _native.kernel_isas()}
    assert after[request.param] > before[request.param]
    assert all(after[name] == before[name] for name in ISAS if name != request.param)


class Problem:
    """Inputs in float64 that every dtype can hold, and the gradients by the definition."""

    def __init__(self, sizes, mask="", *, causal=False, scale=None, seed=0):
        batch, heads, groups, queries, keys, width, value_width = sizes
        random = np.random.default_rng(seed)

        def numbers(*shape):
            return random.integers(-64, 65, shape) / 32.0

        self.query = numbers(batch, heads, queries, width)
        self.key = numbers(batch, groups, keys, width)
        self.value = numbers(batch, groups, keys, value_width)
        self.grad_out = numbers(batch, heads, queries, value_width)
        self.mask = None
        if mask == "bool":
            self.mask = random.random((batch, 1, queries, keys)) < 0.6
        elif mask == "added":
            self.mask = numbers(1, heads, queries, keys)
        self.causal, self.scale = causal, width**-0.5 if scale is None else scale
        self.solve(heads // groups)

    def solve(self, share):
        key, value = (np.repeat(x, share, 1) for x in (self.key, self.value))
        scores = self.query @ key.swapaxes(-1, -2) * self.scale
        if self.mask is not None:
            scores = scores + (
                np.where(self.mask, 0, -np.inf) if self.mask.dtype == bool else self.mask
            )
        if self.causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        highest = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isinf(highest), 0, highest))
        total = weights.sum(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            self.logsumexp = (np.where(np.isinf(highest), 0, highest) + np.log(total))[..., 0]
        weights = weights / np.where(total == 0, 1, total)
        self.out = weights @ value
        slopes = self.grad_out @ value.swapaxes(-1, -2)
        slopes = weights * (slopes - (self.grad_out * self.out).sum(-1, keepdims=True)) * self.scale

        def grouped(x):
            batch, heads, *rest = x.shape
            return x.reshape(batch, heads // share, share, *rest).sum(2)

        self.gradients = (
            slopes @ key,
            grouped(slopes.swapaxes(-1, -2) @ self.query),
            grouped(weights.swapaxes(-1, -2) @ self.grad_out),
        )

    def arrays(self, dtype, change=lambda x: x):
        return [
            change(x.astype(dtype))
            for x in (self.grad_out, self.query, self.key, self.value, self.out)
        ]

    def run(self, dtype="float32", threads=0, change=lambda x: x):
        grad_out, query, key, value, out = self.arrays(dtype, change)
        work = "float64" if dtype == "float64" else "float32"
        mask = self.mask
        if mask is not None:
            mask = mask if mask.dtype == bool else mask.astype(work)
            mask = np.broadcast_to(mask, (*query.shape[:3], key.shape[2]))
        return _native.attention_backward(
            *(grad_out, query, key, value, mask, out, self.logsumexp.astype(work)),
            *(self.causal, self.scale, 0.0, 0, dtype, threads),
        )

    def check(self, found, dtype):
        for one, expected in zip(found, self.gradients, strict=True):
            assert one.dtype == dtype
            assert one.shape == expected.shape
            most = np.abs(expected).max(initial=1)
            np.testing.assert_allclose(one, expected, rtol=0, atol=BOUNDS[dtype] * most)


def same_bits(found, others):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, others, strict=True))


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("mask", ["", "bool", "added"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_the_definition(isa, dtype, mask, causal):
    problem = Problem((2, 4, 2, 70, 83, 20, 24), mask, causal=causal)
    problem.check(problem.run(dtype), dtype)


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(
    sizes=st.tuples(
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(0, 140),
        st.integers(0, 300),
        st.integers(1, 40),
        st.integers(1, 40),
    ),
    mask=st.sampled_from(["", "bool", "added"]),
    causal=st.booleans(),
    scale=st.sampled_from([None, 0.0, -0.3]),
)
def test_any_shape_has_its_gradients(sizes, mask, causal, scale):
    batch, share, groups, *rest = sizes
    problem = Problem((batch, share * groups, groups, *rest), mask, causal=causal, scale=scale)
    for dtype in ("float32", "float64"):
        problem.check(problem.run(dtype), dtype)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_one_thread_and_many_give_the_same_bits(isa, dtype):
    problem = Problem((1, 2, 1, 200, 520, 24, 16), causal=False)
    alone = problem.run(dtype, threads=1)
    for threads in (2, 3, 8):
        assert same_bits(alone, problem.run(dtype, threads=threads))


def test_every_instruction_set_gives_the_same_bits():
    problem, found = Problem((1, 4, 2, 150, 300, 33, 20), "added"), []
    for name in ISAS:
        _native.force_kernel_isa(name)
        try:
            found.append((problem.run("float32"), problem.run("float64")))
        finally:
            _native.force_kernel_isa(None)
    for single, double in found[1:]:
        assert same_bits(single, found[0][0])
        assert same_bits(double, found[0][1])


def test_a_batch_does_not_change_the_bits_of_one():
    problem = Problem((3, 2, 2, 100, 270, 16, 16), "added", causal=True)
    together = problem.run()
    for i in range(3):
        alone = Problem((3, 2, 2, 100, 270, 16, 16), "added", causal=True)
        for name in ("query", "key", "value", "grad_out", "out", "logsumexp"):
            setattr(alone, name, getattr(alone, name)[i : i + 1])
        assert same_bits(alone.run(), [x[i : i + 1] for x in together])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
        lambda x: np.repeat(x, 2, -1)[..., ::2],
        lambda x: np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1],
        np.asfortranarray,
    ],
    ids=["by length", "every second", "backwards", "fortran"],
)
def test_strides_do_not_change_the_bits(dtype, change):
    problem = Problem((2, 4, 2, 60, 90, 20, 36), "bool")
    assert same_bits(problem.run(dtype), problem.run(dtype, change=change))


def test_a_query_that_sees_nothing_has_no_gradient_and_gives_none():
    problem = Problem((1, 1, 1, 20, 30, 8, 8), "bool")
    problem.mask[:, :, 7] = False
    problem.solve(1)
    found = problem.run()
    assert not found[0][0, 0, 7].any()
    problem.check(found, "float32")


def test_without_keys_the_gradient_of_the_query_is_zero():
    found = Problem((1, 2, 1, 5, 0, 4, 4)).run()
    assert not found[0].any()
    assert found[1].shape == (1, 1, 0, 4)


def bfloat16(x):
    bits = x.astype("float32").view("uint32")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("uint16")


def run_in_bfloat16(problem, threads):
    grad_out, query, key, value, out = problem.arrays("float32", bfloat16)
    mask = problem.mask
    if mask is not None:
        mask = np.broadcast_to(mask, (*query.shape[:3], key.shape[2]))
        mask = mask if mask.dtype == bool else mask.astype("float32")
    return _native.attention_backward(
        *(grad_out, query, key, value, mask, out, problem.logsumexp.astype("float32")),
        *(problem.causal, problem.scale, 0.0, 0, "bfloat16", threads),
    )


def test_every_instruction_set_gives_the_same_bits_of_bfloat16_where_the_tier_asks():
    problem, found = Problem((1, 4, 2, 150, 300, 33, 20), "added"), []
    values = {"determinism.tier": "cross-machine"}
    with Scope(Prepared("p", Compiled("p", "cross-machine", values, order=("native",))), 0):
        for name in ISAS:
            _native.force_kernel_isa(name)
            try:
                found.append(run_in_bfloat16(problem, 2))
            finally:
                _native.force_kernel_isa(None)
    for gradients in found[1:]:
        assert same_bits(gradients, found[0])


@pytest.mark.parametrize("mask", ["", "bool", "added"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(2, 4, 2, 121, 335, 41, 23), (1, 1, 1, 1, 1, 1, 1)])
def test_bfloat16_is_read_and_written_as_its_bits(isa, sizes, mask, causal):
    problem = Problem(sizes, mask, causal=causal)
    found = [run_in_bfloat16(problem, threads) for threads in (1, 3)]
    assert same_bits(*found)
    for one, expected in zip(found[0], problem.gradients, strict=True):
        wide = (one.astype("uint32") << 16).view("float32")
        most = np.abs(expected).max(initial=1)
        np.testing.assert_allclose(wide, expected, rtol=0, atol=2e-2 * most)


def test_dropout_goes_back_through_the_weights_that_went_forward():
    random = np.random.default_rng(3)
    query, key, value, grad_out = (random.standard_normal((1, 2, 9, 6)) for _ in range(4))
    options = {"dropout_p": 0.4, "seed": 77}

    def loss(*arrays):
        return (ops.scaled_dot_product_attention(*arrays, **options) * grad_out).sum()

    out, logsumexp = ops.scaled_dot_product_attention(
        query, key, value, return_logsumexp=True, **options
    )
    found = ops.scaled_dot_product_attention_backward(
        grad_out, query, key, value, out, logsumexp, **options
    )
    step = 1e-6
    for which, gradient in enumerate(found):
        for place in [(0, 0, 0, 0), (0, 1, 4, 3), (0, 1, 8, 5)]:
            arrays = [[query.copy(), key.copy(), value.copy()] for _ in range(2)]
            arrays[0][which][place] += step
            arrays[1][which][place] -= step
            slope = (loss(*arrays[0]) - loss(*arrays[1])) / (2 * step)
            assert gradient[place] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_gradients_of_what_dropout_left_are_as_exact_as_float64():
    random = np.random.default_rng(3)
    query, key = (random.standard_normal((1, 2, 9, 6)) for _ in range(2))
    # Each value on its own: the result is what is left of the weights.
    value = np.broadcast_to(np.eye(9), (1, 2, 9, 9)).copy()
    pushed = random.standard_normal((1, 2, 9, 9))
    options = {"dropout_p": 0.3, "seed": 77}
    out, logsumexp = ops.scaled_dot_product_attention(
        query, key, value, return_logsumexp=True, **options
    )
    of_query, _, of_value = ops.scaled_dot_product_attention_backward(
        pushed, query, key, value, out, logsumexp, **options
    )
    np.testing.assert_allclose(of_value, out.swapaxes(2, 3) @ pushed, rtol=1e-12, atol=1e-14)
    weights = np.exp(query @ key.swapaxes(2, 3) / np.sqrt(6) - logsumexp[..., None])
    slopes = out * pushed - weights * (out * pushed).sum(-1, keepdims=True)
    np.testing.assert_allclose(of_query, slopes @ key / np.sqrt(6), rtol=1e-12, atol=1e-14)


def gradients(arrays, mask, dtype):
    """The gradients of query, key and value for arrays of (heads, length, width), the last one pushed."""
    *given, pushed = (each.astype(dtype) for each in arrays)
    mask = None if mask is None else mask.astype(dtype)
    out, total = ops.scaled_dot_product_attention(*given, mask, return_logsumexp=True)
    return ops.scaled_dot_product_attention_backward(pushed, *given, out, total, mask)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("lengths", [(3, 6), (8, 8), (40, 40)])
def test_large_scores_do_not_make_gradients_less_exact(isa, lengths, masked):
    """Scores of 200, whose rounding is 100 times that of 1: each row of weights still sums to 1."""
    random = np.random.default_rng(5)
    queries, keys = lengths
    arrays = [random.uniform(-9, 9, (8, length, 16)) for length in (queries, keys, keys)]
    arrays = [
        each.astype(np.float32) for each in (*arrays, random.uniform(-1, 1, (8, queries, 16)))
    ]
    mask = random.uniform(-9, 9, (queries, keys)).astype(np.float32) if masked else None
    found, exact = (gradients(arrays, mask, dtype)[2] for dtype in (np.float32, np.float64))
    assert np.abs(found - exact).max() < 3e-6 * np.abs(exact).max()


def test_memory_does_not_grow_with_the_product_of_the_lengths():
    tracked = []
    for length in (512, 2048):
        problem = [np.ones((1, 1, length, 8), "float32") for _ in range(5)]
        logsumexp = np.full((1, 1, length), np.log(length), "float32")
        before = peak()
        _native.attention_backward(
            *problem[:4], None, problem[4], logsumexp, False, 1.0, 0.0, 0, "float32", 1
        )
        tracked.append(peak() - before)
    assert tracked[1] < 2048 * 2048  # a quarter of the scores


def peak():
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def test_arrays_that_do_not_fit_are_refused_before_anything_is_read():
    problem = Problem((1, 2, 1, 5, 6, 4, 4))
    problem.out = problem.out[:, :, :4]
    with pytest.raises(ValueError, match="attention_backward: dimension 2 of out is 4, and 5 is n"):
        problem.run()


def test_the_operation_names_what_does_not_fit():
    x = np.ones((1, 2, 5, 4), "float32")
    with pytest.raises(InvalidArgumentError, match="scaled_dot_product_attention_backward: "):
        ops.scaled_dot_product_attention_backward(x[:, :, :4], x, x, x, x, x[..., 0])
