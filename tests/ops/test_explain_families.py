"""Every operation explains itself by the choice that its calls make."""

import numpy as np
import pytest

from backendcfg import ops
from backendcfg._native import Prepared, Scope
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import explanation
from backendcfg.schema.profile import defaults
from backendcfg.transact.compiled import Compiled


def under(**flags):
    values = {**defaults(), **{name.replace("__", "."): value for name, value in flags.items()}}
    return Scope(Prepared("p", Compiled("p", "none", values)), 0)


def served(call):
    with ops.trace() as calls:
        call()
    return [(each.operation, each.provider, each.because) for each in calls]


def test_attention_says_what_its_call_does_and_what_is_against_the_others():
    query = np.ones((1, 2, 8, 4), "float32")
    for flags, kernel in (
        ({}, "flash"),
        ({"cuda__enable_flash_sdp": False}, "efficient"),
        ({"cuda__enable_flash_sdp": False, "cuda__enable_mem_efficient_sdp": False}, "math"),
    ):
        with under(**flags):
            said = ops.explain("scaled_dot_product_attention", [query.shape] * 3, "float32")
            done = served(lambda: ops.scaled_dot_product_attention(query, query, query))
        assert said.provider == kernel
        assert ("scaled_dot_product_attention", kernel, said.because) in done
        assert {said.provider, *(r.provider for r in said.reasons)} == {
            "flash",
            "efficient",
            "math",
        }
    assert {r.provider: r.why for r in said.reasons}["flash"] == (
        "Flash attention has been runtime disabled."
    )
    assert said.flags["cuda.enable_flash_sdp"] is False


def test_attention_that_cannot_be_is_refused_in_the_words_of_the_call():
    with pytest.raises(
        InvalidArgumentError, match=r"^explain: `key` must be as wide as `query`, 4, not 5"
    ):
        ops.explain(
            "scaled_dot_product_attention",
            ((1, 2, 8, 4), (1, 2, 8, 5), (1, 2, 8, 5)),
            "float32",
        )


@pytest.mark.parametrize("name", ["addmm", "bmm", "baddbmm"])
def test_a_product_with_a_sum_is_explained_by_its_product(name):
    three, two = ((2, 5), (2, 3), (3, 5)), ((2, 3), (3, 5))
    said = ops.explain(name, two if name == "bmm" else three, "float32")
    assert said.operation == "sgemm"
    assert said.sizes == (2, 5, 3)


@pytest.mark.parametrize(
    ("name", "shapes", "count"),
    [("addmm", ((2, 3),), "3"), ("scaled_dot_product_attention", 3, "3 or 4")],
)
def test_the_number_of_shapes_is_checked(name, shapes, count):
    with pytest.raises(
        InvalidArgumentError,
        match=rf"^explain: `shapes` must be {count} shapes, not ",
    ):
        ops.explain(name, shapes)


def test_every_operation_is_explained():
    public = {"matmul", "addmm", "bmm", "baddbmm", "conv2d", "einsum"}
    assert {*public, "scaled_dot_product_attention", "fft.irfftn", "linalg.svd"} <= set(
        explanation.names()
    )


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"scale": "x"}, "`scale` must be a number or None, not 'x'"),
        ({"dropout_p": "a"}, "`dropout_p` must be a number from 0 to 1, not 'a'"),
        ({"seed": -1}, "`seed` must be an integer from 0 to 2**64 - 1, or None, not -1"),
        ({"is_causal": True}, "`attn_mask` must not be given with `is_causal`"),
    ],
    ids=str,
)
def test_options_of_attention_are_checked_as_its_calls_check_them(options, wrong):
    shapes = [(1, 2, 8, 16)] * 3 + [(8, 8)]
    with pytest.raises(InvalidArgumentError) as caught:
        ops.explain("scaled_dot_product_attention", shapes, "float32", **options)
    assert caught.value.message == f"explain: {wrong}"


def test_every_option_of_attention_may_be_asked_about():
    said = ops.explain(
        *("scaled_dot_product_attention", [(1, 2, 8, 16)] * 3, "float32"),
        dropout_p=0.3,
        seed=7,
        scale=-1,
        return_logsumexp=True,
    )
    assert said.provider == "flash"
