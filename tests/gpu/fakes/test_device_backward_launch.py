"""Which variants of the backward kernels serve a call on a device, and how they are launched."""

from __future__ import annotations

import ctypes

import pytest
from test_device_attention_launch import A100, CACHE, H200, RTX_4090, call, dense

from backendcfg.gpu.attention.call import LOG2_OF_E, Matrix
from backendcfg.gpu.attention.flash_backward import Gradients, launch, variants


def gradients(made, **changes):
    query = made.heads, made.queries, made.width
    key = made.key_heads, made.keys, made.width
    matrices = {
        "grad_out": dense(32768, *query),
        "grad_query": dense(65536, *query),
        "grad_key": dense(131072, *key),
        "grad_value": dense(262144, *key),
    }
    return Gradients(**{**matrices, **changes}, delta=524288)


def both(made, limit=H200, cache=CACHE, **changes):
    passed = gradients(made, **changes)
    return [(each, launch(made, passed, each, cache)) for each in variants(made, passed, limit)]


def test_the_first_kernel_is_of_queries_and_the_second_of_keys():
    (first, queries), (second, keys) = both(call(heads=8, key_heads=2))
    assert (first.of_keys, second.of_keys) == (False, True)
    assert (queries.grid, queries.threads, queries.shared_bytes) == (2 * 8 * 8, 128, 49152)
    assert (keys.grid, keys.threads, keys.shared_bytes) == (2 * 2 * 8, 128, 49152)
    assert (queries.arguments.call.pairs, keys.arguments.call.pairs) == (16, 4)
    assert queries.arguments.call.group == keys.arguments.call.group == 4


def test_sums_of_wide_heads_are_parted():
    (_, _), (chosen, keys) = both(call(width=136))
    assert chosen.tiles.parted
    assert keys.grid == 2 * 8 * 8 * 2
    assert not both(call(width=128))[1][0].tiles.parted


@pytest.mark.parametrize("width", range(32, 257, 8))
@pytest.mark.parametrize("limit", [RTX_4090, A100, H200])
def test_every_width_fits_every_device(width, limit):
    for chosen, start in both(call(width=width), limit):
        assert start.shared_bytes <= limit
        assert chosen.tiles.rows % (16 * chosen.tiles.warps) == 0
        assert chosen.tiles.step % 16 == 0


@pytest.mark.parametrize("scale", [0.125, -0.125, 0.0])
def test_the_scale_keeps_its_sign(scale):
    for _, start in both(call(scale=scale)):
        assert start.arguments.factor == scale
        assert start.arguments.call.scale == ctypes.c_float(scale * LOG2_OF_E).value


@pytest.mark.parametrize("name", ["grad_out", "grad_query", "grad_key", "grad_value"])
def test_a_gradient_that_begins_anywhere_makes_both_kernels_copy_by_two_bytes(name):
    rows = Matrix(4098, (0, 0, 0, 1))
    assert [each.is_aligned for each, _ in both(call(), **{name: rows})] == [False, False]
    assert [each.is_aligned for each, _ in both(call())] == [True, True]


def test_where_there_is_nothing_to_write_nothing_is_launched():
    (_, queries), (_, keys) = both(call(queries=0))
    assert (queries, keys.grid) == (None, 2 * 8 * 8)
    (_, queries), (_, keys) = both(call(keys=0))
    assert (queries.grid, keys) == (2 * 8 * 8, None)
    assert [start for _, start in both(call(batch=0))] == [None, None]


def test_heads_that_fit_half_of_the_cache_are_worked_on_side_by_side():
    one = 4 * 900 * 64  # what a head of queries walks over: keys and values
    (_, queries), _ = both(call(key_heads=2), cache=2 * one)
    assert queries.arguments.call.section == 4
    group = 4 * 1000 * 64 * 4  # and a head of keys: four heads of queries, and of gradients
    _, (_, keys) = both(call(key_heads=2), cache=2 * 3 * group)
    assert keys.arguments.call.section == 3
