"""`flash`, our kernels on tensor cores: which variant serves a call, and how it is launched.

Pure functions over numbers: the tiles and macros of a variant, the grid and the bytes of its
argument. Nothing here opens a library or touches a device. The forward pass has one kernel, in
backendcfg/gpu/kernels/attention_forward.cu. The backward pass has two, in attention_backward.cu:
the first writes the gradient of the queries, and a number for each query, delta, which the second
reads to write the gradients of keys and values.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import TYPE_CHECKING

from backendcfg.gpu.attention.call import LOG2_OF_E, Launch, filled, macros
from backendcfg.gpu.kernels.sources import Kernel
from backendcfg.records import record, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.gpu.attention.call import Attention, Gradients

OLDEST = (8, 0)
"""The first compute capability that has their instructions."""

FORWARD, BACKWARD = "attention_forward", "attention_backward"
"""The symbols of the kernels."""


@record(frozen=True)
class Tiles:
    """How a block of threads works.

    Attributes:
        rows: of its own side: queries, or in the kernel of keys and values keys.
        step: rows of the other side that it takes at a time.
        warps: of a block.
        resident: blocks that a processor shall hold at once.
        choice: a macro that is on for these tiles; "" for none.
    """

    rows: int
    step: int
    warps: int
    resident: int
    choice: str = ""


# What a kernel makes; by the widest head that they serve, its tiles, best first. More rows to a
# warp read shared memory less often, and wide heads leave no registers for them: queries are in
# registers where there is room, and where the sums of keys and values together do not fit, a block
# has those of one of them, "PARTED". The last of each fits the 99 KiB of sm_86 and sm_120.
_TILES = {
    "out": {
        64: (Tiles(128, 64, 4, 2, "QUERY_IN_REGISTERS"),),
        128: (Tiles(128, 64, 4, 2),),
        192: (Tiles(128, 64, 8, 1), Tiles(64, 32, 4, 1)),
        256: (Tiles(128, 64, 8, 1), Tiles(128, 32, 8, 1), Tiles(64, 32, 4, 1)),
    },
    "query": {
        128: (Tiles(128, 32, 4, 2),),
        192: (Tiles(128, 32, 8, 1), Tiles(64, 32, 4, 1)),
        256: (Tiles(128, 32, 8, 1), Tiles(64, 32, 4, 1), Tiles(64, 16, 4, 1)),
    },
    "key": {
        64: (Tiles(128, 32, 4, 2),),
        128: (Tiles(128, 32, 8, 1),),
        192: (Tiles(128, 32, 8, 1, "PARTED"), Tiles(64, 32, 4, 1, "PARTED")),
        256: (
            Tiles(128, 32, 8, 1, "PARTED"),
            Tiles(64, 32, 4, 1, "PARTED"),
            Tiles(64, 16, 4, 1, "PARTED"),
        ),
    },
}


class FlashArguments(ctypes.Structure):
    """The argument of the forward kernel: `attention_arguments` of attention_tiles.h."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("query", "key", "value", "mask", "out")),
        ("logsumexp", ctypes.c_uint64),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in ("query", "key", "value", "out")),
        ("mask_strides", ctypes.c_int64 * 4),
        *((name, ctypes.c_uint64) for name in ("seed", "threshold")),
        *((name, ctypes.c_int32) for name in ("heads", "group", "queries", "keys", "blocks")),
        *((name, ctypes.c_int32) for name in ("pairs", "section", "sign")),
        *((name, ctypes.c_float) for name in ("scale", "kept")),
    ]


_GRADIENTS = ("grad_out", "grad_query", "grad_key", "grad_value")


class FlashBackwardArguments(ctypes.Structure):
    """The argument of the backward kernels: `backward_arguments` of attention_backward.cu."""

    _fields_ = [
        ("call", FlashArguments),
        *((name, ctypes.c_uint64) for name in (*_GRADIENTS, "delta")),
        *((f"{name}_strides", ctypes.c_int64 * 4) for name in _GRADIENTS),
        *((name, ctypes.c_float) for name in ("factor", "unused")),
    ]


def variant(call: Attention, shared_limit: int) -> Kernel:
    """The variant of the forward kernel for a call.

    Args:
        call: one that the rules let `flash` serve.
        shared_limit: shared memory that a block may have, in bytes
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).
    """
    options = (call.element, call.width, macros(call), is_aligned(call))
    return _variant("out", *options, shared_limit)


def variants(call: Attention, gradients: Gradients, shared_limit: int) -> tuple[Kernel, Kernel]:
    """Those of the two backward kernels, in the order of their launches; see `variant`."""
    # The gradients stand in the place of the arrays that they are of.
    lies = replace(call, out=gradients.grad_out, **gradients.into)  # type: ignore[arg-type]
    options = (call.element, call.width, macros(call), is_aligned(call) and is_aligned(lies))
    return _variant("query", *options, shared_limit), _variant("key", *options, shared_limit)


