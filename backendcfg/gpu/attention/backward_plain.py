"""The gradients of `efficient` and `math` on CUDA devices, put on the stream of query.

One set of kernels goes back for both: each gradient that is wanted is one, the mask's too. See
backendcfg/gpu/attention/plain_backward_programs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.gpu.attention import forward as device_attention
from backendcfg.gpu.attention.launch import put
from backendcfg.gpu.attention.plain_backward_programs import (
    NEEDS_DELTA,
    OF,
    Passed,
    delta,
    gradient,
)

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.flash_variants import Attention
    from backendcfg.gpu.attention.forward import Options, Plan
    from backendcfg.gpu.attention.plain_programs import Start

    Taken = tuple[DeviceView, DeviceView, DeviceView, DeviceView | None]


def _made(wanted: tuple[bool, ...]) -> tuple[str, ...]:
    """What is made for the gradients that are wanted of query, key, value and mask, in order."""
    names = tuple(name for name, needed in zip(OF, wanted, strict=True) if needed)
    return ("delta", *names) if set(names) & set(NEEDS_DELTA) else names


def launch(
    given: Arguments,
    held: Taken,
    options: Options,
    plan: Plan,
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
    call = device_attention.described(held, shapes, options, (out, total))
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
    passed = Passed(
        device_attention.matrix(grad_out, lead, (call.queries, shapes.value_width)),
        memory["delta"].address if "delta" in memory else 0,
        shapes.value_width,
        held[2].shape[-3] if options.enable_gqa else call.heads,
        (padded[0], padded[1], padded[2], padded[3]),
    )
    touched = (*held, grad_out, out, total, *memory.values())
    for name, one in memory.items():
        start = _start(name, one, call, passed)
        if start is not None:
            put(given, touched, plan, start.program, start)
    del kept_total
    return arrays


def _start(name: str, made: DeviceView, call: Attention, passed: Passed) -> Start | None:
    """How what is made is computed; None where it is empty."""
    if name == "delta":
        return delta(call, passed)
    heads, *lengths = {
        "query": (call.heads, call.queries, call.width),
        "key": (call.key_heads, call.keys, call.width),
        "value": (passed.value_heads, call.keys, passed.value_width),
        "mask": (call.heads, call.queries, call.keys),
    }[name]
    into = device_attention.matrix(made, (call.batch, heads), (lengths[0], lengths[1]))
    return gradient(name, call, passed, into)
