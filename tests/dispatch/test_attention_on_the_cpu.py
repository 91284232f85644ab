"""What our own kernels need of a call on the CPU, row by row of the table."""

import pytest

from backendcfg.dispatch import attention
from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.dispatch.attention import ON_CPU, reasons, unmet
from backendcfg.dispatch.attention_facts import (
    AttentionFlags,
    Call,
    Device,
    broadcast,
    problem,
    sizes,
)
from backendcfg.records import replace

FUSED = ("flash", "efficient")
ON = AttentionFlags()


def array(*shape, dtype="float32", **more):
    return ArrayFacts(shape, (1,) * len(shape), dtype, **more)


def call(query=(2, 4, 7, 16), key=(2, 4, 9, 16), value=(2, 4, 9, 16), mask=None, **more):
    dtype = more.pop("dtype", "float32")
    hidden = None if mask is None else array(*mask, dtype=more.pop("mask_dtype", dtype))
    return Call(*(array(*shape, dtype=dtype) for shape in (query, key, value)), hidden, **more)


def broken(kernel, made, switches=ON):
    return [requirement.name for requirement, _ in unmet(kernel, made, Device(), switches)]


@pytest.mark.parametrize("kernel", attention.OURS)
@pytest.mark.parametrize(
    "made",
    [
        call(),
        call(dtype="float64"),
        call(dtype="bfloat16"),
        call(dtype="float16"),
        call((7, 3), (9, 3), (9, 5)),
        call((4, 7, 3), (4, 9, 3), (4, 9, 3)),
        call((5, 2, 4, 7, 3), (4, 9, 3), (2, 1, 9, 3)),
        call(mask=(7, 9), mask_dtype="bool"),
        call(mask=(2, 1, 1, 9)),
        call(mask=(9,), dtype="bfloat16", mask_dtype="float32"),
        call(is_causal=True),
        call(dropout=0.5),
        call((2, 8, 7, 16), (2, 2, 9, 16), (2, 2, 9, 16), enable_gqa=True),
    ],
)
def test_our_kernels_take_any_call_of_attention(kernel, made):
    assert reasons(kernel, made, Device(), ON) == ()


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ("flash", "Flash attention has been runtime disabled."),
        ("efficient", "Memory Efficient attention has been runtime disabled."),
        ("math", "Math attention has been runtime disabled."),
    ],
)
def test_a_switch_that_is_off(kernel, text):
    off = AttentionFlags(enabled=ON.enabled - {kernel})
    assert reasons(kernel, call(), Device(), off) == (text,)


@pytest.mark.parametrize("kernel", attention.OURS)
def test_a_mixture_of_devices_is_named(kernel):
    made = replace(call(), key=array(2, 4, 9, 16, device="cuda"))
    assert reasons(kernel, made, Device(), ON) == (
        (
            "All tensors need to be on the CPU. Got query on device: cpu, key on device: cuda, "
            "value on device: cpu"
        ),
    )


@pytest.mark.parametrize("kernel", attention.OURS)
def test_ragged_tensors_are_not_taken(kernel):
    ragged = ArrayFacts((4,), (), "float32", nested=True)
    assert reasons(kernel, Call(ragged, ragged, ragged), Device(), ON) == (
        "Our kernels do not support nested tensors.",
    )


@pytest.mark.parametrize("shapes", [((2, 4, 0, 16), (2, 4, 9, 16)), ((2, 4, 7, 16), (2, 4, 0, 16))])
def test_empty_calls_are_left_to_plain_products(shapes):
    made = call(shapes[0], shapes[1], shapes[1])
    for kernel in FUSED:
        assert reasons(kernel, made, Device(), ON) == (
            "All fused kernels do not support zero seq_len_q or seq_len_kv.",
        )
    assert reasons("math", made, Device(), ON) == ()


@pytest.mark.parametrize(
    "made", [call((4, 7, 0), (4, 9, 0), (4, 9, 3)), call((7, 3), (9, 3), (9, 0))]
)
def test_widths_of_zero_are_left_to_plain_products(made):
    assert [broken(kernel, made) for kernel in attention.OURS] == [["has-width"]] * 2 + [[]]


def test_groups_of_two_sizes_are_left_to_plain_products():
    made = call((2, 8, 7, 16), (2, 2, 9, 16), (2, 4, 9, 16), enable_gqa=True)
    assert reasons("flash", made, Device(), ON) == (
        (
            "Both fused kernels require key and value to have the same num_heads and batch_size but "
            "got: Key sizes: [2, 2, 9, 16], Value sizes: [2, 4, 9, 16], Query sizes: [2, 8, 7, 16] "
            "instead."
        ),
    )
    assert [broken(kernel, made) for kernel in FUSED] == [["equal-heads"]] * 2
    assert broken("math", made) == []


