"""Attention's forward kernels: exact within the rounding of their arithmetic, for every instruction
set, and the same bits whatever the threads, the batch and the layout."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import _native, ops  # noqa: F401  ops hands NumPy's C API to _native
from backendcfg._native import Prepared, Scope
from backendcfg.transact.compiled import Compiled

pytestmark = pytest.mark.sweep

ISAS = [name for name, runs, _ in _native.kernel_isas() if runs]
ELEMENTS = ["float32", "float64", "bfloat16", "float16"]
KERNELS = ["flash", "efficient"]
EVERYWHERE = Prepared(
    "p", Compiled("p", "cross-machine", {"determinism.tier": "cross-machine"}, order=("native",))
)
# The unit of rounding of the work, and of a result (with its smallest step).
WORK = {"float32": 2**-24, "float64": 2**-53, "bfloat16": 2**-24, "float16": 2**-24}
RESULT = {"float32": 0, "float64": 0, "bfloat16": 2**-8, "float16": 2**-11}


@pytest.fixture(params=ISAS)
def isa(request):
    """One instruction set, and the proof that it and no other was used."""
    before = {name: served for name, _, served in _native.kernel_isas()}
    _native.force_kernel_isa(request.param)
    try:
        yield request.param
    finally:
        _native.force_kernel_isa(None)
    after = {name: served for name, _, served in _native.kernel_isas()}
    assert after[request.param] > before[request.param]
    assert all(after[name] == before[name] for name in ISAS if name != request.param)


def packed(x, element):
    """Numbers as an array of an element; bfloat16 is uint16, rounded to even."""
    if element != "bfloat16":
        return x.astype(element)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def unpacked(x, element):
    if element == "bfloat16":
        x = (x.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # NumPy tells of NaNs that signal
        return x.astype(np.float64)


@dataclass
class Problem:
    """Arrays for one call, and the numbers they hold."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    element: str = "float32"
    mask: np.ndarray | None = None
    causal: bool = False
    scale: float = 0.0

    def __post_init__(self):
        self.scale = self.scale or max(1, self.query.shape[-1]) ** -0.5

    def run(self, kernel="flash", threads=0, dropout=0.0, seed=0):
        return _native.attention(
            kernel, self.query, self.key, self.value, self.mask, self.causal, self.scale,
            dropout, seed, self.element, threads,
        )  # fmt: skip

    def numbers(self):
        share = self.query.shape[1] // max(1, self.key.shape[1])
        query, key, value = (
            unpacked(each, self.element) for each in (self.query, self.key, self.value)
        )
        return query, np.repeat(key, share, 1), np.repeat(value, share, 1)

    def bias(self):
        shape = (*self.query.shape[:3], self.key.shape[2])
        bias = np.zeros(shape)
        if self.mask is not None and self.mask.dtype == bool:
            bias = np.where(self.mask, 0, -np.inf)
        elif self.mask is not None:
            same = self.mask.dtype == np.uint16
            bias = unpacked(self.mask, "bfloat16" if same else "float64")
        return np.where(np.tri(*shape[2:], dtype=bool), bias, -np.inf) if self.causal else bias

    def solve(self):
        """The result in float64, and the bounds of the two results' errors."""
        query, key, value = self.numbers()
        bias = self.bias()
        scores = query @ key.swapaxes(-1, -2) * self.scale + bias
        highest = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isinf(highest), 0, highest))
        total = weights.sum(-1, keepdims=True)
        out = weights / np.where(total == 0, 1, total) @ value
        with np.errstate(divide="ignore"):
            logsumexp = (np.where(np.isinf(highest), 0, highest) + np.log(total))[..., 0]
        # A score is a chain of `width` terms, scaled and biased; e^x is off by 3 units
        # and by what its argument was rounded; a result is a chain of as many terms as keys.
        unit, (width, keys) = WORK[self.element], (query.shape[-1], key.shape[2])
        seen = np.where(np.isinf(bias), 0, np.abs(bias))
        sizes = np.abs(query) @ np.abs(key).swapaxes(-1, -2) * abs(self.scale) + seen
        size = sizes.max(-1, initial=0)
        score_error = unit * (width + 8) * size
        error = 2 * score_error + unit * (keys + 40)
        if self.element == "bfloat16":
            error = error + 2**-8  # of the weights, where pairs are multiplied
        bound = error[..., None] * np.abs(value).max((-1, -2), initial=0)[..., None, None]
        bound = bound + RESULT[self.element] * np.abs(out) + 2**-24 * RESULT[self.element]
        return out, logsumexp, bound, score_error + unit * (keys + 40)

    def check(self, got):
        out, logsumexp, bound, log_bound = self.solve()
        assert got[0].shape == out.shape
        assert got[1].shape == logsumexp.shape
        assert np.all(np.abs(unpacked(got[0], self.element) - out) <= bound)
        finite = np.isfinite(logsumexp)
        np.testing.assert_array_equal(got[1][~finite], logsumexp[~finite])
        assert np.all(np.abs(got[1][finite] - logsumexp[finite]) <= log_bound[finite])


