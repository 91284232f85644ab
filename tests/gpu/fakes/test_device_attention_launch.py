"""Which variant of the attention kernel serves a call on a device, and how it is launched."""

from __future__ import annotations

import ctypes
import math
import re
from pathlib import Path

import pytest

from backendcfg.gpu.attention.call import Attention, Launch, Matrix
from backendcfg.gpu.attention.flash import launch, variant
from backendcfg.records import replace

PAGE = Path(__file__).parents[3] / "docs/operations/device-attention.md"
H200 = 232448
A100 = 166912
RTX_4090 = 101376
CACHE = 50 << 20


def dense(address, heads, length, width):
    return Matrix(address, (heads * length * width, length * width, width, 1))


def call(*, batch=2, heads=8, key_heads=8, queries=1000, keys=900, width=64, **rest):
    query, key = (heads, queries, width), (key_heads, keys, width)
    rest = {"element": "bfloat16", "scale": 0.125, **rest}
    matrices = {
        name: dense(address, *sizes)
        for name, address, sizes in (
            ("query", 4096, query), ("key", 8192, key), ("value", 12288, key), ("out", 16384, query),
        )
    }  # fmt: skip
    sizes = {
        "batch": batch,
        "heads": heads,
        "key_heads": key_heads,
        "value_heads": key_heads,
        "value_width": width,
        "queries": queries,
        "keys": keys,
    }
    return Attention(**sizes, width=width, **{**matrices, **rest})


def start(made, **changes) -> Launch:
    found = launch(made, variant(made, H200), changes.pop("cache", CACHE))
    assert found is not None
    return found


def test_a_block_has_128_queries_of_one_head():
    found = start(call())
    assert (found.grid, found.kernel.threads, found.kernel.shared_bytes) == (8 * 2 * 8, 128, 49152)
    arguments = found.arguments
    assert (arguments.heads, arguments.group, arguments.pairs, arguments.blocks) == (8, 1, 16, 8)
    assert (arguments.queries, arguments.keys) == (1000, 900)
    assert list(arguments.query_strides) == [512000, 64000, 64, 1]
    assert (arguments.query, arguments.key, arguments.value, arguments.out) == (
        4096,
        8192,
        12288,
        16384,
    )
    assert (arguments.mask, arguments.logsumexp) == (0, 0)


@pytest.mark.parametrize(("width", "limit", "tiles", "shared"), [
    (32, H200, (128, 64, 4, 2, 1), 24576),
    (64, RTX_4090, (128, 64, 4, 2, 1), 49152),
    (72, H200, (128, 64, 4, 2, 0), 61440),
    (128, RTX_4090, (128, 64, 4, 2, 0), 98304),
    (136, H200, (128, 64, 8, 1, 0), 110592),
    (192, A100, (128, 64, 8, 1, 0), 147456),
    (192, RTX_4090, (64, 32, 4, 1, 0), 73728),
    (256, H200, (128, 64, 8, 1, 0), 196608),
    (256, A100, (128, 32, 8, 1, 0), 131072),
    (256, RTX_4090, (64, 32, 4, 1, 0), 98304),
])  # fmt: skip
def test_tiles_follow_from_the_width_and_the_shared_memory(width, limit, tiles, shared):
    found = variant(call(width=width), limit)
    names = ("ROWS", "STEP", "WARPS", "RESIDENT", "QUERY_IN_REGISTERS")
    assert tuple(found.macros[name] for name in names) == tiles
    assert (found.threads, found.shared_bytes) == (32 * found.macros["WARPS"], shared)
    assert shared <= limit


def test_every_width_fits_every_device():
    for width in range(32, 257, 8):
        for limit in (H200, A100, RTX_4090):
            assert variant(call(width=width), limit).shared_bytes <= limit


def test_a_variant_is_told_by_macros():
    made = call(
        element="float16",
        is_causal=True,
        dropout=0.5,
        mask=Matrix(64, (0, 0, 900, 1)),
        mask_element="float16",
    )
    assert variant(made, H200).macros == {
        "BFLOAT16": 0, "WIDTH": 64, "ROWS": 128, "STEP": 64, "WARPS": 4, "RESIDENT": 2,
        "QUERY_IN_REGISTERS": 1, "CAUSAL": 1, "MASK": 4, "DROPOUT": 1, "ALIGNED": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["query", "key", "value", "out"])
def test_rows_that_begin_anywhere_have_a_variant_of_their_own(name):
    made = call()
    matrix = getattr(made, name)
    for other in (
        Matrix(matrix.address + 8, matrix.strides),
        Matrix(matrix.address, (*matrix.strides[:2], 68, 1)),
    ):
        assert not variant(replace(made, **{name: other}), H200).macros["ALIGNED"]
    # What is never added does not count.
    one = replace(call(batch=1), **{name: Matrix(matrix.address, (1, *matrix.strides[1:]))})
    assert variant(one, H200).macros["ALIGNED"]


def test_the_scale_is_in_powers_of_two_and_its_sign_apart():
    def scale(value):
        arguments = start(call(scale=value)).arguments
        return arguments.sign, arguments.scale

    assert scale(0.125) == (1, pytest.approx(0.125 / math.log(2)))
    assert scale(-0.125) == (-1, pytest.approx(0.125 / math.log(2)))
    assert scale(0.0) == (0, 1.0)
    assert scale(1e-60) == (0, 1.0)  # nothing in float32
    assert math.isnan(scale(math.nan)[1])


def test_dropout_is_a_threshold_and_a_factor():
    arguments = start(call(dropout=0.25, seed=2**64 - 1)).arguments
    assert (arguments.threshold, arguments.seed) == (2**30, 2**64 - 1)
    assert arguments.kept == pytest.approx(4 / 3)
    arguments = start(call(dropout=1.0)).arguments
    assert (arguments.threshold, arguments.kept) == (2**32, 0.0)


def test_heads_whose_keys_fit_half_of_the_cache_are_side_by_side():
    each = 4 * 64 * 900
    made = call(heads=8, key_heads=2)
    for cache, section in ((0, 1), (2 * each, 4), (5 * each, 8), (CACHE, 16)):
        assert start(made, cache=cache).arguments.section == section


def test_without_queries_nothing_is_launched():
    for made in (call(queries=0), call(batch=0), call(heads=0)):
        assert launch(made, variant(made, H200), CACHE) is None


def test_the_arguments_have_no_gaps():
    end = 0
    for name, kind in type(start(call()).arguments)._fields_:
        assert getattr(type(start(call()).arguments), name).offset == end
        end += ctypes.sizeof(kind)


@pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
def test_the_python_on_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], str(PAGE), "exec"), {})
