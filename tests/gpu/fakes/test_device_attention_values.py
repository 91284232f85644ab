"""The attention kernel for GPUs computes attention: its source, run on the host."""

from __future__ import annotations

import emulated_gpu as gpu
import numpy as np
import pytest

pytestmark = pytest.mark.sweep(2)

WIDTHS = (32, 48, 56, 72, 96, 104, 128, 136, 160, 168, 192, 200, 224, 232, 256)
"""One for each width in shared memory, those multiples of 16 and those not."""
SMALLER = 101376  # shared memory of a block on sm_86, sm_89 and sm_120
AMPERE = 166912  # and on sm_80
CONFLICTS = ("matrix", "transposed", "store_word")


@pytest.fixture(name="compiler", scope="module")
def _compiler():
    return gpu.Compiler()


def three(queries, keys, width, *, batch=1, heads=1, key_heads=1, element="bfloat16"):
    shapes = (batch, heads, queries, width), *[(batch, key_heads, keys, width)] * 2
    return [gpu.numbers(shape, element, seed) for seed, shape in enumerate(shapes)]


def both(compiler, arrays, **rest):
    it = gpu.run(compiler, *arrays, **rest)
    gpu.check(it, gpu.expected(*arrays, **rest))
    return it


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_is_computed_and_reads_shared_memory_without_conflicts(compiler, width):
    element = "float16" if width % 32 == 0 else "bfloat16"
    for queries, keys in ((130, 77), (1, 65)):
        arrays = three(queries, keys, width, element=element)
        it = both(compiler, arrays, element=element)
        assert it.ways(*CONFLICTS) == [1, 1, 1]


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("element", ["bfloat16", "float16"])
def test_rows_of_whole_panels_are_moved_without_conflicts_too(compiler, width, element):
    it = both(compiler, three(70, 140, width, element=element), element=element)
    assert it.ways("copy", "load") == [1, 1]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("width", "shared"), [(160, SMALLER), (192, SMALLER), (256, SMALLER), (256, AMPERE)]
)
def test_devices_with_less_shared_memory_have_smaller_tiles(compiler, width, shared):
    arrays = three(70, 100, width)
    gpu.check(gpu.run(compiler, *arrays, shared=shared), gpu.expected(*arrays))


@pytest.mark.parametrize("width", [64, 128, 192])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (2, 300), (300, 2), (63, 64), (128, 128), (129, 257), (300, 300)]
)
def test_a_query_sees_no_key_behind_its_position(compiler, width, queries, keys):
    both(compiler, three(queries, keys, width), is_causal=True)


def test_lengths_from_one_to_three_hundred(compiler):
    random = np.random.default_rng(5)
    for _ in range(12):
        queries, keys = (int(each) for each in random.integers(1, 301, 2))
        both(compiler, three(queries, keys, 64))


def test_heads_of_queries_share_heads_of_keys(compiler):
    arrays = three(70, 90, 64, batch=2, heads=6, key_heads=2)
    it = both(compiler, arrays, is_causal=True)
    one = gpu.run(
        compiler, arrays[0][1:, 4:5], arrays[1][1:, 1:], arrays[2][1:, 1:], is_causal=True
    )
    assert np.array_equal(it.bits[1, 4], one.bits[0, 0])


@pytest.mark.parametrize("scale", [0.3, -0.3, 0.0, 4.0, 1e-42])
def test_any_scale(compiler, scale):
    both(compiler, three(40, 90, 64), scale=scale, is_causal=True)


def test_a_mask_of_bools_hides_keys(compiler):
    arrays = three(70, 90, 64, batch=2, heads=2)
    arrays[1], arrays[2] = arrays[1][:, :1], arrays[2][:, :1]
    mask = np.random.default_rng(3).random((2, 1, 70, 90)) < 0.6
    both(compiler, arrays, mask=mask)


def test_a_row_that_sees_nothing_is_zero_and_its_logarithm_minus_infinity(compiler):
    arrays = three(70, 90, 64)
    mask = np.ones((1, 1, 70, 90), bool)
    mask[:, :, 3] = mask[:, :, 69] = False
    mask[:, :, 5, :80] = False  # sees nothing in the first step
    it = both(compiler, arrays, mask=mask)
    assert (it.bits[0, 0, [3, 69]] == 0).all()
    assert np.isneginf(it.logsumexp[0, 0, [3, 69]]).all()


