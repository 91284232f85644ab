"""`efficient`, our kernels without tensor cores: their variants, and how they are launched.

Pure functions over numbers, as in `flash.py`. The forward pass has one kernel, in
backendcfg/gpu/kernels/attention_efficient.cu. The backward pass, of `math` too, has one for each
gradient that is wanted, the mask's too, in attention_efficient_backward.cu; those of query, key and
mask read a number for each query, delta, which attention_delta.cu writes.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from backendcfg.gpu.attention.call import CODES, LOG2_OF_E, Launch, filled, macros
from backendcfg.gpu.kernels.sources import Kernel
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from backendcfg.gpu.attention.call import Attention, Gradients, Matrix

WIDEST = 256
"""Columns of values that `efficient` has registers for."""

OF = ("query", "key", "value", "mask")
"""What has a gradient, as the source numbers them."""

NEEDS_DELTA = ("query", "key", "mask")

_KEYS = 64  # rows of the other side in a step
_WIDEST_GRADIENT = 128  # columns of a gradient that a block has registers for


class EfficientArguments(ctypes.Structure):
    """`efficient_arguments` of attention_efficient.cu."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("query", "key", "value", "mask", "out")),
        ("logsumexp", ctypes.c_uint64),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("query", "key", "value", "out")),
        ("mask_strides", ctypes.c_int64 * 4),
        *((name, ctypes.c_uint64) for name in ("seed", "threshold")),
        *((name, ctypes.c_double) for name in ("scale", "kept")),
        *((name, ctypes.c_int32) for name in ("heads", "group", "queries", "keys")),
        *((name, ctypes.c_int32) for name in ("width", "value_width", "blocks", "pairs")),
    ]


class EfficientBackwardArguments(ctypes.Structure):
    """`backward_arguments` of attention_walk.h."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("query", "key", "value", "mask", "grad_out")),
        *((name, ctypes.c_uint64) for name in ("logsumexp", "delta", "gradient")),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("query", "key", "value", "mask")),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("grad_out", "gradient")),
        *((name, ctypes.c_uint64) for name in ("seed", "threshold")),
        *((name, ctypes.c_double) for name in ("scale", "factor", "kept")),
        *((name, ctypes.c_int32) for name in ("batch", "heads", "key_group", "value_group")),
        *((name, ctypes.c_int32) for name in ("queries", "keys", "width", "value_width")),
        *((name, ctypes.c_int32) for name in ("columns", "blocks", "panels", "unused")),
        ("mask_sizes", ctypes.c_int32 * 4),
    ]


class DeltaArguments(ctypes.Structure):
    """`delta_arguments` of attention_delta.cu."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("out", "grad_out", "delta")),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("out", "grad_out")),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("heads", "queries", "value_width", "unused")),
    ]


