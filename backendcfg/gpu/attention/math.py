"""Attention of arrays on CUDA devices as plain products: `math`.

Two products of the library that the profile chooses, over `matmul` and under its flags, with
kernels around them; all scores are held at once. Sixteen-bit numbers are computed in float32;
where `cuda.allow_fp16_bf16_reduction_math_sdp` allows it, both products are in sixteen bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu.attention import plain_programs as programs
from backendcfg.gpu.attention.flash_variants import Matrix
from backendcfg.gpu.attention.launch import put

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.flash_variants import Attention
    from backendcfg.gpu.attention.forward import Plan

    Taken = tuple[DeviceView, DeviceView, DeviceView, DeviceView | None]

_HALVES = ("bfloat16", "float16")


def launch(
    given: Arguments,
    held: Taken,
    plan: Plan,
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
    work = programs.multiplied_in(element, rounds=plan.rounds)
    # In sixteen bits a score is scaled before it is rounded, half by each factor, as in PyTorch:
    # it could be too large for float16.
    root = math.sqrt(abs(call.scale)) if work in _HALVES else 1.0
    group = call.heads // call.key_heads if plan.is_grouped else 1
    value_group = call.heads // held[2].shape[-3] if plan.is_grouped else 1
    side, other = call.key.strides[2:]
    turned = Matrix(call.key.address, (*call.key.strides[:2], other, side))

    def dense(index: int, matrix: Matrix, sizes: tuple[int, int], group: int, factor: float) -> Any:
        made, at = given.make((*shapes.lead, *sizes), work)
        whole = (call.batch, call.heads, *sizes)
        start = programs.gather(
            matrix, at.address, whole, (element, work), group=group, factor=factor
        )
        # The stream is that of query, which the memory of this library is in order on.
        _put(given, plan, start, at, held[index])
        return made

    first = math.copysign(root, call.scale) if work in _HALVES else 1.0
    query = dense(0, call.query, (shapes.queries, shapes.width), 1, first)
    key = dense(1, turned, (shapes.width, shapes.keys), group, root)
    value = dense(2, call.value, (shapes.keys, shapes.value_width), value_group, 1.0)
    weights, weights_held = given.make(shapes.scores, work)
    _multiply(given, query, key, weights)
    scale = 1.0 if work in _HALVES else call.scale
    start = programs.softmax(call, weights_held.address, work, scale=scale)
    _put(given, plan, start, weights_held, held[3], total)
    if work == element:
        _multiply(given, weights, value, result)
        return
    wide, wide_held = given.make(shapes.out, work)
    _multiply(given, weights, value, wide)
    lengths = (call.batch, call.heads, shapes.queries, shapes.value_width)
    rows = lengths[2] * lengths[3]
    source = Matrix(wide_held.address, (call.heads * rows, rows, lengths[3], 1))
    start = programs.gather(source, out.address, lengths, (work, element))
    _put(given, plan, start, wide_held, out)


def _put(
    given: Arguments, plan: Plan, start: programs.Start | None, *held: DeviceView | None
) -> None:
    """Put a program on the stream of query; None is nothing to do."""
    if start is not None:
        put(given, held, plan, start.program, start)


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
