"""The backward kernels of attention for GPUs compute its gradients: their source, run on the host."""

from __future__ import annotations

import emulated_backward as back
import emulated_gpu as gpu
import numpy as np
import pytest
from test_device_attention_values import AMPERE, CONFLICTS, SMALLER, factors

pytestmark = pytest.mark.sweep(1)

WIDTHS = (32, 56, 72, 96, 104, 128, 136, 160, 200, 232, 256)


@pytest.fixture(name="compiler", scope="module")
def _compiler():
    return gpu.Compiler()


def four(queries, keys, width, *, batch=1, heads=1, key_heads=1, element="bfloat16"):
    own, other = (batch, heads, queries, width), (batch, key_heads, keys, width)
    return [gpu.numbers(each, element, n) for n, each in enumerate((own, other, other, own))]


def both(compiler, arrays, **rest):
    it = back.run(compiler, *arrays, **rest)
    back.check(it, back.expected(*arrays, **rest))
    return it


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_is_computed_and_reads_shared_memory_without_conflicts(compiler, width):
    element = "float16" if width % 32 == 0 else "bfloat16"
    for queries, keys in ((130, 77), (1, 65)):
        it = both(compiler, four(queries, keys, width, element=element), element=element)
        assert it.ways(*CONFLICTS) == [1, 1, 1]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("width", "shared"), [(128, SMALLER), (192, SMALLER), (256, SMALLER), (256, AMPERE)]
)
def test_devices_with_less_shared_memory_have_smaller_tiles(compiler, width, shared):
    both(compiler, four(70, 100, width), shared=shared)


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [64, 128, 192])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (2, 300), (300, 2), (63, 64), (128, 128), (129, 257), (300, 300)]
)
def test_a_query_gives_nothing_to_a_key_behind_its_position(compiler, width, queries, keys):
    it = both(compiler, four(queries, keys, width), is_causal=True)
    assert (it.gradients[1][:, :, queries:] == 0).all()
    assert (it.gradients[2][:, :, queries:] == 0).all()


@pytest.mark.exhaustive
def test_lengths_from_one_to_three_hundred(compiler):
    random = np.random.default_rng(5)
    for _ in range(12):
        queries, keys = (int(each) for each in random.integers(1, 301, 2))
        both(compiler, four(queries, keys, 64))


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_key_s_gradient_is_the_sum_over_the_heads_that_share_it(compiler, is_causal):
    both(compiler, four(70, 90, 64, batch=2, heads=6, key_heads=2), is_causal=is_causal)
    both(compiler, four(140, 190, 136, heads=3), is_causal=is_causal)


@pytest.mark.parametrize("scale", [0.3, -0.3, 0.0, 4.0, 1e-42])
def test_any_scale(compiler, scale):
    both(compiler, four(40, 90, 64), scale=scale, is_causal=True)


def test_a_mask_of_bools_hides_keys(compiler):
    arrays = four(70, 90, 64, batch=2, heads=2, key_heads=2)
    mask = np.random.default_rng(3).random((2, 1, 70, 90)) < 0.6
    both(compiler, arrays, mask=mask)


def test_a_query_that_sees_nothing_has_no_gradient_and_gives_none(compiler):
    arrays = four(70, 90, 64)
    mask = np.ones((1, 1, 70, 90), bool)
    mask[:, :, 3] = mask[:, :, 69] = False
    mask[..., 5] = False
    it = both(compiler, arrays, mask=mask)
    assert (it.gradients[0][0, 0, [3, 69]] == 0).all()
    assert (it.gradients[1][0, 0, 5] == 0).all()
    assert (it.gradients[2][0, 0, 5] == 0).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask_element", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [0.2, -0.2, 0.0])
def test_a_mask_is_added_to_the_scaled_scores(compiler, mask_element, scale):
    mask = np.random.default_rng(3).standard_normal((1, 1, 70, 90)).astype(np.float32)
    mask[..., 7] = -np.inf
    mask[:, :, 11] = -np.inf
    if mask_element == "bfloat16":
        mask = gpu.to_bits(mask, "bfloat16")
    rest = {"mask": mask, "mask_element": mask_element, "scale": scale, "is_causal": True}
    both(compiler, four(70, 90, 64), **rest)


def test_arrays_and_gradients_may_lie_as_length_by_heads(compiler):
    lengths = 70, 90, 90, 70
    arrays = [
        gpu.numbers((2, length, 3, 64), seed=seed).swapaxes(1, 2)
        for seed, length in enumerate(lengths)
    ]
    into = [np.full((2, n, 3, 64), 0x7FFF, np.uint16).swapaxes(1, 2) for n in lengths[:3]]
    both(compiler, arrays, into=into)


@pytest.mark.exhaustive
@pytest.mark.parametrize("which", range(7))
def test_arrays_and_gradients_may_begin_and_go_on_anywhere(compiler, which):
    arrays = four(70, 90, 72)
    arrays += [np.full(each.shape, 0x7FFF, np.uint16) for each in arrays[:3]]
    odd = np.full((1, 1, arrays[which].shape[2], 81), 0x7FFF, np.uint16)
    place = odd[..., 1:73]
    place[...] = arrays[which]
    arrays[which] = place
    both(compiler, arrays[:4], into=arrays[4:])
    assert (odd[..., 0] == 0x7FFF).all()
    assert (odd[..., 73:] == 0x7FFF).all()


