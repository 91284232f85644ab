"""What attention computes: against float64, against PyTorch, by each of the three kernels."""

import numpy as np
import pytest
from exhaustive import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backendcfg import ops
from backendcfg.backends.cuda import SDPBackend, sdpa_kernel
from backendcfg.ops.arrays import round_to, widen
from backendcfg.ops.attention import products
from backendcfg.session.adjust import overlay

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Rounding of a result of about 1, with room for the sums before it.
TOLERANCE = {"float32": 4e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1.6e-2}

attend = ops.scaled_dot_product_attention
attend_backward = ops.scaled_dot_product_attention_backward
rng = np.random.default_rng(1)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def by_definition(query, key, value, mask=None, is_causal=False, scale=None):
    """Attention in float64, from its definition."""
    query, key, value = (each.astype(np.float64) for each in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * scale
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = scores + (np.where(mask, 0, -np.inf) if mask.dtype == bool else mask)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logsumexp = (np.where(np.isneginf(highest), 0, highest) + np.log(total))[..., 0]
    return weights / np.where(total == 0, 1, total) @ value, logsumexp


@pytest.fixture(name="only", params=KERNELS)
def _only(request):
    """One kernel, and no other."""
    with sdpa_kernel(KERNELS[request.param]):
        yield request.param


CALLS = {
    "plain": [(2, 3, 7, 16), (2, 3, 11, 16), (2, 3, 11, 16)],
    "matrices": [(7, 16), (11, 16), (11, 5)],
    "heads": [(3, 7, 16), (3, 11, 16), (3, 11, 24)],
    "five dimensions": [(4, 2, 3, 7, 16), (4, 2, 3, 11, 16), (4, 2, 3, 11, 16)],
    "broadcast": [(7, 16), (2, 1, 11, 16), (3, 11, 5)],
    "one head for all": [(2, 3, 7, 16), (2, 1, 11, 16), (1, 1, 11, 16)],
    "one query": [(1, 2, 1, 80), (1, 2, 300, 80), (1, 2, 300, 80)],
    "odd": [(1, 1, 67, 33), (1, 1, 131, 33), (1, 1, 131, 65)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shapes", CALLS.values(), ids=CALLS)
def test_the_result_is_that_of_the_definition(only, shapes, is_causal, dtype):
    query, key, value = (normal(*shape, dtype=dtype) for shape in shapes)
    out, total = attend(query, key, value, is_causal=is_causal, return_logsumexp=True)
    wanted, logsumexp = by_definition(query, key, value, is_causal=is_causal)
    assert out.dtype == dtype
    assert total.dtype == (np.float64 if dtype == "float64" else np.float32)
    np.testing.assert_allclose(out, wanted, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(total, np.broadcast_to(logsumexp, total.shape), atol=1e-5)


@pytest.mark.parametrize(
    "shape", [(7, 11), (1, 11), (7, 1), (2, 1, 7, 11), (1, 3, 1, 11), (3, 7, 11), (11,), ()]
)
def test_masks_broadcast_to_the_scores(only, shape):
    query, key, value = normal(2, 3, 7, 16), normal(2, 3, 11, 16), normal(2, 3, 11, 16)
    for mask in (np.asarray(rng.random(shape) > 0.4), np.asarray(normal(*shape))):
        out = attend(query, key, value, mask)
        wanted, _ = by_definition(query, key, value, mask)
        np.testing.assert_allclose(out, wanted, atol=4e-6)


def test_masks_of_more_than_four_dimensions_broadcast(only):
    query, key = normal(4, 2, 3, 7, 16), normal(4, 2, 3, 11, 16)
    for shape in ((7, 11), (3, 7, 11), (2, 1, 7, 11), (4, 1, 1, 1, 11), (1, 1, 3, 7, 11)):
        mask = rng.random(shape) > 0.3
        wanted, _ = by_definition(query, key, key, mask)
        np.testing.assert_allclose(attend(query, key, key, mask), wanted, atol=4e-6)


def test_a_query_that_sees_nothing_gives_zeros(only):
    query, key = normal(1, 2, 7, 16), normal(1, 2, 11, 16)
    mask = np.ones((7, 11), bool)
    mask[3] = False
    out, total = attend(query, key, key, mask, return_logsumexp=True)
    assert not out[:, :, 3].any()
    assert np.isneginf(total[:, :, 3]).all()
    assert np.isfinite(total[:, :, 4]).all()


@pytest.mark.parametrize(
    ("shapes", "out"),
    [
        ([(2, 0, 16), (2, 4, 16), (2, 4, 16)], (2, 0, 16)),
        ([(2, 3, 16), (2, 0, 16), (2, 0, 5)], (2, 3, 5)),
        ([(0, 3, 16), (0, 4, 16), (0, 4, 16)], (0, 3, 16)),
        ([(2, 3, 16), (2, 4, 16), (2, 4, 0)], (2, 3, 0)),
    ],
)
def test_empty_calls_give_zeros_of_the_right_shape(shapes, out):
    arrays = [normal(*shape) for shape in shapes]
    result, total = attend(*arrays, return_logsumexp=True)
    assert (result.shape, total.shape) == (out, out[:-1])
    assert not result.any()
    gradients = attend_backward(np.ones_like(result), *arrays, result, total)
    assert [each.shape for each in gradients] == shapes
    assert not any(each.any() for each in gradients)


def test_a_width_of_zero_weighs_every_key_the_same():
    value = normal(4, 3)
    out = attend(np.empty((2, 0), np.float32), np.empty((4, 0), np.float32), value)
    np.testing.assert_allclose(out, np.broadcast_to(value.mean(axis=0), (2, 3)), atol=1e-6)


def test_nan_and_infinity_stay_in_their_rows(only):
    query, key, value = normal(1, 2, 7, 16), normal(1, 2, 11, 16), normal(1, 2, 11, 16)
    query[0, 0, 2, 3] = np.nan
    value[0, 1, 4, 5] = np.inf
    out = attend(query, key, value)
    assert np.isnan(out[0, 0, 2]).all()
    assert np.isfinite(np.delete(out[0, 0], 2, axis=0)).all()
    assert np.isposinf(out[0, 1, :, 5]).all()
    assert np.isfinite(np.delete(out[0, 1], 5, axis=1)).all()


def test_strides_and_byte_orders_of_any_kind_are_read(only):
    query = normal(2, 7, 3, 16).transpose(0, 2, 1, 3)
    key = normal(2, 3, 16, 22).swapaxes(2, 3)[:, :, ::-2]
    value = normal(2, 3, 11, 5)
    wanted, _ = by_definition(query, key, value)
    np.testing.assert_allclose(attend(query, key, value), wanted, atol=4e-6)
    swapped = [each.astype(">f4") for each in (query, key, value)]
    for _ in range(2):
        np.testing.assert_allclose(attend(*swapped), wanted, atol=4e-6)


def test_the_scale_is_a_number_of_any_kind(only):
    query, key = normal(1, 2, 7, 16), normal(1, 2, 11, 16)
    for scale in (0.3, 1, -0.5, np.float32(0.25), 0.0):
        wanted, _ = by_definition(query, key, key, scale=float(scale))
        np.testing.assert_allclose(attend(query, key, key, scale=scale), wanted, atol=2e-5)


@pytest.mark.parametrize("heads", [(8, 2, 2), (6, 1, 1), (4, 4, 4), (8, 2, 4)])
def test_groups_of_heads_share_keys_and_values(heads):
    query, key, value = (normal(2, each, 7, 16) for each in heads)
    repeated = (np.repeat(each, heads[0] // each.shape[1], axis=1) for each in (key, value))
    wanted, _ = by_definition(query, *repeated)
    out = attend(query, key, value, enable_gqa=True)
    np.testing.assert_allclose(out, wanted, atol=4e-6)


def numerically(function, array, step=1e-5):
    """The gradient of a function by central differences."""
    gradient = np.empty_like(array)
    for at in np.ndindex(array.shape):
        kept = array[at]
        array[at] = kept + step
        above = function()
        array[at] = kept - step
        gradient[at] = (above - function()) / (2 * step)
        array[at] = kept
    return gradient


def test_scores_that_overflow_warn_of_nothing(only):
    query = np.full((1, 2, 7, 16), 1e30, np.float32)
    mask = rng.random((7, 7)) > 0.5
    out, total = attend(query, query, query, mask, return_logsumexp=True)
    attend_backward(out, query, query, query, out, total, mask)
    assert np.isnan(out).any()


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ([(2, 3, 2), (2, 4, 2), (2, 4, 3)], {}),
        ([(2, 4, 2), (2, 4, 2), (2, 4, 2)], {"is_causal": True, "scale": 0.8}),
        ([(3, 2), (2, 1, 4, 2), (3, 4, 2)], {}),
        ([(1, 4, 2, 2), (1, 2, 3, 2), (1, 2, 3, 2)], {"enable_gqa": True}),
        ([(2, 3, 2), (1, 4, 2), (1, 4, 2)], {"dropout_p": 0.4, "seed": 5}),
    ],
)
def test_gradients_are_those_of_the_result(only, shapes, options):
    arrays = [normal(*shape, dtype=np.float64) for shape in shapes]
    out, total = attend(*arrays, return_logsumexp=True, **options)
    given = normal(*out.shape, dtype=np.float64)
    gradients = attend_backward(given, *arrays, out, total, **options)
    for array, gradient in zip(arrays, gradients, strict=True):
        wanted = numerically(lambda: (attend(*arrays, **options) * given).sum(), array)
        assert gradient.shape == array.shape
        # Differences are good to 1e-9 or so; the factor of dropout is a float32.
        np.testing.assert_allclose(gradient, wanted, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_all_kernels_drop_the_same_weights_for_a_seed(dtype):
    query, key = normal(2, 3, 9, 16, dtype=dtype), normal(2, 3, 70, 16, dtype=dtype)
    coarse = 1e-6 if dtype == "float64" else TOLERANCE[dtype] * 20
    options = {"dropout_p": 0.3, "seed": 2**63 + 7}
    found, gradients = [], []
    for kernel in KERNELS.values():
        with sdpa_kernel(kernel):
            out, total = attend(query, key, key, return_logsumexp=True, **options)
            found.append(out)
            gradients.append(attend_backward(out, query, key, key, out, total, **options))
            assert not np.array_equal(out, attend(query, key, key, dropout_p=0.3, seed=7))
            assert not attend(query, key, key, dropout_p=1.0, seed=7).any()
    for other in (1, 2):
        np.testing.assert_allclose(found[0], found[other], atol=TOLERANCE[dtype] * 4)
        for one, two in zip(gradients[0], gradients[other], strict=True):
            np.testing.assert_allclose(one, two, atol=coarse)


def test_options_may_be_numbers_of_numpy(only):
    query = normal(1, 2, 5, 8)
    wanted = attend(query, query, query, dropout_p=0.5, seed=5, scale=0.25)
    options = {"dropout_p": np.float32(0.5), "seed": np.int64(5), "scale": np.float64(0.25)}
    for _ in range(2):
        assert np.array_equal(attend(query, query, query, **options), wanted)


def test_dropout_keeps_the_mean():
    value = np.ones((1, 1, 4000, 1), np.float32)
    query = np.zeros((1, 1, 50, 8), np.float32)
    key = np.zeros((1, 1, 4000, 8), np.float32)
    out = attend(query, key, value, dropout_p=0.25, seed=3)
    assert abs(out.mean() - 1) < 0.005
    assert 0.004 < out.std() < 0.02


def test_plain_products_in_parts_are_the_same(monkeypatch):
    query, key = normal(3, 4, 9, 16), normal(3, 2, 11, 16)
    options = {"enable_gqa": True, "dropout_p": 0.2, "seed": 1}
    with sdpa_kernel(SDPBackend.MATH):
        out, total = attend(query, key, key, return_logsumexp=True, **options)
        gradients = attend_backward(out, query, key, key, out, total, **options)
        monkeypatch.setattr(products, "BUDGET", 200)
        parts, totals = attend(query, key, key, return_logsumexp=True, **options)
        others = attend_backward(out, query, key, key, parts, totals, **options)
    assert np.array_equal(out, parts)
    assert np.array_equal(total, totals)
    for one, other in zip(gradients, others, strict=True):
        assert np.array_equal(one, other)


def test_bfloat16_rounds_to_nearest_and_ties_to_even():
    torch = pytest.importorskip("torch")
    numbers = np.concatenate(
        [
            normal(1000),
            np.float32([1 + 2**-8, 1 + 3 * 2**-8, np.inf, -np.inf, 3.4e38, 1e-40, 0.0, -0.0]),
        ]
    )
    wanted = torch.from_numpy(numbers).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(round_to(numbers, "bfloat16"), wanted)
    assert np.isnan(widen(round_to(np.float32([np.nan]), "bfloat16"), "bfloat16")).all()


def test_sums_in_16_bits_are_taken_where_they_are_allowed_only():
    query, key = normal(1, 1, 33, 64, dtype="float16"), normal(1, 1, 65, 64, dtype="float16")
    with sdpa_kernel(SDPBackend.MATH):
        exact = attend(query, key, key)
        with overlay({"cuda.allow_fp16_bf16_reduction_math_sdp": True}):
            rounded = attend(query, key, key)
        again = attend(query, key, key)
    wanted, _ = by_definition(query, key, key)
    assert np.abs(rounded - wanted).max() > np.abs(exact - wanted).max()
    np.testing.assert_allclose(rounded, wanted, atol=1e-2)
    assert np.array_equal(exact, again)


@st.composite
def calls(draw):
    """Query, key, value, mask and options, with leading dimensions that broadcast and any strides."""
    lead = draw(st.lists(st.integers(1, 3), max_size=3))
    queries, keys = draw(st.integers(0, 20)), draw(st.integers(0, 40))
    width, value_width = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))

    def array(length, wide):
        shape = [
            draw(st.sampled_from([1, size])) for size in lead[draw(st.integers(0, len(lead))) :]
        ]
        step = draw(st.sampled_from([1, 2, -1]))
        made = numbers.standard_normal((*shape, length, wide * abs(step))).astype(np.float32)
        return made[..., ::step] if draw(st.booleans()) else made[..., :wide].copy(order="F")

    arrays = [array(queries, width), array(keys, width), array(keys, value_width)]
    for each in arrays[:2]:
        if draw(st.integers(0, 4)) == 0 and each.size:
            each[tuple(draw(st.integers(0, n - 1)) for n in each.shape)] = draw(
                st.sampled_from([np.nan, np.inf, -np.inf, 1e30])
            )
    whole = np.broadcast_shapes(*(each.shape[:-2] for each in arrays))
    shape = [draw(st.sampled_from([1, size])) for size in (*whole, queries, keys)]
    mask = draw(st.sampled_from([None, "bool", "added", "causal"]))
    options = {"scale": draw(st.sampled_from([None, 0.25, -1.0]))}
    if mask == "bool":
        options["attn_mask"] = numbers.random(shape) > 0.3
    elif mask == "added":
        options["attn_mask"] = numbers.standard_normal(shape).astype(np.float32)
    elif mask == "causal":
        options["is_causal"] = True
    return arrays, options


@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(calls(), st.sampled_from(list(KERNELS.values())))
def test_any_call_gives_what_its_definition_gives(made, kernel):
    arrays, options = made
    with sdpa_kernel([kernel, SDPBackend.MATH], set_priority=True):
        out, total = attend(*arrays, return_logsumexp=True, **options)
    hidden = {"mask" if name == "attn_mask" else name: each for name, each in options.items()}
    with np.errstate(all="ignore"):
        wanted, logsumexp = by_definition(*arrays, **hidden)
    np.testing.assert_allclose(out, wanted, atol=2e-5, rtol=2e-4)
    np.testing.assert_allclose(total, np.broadcast_to(logsumexp, total.shape), rtol=1e-5, atol=1e-4)
