"""Which kernel serves attention: switches, order, tiers, and that the answer is remembered."""

import threading

import numpy as np
import pytest

import backendcfg
from backendcfg import ops
from backendcfg.backends import cuda
from backendcfg.backends.cuda import SDPBackend, sdpa_kernel
from backendcfg.dispatch import attention
from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.dispatch.attention import Choice, choose
from backendcfg.dispatch.attention_facts import Call
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops import serving
from backendcfg.ops.attention import calls as attention_calls
from backendcfg.schema.profile import defaults
from backendcfg.session.adjust import overlay

FLASH, EFFICIENT, MATH, CUDNN = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
)
ARRAY = np.ones((1, 2, 5, 8), np.float32)
CALL = Call(*(ArrayFacts((1, 2, 5, 8), (80, 40, 8, 1), "float32"),) * 3)


def served_by(*arrays, **options):
    """The kernel that serves a call, as the counters have it."""
    before = serving.counted()
    ops.scaled_dot_product_attention(*(arrays or (ARRAY,) * 3), **options)
    [(operation, kernel, because)] = [
        key for key, n in serving.counted().items() if n != before.get(key)
    ]
    assert operation == "scaled_dot_product_attention"
    assert because
    return kernel


def test_flash_is_first():
    assert served_by() == "flash"


@pytest.mark.parametrize(
    ("allowed", "kernel"),
    [
        ([FLASH], "flash"),
        ([EFFICIENT], "efficient"),
        ([MATH], "math"),
        ([MATH, EFFICIENT], "efficient"),
        ([MATH, FLASH], "flash"),
        ([CUDNN, MATH], "math"),
        ([FLASH, EFFICIENT, MATH, CUDNN], "flash"),
    ],
)
def test_the_switches_decide(allowed, kernel):
    with sdpa_kernel(allowed):
        assert served_by() == kernel
    assert served_by() == "flash"


@pytest.mark.parametrize(
    ("order", "kernel"),
    [
        ([MATH, FLASH], "math"),
        ([EFFICIENT, MATH, FLASH], "efficient"),
        ([CUDNN, MATH, FLASH], "math"),
        ([SDPBackend.OVERRIDEABLE, FLASH, MATH], "flash"),
    ],
)
def test_the_order_is_obeyed_where_it_is_set_and_only_there(order, kernel):
    with sdpa_kernel(order, set_priority=True):
        assert served_by() == kernel
    with sdpa_kernel(order):
        assert served_by() in ("flash", "efficient")


def test_an_order_in_a_profile_is_completed():
    with overlay({"cuda.sdp_priority": ["efficient"]}):
        assert served_by() == "efficient"
        with overlay({"cuda.enable_mem_efficient_sdp": False}):
            assert served_by() == "flash"


def test_what_the_first_cannot_do_the_next_does():
    empty = np.ones((1, 2, 0, 8), np.float32)
    assert served_by(empty, ARRAY, ARRAY) == "math"


def test_a_switch_of_another_thread_is_not_seen():
    inside, done, seen = threading.Event(), threading.Event(), []

    def other():
        with sdpa_kernel(MATH):
            seen.append(FlagsInForce()["cuda.enable_flash_sdp"])
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    assert served_by() == "flash"
    done.set()
    thread.join()
    assert seen == [False]


def test_the_choice_tells_every_reason():
    flags = {
        **defaults(),
        "cuda.sdp_priority": ("math", "efficient"),
        "cuda.enable_math_sdp": False,
    }
    assert choose(CALL, flags) == Choice(
        "efficient",
        {
            "math": ("Math attention has been runtime disabled.",),
            "flash": ("behind `efficient` in the order",),
        },
        "math needs: its flag is on",
    )
    assert choose(CALL, defaults()).because == "first in the order flash, efficient, math"


def test_without_a_kernel_the_choice_is_empty():
    off = {f"cuda.enable_{name}_sdp": False for name in ("flash", "mem_efficient", "math")}
    choice = choose(CALL, {**defaults(), **off})
    assert (choice.kernel, choice.because) == ("", "")
    assert list(choice.reasons) == ["flash", "efficient", "math"]


@pytest.mark.parametrize("tier", ["thread-invariant", "batch-invariant", "cross-machine"])
def test_a_tier_takes_plain_products_from_libraries_that_do_not_keep_it(monkeypatch, tier):
    flags = {**defaults(), "cuda.sdp_priority": ("math",), "determinism.tier": tier}
    for library, kernel in (("openblas", "flash"), ("reference", "math"), ("native", "math")):
        monkeypatch.setattr(attention, "_library", lambda call, name=library: name)
        assert choose(CALL, flags).kernel == kernel


def test_the_choice_and_can_use_say_the_same():
    params = cuda.SDPAParams(ARRAY, ARRAY, ARRAY, None, 0.0, False, False)
    for allowed in ([FLASH], [EFFICIENT], [MATH]):
        with sdpa_kernel(allowed):
            assert cuda.can_use_flash_attention(params) is (served_by() == "flash")
            assert cuda.can_use_efficient_attention(params) is (served_by() == "efficient")


def test_a_call_that_was_seen_before_is_not_planned_again(monkeypatch):
    wide = np.ones((1, 2, 5, 24), np.float32)
    first = ops.scaled_dot_product_attention(wide, wide, wide)

    def fail(*arguments):
        raise AssertionError("planned again")

    monkeypatch.setattr(attention_calls, "plan", fail)
    again = ops.scaled_dot_product_attention(wide, wide, wide)
    assert np.array_equal(first, again)
    with pytest.raises(AssertionError, match="planned again"):
        ops.scaled_dot_product_attention(wide, wide, wide, is_causal=True)
    with sdpa_kernel(EFFICIENT), pytest.raises(AssertionError, match="planned again"):
        ops.scaled_dot_product_attention(wide, wide, wide)


def test_more_kinds_of_calls_than_are_remembered_are_served(monkeypatch):
    monkeypatch.setattr(attention_calls.routes, "most", 4)
    for length in range(1, 9):
        array = np.ones((1, 1, length, 8), np.float32)
        assert served_by(array, array, array) == "flash"
    assert len(attention_calls.routes) <= 4


def test_a_profile_that_is_applied_holds_for_the_next_call():
    backendcfg.apply(settings={"cuda.sdp_priority": ["math"]})
    try:
        assert served_by() == "math"
    finally:
        backendcfg.undo()
    assert served_by() == "flash"
