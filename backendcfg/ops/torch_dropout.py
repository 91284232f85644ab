"""PyTorch's dropout on the CPU, drawn by our kernel: the same numbers, and faster.

PyTorch draws one number after another, 5 ns each: dropout of the weights of attention takes three
times as long as their softmax. Ours draws whole states of the same generator by vectors, so after
`torch.manual_seed` the same elements are dropped, and what is drawn next is the same, too.

What is replaced is `Tensor.bernoulli_`, by which `torch.nn.functional.dropout` and
`torch.bernoulli(x, p)` draw. The generator's state is taken, used and put back. If another thread
drew meanwhile, PyTorch draws instead. No other thread runs Python between that look and the putting
back; only one that is inside of PyTorch already, and draws in that microsecond, gets numbers that
the generator gives once more.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from backendcfg import _native
from backendcfg.ops.torch_library import Kernel, Replaced, array

SMALL = 4096
"""Fewer numbers are left to PyTorch, which draws 2000 in the time that a call of ours takes."""

WORDS = 624

STATE = np.dtype(
    {
        "names": ["left", "next", "words"],
        "formats": ["i4", "u8", (np.uint64, WORDS)],
        "offsets": [8, 16, 24],
        "itemsize": 5056,
    }
)
"""What `torch.Generator.get_state` gives, as far as numbers are drawn by it. `left` counts down to
1, where new words are made."""

ONES = {
    "float32": 0x3F800000,
    "float64": 0x3FF0000000000000,
    "float16": 0x3C00,
    "bfloat16": 0x3F80,
    **dict.fromkeys(("bool", "uint8", "int8", "int16", "int32", "int64"), 1),
}
"""The bits of 1 in each type."""


def _ours(tensor: Any, p: float = 0.5, *, generator: Any = None) -> Any:
    """The tensor, drawn; NotImplemented for what is PyTorch's, errors included."""
    if tensor.numel() < SMALL or not tensor.is_contiguous() or not 0 < p < 1:
        return NotImplemented
    one = ONES.get(str(tensor.dtype).removeprefix("torch."))
    if one is None or tensor.data_ptr() % tensor.element_size():
        return NotImplemented
    if generator is None:
        import torch

        generator = torch.default_generator
    before = generator.get_state()
    after = _drawn(before, p, one, array(tensor))
    if after is None or not _native.exchange_state(generator, before, after):
        return NotImplemented
    return tensor


def _drawn(before: Any, p: float, one: int, out: Any) -> Any:
    """The state after numbers were drawn into an array; None where it is laid out otherwise."""
    after = before.clone()
    if after.numel() != STATE.itemsize:
        return None
    state = after.numpy().view(STATE)
    start = int(state["next"][0]) if state["left"][0] > 1 else WORDS
    if state["left"][0] != WORDS + 1 - start:
        return None
    state["next"] = end = _native.bernoulli(state["words"][0], start, p, one, out)
    state["left"] = WORDS + 1 - end
    return after


@functools.cache
def _otherwise(torch: Any) -> str:
    """Why this PyTorch is not served: builds over other libraries draw other numbers; or ""."""
    theirs = torch.Generator().manual_seed(1)
    before = theirs.get_state()
    # Not the defaults, which a program may have changed.
    wanted, found = (torch.empty(WORDS, dtype=torch.float32, device="cpu") for _ in range(2))
    wanted.bernoulli_(0.3, generator=theirs)
    after = _drawn(before, 0.3, ONES["float32"], array(found))
    if after is not None and found.equal(wanted) and after.equal(theirs.get_state()):
        return ""
    return f"PyTorch {torch.__version__} draws other numbers for dropout than our kernel"


REPLACED = Replaced([Kernel("bernoulli_.float", _ours)], otherwise=_otherwise)
"""What PyTorch's dropout draws by, on the CPU."""
