"""`math`, attention on CUDA devices as plain products, with all scores in memory at once.

Two products of the library that the profile chooses, by `matmul` and under its flags, with two
kernels of ours around them: attention_gather.cu makes an array dense, and attention_softmax.cu
turns scores into weights. Numbers of 16 bits are computed in float32; where
`cuda.allow_fp16_bf16_reduction_math_sdp` allows it, both products are in 16 bits.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.attention.call import CODES, LOG2_OF_E, Launch, Matrix, filled, macros, put
from backendcfg.gpu.kernels.sources import Kernel

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Attention, AttentionPlan, Four

_HALVES = ("bfloat16", "float16")


class GatherArguments(ctypes.Structure):
    """`gather_arguments` of attention_gather.cu."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("source", "target")),
        ("strides", ctypes.c_int64 * 4),
        ("count", ctypes.c_int64),
        ("factor", ctypes.c_double),
        *((name, ctypes.c_int32) for name in ("heads", "group", "rows", "columns")),
    ]


class SoftmaxArguments(ctypes.Structure):
    """`softmax_arguments` of attention_softmax.cu."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("scores", "mask", "logsumexp")),
        ("mask_strides", ctypes.c_int64 * 4),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("seed", "threshold")),
        *((name, ctypes.c_double) for name in ("scale", "kept")),
        *((name, ctypes.c_int32) for name in ("heads", "queries", "keys", "unused")),
    ]


def multiplied_in(element: str, *, rounds: bool) -> str:
    """The element type of the products of `math`, and of its scores.

    Args:
        element: of the arrays.
        rounds: whether scores and weights may be rounded to 16 bits.
    """
    return element if rounds or element == "float64" else "float32"


def gather(
    matrix: Matrix,
    to: int,
    sizes: tuple[int, int, int, int],
    elements: tuple[str, str],
    *,
    group: int = 1,
    factor: float = 1.0,
) -> Launch | None:
    """How an array is made dense; None where it is empty.

    Args:
        matrix: the array; to transpose it, exchange its strides.
        to: address of what is made.
        sizes: of that: batch, heads, rows, columns.
        elements: of both.
        group: heads that share one of the array.
        factor: what its numbers are multiplied by.
    """
    batch, heads, rows, columns = sizes
    count = batch * heads * rows * columns
    if not count:
        return None
    chosen = Kernel(
        "attention_gather",
        (("ELEMENT", CODES[elements[0]]), ("TO", CODES[elements[1]])),
        threads=256,
    )
    arguments = GatherArguments(
        source=matrix.address,
        target=to,
        strides=matrix.strides,
        count=count,
        factor=factor,
        heads=heads,
        group=group,
        rows=rows,
        columns=columns,
    )
    return Launch(chosen, -(-count // 1024), arguments)


def softmax(call: Attention, scores: int, element: str, *, scale: float) -> Launch | None:
    """How scores become weights in place; None where there are none.

    Args:
        call: whose mask, dropout and `logsumexp` hold.
        scores: address of (batch, heads, queries, keys), dense.
        element: of the scores.
        scale: what they are multiplied by first.
    """
    rows = call.batch * call.heads * call.queries
    if not rows:
        return None
    chosen = Kernel("attention_softmax", (("ELEMENT", CODES[element]), *macros(call)), threads=256)
    arguments = filled(SoftmaxArguments, call, scores=scores, rows=rows, scale=scale * LOG2_OF_E)
    return Launch(chosen, -(-rows // 8), arguments)


def run(
    given: Arguments,
    held: Four,
    plan: AttentionPlan,
    call: Attention,
    results: tuple[Any, DeviceView, DeviceView | None],
) -> None:
    """Put `math` on the stream of query.

    Args:
        given: the arguments, for messages and memory.
        held: query, key, value and the mask.
        plan: of calls of this kind.
        call: this one; value may have other heads than key.
        results: the result, and it and the logarithms as they are held.

    Raises:
        DeviceFailedError: the device failed.
        InvalidArgumentError: a product is not finite where it must be.
        MemoryError: the scores do not fit the device.
    """
    shapes, element = plan.shapes, call.element
    result, out, total = results
    work = multiplied_in(element, rounds=plan.rounds)
    # In sixteen bits a score is scaled before it is rounded, half by each factor, as in PyTorch:
    # it could be too large for float16.
    root = math.sqrt(abs(call.scale)) if work in _HALVES else 1.0
    group, value_group = (call.heads // max(1, each) for each in (call.key_heads, call.value_heads))
    side, other = call.key.strides[2:]
    turned = Matrix(call.key.address, (*call.key.strides[:2], other, side))

    def dense(index: int, matrix: Matrix, sizes: tuple[int, int], group: int, factor: float) -> Any:
        made, at = given.make((*shapes.lead, *sizes), work)
        whole = (call.batch, call.heads, *sizes)
        start = gather(matrix, at.address, whole, (element, work), group=group, factor=factor)
        # The stream is that of query, which the memory of this library is in order on.
        put(given, (at, held[index]), plan, start)
        return made

    first = math.copysign(root, call.scale) if work in _HALVES else 1.0
    query = dense(0, call.query, (shapes.queries, shapes.width), 1, first)
    key = dense(1, turned, (shapes.width, shapes.keys), group, root)
    value = dense(2, call.value, (shapes.keys, shapes.value_width), value_group, 1.0)
    weights, weights_held = given.make(shapes.scores, work)
    _multiply(given, query, key, weights)
    scale = 1.0 if work in _HALVES else call.scale
    start = softmax(call, weights_held.address, work, scale=scale)
    put(given, (weights_held, held[3], total), plan, start)
    if work == element:
        _multiply(given, weights, value, result)
        return
    wide, wide_held = given.make(shapes.out, work)
    _multiply(given, weights, value, wide)
    lengths = (call.batch, call.heads, shapes.queries, shapes.value_width)
    rows = lengths[2] * lengths[3]
    source = Matrix(wide_held.address, (call.heads * rows, rows, lengths[3], 1))
    start = gather(source, out.address, lengths, (work, element))
    put(given, (wide_held, out), plan, start)


def _multiply(given: Arguments, a: Any, b: Any, out: Any) -> None:
    """A product of matrices, by the library that the flags choose; errors are attention's."""
    try:
        _native.matmul(a, b, out=out)
    except (DeviceFailedError, InvalidArgumentError) as error:  # the latter: it is not finite
        what = error.message.removeprefix("matmul: ")
        raise type(error)(
            f"{given.operation}: `math`: {what}",
            notes=[*given.described(), *error.notes],
            state=error.state,
            helps=list(error.helps),
        ) from None
