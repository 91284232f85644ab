"""Requirements of our own attention kernels, which serve arrays of the CPU.

As in `attention_rules.py`, each function says why a rule is broken, or "". They are few: our
kernels take masks, groups of heads, any width and any strides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.catalogue.cpu import COMPILED_IN
from backendcfg.dispatch import attention_shapes
from backendcfg.dispatch.providers import INVARIANT

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Case


def on_cpu(case: Case) -> str:
    """All arrays are on the CPU."""
    query, key, value = (each.device for each in (case.call.query, case.call.key, case.call.value))
    if query == key == value:
        return ""
    return (
        f"All tensors need to be on the CPU. Got query on device: {query}, "
        f"key on device: {key}, value on device: {value}"
    )


def dense(case: Case) -> str:
    """No ragged tensor."""
    return "Our kernels do not support nested tensors." if case.call.nested else ""


def valid(case: Case) -> str:
    """The arrays make a call of attention."""
    return "" if case.call.nested else attention_shapes.problem(case.call)


def has_width(case: Case) -> str:
    """There is something to multiply."""
    if case.call.query.shape[-1] and case.call.value.shape[-1]:
        return ""
    return "All fused kernels do not support a zero width of query or value."


def equal_heads(case: Case) -> str:
    """Key and value have the same heads."""
    key, value = case.call.key.shape, case.call.value.shape
    if not case.call.enable_gqa or key[-3] == value[-3]:
        return ""
    return (
        "Both fused kernels require key and value to have the same num_heads and batch_size but "
        f"got: Key sizes: {list(key)}, Value sizes: {list(value)}, Query sizes: "
        f"{list(case.call.query.shape)} instead."
    )


def mask_without_gradient(case: Case) -> str:
    """No gradient of the mask is wanted."""
    if case.call.mask is None or not case.call.mask.requires_grad:
        return ""
    # PyTorch refuses this without a word.
    return "attn_mask requires a gradient, which fused attention does not give."


def products(case: Case) -> str:
    """The library that serves its products keeps what the profile promises."""
    flags, call = case.flags, case.call
    multiplies = call.query.shape[-2] and call.key.shape[-2]
    if not (multiplies and flags.tier in INVARIANT and flags.library):
        return ""
    if flags.library in COMPILED_IN:
        return ""
    return (
        f"its products would be served by {flags.library}, whose bits depend on threads and "
        f"shapes, under tier `{flags.tier}`"
    )