def test_a_gradient_of_the_mask_is_left_to_plain_products():
    made = replace(call(), mask=array(7, 9, requires_grad=True))
    assert reasons("efficient", made, Device(), ON) == (
        "attn_mask requires a gradient, which fused attention does not give.",
    )
    assert broken("math", made) == []


@pytest.mark.parametrize(
    ("tier", "library", "serves"),
    [
        ("none", "openblas", True),
        ("run-to-run", "openblas", True),
        ("restart", "mkl", True),
        ("thread-invariant", "openblas", False),
        ("thread-invariant", "native", True),
        ("batch-invariant", "mkl", False),
        ("batch-invariant", "reference", True),
        ("cross-machine", "openblas", False),
    ],
)
def test_under_some_tiers_plain_products_need_a_library_that_keeps_them(tier, library, serves):
    switches = AttentionFlags(tier=tier, library=library)
    assert (broken("math", call(), switches) == []) is serves
    assert broken("flash", call(), switches) == []
    if not serves:
        assert reasons("math", call(), Device(), switches) == (
            (
                f"its products would be served by {library}, whose bits depend on threads and shapes, "
                f"under tier `{tier}`"
            ),
        )
    assert broken("math", call((4, 0, 3), (4, 9, 3), (4, 9, 3)), switches) == []


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (
            call((3,)),
            "`query` must have at least 2 dimensions, (..., length, width), not 1",
        ),
        (
            call((7, 3), (9, 3), (9, 3), enable_gqa=True),
            "`query` must have at least 3 dimensions, (..., heads, length, width), not 2",
        ),
        (
            call(dtype="int64"),
            "`query` must hold float32, float64, bfloat16 or float16, not int64",
        ),
        (
            replace(call(), value=array(2, 4, 9, 16, dtype="float64")),
            "`value` must hold float32, as `query` does, not float64",
        ),
        (
            call(mask=(7, 9), mask_dtype="int64"),
            "`attn_mask` must hold bool or float32, not int64",
        ),
        (
            call(mask=(7, 9), dtype="float16", mask_dtype="bfloat16"),
            "`attn_mask` must hold bool, float32 or float16, not bfloat16",
        ),
        (
            call(mask=(7, 9), dtype="float64", mask_dtype="float32"),
            "`attn_mask` must hold bool or float64, not float32",
        ),
        (call(key=(2, 4, 9, 8)), "`key` must be as wide as `query`, 16, not 8"),
        (call(value=(2, 4, 8, 16)), "`value` must be as long as `key`, 9, not 8"),
        (
            call(key=(3, 4, 9, 16)),
            "the leading dimensions of `key`, (3, 4), must broadcast with those of `query`, (2, 4)",
        ),
        (
            call(value=(2, 3, 9, 16)),
            "the leading dimensions of `value`, (2, 3), must broadcast with the others, (2, 4)",
        ),
        (
            call(key=(2, 3, 9, 16), enable_gqa=True),
            "the 3 heads of `key` must divide the 4 of `query`",
        ),
        (
            call(value=(2, 0, 9, 16), enable_gqa=True),
            "the 0 heads of `value` must divide the 4 of `query`",
        ),
        (
            call(mask=(7, 8)),
            "`attn_mask` of shape (7, 8) must broadcast to the scores, (2, 4, 7, 9)",
        ),
        (
            call(mask=(1, 2, 4, 7, 9)),
            "`attn_mask` of shape (1, 2, 4, 7, 9) must broadcast to the scores, (2, 4, 7, 9)",
        ),
    ],
)
def test_what_is_no_call_of_attention_is_told_by_the_argument(made, text):
    assert problem(made) == text
    for kernel in attention.OURS:
        assert text in reasons(kernel, made, Device(), ON)


def test_the_sizes_of_a_call():
    made = sizes(call((5, 1, 4, 7, 3), (2, 1, 9, 3), (9, 6)))
    assert (made.lead, made.out, made.scores) == ((5, 2, 4), (5, 2, 4, 7, 6), (5, 2, 4, 7, 9))
    grouped = call((2, 8, 7, 3), (1, 2, 9, 3), (2, 4, 9, 6), enable_gqa=True)
    assert sizes(grouped).out == (2, 8, 7, 6)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ((), (), ()),
        ((3,), (), (3,)),
        ((1, 4), (2, 1), (2, 4)),
        ((0,), (1,), (0,)),
        ((0,), (2,), None),
        ((3,), (2,), None),
    ],
)
def test_shapes_broadcast_as_numpy_has_it(one, other, common):
    assert broadcast(one, other) == common


def test_every_row_for_the_cpu_is_tried_here():
    rows = {each.name for each in ON_CPU}
    assert rows == {
        *("enabled", "on-cpu", "not-ragged", "valid", "not-empty", "has-width", "equal-heads"),
        *("mask-gradient", "products"),
    }