def posed(sizes, element="float32", mask="", seed=0, **options):
    """A problem of (batch, heads, heads of keys, queries, keys, width, width of values)."""
    batch, heads, groups, queries, keys, width, value_width = sizes
    random = np.random.default_rng(seed)
    arrays = [
        packed(random.standard_normal(shape), element)
        for shape in (
            (batch, heads, queries, width),
            (batch, groups, keys, width),
            (batch, groups, keys, value_width),
        )
    ]
    shape = (batch, heads, queries, keys)
    if mask == "bool":
        options["mask"] = random.random(shape) < 0.5
        options["mask"][:, :, :1] = False  # the first query sees nothing
    elif mask == "added":
        options["mask"] = random.standard_normal(shape).astype(np.float32)
    elif mask == "like":
        options["mask"] = packed(random.standard_normal(shape), element)
    return Problem(*arrays, element, **options)


SIZES = {
    "several blocks": (2, 1, 1, 193, 300, 64, 64),
    "77 tokens": (2, 1, 1, 77, 77, 80, 80),
    "groups": (2, 6, 2, 20, 70, 96, 33),
    "one query": (2, 4, 2, 1, 1300, 64, 64),
    "three queries": (1, 2, 2, 3, 70, 33, 19),
    "parts": (1, 2, 1, 9, 2300, 16, 24),
    "narrow": (1, 1, 1, 7, 11, 1, 1),
    "wide": (1, 1, 1, 7, 40, 257, 7),
    "one key": (2, 1, 1, 5, 1, 7, 7),
}


def in_parts(sizes):
    """Whether flash cuts the keys of an only block of rows into parts, which efficient does not."""
    return sizes[4] > 1024 and sizes[3] * sizes[1] // sizes[2] <= 96


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_results_are_within_the_rounding_of_the_arithmetic(isa, sizes, element):
    for options in ({}, {"causal": True}, {"mask": "bool"}, {"mask": "added", "causal": True}):
        problem = posed(sizes, element, **options)
        flash = problem.run()
        problem.check(flash)
        efficient = problem.run("efficient")
        if in_parts(sizes):
            problem.check(efficient)
        else:
            np.testing.assert_array_equal(efficient[0], flash[0])
            np.testing.assert_array_equal(efficient[1], flash[1])


@pytest.mark.parametrize("element", ["bfloat16", "float16", "float64"])
def test_a_mask_may_be_of_the_type_of_the_arrays(element):
    problem = posed((1, 2, 1, 30, 40, 8, 8), element, "like")
    problem.check(problem.run())


@pytest.mark.parametrize(
    "sizes",
    [(1, 2, 1, 0, 3, 4, 4), (0, 2, 1, 3, 3, 4, 4), (2, 0, 0, 3, 3, 4, 4), (1, 1, 1, 3, 3, 4, 0)],
)
def test_an_empty_result_has_its_shape(sizes):
    problem = posed(sizes)
    out, logsumexp = problem.run()
    assert out.shape == (*problem.query.shape[:3], sizes[-1])
    assert logsumexp.shape == problem.query.shape[:3]


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_keys_every_query_gives_zeros(kernel):
    out, logsumexp = posed((1, 2, 1, 130, 0, 4, 4)).run(kernel)
    assert not out.any()
    assert np.all(logsumexp == -np.inf)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_width_of_zero_weighs_every_key_the_same(kernel):
    problem = posed((1, 1, 1, 9, 8, 0, 3))
    out, _ = problem.run(kernel)
    np.testing.assert_allclose(out, np.broadcast_to(problem.value.mean(2), (1, 1, 9, 3)), rtol=1e-6)


