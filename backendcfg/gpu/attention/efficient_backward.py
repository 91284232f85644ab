"""The gradients of `efficient` and of `math`: their kernels, and their launches.

Each gradient that is wanted is a kernel of its own, the mask's too, all from
backendcfg/gpu/kernels/attention_efficient_backward.cu; those of query, key and mask read a number
for each query, delta, which attention_delta.cu writes.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING, Any

from backendcfg.gpu.attention.call import LOG2_OF_E, NO_MATRIX, Launch, described, matrix
from backendcfg.gpu.attention.efficient import CODES, Program, is_chunked, macros, size_of
from backendcfg.gpu.attention.plan import put
from backendcfg.records import record, replace

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Attention, Four, Matrix, Options
    from backendcfg.gpu.attention.plan import AttentionPlan

OF = ("query", "key", "value", "mask")
"""What has a gradient, as the source numbers them."""

NEEDS_DELTA = ("query", "key", "mask")

_KEYS = 64  # rows of the other side in a step
_WIDEST = 128  # columns of a gradient that a block has registers for


class EfficientBackwardArguments(ctypes.Structure):
    """`backward_arguments` of attention_walk.h."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("query", "key", "value", "mask", "grad_out")),
        *((name, ctypes.c_uint64) for name in ("logsumexp", "delta", "gradient")),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("query", "key", "value", "mask")),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("grad_out", "gradient")),
        *((name, ctypes.c_uint64) for name in ("seed", "threshold")),
        *((name, ctypes.c_double) for name in ("scale", "factor", "kept")),
        *((name, ctypes.c_int32) for name in ("batches", "heads", "key_group", "value_group")),
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
        *((name, ctypes.c_int32) for name in ("heads", "queries", "width", "unused")),
    ]


@record(frozen=True)
class BackwardInputs:
    """What the backward pass needs besides the call, whose `out` and `logsumexp` it reads.

    Attributes:
        grad_out: of the result, in its shape and dtype.
        delta: address of (batch, heads, queries) dense numbers of `summed_in` the element.
        value_width: of value and the result.
        value_heads: of value.
        mask_sizes: (batch, heads, queries, keys) of the mask; 1 where it is broadcast.
    """

    grad_out: Matrix
    delta: int
    value_width: int
    value_heads: int
    mask_sizes: tuple[int, int, int, int] = (1, 1, 1, 1)