def efficient(call: Attention) -> Launch | None:
    """How `efficient` serves a call; None where there is nothing to compute.

    Args:
        call: one that is counted; its arrays may have any strides, value may be `WIDEST`, and
            `logsumexp` is of `summed_in` its element.
    """
    blocks, pairs = -(-call.queries // _rows(call.element)), call.batch * call.heads
    if not blocks * pairs * call.value_width:
        return None
    columns = -(-call.value_width // 64) * 64
    chosen = _kernel(call, columns, {"out": call.out})
    arguments = filled(
        EfficientArguments, call, scale=call.scale * LOG2_OF_E, blocks=blocks, pairs=pairs
    )
    return Launch(chosen, blocks * pairs, arguments)


def launches_backward(call: Attention, gradients: Gradients) -> Iterator[Launch]:
    """The launches that write the gradients of `gradients.into`, in their order.

    Args:
        call: one whose forward pass was run; key and value may have different heads.
        gradients: what comes in and out besides.
    """
    starts = [gradient(of, call, gradients) for of in gradients.into]
    if not set(NEEDS_DELTA).isdisjoint(gradients.into):
        starts.insert(0, delta(call, gradients))
    yield from (each for each in starts if each is not None)


def delta(call: Attention, gradients: Gradients) -> Launch | None:
    """How the rows of the result are multiplied by those of its gradient; None where there is none.

    Args:
        call: as of `launches_backward`.
        gradients: as of `launches_backward`; `delta` is written.
    """
    rows = call.batch * call.heads * call.queries
    if not rows:
        return None
    chosen = Kernel("attention_delta", (("ELEMENT", CODES[call.element]),), threads=256)
    arguments = filled(
        DeltaArguments, call, grad_out=gradients.grad_out, delta=gradients.delta, rows=rows
    )
    return Launch(chosen, -(-rows // 8), arguments)


def gradient(of: str, call: Attention, gradients: Gradients) -> Launch | None:
    """How one gradient is computed; None where it is empty.

    Args:
        of: one of `OF`.
        call: as of `launches_backward`.
        gradients: as of `launches_backward`.
    """
    if of in ("key", "value") and not call.heads:  # heads that no query shares
        call = replace(call, heads=call.key_heads * call.value_heads, queries=0)
    columns = call.value_width if of == "value" else call.width
    wide = 64 if of == "mask" or columns <= 64 else _WIDEST_GRADIENT
    panels = 1 if of == "mask" else -(-columns // wide)
    owners, blocks = _blocks(of, call, gradients)
    grid = owners * blocks * panels
    if not grid:
        return None
    into = gradients.into[of]
    written = {} if of == "mask" else {of: into}
    chosen = _kernel(call, wide, {"out": gradients.grad_out}, written, of)
    arguments = filled(
        EfficientBackwardArguments,
        call,
        grad_out=gradients.grad_out,
        delta=gradients.delta,
        gradient=into,
        scale=call.scale * LOG2_OF_E,
        factor=call.scale if of in ("query", "key") else 1.0,
        key_group=max(1, call.heads // call.key_heads),
        value_group=max(1, call.heads // call.value_heads),
        columns=columns,
        blocks=blocks,
        panels=panels,
        mask_sizes=gradients.mask_sizes,
    )
    return Launch(chosen, grid, arguments)


def _rows(element: str) -> int:
    """Of a block's own side."""
    return 32 if element == "float64" else 64


def _blocks(of: str, call: Attention, gradients: Gradients) -> tuple[int, int]:
    """Heads that have a gradient of their own, and the blocks of each."""
    rows = _rows(call.element)
    if of == "mask":
        batches, heads, queries, keys = gradients.mask_sizes
        return batches * heads, -(-queries // rows) * -(-keys // _KEYS)
    batches, heads, length, _ = call.sizes[of]
    return batches * heads, -(-length // rows)


def _kernel(
    call: Attention,
    columns: int,
    read: dict[str, Matrix],
    written: dict[str, Matrix] | None = None,
    of: str = "",
) -> Kernel:
    """The variant of the kernel for a call: the forward one, or that of one gradient.

    Args:
        call: the call.
        columns: that a block has of what it writes.
        read: what lies as the result does: it or its gradient.
        written: the gradient that is written, by what it is of; a mask's is not aligned.
        of: what the gradient is of.
    """
    size, rows = 8 if call.element == "float64" else 4, _rows(call.element)
    stage = (rows + _KEYS) * (16 + 16 // size)
    weights = rows * (_KEYS + 16 // size)
    matrices = [(name, getattr(call, name)) for name in ("query", "key", "value")]
    aligned = _is_chunked(call, [*matrices, *read.items(), *(written or {}).items()])
    # Three blocks hide more than two, where they leave a thread the registers that it needs:
    # slopes, which all gradients but that of value are made of, take those of the third.
    resident = 3 if of in ("", "value") and columns == 64 and size == 4 else 2
    return Kernel(
        "attention_efficient_backward" if of else "attention_efficient",
        (
            *((("OF", OF.index(of)),) if of else ()),
            ("ELEMENT", CODES[call.element]),
            ("COLUMNS", columns),
            ("RESIDENT", resident),
            *macros(call),
            ("ALIGNED", int(aligned)),
        ),
        threads=128,
        shared_bytes=size * (2 * stage + weights),
    )


def _is_chunked(call: Attention, named: Iterable[tuple[str, Matrix]]) -> bool:
    """Whether rows are dense, whole chunks of 16 bytes that begin at such; of 32 and 64 bits.

    Args:
        call: the call; numbers of 16 bits are read one by one.
        named: matrices, each as large as the array of the call that has the name.
    """
    if call.element not in ("float32", "float64"):
        return False
    pack = 2 if call.element == "float64" else 4
    sizes = call.sizes
    return all(
        matrix.address % 16 == 0
        and sizes[name][3] % pack == 0
        and matrix.strides[3] == 1
        and all(
            stride % pack == 0
            for size, stride in zip(sizes[name][:3], matrix.strides[:3], strict=True)
            if size > 1
        )
        for name, matrix in named
        if 0 not in sizes[name]
    )