@pytest.mark.parametrize(("queries", "keys"), [(70, 0), (0, 70)])
def test_without_keys_or_queries_all_gradients_are_zero(compiler, queries, keys):
    it = both(compiler, four(queries, keys, 64), forward=(
        np.zeros((1, 1, queries, 64), np.uint16), np.full((1, 1, queries), -np.inf, np.float32),
    ))  # fmt: skip
    assert all((each == 0).all() for each in it.bits)


@pytest.mark.exhaustive
@pytest.mark.parametrize("probability", [0.25, 1.0])
@pytest.mark.parametrize("width", [64, 136])
def test_what_is_dropped_is_what_the_forward_pass_drops(compiler, probability, width):
    seed = 0x123456789ABCDEF0
    arrays = four(70, 90, width, heads=2, key_heads=1)
    rest = {"dropout": probability, "seed": seed, "is_causal": True}
    it = back.run(compiler, *arrays, **rest)
    library = next(iter(compiler.libraries.values()))
    kept = factors(library, seed, probability, 2, 70, 90)
    back.check(it, back.expected(*arrays, factors=kept, is_causal=True))


@pytest.mark.parametrize("width", [64, 128, 136])
def test_the_bits_are_those_of_every_order_of_the_warps(compiler, width):
    arrays = four(150, 261, width, heads=2, key_heads=1)
    first = both(compiler, arrays, is_causal=True)
    for schedule in range(1, 5):
        again = back.run(compiler, *arrays, is_causal=True, schedule=schedule)
        assert again.fault == b""
        for one, other in zip(first.bits, again.bits, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.exhaustive
def test_neither_the_batch_nor_the_cache_changes_a_bit(compiler):
    arrays = four(140, 70, 64, batch=3, heads=4, key_heads=2)
    first = both(compiler, arrays)
    for cache in (0, 2 * 4 * 140 * 64 * 3, 1 << 40):
        it = back.run(compiler, *arrays, cache=cache)
        assert all(map(np.array_equal, it.bits, first.bits))
    alone = back.run(compiler, *(each[1:2] for each in arrays))
    assert all(
        np.array_equal(one[0], all_of[1])
        for one, all_of in zip(alone.bits, first.bits, strict=True)
    )


def test_a_causal_mask_saves_the_work_behind_it(compiler):
    arrays = four(512, 512, 64)
    whole = back.run(compiler, *arrays).count("multiply")
    half = both(compiler, arrays, is_causal=True).count("multiply")
    # Of 16 x 16 tiles of a warp's 32 rows and a step's 32, those on and below the diagonal.
    assert [part / all_of for part, all_of in zip(half, whole, strict=True)] == [136 / 256] * 2


def test_a_nan_reaches_the_gradients_that_it_counts_for_and_no_others(compiler):
    arrays = four(130, 130, 64)
    clean = back.run(compiler, *arrays, is_causal=True)
    arrays[3][0, 0, 40, 3] = 0x7FC0  # of the result's row 40
    it = back.run(compiler, *arrays, is_causal=True)
    assert it.fault == b""
    rows = np.isnan(it.gradients[0][0, 0]).any(-1)
    assert rows.nonzero()[0].tolist() == [40]
    for found, other in zip(it.gradients[1:], clean.gradients[1:], strict=True):
        assert np.isnan(found[0, 0, :41]).any(-1).all()
        # Keys that the row does not see, in tiles that it does not reach.
        assert np.array_equal(found[0, 0, 64:], other[0, 0, 64:])


MUTANTS = {
    "no barrier": ("block_barrier(); /* this step", "/* this step"),
    "no wait": ("await_copies(0);\n        block_barrier();", "block_barrier();"),
    "one buffer": ("step % STAGES)", "step % 1)"),
    "a row too many": ("first + (int)row < count &&", "first + (int)row <= count &&"),
    "no delta": ("pull - delta[line][one]", "pull + 0 * delta[line][one]"),
    "the first head only": ("own_head * call->group + step / way->per_head", "own_head * call->group"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_seen(compiler, mutant):
    files = ("attention_backward.cu", *gpu.sources.HEADERS)
    assert any(MUTANTS[mutant][0] in gpu.sources.source(name) for name in files)
    arrays = four(200, 261, 64, heads=2)
    gradients, bounds = back.expected(*arrays)
    forward = np.full(arrays[0].shape, 0x7FFF, np.uint16)
    total = gpu.run(compiler, *arrays[:3], out=forward).logsumexp.astype(np.float32)
    runs = [
        back.run(compiler, *arrays, mutant=MUTANTS[mutant], schedule=each, forward=(forward, total))
        for each in range(6)
    ]
    far = [
        not (np.abs(found - right) <= bound).all()
        for it in runs
        for found, right, bound in zip(it.gradients, gradients, bounds, strict=True)
    ]
    assert any(it.fault for it in runs) or any(far)