def delta(call: Attention, passed: BackwardInputs) -> Launch | None:
    """How the rows of the result are multiplied by those of its gradient; None where there is none.

    Args:
        call: one whose forward pass was run.
        passed: what comes in besides; `delta` is written.
    """
    rows = call.batch * call.heads * call.queries
    if not rows:
        return None
    program = Program("attention_delta", (("ELEMENT", CODES[call.element]),), threads=256)
    arguments = DeltaArguments(
        out=call.out.address,
        grad_out=passed.grad_out.address,
        delta=passed.delta,
        out_strides=call.out.strides,
        grad_out_strides=passed.grad_out.strides,
        rows=rows,
        heads=call.heads,
        queries=call.queries,
        width=passed.value_width,
    )
    return Launch(program, -(-rows // 8), arguments)


def gradient(of: str, call: Attention, passed: BackwardInputs, into: Matrix) -> Launch | None:
    """How one gradient is computed; None where it is empty.

    Args:
        of: one of `OF`.
        call: one whose forward pass was run; key and value may have different heads.
        passed: what comes in besides; `delta` is read, but for the gradient of value.
        into: what is written, in the shape and dtype of what it is the gradient of. For a mask its
            strides are 0 where it is broadcast.
    """
    if of in ("key", "value") and not call.heads:  # heads that no query shares
        call = replace(call, heads=call.key_heads * passed.value_heads, queries=0)
    columns = passed.value_width if of == "value" else call.width
    wide = 64 if of == "mask" or columns <= 64 else _WIDEST
    panels = 1 if of == "mask" else -(-columns // wide)
    owners, blocks = _blocks(of, call, passed)
    grid = owners * blocks * panels
    if not grid:
        return None
    program = _program(of, call, passed, into, wide)
    mask = call.mask or NO_MATRIX
    arguments = EfficientBackwardArguments(
        query=call.query.address,
        key=call.key.address,
        value=call.value.address,
        mask=mask.address,
        grad_out=passed.grad_out.address,
        logsumexp=call.logsumexp,
        delta=passed.delta,
        gradient=into.address,
        query_strides=call.query.strides,
        key_strides=call.key.strides,
        value_strides=call.value.strides,
        mask_strides=mask.strides,
        grad_out_strides=passed.grad_out.strides,
        gradient_strides=into.strides,
        seed=call.seed,
        threshold=int(call.dropout * 2**32),
        scale=call.scale * LOG2_OF_E,
        factor=call.scale if of in ("query", "key") else 1.0,
        kept=call.kept,
        batches=call.batch,
        heads=call.heads,
        key_group=max(1, call.heads // call.key_heads),
        value_group=max(1, call.heads // passed.value_heads),
        queries=call.queries,
        keys=call.keys,
        width=call.width,
        value_width=passed.value_width,
        columns=columns,
        blocks=blocks,
        panels=panels,
        mask_sizes=passed.mask_sizes,
    )
    return Launch(program, grid, arguments)


def _rows(element: str) -> int:
    """Of a block's own side."""
    return 32 if element == "float64" else 64


def _blocks(of: str, call: Attention, passed: BackwardInputs) -> tuple[int, int]:
    """Heads that have a gradient of their own, and the blocks of each."""
    rows = _rows(call.element)
    if of == "mask":
        batches, heads, queries, keys = passed.mask_sizes
        return batches * heads, -(-queries // rows) * -(-keys // _KEYS)
    if of == "query":
        return call.batch * call.heads, -(-call.queries // rows)
    heads = call.key_heads if of == "key" else passed.value_heads
    return call.batch * heads, -(-call.keys // rows)


def _program(
    of: str, call: Attention, passed: BackwardInputs, into: Matrix, columns: int
) -> Program:
    size, rows = size_of(call.element), _rows(call.element)
    stage = (rows + _KEYS) * (16 + 16 // size)
    weights = rows * (_KEYS + 16 // size)
    return Program(
        "attention_efficient_backward",
        (
            ("OF", OF.index(of)),
            ("ELEMENT", CODES[call.element]),
            ("COLUMNS", columns),
            # As in the forward pass; slopes take the registers of a third block.
            ("RESIDENT", 3 if of == "value" and columns == 64 and size == 4 else 2),
            *macros(call),
            ("ALIGNED", int(_is_aligned(of, call, passed, into))),
        ),
        threads=128,
        shared_bytes=size * (2 * stage + weights),
    )


def _is_aligned(of: str, call: Attention, passed: BackwardInputs, into: Matrix) -> bool:
    """Whether rows are dense, whole chunks of 16 bytes that begin at such; of 32 and 64 bits."""
    queries, keys = (call.batch, call.heads, call.queries), (call.batch, call.key_heads, call.keys)
    values = (call.batch, passed.value_heads, call.keys)
    width, value_width = call.width, passed.value_width
    named = {
        "query": (call.query, (*queries, width)),
        "key": (call.key, (*keys, width)),
        "value": (call.value, (*values, value_width)),
        "grad_out": (passed.grad_out, (*queries, value_width)),
    }
    given = [*named.values()]
    if of != "mask":
        given.append((into, named[of][1]))
    return is_chunked(call.element, [each for each in given if prod(each[1])])


def _made(wanted: tuple[bool, ...]) -> tuple[str, ...]:
    """What is made for the gradients that are wanted of query, key, value and mask, in order."""
    names = tuple(name for name, needed in zip(OF, wanted, strict=True) if needed)
    return ("delta", *names) if set(names) & set(NEEDS_DELTA) else names


def run(
    given: Arguments,
    held: Four,
    options: Options,
    plan: AttentionPlan,
    wanted: tuple[bool, ...],
) -> dict[str, Any]:
    """Put the kernels of the gradients that are wanted on the stream.

    Args:
        given: the arguments, for messages and memory; with the results of the forward pass.
        held: query, key, value and the mask.
        options: the others.
        plan: of the call.
        wanted: which gradients, of query, key, value and mask.

    Returns:
        The gradients that are wanted, by name; and what was needed beside them.

    Raises:
        DeviceFailedError: the device failed.
        MemoryError: the device is full.
    """
    shapes = plan.shapes
    grad_out, out = given.take("grad_out"), given.take("out")
    # What is made here must live until all kernels are on the stream.
    kept_total, total = given.dense("logsumexp", given.given["logsumexp"])
    call = described(held, shapes, options, (out, total))
    named: dict[str, DeviceView | None] = {"delta": total, **dict(zip(OF, held, strict=True))}
    arrays: dict[str, Any] = {}
    memory: dict[str, DeviceView] = {}
    for name in _made(wanted):
        like = named[name]
        if like is not None:  # what is not there needs no gradient
            arrays[name], memory[name] = given.make(like.shape, like.element)
    lead = call.batch, call.heads
    sizes = held[3].shape if held[3] is not None else ()
    padded = (1,) * (4 - len(sizes)) + sizes
    passed = BackwardInputs(
        matrix(grad_out, lead, (call.queries, shapes.value_width)),
        memory["delta"].address if "delta" in memory else 0,
        shapes.value_width,
        held[2].shape[-3] if options.enable_gqa else call.heads,
        (padded[0], padded[1], padded[2], padded[3]),
    )
    touched = (*held, grad_out, out, total, *memory.values())
    for name, one in memory.items():
        start = _start(name, one, call, passed)
        if start is not None:
            put(given, touched, plan, start)
    del kept_total
    return arrays


def _start(name: str, made: DeviceView, call: Attention, passed: BackwardInputs) -> Launch | None:
    """How what is made is computed; None where it is empty."""
    if name == "delta":
        return delta(call, passed)
    heads, *lengths = {
        "query": (call.heads, call.queries, call.width),
        "key": (call.key_heads, call.keys, call.width),
        "value": (passed.value_heads, call.keys, passed.value_width),
        "mask": (call.heads, call.queries, call.keys),
    }[name]
    into = matrix(made, (call.batch, heads), (lengths[0], lengths[1]))
    return gradient(name, call, passed, into)