def laid_out(array, layout):
    """The same numbers, lying otherwise."""
    if layout == "transposed":
        return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
    if layout == "columns":
        return np.asfortranarray(array)
    if layout == "backwards":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if layout == "spaced":
        wide = np.zeros((*array.shape[:3], 2 * array.shape[3] + 1), array.dtype)
        wide[..., 1::2] = array
        return wide[..., 1::2]
    if layout == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        raw[:] = array
        return raw
    return array


LAYOUTS = ["plain", "transposed", "columns", "backwards", "spaced", "unaligned"]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 1)]),
    st.tuples(st.integers(0, 2), st.integers(0, 140), st.integers(0, 140)),
    st.tuples(st.integers(0, 40), st.integers(0, 70)),
    st.sampled_from(ELEMENTS),
    st.sampled_from(["", "bool", "added", "like"]),
    st.booleans(),
    st.tuples(*[st.sampled_from(LAYOUTS)] * 4),
    st.sampled_from([0.0, -0.7, 3.0]),
    st.integers(0, 2**32),
)
def test_any_shape_layout_and_mask(heads, lengths, widths, element, mask, causal, layouts, scale,
                                   seed):  # fmt: skip
    sizes = (lengths[0], *heads, *lengths[1:], *widths)
    problem = posed(sizes, element, mask, seed, causal=causal, scale=scale)
    expected = problem.run()
    problem.check(expected)
    problem.query, problem.key, problem.value = (
        laid_out(array, layout)
        for array, layout in zip((problem.query, problem.key, problem.value), layouts, strict=False)
    )
    if problem.mask is not None:
        problem.mask = laid_out(problem.mask, layouts[3])
    for kernel in KERNELS:
        got = problem.run(kernel)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[1], expected[1])


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (3,), (0, 1, 2), (2, 3)])
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_masks_repeat_by_strides_of_zero(axes, kind):
    problem = posed((2, 2, 2, 30, 50, 8, 8))
    shape = [1 if axis in axes else size for axis, size in enumerate((2, 2, 30, 50))]
    mask = (np.random.default_rng(1).standard_normal(shape) > 0).astype(kind)
    problem.mask = np.broadcast_to(mask, (2, 2, 30, 50))
    problem.check(problem.run())


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_bits_depend_on_neither_threads_nor_batch_nor_time(isa, sizes, element):
    problem = posed(sizes, element, "added", causal=True)
    expected = problem.run(threads=1)
    for threads in (1, 2, 5):
        for kernel in ["flash"] if in_parts(sizes) else KERNELS:
            got = problem.run(kernel, threads)
            np.testing.assert_array_equal(got[0], expected[0])
            np.testing.assert_array_equal(got[1], expected[1])
    alone = Problem(
        problem.query[-1:], problem.key[-1:], problem.value[-1:], element, problem.mask[-1:], True
    )
    for got, all_of_it in zip(alone.run(), expected, strict=True):
        np.testing.assert_array_equal(got, all_of_it[-1:])


