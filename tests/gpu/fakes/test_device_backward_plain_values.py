"""The gradients of attention for GPUs without tensor cores: the kernels' source, run on the host."""

from __future__ import annotations

import emulated_plain as plain
import emulated_plain_backward as back
import numpy as np
import pytest
from test_device_attention_efficient import ELEMENTS, factors

from backendcfg.gpu.attention.efficient import OF

pytestmark = pytest.mark.sweep(1)


@pytest.fixture(name="compiler", scope="module")
def _compiler():
    return plain.Compiler()


def both(compiler, arrays, **rest):
    it = back.run(compiler, *arrays, **rest)
    rest.pop("of", None)
    rest.pop("into", None)
    back.check(it, back.expected(*arrays, **rest))
    return it


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("width", "value_width"), [(64, 64), (80, 100), (7, 129), (300, 200)])
def test_every_width_is_computed_and_reads_shared_memory_without_conflicts(
    compiler, element, width, value_width
):
    for queries, keys in ((70, 77), (1, 65)):
        arrays = back.four(queries, keys, width, value_width=value_width, element=element)
        it = both(compiler, arrays, element=element)
        assert it.ways("load") <= {0, 1}  # the sums of rows read none


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (2, 300), (300, 2), (63, 64), (64, 64), (129, 200)]
)
def test_a_query_gives_nothing_to_a_key_behind_its_position(compiler, element, queries, keys):
    arrays = back.four(queries, keys, 20, element=element)
    it = both(compiler, arrays, is_causal=True, element=element)
    assert (it.gradients["key"][:, :, queries:] == 0).all()
    assert (it.gradients["value"][:, :, queries:] == 0).all()