@pytest.mark.parametrize("mask_element", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [0.2, -0.2, 0.0])
def test_a_mask_is_added_to_the_scaled_scores(compiler, mask_element, scale):
    arrays = three(70, 90, 64)
    mask = np.random.default_rng(3).standard_normal((1, 1, 70, 90)).astype(np.float32)
    mask[..., 7] = -np.inf
    mask[:, :, 11] = -np.inf
    if mask_element == "bfloat16":
        mask = gpu.to_bits(mask, "bfloat16")
    both(compiler, arrays, mask=mask, mask_element=mask_element, scale=scale, is_causal=True)


def test_a_mask_may_have_any_strides(compiler):
    arrays = three(70, 90, 64)
    mask = np.random.default_rng(3).random((90, 140)) < 0.6
    both(compiler, arrays, mask=mask[:, ::2].T[None, None])


def test_arrays_may_lie_as_length_by_heads(compiler):
    query, key, value = (
        gpu.numbers((2, length, 3, 64), seed=length).swapaxes(1, 2) for length in (70, 90, 91)
    )
    value = value[:, :, :90]
    out = np.full((2, 70, 3, 64), 0x7FFF, np.uint16).swapaxes(1, 2)
    it = gpu.run(compiler, query, key, value, out=out)
    gpu.check(it, gpu.expected(query, key, value))


@pytest.mark.parametrize("which", range(4))
def test_arrays_may_begin_and_go_on_anywhere(compiler, which):
    arrays = [*three(70, 90, 72), np.full((1, 1, 70, 72), 0x7FFF, np.uint16)]
    odd = np.full((1, 1, arrays[which].shape[2], 81), 0x7FFF, np.uint16)
    place = odd[..., 1:73]
    place[...] = arrays[which]
    arrays[which] = place
    query, key, value, out = arrays
    gpu.check(gpu.run(compiler, query, key, value, out=out), gpu.expected(query, key, value))
    if which == 3:
        assert (odd[..., 0] == 0x7FFF).all()
        assert (odd[..., 73:] == 0x7FFF).all()


def test_without_keys_all_is_zero(compiler):
    query, key, value = three(70, 0, 64)
    it = gpu.run(compiler, query, key, value)
    assert it.report.fault == b""
    assert (it.bits == 0).all()
    assert np.isneginf(it.logsumexp).all()


def test_a_nan_reaches_the_rows_that_see_it_and_no_others(compiler):
    query, key, value = three(130, 130, 64)
    clean = gpu.run(compiler, query, key, value, is_causal=True)
    key[0, 0, 70, 3] = 0x7FC0
    it = gpu.run(compiler, query, key, value, is_causal=True)
    assert it.report.fault == b""
    assert np.isnan(it.out[0, 0, 70:]).all()
    assert np.isnan(it.logsumexp[0, 0, 70:]).all()
    assert np.array_equal(it.bits[0, 0, :70], clean.bits[0, 0, :70])


@pytest.mark.parametrize("mask_element", ["bool", "float32"])
def test_a_mask_does_not_hide_a_key_of_nan_as_on_the_cpu(compiler, mask_element):
    query, key, value = three(70, 90, 64)
    key[0, 0, 7, 3] = 0x7FC0
    mask = np.ones((1, 1, 70, 90), bool)
    mask[..., 7] = False
    if mask_element == "float32":
        mask = np.where(mask, np.float32(0), np.float32(-np.inf))
    it = gpu.run(compiler, query, key, value, mask=mask, mask_element=mask_element)
    assert it.report.fault == b""
    assert np.isnan(it.out).all()
    assert np.isnan(it.logsumexp).all()


def test_an_infinite_score_takes_the_row(compiler):
    query, key, value = three(20, 90, 64)
    query[0, 0, 4], query[0, 0, 5] = 0x3F80, 0xBF80  # ones, and minus ones
    key[0, 0, 80, 3] = 0x7F80
    it = gpu.run(compiler, query, key, value)
    assert np.isnan(it.out[0, 0, 4]).all()  # as softmax has it: infinity minus infinity
    assert np.isfinite(it.out[0, 0, 5]).all()  # a weight of 0


