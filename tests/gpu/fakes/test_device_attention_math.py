"""What stands around the products of attention on GPUs: the sources of it, run on the host."""

from __future__ import annotations

import emulated_plain as plain
import numpy as np
import pytest
from test_device_attention_efficient import factors

pytestmark = pytest.mark.sweep(2)

ELEMENTS = ("float32", "float64", "float16", "bfloat16")
UNITS = {"float32": 2e-6, "float64": 1e-14, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.fixture(name="compiler", scope="module")
def _compiler():
    return plain.Compiler()


def softmax(compiler, scores, *, element="float32", **rest):
    """Weights and logarithms on the host, checked against float64."""
    it = plain.weigh(compiler, scores, element=element, **rest)
    assert it.faults == []
    scale = rest.pop("scale", 1.0)
    hiding = {name: rest[name] for name in ("mask", "mask_element", "is_causal") if name in rest}
    weights, logsumexp = plain.softmax_of(plain.wide(scores, element) * scale, **hiding)
    unit = UNITS[element]
    np.testing.assert_allclose(it.out, weights, rtol=unit, atol=2.0**-24 if "16" in element else 0)
    found = 1e-13 if element == "float64" else 2e-6
    np.testing.assert_allclose(it.logsumexp, logsumexp, rtol=found, atol=found)
    return it


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("keys", [1, 3, 127, 128, 300])
def test_a_row_of_weights_adds_up_to_one(compiler, element, keys):
    softmax(compiler, plain.numbers((2, 3, 9, keys), element), element=element, scale=-1.3)


@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize(("queries", "keys"), [(5, 300), (300, 5), (140, 140)])
def test_a_query_sees_no_key_behind_its_position(compiler, element, queries, keys):
    scores = plain.numbers((1, 1, queries, keys), element)
    it = softmax(compiler, scores, element=element, is_causal=True)
    assert (it.out[0, 0][np.triu_indices(queries, 1, keys)] == 0).all()


@pytest.mark.parametrize(
    ("element", "mask_element"),
    [
        ("float32", "bool"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("float32", "bfloat16"),
        ("float16", "float16"),
    ],
)
def test_a_mask_hides_or_is_added(compiler, element, mask_element):
    scores = plain.numbers((2, 2, 9, 150), element)
    mask = np.random.default_rng(3).standard_normal((2, 1, 9, 150))
    mask[:, :, 3] = -np.inf
    mask = mask > 0 if mask_element == "bool" else plain.narrow(mask, mask_element)
    options = {"element": element, "mask": mask, "mask_element": mask_element, "scale": 0.4}
    it = softmax(compiler, scores, **options)
    assert (it.out[:, :, 3] == 0).all()
    assert np.isneginf(it.logsumexp[:, :, 3]).all()


def test_a_nan_takes_its_row_even_where_it_is_hidden(compiler):
    scores = plain.numbers((1, 1, 4, 70))
    scores[0, 0, 2, 5] = np.nan
    mask = np.ones((1, 1, 4, 70), bool)
    mask[..., 5] = False
    it = plain.weigh(compiler, scores, mask=mask)
    assert it.faults == []
    assert np.isnan(it.out[0, 0, 2]).any()
    assert np.isnan(it.logsumexp[0, 0, 2])
    assert np.isfinite(it.out[0, 0, [0, 1, 3]]).all()


def test_what_is_dropped_is_what_the_cpu_drops(compiler):
    scores, seed = plain.numbers((1, 2, 9, 150)), 0x123456789ABCDEF0
    kept = plain.weigh(compiler, scores)
    it = plain.weigh(compiler, scores, dropout=0.25, seed=seed)
    assert it.faults == []
    library = next(iter(compiler.libraries.values()))
    wanted = kept.out * factors(library, seed, 0.25, 2, 9, 150)
    np.testing.assert_allclose(it.out, wanted, rtol=1e-6)
    assert np.array_equal(it.logsumexp, kept.logsumexp)


def test_the_order_of_the_warps_does_not_change_a_bit(compiler):
    scores = plain.numbers((1, 2, 30, 300))
    runs = [plain.weigh(compiler, scores, is_causal=True, schedule=each) for each in range(4)]
    assert [it.faults for it in runs] == [[]] * 4
    assert len({it.bits for it in runs}) == 1


@pytest.mark.parametrize(
    "elements",
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "bfloat16"),
        ("float32", "float16"),
        ("bfloat16", "bfloat16"),
    ],
)
def test_an_array_is_gathered_into_another_type(compiler, elements):
    array = plain.numbers((2, 3, 11, 40), elements[0])
    made = plain.collect(compiler, array, (2, 3, 11, 40), elements, factor=-0.5)
    values = plain.wide(array, elements[0]) * -0.5
    wanted = plain.wide(plain.narrow(values, elements[1]), elements[1])
    assert np.array_equal(plain.wide(made, elements[1]), wanted)


def test_what_is_too_large_for_sixteen_bits_is_infinite_and_what_is_nan_stays_it(compiler):
    numbers = [1e6, -3e38, np.nan, np.inf, -0.0, 1e-8, 65519, 65520]
    array = np.array(numbers, "float32").reshape(1, 1, 1, 8)
    for element in ("float16", "bfloat16"):
        made = plain.collect(compiler, array, array.shape, ("float32", element))
        with np.errstate(over="ignore"):
            wanted = plain.wide(plain.narrow(array, element), element)
        assert np.array_equal(plain.wide(made, element), wanted, equal_nan=True)


def test_heads_are_repeated_and_rows_and_columns_exchanged(compiler):
    array = plain.numbers((2, 2, 50, 33))
    made = plain.collect(
        compiler, array.swapaxes(2, 3), (2, 6, 33, 50), ("float32", "float32"), group=3
    )
    assert np.array_equal(made, array.repeat(3, 1).swapaxes(2, 3))
