"""The attention kernel for GPUs without tensor cores: its source, run on the host."""

from __future__ import annotations

import ctypes

import emulated_plain as plain
import numpy as np
import pytest

pytestmark = pytest.mark.sweep(1)

ELEMENTS = ("float32", "float64", "float16", "bfloat16")


@pytest.fixture(name="compiler", scope="module")
def _compiler():
    return plain.Compiler()


def both(compiler, arrays, **rest):
    it = plain.run(compiler, *arrays, **rest)
    plain.check(it, plain.expected(*arrays, **rest), rest.get("element", "float32"))
    return it


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(
    ("width", "value_width"), [(64, 64), (80, 100), (7, 129), (300, 200), (256, 256)]
)
def test_every_width_is_computed_and_reads_shared_memory_without_conflicts(
    compiler, element, width, value_width
):
    for queries, keys in ((70, 77), (1, 65)):
        arrays = plain.three(queries, keys, width, value_width=value_width, element=element)
        it = both(compiler, arrays, element=element)
        assert it.ways("load") == [1]


@pytest.mark.parametrize("width", [1, 3, 17, 40])
def test_narrow_heads_are_padded_with_zeros(compiler, width):
    both(compiler, plain.three(40, 90, width))


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (2, 300), (300, 2), (63, 64), (64, 64), (129, 200)]
)
def test_a_query_sees_no_key_behind_its_position(compiler, element, queries, keys):
    both(compiler, plain.three(queries, keys, 64, element=element), is_causal=True, element=element)


def test_lengths_from_one_to_three_hundred(compiler):
    random = np.random.default_rng(5)
    for _ in range(6):
        queries, keys = (int(each) for each in random.integers(1, 301, 2))
        both(compiler, plain.three(queries, keys, 32))


def test_heads_of_queries_share_heads_of_keys(compiler):
    arrays = plain.three(70, 90, 64, batch=2, heads=6, key_heads=2)
    both(compiler, arrays, is_causal=True)


@pytest.mark.parametrize("scale", [0.3, -0.3, 0.0, 4.0])
def test_any_scale(compiler, scale):
    both(compiler, plain.three(40, 90, 64), scale=scale, is_causal=True)


def test_a_mask_of_bools_hides_keys_and_a_row_that_sees_nothing_is_zero(compiler):
    arrays = plain.three(70, 90, 64, batch=2, heads=2, key_heads=1)
    mask = np.random.default_rng(3).random((2, 1, 70, 90)) < 0.6
    mask[:, :, 3] = mask[:, :, 69] = False
    mask[:, :, 5, :80] = False  # sees nothing in the first step
    it = both(compiler, arrays, mask=mask)
    assert (it.out[:, :, [3, 69]] == 0).all()
    assert np.isneginf(it.logsumexp[:, :, [3, 69]]).all()


@pytest.mark.parametrize(
    ("element", "mask_element"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("bfloat16", "bfloat16"),
        ("float16", "float32"),
        ("float16", "float16"),
    ],
)
def test_a_mask_is_added_to_the_scaled_scores(compiler, element, mask_element):
    arrays = plain.three(70, 90, 64, element=element)
    mask = np.random.default_rng(3).standard_normal((1, 1, 70, 90))
    mask[..., 7] = -np.inf
    mask[:, :, 11] = -np.inf
    options = {"mask_element": mask_element, "element": element, "scale": -0.2, "is_causal": True}
    both(compiler, arrays, mask=plain.narrow(mask, mask_element), **options)


def test_a_mask_may_have_any_strides(compiler):
    mask = np.random.default_rng(3).random((90, 140)) < 0.6
    both(compiler, plain.three(70, 90, 64), mask=mask[:, ::2].T[None, None])


def test_arrays_may_lie_anywhere_and_in_any_order(compiler):
    query = plain.numbers((2, 70, 3, 64)).swapaxes(1, 2)
    key = plain.numbers((2, 3, 64, 90), seed=1).swapaxes(2, 3)
    value = plain.numbers((2, 3, 90, 131), seed=2)[..., 1::2]
    room = np.full((2, 70, 3, 67), np.nan, np.float32)
    out = room[..., 1:66].swapaxes(1, 2)
    it = plain.run(compiler, query, key, value, out=out)
    plain.check(it, plain.expected(query, key, value))
    assert np.isnan(room[..., [0, 66]]).all()