@lru_cache(maxsize=256)
def _variant(  # noqa: PLR0917 - what is cached
    of: str,
    element: str,
    width: int,
    options: tuple[tuple[str, int], ...],
    aligned: bool,
    shared_limit: int,
) -> Kernel:
    """The variant of the kernel that makes something; `options` are those of `macros`."""
    choices = next(each for widest, each in _TILES[of].items() if width <= widest)
    padded = -(-width // 16) * 16  # products are 16 deep
    for tiles in choices:
        # A tile of its own rows, in the backward pass two of them, and two for each of two steps.
        own = tiles.rows * (1 if of == "out" else 2)
        shared = 2 * padded * (own + 4 * tiles.step)
        if shared <= shared_limit:
            break
    told = ("QUERY_IN_REGISTERS",) if of == "out" else ("PARTED",)
    return Kernel(
        FORWARD if of == "out" else BACKWARD,
        (
            *((name, int(name == tiles.choice)) for name in told),
            *(() if of == "out" else (("OF_KEYS", int(of == "key")),)),
            ("BFLOAT16", int(element == "bfloat16")),
            ("WIDTH", width),
            ("ROWS", tiles.rows),
            ("STEP", tiles.step),
            ("WARPS", tiles.warps),
            ("RESIDENT", tiles.resident),
            *options,
            ("ALIGNED", int(aligned)),
        ),
        threads=32 * tiles.warps,
        shared_bytes=shared,
    )


def launch(call: Attention, chosen: Kernel, cache_bytes: int) -> Launch | None:
    """How a call is launched; None where there is nothing to compute.

    Args:
        call: the call.
        chosen: its variant.
        cache_bytes: the second-level cache of the device
            (CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE). Blocks that are worked on side by side share keys
            that fit it; the results do not depend on it.
    """
    blocks, pairs = -(-call.queries // chosen.macros["ROWS"]), call.batch * call.heads
    if not blocks * pairs:
        return None
    scale = ctypes.c_float(abs(call.scale) * LOG2_OF_E).value
    arguments = filled(
        FlashArguments,
        call,
        blocks=blocks,
        pairs=pairs,
        section=_section(pairs, call.heads // call.key_heads, call.width, call.keys, cache_bytes),
        sign=0 if scale == 0 else int(math.copysign(1, call.scale)),
        scale=scale or 1.0,
    )
    return Launch(chosen, blocks * pairs, arguments)


def launch_backward(
    call: Attention, gradients: Gradients, chosen: Kernel, cache_bytes: int
) -> Launch | None:
    """How one of the backward kernels is launched; None where there is nothing to write.

    Args:
        call: the call; its `out` and `logsumexp` are what the forward pass gave.
        gradients: what comes in and out besides.
        chosen: which kernel.
        cache_bytes: as of `launch`.
    """
    told = chosen.macros
    if told["OF_KEYS"] and not call.heads:  # heads of keys that no query shares
        call = replace(call, heads=call.key_heads, queries=0)
    length, heads = (call.keys, call.key_heads) if told["OF_KEYS"] else (call.queries, call.heads)
    blocks = -(-length // told["ROWS"]) * (1 + told["PARTED"])
    pairs = call.batch * heads
    if not blocks * pairs:
        return None
    shared = call.heads // call.key_heads
    # What a head walks over, all heads of queries that share its keys, or its keys.
    group, walked = (1, call.queries * shared) if told["OF_KEYS"] else (shared, call.keys)
    block = filled(
        FlashArguments,
        call,
        blocks=blocks,
        pairs=pairs,
        section=_section(pairs, group, call.width, walked, cache_bytes),
        sign=1,
        scale=call.scale * LOG2_OF_E,
    )
    arguments = filled(
        FlashBackwardArguments,
        call,
        call=block,
        grad_out=gradients.grad_out,
        # Where the second kernel is not launched, nothing is written to the last two.
        **{f"grad_{name}": gradients.into.get(name, getattr(call, name)) for name in _WRITTEN},
        delta=gradients.delta,
        factor=call.scale,
    )
    return Launch(chosen, blocks * pairs, arguments)


_WRITTEN = ("query", "key", "value")


def launches_backward(
    call: Attention, gradients: Gradients, memories: tuple[int, int]
) -> Iterator[Launch]:
    """The launches that write the gradients of `gradients.into`, in their order.

    Args:
        call: as of `launch_backward`.
        gradients: as of `launch_backward`.
        memories: shared memory of a block, and the second-level cache, in bytes.
    """
    for chosen in variants(call, gradients, memories[0]):
        if chosen.macros["OF_KEYS"] and "key" not in gradients.into:
            continue
        start = launch_backward(call, gradients, chosen, memories[1])
        if start is not None:
            yield start


def is_aligned(call: Attention) -> bool:
    """Whether all rows begin at multiples of 16 bytes."""
    sizes = call.sizes
    return all(
        matrix.address % 16 == 0
        and all(
            stride % 8 == 0
            for size, stride in zip(sizes[name][:3], matrix.strides[:3], strict=True)
            if size > 1
        )
        for name in ("query", "key", "value", "out")
        for matrix in [getattr(call, name)]
    )


def _section(pairs: int, group: int, width: int, length: int, cache_bytes: int) -> int:
    """Heads whose blocks are worked on side by side: what they walk over fills half of the cache.

    Args:
        pairs: all heads.
        group: of them, those that walk over the same.
        width: of a head.
        length: rows of each of the two arrays that a head walks over.
        cache_bytes: the second-level cache.
    """
    each = 4 * width * max(length, 1)
    return max(1, min(pairs, cache_bytes // 2 // each * group))
