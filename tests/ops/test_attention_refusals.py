"""What attention refuses, in which words, and that nothing is computed then."""

from types import SimpleNamespace

import numpy as np
import pytest

from backendcfg import ops
from backendcfg.backends.cuda import SDPBackend, sdpa_kernel
from backendcfg.cache import ProfileCache
from backendcfg.defaults import DEFAULTS
from backendcfg.errors import InvalidArgumentError, NotFiniteError
from backendcfg.ops import serving
from backendcfg.ops.attention import calls as attention_calls
from backendcfg.session.adjust import overlay

ARRAY = np.ones((2, 4, 7, 16), np.float32)
OTHER = np.ones((2, 4, 9, 16), np.float32)
NOTES = (
    "  note: query: float32 array of shape (2, 4, 7, 16)\n"
    "  note: key: float32 array of shape (2, 4, 9, 16)\n"
    "  note: value: float32 array of shape (2, 4, 9, 16)\n"
)


def refused(*arrays, **options):
    before = serving.counted()
    with pytest.raises(InvalidArgumentError) as caught:
        ops.scaled_dot_product_attention(*arrays, **options)
    assert serving.counted() == before
    return caught.value.render()


def says(text):
    return f"error[invalid-argument]: scaled_dot_product_attention: {text}\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dropout_p": 1.5}, "`dropout_p` must be a number from 0 to 1, not 1.5"),
        ({"dropout_p": -0.1}, "`dropout_p` must be a number from 0 to 1, not -0.1"),
        ({"dropout_p": float("nan")}, "`dropout_p` must be a number from 0 to 1, not nan"),
        ({"dropout_p": "0"}, "`dropout_p` must be a number from 0 to 1, not '0'"),
        ({"dropout_p": True}, "`dropout_p` must be a number from 0 to 1, not True"),
        ({"is_causal": 1}, "`is_causal` must be a bool, not 1"),
        ({"enable_gqa": None}, "`enable_gqa` must be a bool, not None"),
        ({"return_logsumexp": 0}, "`return_logsumexp` must be a bool, not 0"),
        ({"scale": "1"}, "`scale` must be a number or None, not '1'"),
        ({"scale": True}, "`scale` must be a number or None, not True"),
        ({"scale": -(10**5000)}, "`scale` must be a number that float64 holds"),
        ({"seed": -1}, "`seed` must be an integer from 0 to 2**64 - 1, or None, not -1"),
        (
            {"seed": 1 << 64},
            f"`seed` must be an integer from 0 to 2**64 - 1, or None, not {1 << 64}",
        ),
        ({"seed": 1.0}, "`seed` must be an integer from 0 to 2**64 - 1, or None, not 1.0"),
    ],
)
def test_an_option_is_refused_by_its_name(options, text):
    for _ in range(2):  # also when the same shapes were seen before
        ops.scaled_dot_product_attention(ARRAY, OTHER, OTHER)
        assert refused(ARRAY, OTHER, OTHER, **options) == (
            says(text) + "  state: nothing was computed"
        )


def test_dropout_without_a_seed_is_refused_with_the_way_out():
    assert refused(ARRAY, OTHER, OTHER, dropout_p=0.1) == (
        says("`seed` must be given where `dropout_p` is not 0") + "  state: nothing was computed\n"
        "  help: the same seed drops the same weights: `seed=int(rng.integers(2**63))`"
    )


def test_a_mask_beside_is_causal_is_refused_with_the_way_out():
    mask = np.ones((7, 9), bool)
    assert refused(ARRAY, OTHER, OTHER, mask, is_causal=True) == (
        says("`attn_mask` must not be given with `is_causal`")
        + NOTES
        + "  note: attn_mask: bool array of shape (7, 9)\n"
        "  state: nothing was computed\n"
        "  help: put the triangle into the mask: `mask & numpy.tri(*mask.shape[-2:], dtype=bool)`"
    )


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ((ARRAY, OTHER[..., :8], OTHER), "`key` must be as wide as `query`, 16, not 8"),
        ((ARRAY, OTHER, ARRAY), "`value` must be as long as `key`, 9, not 7"),
        ((ARRAY[0, 0, 0], OTHER, OTHER), "`query` must have at least 2 dimensions, "),
        ((ARRAY.astype(int), OTHER, OTHER), "`query` must hold float32, float64, bfloat16 or "),
        (
            (ARRAY, OTHER, OTHER.astype(float)),
            "`value` must hold float32, as `query` does, not float64",
        ),
        (
            (ARRAY, OTHER, OTHER, np.ones((9, 7), bool)),
            "`attn_mask` of shape (9, 7) must broadcast to the scores, (2, 4, 7, 9)",
        ),
        (
            (ARRAY, OTHER, OTHER, np.ones((7, 9), int)),
            "`attn_mask` must hold bool or float32, not int64",
        ),
    ],
)
def test_arrays_are_refused_by_the_argument(arrays, text):
    found = refused(*arrays)
    assert found.startswith(says(text)[:-1])
    assert "\n  note: query: " in found
    assert found.endswith("\n  state: nothing was computed")