def check_that_instruction_sets_agree(problem):
    """Every instruction set that runs here gives the same bits."""
    results = []
    try:
        for name in ISAS:
            _native.force_kernel_isa(name)
            results.append(problem.run())
    finally:
        _native.force_kernel_isa(None)
    for got in results[1:]:
        np.testing.assert_array_equal(got[0], results[0][0])
        np.testing.assert_array_equal(got[1], results[0][1])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_instruction_sets_agree_to_the_bit_in_float32_float64_and_float16(sizes):
    for element in ("float32", "float64", "float16"):
        check_that_instruction_sets_agree(posed(sizes, element, "added", causal=True))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_instruction_sets_agree_in_bfloat16_where_the_tier_asks(sizes):
    with Scope(EVERYWHERE, 0):
        check_that_instruction_sets_agree(posed(sizes, "bfloat16", "added", causal=True))


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_the_value_of_an_only_key_comes_back_for_all_65536_of_them(isa, element):
    dtype = np.uint16 if element == "bfloat16" else np.float16
    values = np.arange(65536, dtype=np.uint16).view(dtype).reshape(1, 64, 1, 1024)
    query = np.ones((1, 64, 1, 1), dtype)
    out, logsumexp = Problem(query, np.zeros_like(query), values, element).run()
    is_nan = np.isnan(unpacked(values, element))
    np.testing.assert_array_equal(np.isnan(unpacked(out, element)), is_nan)
    # Two zeros added are a positive one, and a sum that begins with 0 is never the negative one.
    same = unpacked(out, element)[~is_nan] == unpacked(values, element)[~is_nan]
    assert same.all()
    assert not logsumexp.any()


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_results_round_to_nearest_and_ties_to_even(isa, element):
    random = np.random.default_rng(3)
    bits = random.integers(0, 0x7800, (1, 8, 2, 512)).astype(np.uint16)
    if element == "bfloat16":
        bits += 0x0200  # neither subnormal, which pairs take for zero, nor near the largest
    values = bits if element == "bfloat16" else bits.view(np.float16)
    query = np.zeros((1, 8, 1, 1), values.dtype)
    out, _ = Problem(query, np.zeros((1, 8, 2, 1), values.dtype), values, element).run()
    means = unpacked(values, element).astype(np.float32).sum(2, keepdims=True) * np.float32(0.5)
    np.testing.assert_array_equal(out, packed(means, element))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_nan_stays_in_its_row(isa, kernel, element):
    problem = posed((1, 1, 1, 100, 300, 8, 8), element)
    query = unpacked(problem.query, element)
    query[0, 0, 41, 3] = np.nan
    query[0, 0, 57, 3] = np.inf
    problem.query = packed(query, element)
    out, logsumexp = problem.run(kernel)
    is_nan = np.isnan(unpacked(out, element)).any(-1)[0, 0]
    assert np.flatnonzero(is_nan).tolist() == [41, 57]
    assert np.isnan(logsumexp[0, 0, 41])


