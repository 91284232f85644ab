"""The gradients of `flash`: two kernels, their variants, and their launches.

Both are in backendcfg/gpu/kernels/attention_backward.cu: the first writes the gradient of the
queries, and a number for each query, delta, which the second reads to write those of keys and
values.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from backendcfg.gpu.attention.call import LOG2_OF_E, Launch, described, matrix
from backendcfg.gpu.attention.flash import FlashArguments, argument_block, is_aligned, section
from backendcfg.gpu.attention.plan import put
from backendcfg.records import record, replace

if TYPE_CHECKING:
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.call import Attention, Four, Matrix, Options
    from backendcfg.gpu.attention.plan import AttentionPlan

NAME = "attention_backward"
"""The symbol of both kernels in every variant."""

_STAGES = 2


@record(frozen=True)
class Gradients:
    """What the backward pass needs besides the call.

    Attributes:
        grad_out: of the result, in its shape and dtype.
        grad_query, grad_key, grad_value: what is written, each in its array's shape and dtype.
        delta: address of (batch, heads, queries) dense float32 numbers, written and read.
    """

    grad_out: Matrix
    grad_query: Matrix
    grad_key: Matrix
    grad_value: Matrix
    delta: int


@record(frozen=True)
class BackwardTiles:
    """How a block of threads works.

    Attributes:
        rows: of a block.
        step: rows of the other side that it takes at a time.
        warps: of a block.
        resident: blocks that a processor shall hold at once.
        parted: a block has the gradient of its keys or of its values, not both.
    """

    rows: int
    step: int
    warps: int
    resident: int
    parted: bool = False


@record(frozen=True)
class BackwardVariant:
    """What a kernel is compiled for; one for each set of macros.

    Attributes:
        of_keys: the gradients of keys and values; else that of the queries.
        element, width, is_causal, mask, has_dropout, is_aligned: as in the forward pass.
        tiles: how a block works.
    """

    of_keys: bool
    element: str
    width: int
    tiles: BackwardTiles
    is_causal: bool = False
    mask: str = ""
    has_dropout: bool = False
    is_aligned: bool = True

    @property
    def name(self) -> str:
        """The symbol, and the source's name."""
        return NAME

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.tiles.warps

    @property
    def padded(self) -> int:
        """The width in shared memory: products are 16 deep."""
        return -(-self.width // 16) * 16

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: two tiles of its rows, and two of each of two steps."""
        return 4 * self.padded * (self.tiles.rows + _STAGES * self.tiles.step)

    @property
    def macros(self) -> dict[str, int]:
        """What the source asks for, by name."""
        return {
            "OF_KEYS": int(self.of_keys),
            "BFLOAT16": int(self.element == "bfloat16"),
            "WIDTH": self.width,
            "ROWS": self.tiles.rows,
            "STEP": self.tiles.step,
            "WARPS": self.tiles.warps,
            "RESIDENT": self.tiles.resident,
            "PARTED": int(self.tiles.parted),
            "CAUSAL": int(self.is_causal),
            "MASK": {"": 0, "bool": 1, self.element: 2, "float32": 3}[self.mask],
            "DROPOUT": int(self.has_dropout),
            "ALIGNED": int(self.is_aligned),
        }


class FlashBackwardArguments(ctypes.Structure):
    """The argument of both kernels: `backward_arguments` of attention_backward.cu."""

    _fields_ = [
        ("call", FlashArguments),
        *((name, ctypes.c_uint64) for name in ("grad_out", "grad_query", "grad_key")),
        ("grad_value", ctypes.c_uint64),
        ("delta", ctypes.c_uint64),
        ("grad_out_strides", ctypes.c_int64 * 3),
        ("grad_query_strides", ctypes.c_int64 * 3),
        ("grad_key_strides", ctypes.c_int64 * 3),
        ("grad_value_strides", ctypes.c_int64 * 3),
        ("factor", ctypes.c_float),
    ]


# By the widest head that they serve, best first. Sums are in registers: of keys and values together
# they are twice those of queries. The last of each fits the 99 KiB of sm_86 and sm_120.
_OF_QUERIES: tuple[tuple[int, tuple[BackwardTiles, ...]], ...] = (
    (64, (BackwardTiles(128, 32, 4, 2),)),
    (128, (BackwardTiles(128, 32, 4, 2),)),
    (192, (BackwardTiles(128, 32, 8, 1), BackwardTiles(64, 32, 4, 1))),
    (256, (BackwardTiles(128, 32, 8, 1), BackwardTiles(64, 32, 4, 1), BackwardTiles(64, 16, 4, 1))),
)
_OF_KEYS: tuple[tuple[int, tuple[BackwardTiles, ...]], ...] = (
    (64, (BackwardTiles(128, 32, 4, 2),)),
    (128, (BackwardTiles(128, 32, 8, 1),)),
    (192, (BackwardTiles(128, 32, 8, 1, parted=True), BackwardTiles(64, 32, 4, 1, parted=True))),
    (
        256,
        (
            BackwardTiles(128, 32, 8, 1, parted=True),
            BackwardTiles(64, 32, 4, 1, parted=True),
            BackwardTiles(64, 16, 4, 1, parted=True),
        ),
    ),
)


def variants(
    call: Attention, gradients: Gradients, shared_limit: int
) -> tuple[BackwardVariant, BackwardVariant]:
    """The kernels of a call that the forward pass does not refuse, in the order of their launches.

    Args:
        call: the call.
        gradients: what comes in and out besides.
        shared_limit: shared memory that a block may have, in bytes
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).
    """
    aligned = is_aligned(call) and is_aligned(_as_forward(call, gradients))
    return (
        _variant(call, _OF_QUERIES, shared_limit, of_keys=False, aligned=aligned),
        _variant(call, _OF_KEYS, shared_limit, of_keys=True, aligned=aligned),
    )


def _as_forward(call: Attention, gradients: Gradients) -> Attention:
    """The gradients in the place of the arrays that they are of."""
    return replace(
        call,
        query=gradients.grad_query,
        key=gradients.grad_key,
        value=gradients.grad_value,
        out=gradients.grad_out,
    )


def _variant(
    call: Attention,
    tiles: tuple[tuple[int, tuple[BackwardTiles, ...]], ...],
    shared_limit: int,
    *,
    of_keys: bool,
    aligned: bool,
) -> BackwardVariant:
    candidates = [
        BackwardVariant(
            of_keys=of_keys,
            element=call.element,
            width=call.width,
            tiles=each,
            is_causal=call.is_causal,
            mask="" if call.mask is None else call.mask_element,
            has_dropout=call.dropout > 0,
            is_aligned=aligned,
        )
        for each in next(choices for widest, choices in tiles if call.width <= widest)
    ]
    # The last one fits every device from sm_80 on.
    return next((each for each in candidates if each.shared_bytes <= shared_limit), candidates[-1])


def launch(
    call: Attention, gradients: Gradients, chosen: BackwardVariant, cache_bytes: int
) -> Launch | None:
    """How one of the two kernels is launched; None where there is nothing to write.

    Args:
        call: the call; its `out` and `logsumexp` are what the forward pass gave.
        gradients: what comes in and out besides.
        chosen: which kernel.
        cache_bytes: the second-level cache of the device
            (CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE). The results do not depend on it.
    """
    if chosen.of_keys and not call.heads:  # heads of keys that no query shares
        call = replace(call, heads=call.key_heads, queries=0)
    length, heads = call.queries, call.heads
    if chosen.of_keys:
        length, heads = call.keys, call.key_heads
    blocks = -(-length // chosen.tiles.rows) * (1 + chosen.tiles.parted)
    pairs = call.batch * heads
    if not blocks * pairs:
        return None
    shared = call.heads // call.key_heads
    # What a head walks over, all heads of queries that share its keys, or its keys.
    group, walked = (1, call.queries * shared) if chosen.of_keys else (shared, call.keys)
    block = argument_block(call)
    block.blocks, block.pairs = blocks, pairs
    block.section = section(pairs, group, call.width, walked, cache_bytes)
    block.sign = 1
    block.scale = call.scale * LOG2_OF_E
    arguments = FlashBackwardArguments(
        call=block,
        grad_out=gradients.grad_out.address,
        grad_query=gradients.grad_query.address,
        grad_key=gradients.grad_key.address,
        grad_value=gradients.grad_value.address,
        delta=gradients.delta,
        grad_out_strides=gradients.grad_out.strides[:3],
        grad_query_strides=gradients.grad_query.strides[:3],
        grad_key_strides=gradients.grad_key.strides[:3],
        grad_value_strides=gradients.grad_value.strides[:3],
        factor=call.scale,
    )
    return Launch(chosen, blocks * pairs, arguments)


def run(
    given: Arguments,
    held: Four,
    options: Options,
    plan: AttentionPlan,
    wanted: tuple[bool, ...],
) -> dict[str, Any]:
    """Put both kernels on the stream of query; see `efficient_backward.run`."""
    shapes = plan.shapes
    # What is made here must live until both kernels are on the stream: memory that was given back
    # before would be given out again for what is made next.
    rows = [_rows(given, name) for name in ("grad_out", "out")]
    (_, grad_out), (_, out) = rows
    kept_total, total = given.dense("logsumexp", given.given["logsumexp"])
    arrays: dict[str, Any] = {}
    memory: dict[str, DeviceView] = {}
    like = {"delta": total, "query": held[0], "key": held[1], "value": held[2]}
    for name in ("delta", *(("query", "key", "value") if wanted[1] or wanted[2] else ("query",))):
        arrays[name], memory[name] = given.make(like[name].shape, like[name].element)
    call = described(held, shapes, options, (out, total))
    lead, keyed = (call.batch, call.heads), (call.batch, call.key_heads)
    of_query, of_key = (call.queries, call.width), (call.keys, call.width)
    gradients = Gradients(
        matrix(grad_out, lead, of_query),
        matrix(memory["query"], lead, of_query),
        matrix(memory.get("key", held[1]), keyed, of_key),
        matrix(memory.get("value", held[2]), keyed, of_key),
        memory["delta"].address,
    )
    touched = (*held, grad_out, out, total, *memory.values())
    for chosen in variants(call, gradients, plan.memories[0]):
        start = launch(call, gradients, chosen, plan.memories[1])
        if start is not None and ("key" in memory or not chosen.of_keys):
            put(given, touched, plan, start)
    del rows, kept_total
    return arrays


def _rows(given: Arguments, name: str) -> tuple[Any, DeviceView]:
    """An argument of which the numbers of a row lie side by side: itself, or a dense copy."""
    held = given.take(name)
    if held.strides[-1] == 1 or 0 in held.shape:
        return given.given[name], held
    return given.dense(name, given.given[name])