def test_heads_that_could_be_shared_are_refused_with_the_way_out():
    few = OTHER[:, :2]
    assert refused(ARRAY, few, few).splitlines() == [
        (
            "error[invalid-argument]: scaled_dot_product_attention: the leading dimensions of `key`, "
            "(2, 2), must broadcast with those of `query`, (2, 4)"
        ),
        "  note: query: float32 array of shape (2, 4, 7, 16)",
        "  note: key: float32 array of shape (2, 2, 9, 16)",
        "  note: value: float32 array of shape (2, 2, 9, 16)",
        "  state: nothing was computed",
        "  help: share each of the 2 heads by 2: `enable_gqa=True`",
    ]


def test_what_is_no_array_is_refused_by_the_argument():
    assert refused(ARRAY, OTHER.tolist(), OTHER) == (
        says("`key` must be an array, not list")
        + "  state: nothing was computed\n  help: pass `numpy.asarray(x)`"
    )


def test_with_no_kernel_that_can_every_reason_is_told():
    empty = ARRAY[:, :, :0]
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        assert refused(empty, OTHER, OTHER) == (
            says("No available kernel. Aborting execution.")
            + NOTES.replace("7", "0")
            + "  note: flash: All fused kernels do not support zero seq_len_q or seq_len_kv.\n"
            "  note: efficient: Memory Efficient attention has been runtime disabled.\n"
            "  note: efficient: All fused kernels do not support zero seq_len_q or seq_len_kv.\n"
            "  note: math: Math attention has been runtime disabled.\n"
            "  state: nothing was computed\n"
            "  help: allow one that can: `backendcfg.backends.cuda.enable_math_sdp(True)`"
        )


def test_with_every_kernel_off_pytorchs_own_sentence_is_told(monkeypatch):
    # Only a machine with a GPU lets a profile leave nothing but cuDNN.
    off = {f"cuda.enable_{name}_sdp": False for name in ("flash", "mem_efficient", "math")}
    in_force = SimpleNamespace(values={**DEFAULTS, **off})
    monkeypatch.setattr(attention_calls, "FlagsInForce", lambda: in_force)
    monkeypatch.setattr(attention_calls, "routes", ProfileCache(4))
    assert refused(ARRAY, OTHER, OTHER) == (
        says(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to "
            "turning off both the math kernel and the fused kernels."
        )
        + NOTES
        + "  note: flash: Flash attention has been runtime disabled.\n"
        "  note: efficient: Memory Efficient attention has been runtime disabled.\n"
        "  note: math: Math attention has been runtime disabled.\n"
        "  state: nothing was computed\n"
        "  help: allow one that can: `backendcfg.backends.cuda.enable_math_sdp(True)`"
    )


def backward(**changed):
    out, total = ops.scaled_dot_product_attention(ARRAY, OTHER, OTHER, return_logsumexp=True)
    given = {"grad_out": out, "query": ARRAY, "key": OTHER, "value": OTHER}
    given |= {"out": out, "logsumexp": total}
    with pytest.raises(InvalidArgumentError) as caught:
        ops.scaled_dot_product_attention_backward(**{**given, **changed})
    return caught.value.render()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"grad_out": OTHER},
            "`grad_out` must have the shape (2, 4, 7, 16), not (2, 4, 9, 16)",
        ),
        ({"out": ARRAY.astype(float)}, "`out` must hold float32, not float64"),
        ({"logsumexp": ARRAY}, "`logsumexp` must have the shape (2, 4, 7), not (2, 4, 7, 16)"),
        (
            {"logsumexp": ARRAY[..., 0].astype(float)},
            "`logsumexp` must hold float32, not float64",
        ),
        ({"is_causal": "yes"}, "`is_causal` must be a bool, not 'yes'"),
    ],
)
def test_the_backward_pass_refuses_what_the_forward_pass_did_not_give(changed, text):
    assert backward(**changed) == (
        f"error[invalid-argument]: scaled_dot_product_attention_backward: {text}\n"
        "  state: nothing was computed"
    )


def test_the_backward_pass_tells_its_own_name():
    assert backward(key=OTHER[..., :3]).startswith(
        "error[invalid-argument]: scaled_dot_product_attention_backward: `key` must be as wide"
    )


@pytest.mark.parametrize("kernel", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
def test_a_result_that_is_not_finite_is_refused_where_it_must_be_finite(kernel):
    wrong = OTHER.copy()
    wrong[1, 2, 3, 4] = np.nan
    mask = np.full((7, 9), -np.inf, np.float32)
    mask[:, :5] = 0
    out, total = ops.scaled_dot_product_attention(ARRAY, OTHER, OTHER, return_logsumexp=True)
    with sdpa_kernel(kernel), overlay({"ops.check_finite": True}):
        for _ in range(2):
            assert refused(ARRAY, OTHER, wrong) == (
                "error[not-finite]: scaled_dot_product_attention: the result has NaN or infinity, "
                "which `ops.check_finite` refuses\n" + NOTES + "  state: nothing was returned\n"
                "  help: look for NaN, infinity or overflow in the operands, or turn it off"
            )
            ops.scaled_dot_product_attention(ARRAY, OTHER, OTHER, mask)
        with pytest.raises(NotFiniteError, match=r"_backward: the result has NaN"):
            ops.scaled_dot_product_attention_backward(out, ARRAY, OTHER, wrong, out, total)