def test_nan_and_infinity_come_out_where_they_do_in_pytorch():
    torch = pytest.importorskip("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    for array in range(3):
        for odd in (np.nan, np.inf, -np.inf):
            problem = posed((1, 1, 1, 40, 70, 8, 8))
            arrays = [problem.query, problem.key, problem.value]
            arrays[array][0, 0, 17, 2] = odd
            out, _ = problem.run()
            theirs = attend(*map(torch.from_numpy, arrays)).numpy()
            np.testing.assert_array_equal(np.isnan(out), np.isnan(theirs))
            np.testing.assert_array_equal(np.isinf(out), np.isinf(theirs))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_query_that_sees_nothing_gives_zeros_and_minus_infinity(isa, kernel):
    problem = posed((1, 2, 2, 100, 300, 8, 8))
    problem.mask = np.ones((1, 2, 100, 300), bool)
    problem.mask[0, 1, 60] = False
    out, logsumexp = problem.run(kernel)
    assert not out[0, 1, 60].any()
    assert logsumexp[0, 1, 60] == -np.inf
    problem.check((out, logsumexp))


def test_scores_beyond_the_range_of_exp_do_not_overflow(isa):
    problem = posed((1, 1, 1, 20, 600, 8, 8), scale=1e4)
    out, logsumexp = problem.run()
    assert np.isfinite(out).all()
    assert np.isfinite(logsumexp).all()
    winner = (problem.query[0, 0] @ problem.key[0, 0].T).argmax(-1)
    close = np.abs(out[0, 0] - problem.value[0, 0, winner]).max(-1) < 1e-3
    assert close.sum() >= 18  # two scores may be within 1e-4 of each other


def dropped(problem, **how):
    """The weights that are left, seen through values that are an identity."""
    out, _ = problem.run(dropout=0.3, seed=7, **how)
    return out


@pytest.mark.parametrize("element", ["float32", "float64", "float16", "bfloat16"])
def test_dropout_depends_on_seed_and_position_only(isa, element):
    problem = posed((2, 4, 2, 110, 90, 8, 90), element)
    problem.value = packed(np.broadcast_to(np.eye(90), (2, 2, 90, 90)), element)
    expected = dropped(problem, threads=1)
    for how in ({"threads": 3}, {"kernel": "efficient"}):
        np.testing.assert_array_equal(dropped(problem, **how), expected)
    plain, logsumexp = problem.run()
    kept = unpacked(expected, element) != 0
    assert abs(kept.mean() - 0.7) < 0.01
    scaled = np.where(kept, unpacked(plain, element) / 0.7, 0)
    np.testing.assert_allclose(unpacked(expected, element), scaled, rtol=2e-2, atol=1e-6)
    np.testing.assert_array_equal(problem.run(dropout=0.3, seed=7)[1], logsumexp)
    few = Problem(problem.query[:, :, :2], problem.key, problem.value, element)
    np.testing.assert_array_equal(unpacked(dropped(few), element) != 0, kept[:, :, :2])


def test_everything_dropped_is_zeros():
    out, _ = posed((1, 1, 1, 7, 9, 4, 4)).run(dropout=1.0)
    assert not out.any()


CHILD = """
import resource, numpy as np
from backendcfg import _native, ops
length = 16384
rows, wide = (np.ones((1, 1, length, width), np.float32) for width in (8, 128))
def call(kernel, rows=rows):
    return _native.attention(kernel, rows, rows, rows, None, True, 1.0, 0.0, 0, "float32", 1)[0]
call("flash")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {room},) * 2)
try:
    print(all((call(kernel, {given}) == 1).all() for kernel in ("flash", "efficient")))
except MemoryError:
    print("MemoryError")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("room", "given", "said"),
    # A result of 8 MiB is more than the heap has free.
    [(48 << 20, "rows", "True"), (0, "wide", "MemoryError")],
)
def test_memory_does_not_grow_with_the_square_of_the_length(room, given, said):
    code = CHILD.replace("{room}", str(room))  # the scores would be 1 GiB
    code = code.replace("{given}", given)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == said


REFUSED = {
    "no kernel 'fast'": {"kernel": "fast"},
    "no element 'int8'": {"element": "int8"},
    "query, key and value must be four-dimensional": {"query": np.zeros((2, 3), np.float32)},
    "key must have 4 dimensions and be of": {"key": np.zeros((1, 2, 5, 4))},
    "dimension 3 of key is 5, and 4 is needed": {"key": np.zeros((1, 2, 5, 5), np.float32)},
    "dimension 2 of value is 6, and 5 is needed": {"value": np.zeros((1, 2, 6, 4), np.float32)},
    "dimension 0 of value is 2, and 1 is needed": {"value": np.zeros((2, 2, 5, 4), np.float32)},
    "4 heads of query are no multiple of 3": {"key": np.zeros((1, 3, 5, 4), np.float32)},
    "mask must have 4 dimensions": {"mask": np.zeros((3, 5), bool)},
    "dimension 2 of mask is 1, and 3 is needed": {"mask": np.zeros((1, 4, 1, 5), bool)},
    "dropout_p must be between 0 and 1": {"dropout_p": 1.5},
}


@pytest.mark.parametrize(("message", "change"), REFUSED.items(), ids=REFUSED)
def test_what_would_read_other_memory_is_refused(message, change):
    call = {
        "kernel": "flash", "query": np.zeros((1, 4, 3, 4), np.float32),
        "key": np.zeros((1, 2, 5, 4), np.float32), "value": np.zeros((1, 2, 5, 4), np.float32),
        "mask": None, "is_causal": False, "scale": 1.0, "dropout_p": 0.0, "seed": 0,
        "element": "float32",
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"^attention: {message}"):
        _native.attention(*{**call, **change}.values())


def test_an_unknown_instruction_set_cannot_be_forced():
    with pytest.raises(ValueError, match=r"^no instruction set 'sse2'"):
        _native.force_kernel_isa("sse2")