def factors(library, seed, probability, heads, queries, keys):
    """What the kernels of the CPU multiply weights with."""
    found = np.zeros((1, heads, queries, -(-keys // 64) * 64), np.float32)
    for head in range(heads):
        for query in range(queries):
            library.dropout_row(
                gpu.ctypes.c_uint64(seed), gpu.ctypes.c_double(probability),
                gpu.ctypes.c_uint64(head), gpu.ctypes.c_int64(query), gpu.ctypes.c_int64(keys),
                gpu.ctypes.c_void_p(found[0, head, query].ctypes.data),
            )  # fmt: skip
    return found[..., :keys]


@pytest.mark.parametrize("probability", [0.25, 1.0])
def test_what_is_dropped_is_what_the_cpu_drops(compiler, probability):
    seed = 0x123456789ABCDEF0
    arrays = three(70, 90, 64, heads=2)
    arrays[1], arrays[2] = arrays[1][:, :1], arrays[2][:, :1]
    it = gpu.run(compiler, *arrays, dropout=probability, seed=seed, is_causal=True)
    library = next(iter(compiler.libraries.values()))
    dropped = factors(library, seed, probability, 2, 70, 90)
    assert 0.2 < (dropped == 0).mean() <= 1
    gpu.check(it, gpu.expected(*arrays, is_causal=True, factors=dropped))


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [64, 128])
def test_the_order_of_the_warps_does_not_change_a_bit(compiler, width):
    arrays = three(200, 260, width)
    first = both(compiler, arrays, is_causal=True)
    for schedule in (1, 2, 3, 4):
        again = gpu.run(compiler, *arrays, is_causal=True, schedule=schedule)
        assert again.report.fault == b""
        assert np.array_equal(again.bits, first.bits)
        assert np.array_equal(again.logsumexp, first.logsumexp)


def test_neither_the_batch_nor_the_cache_changes_a_bit(compiler):
    arrays = three(140, 70, 64, batch=3, heads=4, key_heads=2)
    first = both(compiler, arrays)
    for cache in (0, 2 * 4 * 70 * 64 * 3, 1 << 40):
        assert np.array_equal(gpu.run(compiler, *arrays, cache=cache).bits, first.bits)
    alone = gpu.run(compiler, *(each[1:2] for each in arrays))
    assert np.array_equal(alone.bits[0], first.bits[1])


def test_a_causal_mask_saves_the_work_behind_it(compiler):
    arrays = three(512, 512, 64)
    whole = gpu.run(compiler, *arrays).count("multiply")
    half = both(compiler, arrays, is_causal=True).count("multiply")
    # Of 16 x 8 tiles of a warp's 32 rows and a step's 64 keys, those on and below the diagonal.
    assert half / whole == (16 + sum(row // 2 for row in range(16))) / (16 * 8)


MUTANTS = {
    "no barrier": ("block_barrier(); /* this step", "/* this step"),
    "no wait": ("await_copies(0);\n        block_barrier();", "block_barrier();"),
    "one buffer": ("step % STAGES)", "step % 1)"),
    "a row too many": ("first + (int)row < count &&", "first + (int)row <= count &&"),
    "no turn": ("return row / (8 / wide) % wide;", "return row * 0 + wide * 0;"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_seen(compiler, mutant):
    files = ("attention_forward.cu", *gpu.sources.HEADERS)
    assert any(MUTANTS[mutant][0] in gpu.sources.source(name) for name in files)
    arrays = three(200, 261, 64)
    wanted = gpu.expected(*arrays)
    runs = [gpu.run(compiler, *arrays, mutant=MUTANTS[mutant], schedule=each) for each in range(6)]
    far = [not (np.abs(it.out - wanted[0]) <= wanted[2]).all() for it in runs]
    slow = [it.ways(*CONFLICTS) != [1, 1, 1] for it in runs]
    assert any(it.report.fault for it in runs) or any(far) or any(slow)