@pytest.mark.exhaustive
def test_the_gradients_are_the_differences_that_the_result_makes(compiler):
    arrays = back.four(5, 6, 3, element="float64", heads=2, key_heads=1)
    mask = plain.numbers((1, 2, 1, 6), "float64", 4)
    rest = {"element": "float64", "mask": mask, "mask_element": "float64"}
    it = back.run(compiler, *arrays, of=OF, **rest)
    named = dict(zip(OF, (*arrays[:3], mask), strict=True))
    step = 1e-6
    for name, array in named.items():
        found = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = {**named, name: array.copy()}
                moved[name][place] += sign * step
                three = (moved["query"], moved["key"], moved["value"])
                out, _ = back.forward(*three, **{**rest, "mask": moved["mask"]})
                sides.append((out * arrays[3]).sum())
            found[place] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(it.gradients[name], found, rtol=1e-7, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_key_s_gradient_is_the_sum_over_the_heads_that_share_it(compiler, is_causal):
    arrays = back.four(70, 90, 20, batch=2, heads=6, key_heads=2)
    both(compiler, arrays, is_causal=is_causal)
    arrays[2] = plain.numbers((2, 3, 90, 20), seed=5)  # values have groups of their own
    both(compiler, arrays, is_causal=is_causal)


@pytest.mark.parametrize("scale", [0.3, -0.3, 0.0, 4.0])
def test_any_scale(compiler, scale):
    both(compiler, back.four(40, 90, 20), scale=scale, is_causal=True)


@pytest.mark.exhaustive
def test_a_mask_of_bools_hides_keys_and_what_sees_nothing_has_no_gradient(compiler):
    arrays = back.four(70, 90, 20, batch=2, heads=2, key_heads=1)
    mask = np.random.default_rng(3).random((2, 1, 70, 90)) < 0.6
    mask[:, :, 3] = mask[:, :, 69] = mask[..., 5] = False
    it = both(compiler, arrays, mask=mask)
    assert (it.gradients["query"][:, :, [3, 69]] == 0).all()
    assert (it.gradients["key"][:, :, 5] == 0).all()
    assert (it.gradients["value"][:, :, 5] == 0).all()


SHAPES = [
    (2, 2, 70, 90), (1, 1, 70, 90), (2, 1, 70, 90), (1, 2, 1, 90), (2, 1, 70, 1), (1, 2, 1, 1),
    (1, 1, 1, 1),
]  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", SHAPES)
def test_a_mask_s_gradient_is_the_sum_over_what_it_is_broadcast_by(compiler, shape):
    arrays = back.four(70, 90, 20, batch=2, heads=2, key_heads=1)
    mask = plain.numbers(shape, seed=6)
    if shape[2:] == (70, 90):
        mask[..., 7] = mask[:, :, 11] = -np.inf
    it = both(compiler, arrays, mask=mask, mask_element="float32", of=OF)
    if shape[2:] == (70, 90):
        assert (it.gradients["mask"][..., 7] == 0).all()
        assert (it.gradients["mask"][:, :, 11] == 0).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("element", "mask_element"),
    [("float64", "float64"), ("bfloat16", "bfloat16"), ("float16", "float32")],
)
def test_a_mask_s_gradient_is_of_its_own_type(compiler, element, mask_element):
    arrays = back.four(70, 90, 20, element=element, heads=2, key_heads=2)
    for shape in ((1, 2, 70, 90), (1, 1, 1, 90)):
        mask = plain.numbers(shape, mask_element, 6)
        options = {"mask": mask, "mask_element": mask_element, "element": element, "scale": -0.2}
        both(compiler, arrays, of=OF, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_what_is_dropped_is_what_the_forward_pass_drops(compiler, element, probability):
    seed = 0x123456789ABCDEF0
    arrays = back.four(70, 90, 20, heads=2, key_heads=1, element=element)
    mask = plain.numbers((1, 1, 70, 90), element, 6)
    rest = {"element": element, "mask": mask, "mask_element": element}
    back.run(compiler, *arrays, of=("query",), **rest)
    library = next(iter(compiler.libraries.values()))
    kept = factors(library, seed, probability, 2, 70, 90)
    if element == "float64":  # the factor itself is not rounded to float32
        kept = np.where(kept == 0, 0, 1 / (1 - probability) if probability < 1 else 0)
    it = back.run(compiler, *arrays, of=OF, dropout=probability, seed=seed, factors=kept, **rest)
    back.check(it, back.expected(*arrays, factors=kept, **rest))


@pytest.mark.exhaustive
def test_arrays_and_gradients_may_lie_anywhere_and_in_any_order(compiler):
    query = plain.numbers((2, 70, 3, 64)).swapaxes(1, 2)
    key = plain.numbers((2, 3, 64, 90), seed=1).swapaxes(2, 3)
    value = plain.numbers((2, 3, 90, 131), seed=2)[..., 1::2]
    grad_out = plain.numbers((2, 65, 3, 70), seed=3).transpose(0, 2, 3, 1)
    room = np.full((2, 70, 3, 67), np.nan, np.float32)
    into = {"query": room[..., 1:65].swapaxes(1, 2)}
    both(compiler, [query, key, value, grad_out], into=into)
    assert np.isnan(room[..., [0, 65, 66]]).all()


def test_a_gradient_of_one_number_repeated_is_read_as_it_is(compiler):
    arrays = back.four(70, 90, 20)
    arrays[3] = np.broadcast_to(np.float32(0.5), (1, 1, 70, 20))
    it = back.run(compiler, *arrays)
    dense = back.run(compiler, *arrays[:3], np.full((1, 1, 70, 20), 0.5, np.float32))
    assert it.faults == []
    assert it.bits == dense.bits


def test_rows_of_whole_chunks_are_read_by_chunks_with_the_same_bits(compiler):
    arrays = back.four(70, 90, 64)
    aligned = both(compiler, arrays)
    odd = np.full((1, 1, 90, 65), np.nan, np.float32)
    odd[..., 1:] = arrays[1]
    anywhere = both(compiler, [arrays[0], odd[..., 1:], *arrays[2:]])
    assert anywhere.bits == aligned.bits
    names = [program.choices for program, _ in compiler.libraries]
    assert {dict(each).get("ALIGNED") for each in names} >= {0, 1}


@pytest.mark.parametrize(("queries", "keys"), [(70, 0), (0, 70)])
def test_without_keys_or_queries_all_gradients_are_zero(compiler, queries, keys):
    arrays = back.four(queries, keys, 20)
    mask = plain.numbers((1, 1, 1, 1), seed=6)
    it = back.run(compiler, *arrays, mask=mask, mask_element="float32", of=OF)
    assert it.faults == []
    assert all((each == 0).all() for each in it.gradients.values())


def test_a_gradient_that_is_not_wanted_is_not_computed(compiler):
    arrays = back.four(70, 90, 20)
    whole = back.run(compiler, *arrays)
    alone = back.run(compiler, *arrays, of=("value",))
    assert len(alone.reports) == 1  # nor are the sums of rows
    assert alone.bits["value"] == whole.bits["value"]


def test_a_nan_reaches_the_gradients_that_it_counts_for_and_no_others(compiler):
    arrays = back.four(130, 130, 20)
    clean = back.run(compiler, *arrays, is_causal=True)
    arrays[3][0, 0, 40, 3] = np.nan  # of the result's row 40
    it = back.run(compiler, *arrays, is_causal=True)
    assert it.faults == []
    rows = np.isnan(it.gradients["query"][0, 0]).any(-1)
    assert rows.nonzero()[0].tolist() == [40]
    for name in ("key", "value"):
        assert np.isnan(it.gradients[name][0, 0, :41]).any(-1).all()
        # Keys that the row does not see, in tiles that it does not reach.
        assert np.array_equal(it.gradients[name][0, 0, 64:], clean.gradients[name][0, 0, 64:])


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["float32", "float64"])
def test_the_order_of_the_warps_does_not_change_a_bit(compiler, element):
    arrays = back.four(70, 130, 20, element=element, heads=2, key_heads=1)
    mask = plain.numbers((1, 2, 1, 130), element, 6)
    rest = {"element": element, "mask": mask, "mask_element": element, "of": OF}
    first = both(compiler, arrays, dropout=0.0, **rest)
    for schedule in (1, 2, 3):
        again = back.run(compiler, *arrays, schedule=schedule, **rest)
        assert again.faults == []
        assert again.bits == first.bits
    dropped = [
        back.run(compiler, *arrays, schedule=schedule, dropout=0.5, seed=3, **rest).bits
        for schedule in (0, 2)
    ]
    assert dropped[0] == dropped[1]