def test_rows_of_whole_chunks_are_read_by_chunks_with_the_same_bits(compiler):
    arrays = plain.three(70, 90, 64)
    aligned = both(compiler, arrays)
    odd = np.full((1, 1, 90, 65), np.nan, np.float32)
    odd[..., 1:] = arrays[1]
    anywhere = both(compiler, [arrays[0], odd[..., 1:], arrays[2]])
    assert anywhere.bits == aligned.bits
    names = [program.macros["ALIGNED"] for program, _ in compiler.libraries][-2:]
    assert set(names) <= {0, 1}


def test_without_keys_all_is_zero(compiler):
    it = plain.run(compiler, *plain.three(70, 0, 64))
    assert it.faults == []
    assert (it.out == 0).all()
    assert np.isneginf(it.logsumexp).all()


def test_a_nan_reaches_the_rows_that_see_it_and_no_others(compiler):
    query, key, value = plain.three(130, 130, 64)
    clean = plain.run(compiler, query, key, value, is_causal=True)
    key[0, 0, 70, 3] = np.nan
    it = plain.run(compiler, query, key, value, is_causal=True)
    assert it.faults == []
    assert np.isnan(it.out[0, 0, 70:]).all()
    assert np.isnan(it.logsumexp[0, 0, 70:]).all()
    assert np.array_equal(it.out[0, 0, :70], clean.out[0, 0, :70])


def test_an_infinite_score_takes_the_row(compiler):
    query, key, value = plain.three(20, 90, 64)
    query[0, 0, 4], query[0, 0, 5] = 1, -1
    key[0, 0, 80, 3] = np.inf
    it = plain.run(compiler, query, key, value)
    assert np.isnan(it.out[0, 0, 4]).all()  # as softmax has it: infinity minus infinity
    assert np.isfinite(it.out[0, 0, 5]).all()  # a weight of 0


def factors(library, seed, probability, heads, queries, keys):
    """What the kernels of the CPU multiply weights with."""
    found = np.zeros((1, heads, queries, -(-keys // 64) * 64), np.float32)
    for head in range(heads):
        for query in range(queries):
            library.dropout_row(
                ctypes.c_uint64(seed), ctypes.c_double(probability), ctypes.c_uint64(head),
                ctypes.c_int64(query), ctypes.c_int64(keys),
                ctypes.c_void_p(found[0, head, query].ctypes.data),
            )  # fmt: skip
    return found[..., :keys]


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_what_is_dropped_is_what_the_cpu_drops(compiler, element, probability):
    seed = 0x123456789ABCDEF0
    arrays = plain.three(70, 90, 64, heads=2, key_heads=1, element=element)
    it = plain.run(compiler, *arrays, dropout=probability, seed=seed, element=element)
    library = next(iter(compiler.libraries.values()))
    dropped = factors(library, seed, probability, 2, 70, 90)
    assert 0.2 < (dropped == 0).mean() <= 1
    if element == "float64":  # the factor itself is not rounded to float32
        dropped = np.where(dropped == 0, 0, 1 / (1 - probability) if probability < 1 else 0)
    plain.check(it, plain.expected(*arrays, factors=dropped, element=element), element)


@pytest.mark.exhaustive
@pytest.mark.parametrize("element", ["float32", "float64"])
def test_the_order_of_the_warps_does_not_change_a_bit(compiler, element):
    arrays = plain.three(100, 130, 80, element=element)
    first = both(compiler, arrays, is_causal=True, element=element)
    for schedule in (1, 2, 3):
        again = plain.run(compiler, *arrays, is_causal=True, schedule=schedule, element=element)
        assert again.faults == []
        assert again.bits == first.bits


def test_the_batch_does_not_change_a_bit(compiler):
    arrays = plain.three(70, 90, 64, batch=3, heads=2)
    arrays[1:] = [each.repeat(2, 1) for each in arrays[1:]]
    whole = both(compiler, arrays)
    alone = plain.run(compiler, *(each[1:2, 1:] for each in arrays))
    assert np.array_equal(alone.out[0, 0], whole.out[1, 1])


MUTANTS = {
    "no barrier": (
        "            block_barrier();\n        }\n        finish",
        "        }\n        finish",
    ),
    "one buffer": ("turn ^= 1;", "turn ^= 0;"),
    "a row too many": ("row < job->keys", "row <= job->keys"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_seen(compiler, mutant):
    files = ("attention_efficient.cu", *plain.sources.HEADERS)
    assert any(MUTANTS[mutant][0] in plain.sources.source(each) for each in files)
    arrays = plain.three(100, 130, 64)
    wanted = plain.expected(*arrays)
    runs = [
        plain.run(compiler, *arrays, mutant=MUTANTS[mutant], schedule=each) for each in range(4)
    ]
    far = [not (np.abs(it.out - wanted[0]) <= wanted[2]).all() for it in runs]
    assert any(it.faults for it in runs) or any(far)
