"""Which variants of the backward kernels serve a call on a device, and how they are launched."""

from __future__ import annotations

import ctypes

import pytest
from test_device_attention_launch import A100, CACHE, H200, RTX_4090, call, dense

from backendcfg.gpu.attention.call import LOG2_OF_E, Gradients, Matrix
from backendcfg.gpu.attention.flash import launch_backward, variants


def gradients(made, **changes):
    query = made.heads, made.queries, made.width
    key = made.key_heads, made.keys, made.width
    matrices = {
        "grad_out": dense(32768, *query),
        "query": dense(65536, *query),
        "key": dense(131072, *key),
        "value": dense(262144, *key),
        **changes,
    }
    return Gradients(matrices.pop("grad_out"), 524288, matrices)


def both(made, limit=H200, cache=CACHE, **changes):
    passed = gradients(made, **changes)
    return [
        (each, launch_backward(made, passed, each, cache)) for each in variants(made, passed, limit)
    ]


def test_the_first_kernel_is_of_queries_and_the_second_of_keys():
    (first, queries), (second, keys) = both(call(heads=8, key_heads=2))
    assert (first.macros["OF_KEYS"], second.macros["OF_KEYS"]) == (0, 1)
    assert (queries.grid, first.threads, first.shared_bytes) == (2 * 8 * 8, 128, 49152)
    assert (keys.grid, second.threads, second.shared_bytes) == (2 * 2 * 8, 128, 49152)
    assert (queries.arguments.call.pairs, keys.arguments.call.pairs) == (16, 4)
    assert queries.arguments.call.group == keys.arguments.call.group == 4


def test_sums_of_wide_heads_are_parted():
    (_, _), (chosen, keys) = both(call(width=136))
    assert chosen.macros["PARTED"]
    assert keys.grid == 2 * 8 * 8 * 2
    assert not both(call(width=128))[1][0].macros["PARTED"]


@pytest.mark.parametrize("width", range(32, 257, 8))
@pytest.mark.parametrize("limit", [RTX_4090, A100, H200])
def test_every_width_fits_every_device(width, limit):
    for chosen, start in both(call(width=width), limit):
        assert start.kernel.shared_bytes <= limit
        assert chosen.macros["ROWS"] % (16 * chosen.macros["WARPS"]) == 0
        assert chosen.macros["STEP"] % 16 == 0


@pytest.mark.parametrize("scale", [0.125, -0.125, 0.0])
def test_the_scale_keeps_its_sign(scale):
    for _, start in both(call(scale=scale)):
        assert start.arguments.factor == scale
        assert start.arguments.call.scale == ctypes.c_float(scale * LOG2_OF_E).value


@pytest.mark.parametrize("name", ["grad_out", "query", "key", "value"])
def test_a_gradient_that_begins_anywhere_makes_both_kernels_copy_by_two_bytes(name):
    rows = Matrix(4098, (0, 0, 0, 1))
    assert [each.macros["ALIGNED"] for each, _ in both(call(), **{name: rows})] == [0, 0]
    assert [each.macros["ALIGNED"] for each, _ in both(call())] == [1, 1]


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