def test_the_batch_does_not_change_a_bit(compiler):
    arrays = back.four(70, 90, 20, batch=3, heads=2, key_heads=2)
    whole = both(compiler, arrays)
    alone = back.run(compiler, *(each[1:2, 1:] for each in arrays))
    for name in OF[:3]:
        assert np.array_equal(alone.gradients[name][0, 0], whole.gradients[name][1, 1])


MUTANTS = {
    "no barrier": ("            block_barrier();\n        }\n        at", "        }\n        at"),
    "one buffer": ("turn ^= 1;", "turn ^= 0;"),
    "a row too many": ("row < it->rows", "row <= it->rows"),
    "no delta": ("- delta[which]", "- 0 * delta[which]"),
    "the first head only": ("way.steps.head = group", "way.steps.head = 1"),
    "no order before the sums of a mask": (
        "    if (by_query && by_key) return;\n    block_barrier();",
        "    if (by_query && by_key) return;",
    ),
    "the first batch only": ("way.steps.batch = job->batch", "way.steps.batch = 1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_seen(compiler, mutant):
    files = ("attention_efficient_backward.cu", *plain.sources.HEADERS)
    assert any(MUTANTS[mutant][0] in plain.sources.source(each) for each in files)
    arrays = back.four(100, 130, 20, batch=2, heads=2, key_heads=1)
    mask = plain.numbers((1, 2, 1, 130), seed=6)
    rest = {"mask": mask, "mask_element": "float32"}
    wanted = back.expected(*arrays, **rest)
    runs = [
        back.run(compiler, *arrays, of=OF, mutant=MUTANTS[mutant], schedule=each, **rest)
        for each in range(4)
    ]
    far = [
        not (np.abs(found - wanted[name][0]) <= wanted[name][1]).all()
        for it in runs
        for name, found in it.gradients.items()
    ]
    assert any(it.faults for it in runs) or any(far)
