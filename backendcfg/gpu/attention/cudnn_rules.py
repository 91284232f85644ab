"""Requirements of cuDNN's attention for arrays of a device, and when it is tried first.

As in `attention_rules.py`, each function says why a rule is broken, or "". Where PyTorch has the
rule, its text is used (`sdp_utils.cpp`), and where NVIDIA's frontend has it, the frontend's
(`sdpa_support_surface.h`). The last ones are ours: what cuDNN would compute otherwise than we
promise. `ROWS` are the rows of the table in `attention.py` that are cuDNN's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch import attention_rules
from backendcfg.gpu.attention import gpu_rules

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Case, Device
    from backendcfg.dispatch.attention_rules import Rule

FASTEST = ((9, 0), (10, 0), (10, 3))
FASTEST_AFTER = 91500
_MOST = 65535
_BLOCK = 128


def leads(device: Device) -> bool:
    """Whether cuDNN is tried first where nobody says an order: PyTorch's rule since 2.12."""
    return (
        device.vendor == "nvidia" and device.cudnn > FASTEST_AFTER and device.capability in FASTEST
    )


def library(case: Case) -> str:
    """CuDNN is here, and has an engine as far as it was asked."""
    return case.device.no_cudnn


def without_bugs(case: Case) -> str:
    """A version of cuDNN that computes it right."""
    version = case.device.cudnn
    if 91000 <= version < 91002:
        return (
            "SDPA FP16/BF16 forward is not supported on cuDNN 9.10.0/9.10.1 due to known bugs. "
            "Please consider upgrading to 9.10.2 or newer."
        )
    if case.call.is_causal and case.call.query.shape[-2] == 1 and version <= 90900:
        return (
            "decode only mode, i.e. s_q == 1, not supported with masking (right_bound is set) for "
            "backend version 9.9 or below"
        )
    return ""


def few_heads(case: Case) -> str:
    """Batches and heads that a grid of blocks can count."""
    batch, heads = case.call.query.shape[:2]
    if not (batch and heads and case.call.query.shape[-1] and case.call.value.shape[-1]):
        return "It computes nothing of arrays without numbers."
    if max(batch, heads) <= _MOST:
        return ""
    return (
        f"cuDNN SDPA does not support batch size or num_heads greater than {_MOST}. "
        f"Got batch size: {batch}, num_heads: {heads}"
    )


def added_mask(case: Case) -> str:
    """A mask is added."""
    if case.call.mask is None or case.call.mask.dtype != "bool":
        return ""
    return "It adds a mask to the scores, and attn_mask is bool: nothing is converted."


def layout(case: Case) -> str:
    """Addresses and strides that whole vectors can be copied from."""
    call = case.call
    steps = [
        step
        for each in (call.query, call.key, call.value)
        for length, step in zip(each.shape[:-1], each.strides[:-1], strict=True)
        if length > 1
    ]
    if call.is_aligned and all(step > 0 and step % 8 == 0 for step in steps):
        return ""
    return (
        "It needs query, key and value at addresses that are multiples of 16 bytes, and strides "
        "above 0 that are multiples of 8 numbers."
    )


def scale(case: Case) -> str:
    """A scale that does not turn the greatest score into the least."""
    if case.call.scale is None or case.call.scale > 0:
        return ""
    return f"It needs a scale above 0, not {case.call.scale:g}."


def dropout(case: Case) -> str:
    """No weight is dropped."""
    if not case.call.dropout:
        return ""
    return "A seed drops the same weights wherever it is used, and cuDNN would drop others."


def gradients(case: Case) -> str:
    """A version, a device and lengths of whose gradients nothing is known against."""
    call, version, flags = case.call, case.device.cudnn, case.flags
    if not call.trains:
        return ""
    if version < 90600:
        return "Its gradients need cuDNN 9.6 or newer: older ones add to what they find in memory."
    keys = call.key.shape[-2]
    if version <= FASTEST_AFTER and keys % _BLOCK:
        return (
            f"Its gradients of {keys} keys, which is no multiple of {_BLOCK}, need a cuDNN after "
            "9.15.0."
        )
    if case.device.sm[0] == 10 and (flags.deterministic or flags.tier != "none"):
        return (
            "On sm_10x its gradients may differ from run to run, which `determinism.algorithms` or "
            "`determinism.tier` forbids."
        )
    return ""


_SHAPED = ("cudnn-dimensions",)
# Where one of these is missing, no version of cuDNN is known.
VERSIONED = ("nvidia", "driver", "cudnn-library")

ROWS: tuple[tuple[str, str, Rule, tuple[str, ...]], ...] = (
    ("cudnn-library", "cuDNN 9 is here, and has an engine for the call", library, ("nvidia",)),
    (
        "cudnn-architecture",
        "sm80 to sm121",
        gpu_rules.architecture,
        ("nvidia", "driver"),
    ),
    (
        "cudnn-dimensions",
        "query, key and value have 4 dimensions",
        attention_rules.four_dimensional,
        (),
    ),
    ("cudnn-dtype", "float16 or bfloat16", gpu_rules.dtype, ()),
    (
        "cudnn-heads",
        "equal batches and heads; groups of heads when it is asked to",
        attention_rules.batches_and_heads,
        _SHAPED,
    ),
    ("cudnn-counts", f"1 to {_MOST} batches and heads, and a width", few_heads, _SHAPED),
    ("cudnn-not-empty", "there are queries and keys", attention_rules.not_empty, _SHAPED),
    (
        "cudnn-last-stride",
        "the last dimension is contiguous, of a mask too",
        attention_rules.last_stride,
        _SHAPED,
    ),
    (
        "cudnn-layout",
        "addresses and strides are multiples of 16 bytes, and nothing is repeated",
        layout,
        _SHAPED,
    ),
    ("cudnn-mask", "a mask is added, and not bool", added_mask, ()),
    (
        "cudnn-bugs",
        "not 9.10.0 or 9.10.1; no single causal query before 9.10",
        without_bugs,
        VERSIONED,
    ),
    ("cudnn-scale", "the scale is above 0", scale, ()),
    ("cudnn-dropout", "no weight is dropped", dropout, ()),
    (
        "cudnn-gradients",
        f"training: cuDNN 9.6; up to 9.15.0 keys by {_BLOCK}; not on sm_10x where bits must repeat",
        gradients,
        (*VERSIONED, *_SHAPED),
    ),
)
"""The name, the text, the rule and what must hold before it is looked at."""
