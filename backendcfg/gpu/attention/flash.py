"""`flash`, our kernel on tensor cores: which variant of it serves a call, and how it is launched.

Pure functions over numbers: what the kernel cannot serve, the tiles and macros of a variant, the
grid and the bytes of its argument. Nothing here opens a library or touches a device. The kernel
itself is backendcfg/gpu/kernels/attention_forward.cu.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

from backendcfg.gpu.attention.call import LOG2_OF_E, NO_MATRIX, Launch
from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.gpu.attention.call import Attention

ELEMENTS = ("bfloat16", "float16")
"""What the kernel reads and writes; it sums in float32."""

OLDEST = (8, 0)
"""The first compute capability that has its instructions."""

NAME = "attention_forward"
"""The symbol of the kernel in every variant."""

_LIMIT = 2**31 - 1
_STAGES = 2


@record(frozen=True)
class Tiles:
    """How a block of threads works.

    Attributes:
        rows: queries of a block.
        keys: keys of a step.
        warps: of a block.
        resident: blocks that a processor shall hold at once.
        query_in_registers: or read again from shared memory at each step.
    """

    rows: int
    keys: int
    warps: int
    resident: int
    query_in_registers: bool = False


@record(frozen=True)
class Variant:
    """What the kernel is compiled for; one for each set of macros.

    Attributes:
        element, width, is_causal: as in `Attention`.
        tiles: how a block works.
        mask: "", "bool" or what is added.
        has_dropout: whether weights are dropped.
        is_aligned: whether all rows begin at multiples of 16 bytes.
    """

    element: str
    width: int
    tiles: Tiles
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
        """Shared memory of a block: its queries, and two steps' keys and values."""
        return 2 * self.padded * (self.tiles.rows + 2 * _STAGES * self.tiles.keys)

    @property
    def macros(self) -> dict[str, int]:
        """What the source asks for, by name."""
        mask = {"": 0, "bool": 1, self.element: 2, "float32": 3}[self.mask]
        return {
            "BFLOAT16": int(self.element == "bfloat16"),
            "WIDTH": self.width,
            "ROWS": self.tiles.rows,
            "KEYS": self.tiles.keys,
            "WARPS": self.tiles.warps,
            "RESIDENT": self.tiles.resident,
            "QUERY_IN_REGISTERS": int(self.tiles.query_in_registers),
            "CAUSAL": int(self.is_causal),
            "MASK": mask,
            "DROPOUT": int(self.has_dropout),
            "ALIGNED": int(self.is_aligned),
        }


# By the widest head that they serve, best first. More rows to a warp read shared memory less often,
# and wide heads leave no registers for them. The last of each fits the 99 KiB of sm_86 and sm_120.
_TILES: tuple[tuple[int, tuple[Tiles, ...]], ...] = (
    (64, (Tiles(128, 64, 4, 2, query_in_registers=True),)),
    (128, (Tiles(128, 64, 4, 2),)),
    (192, (Tiles(128, 64, 8, 1), Tiles(64, 32, 4, 1))),
    (256, (Tiles(128, 64, 8, 1), Tiles(128, 32, 8, 1), Tiles(64, 32, 4, 1))),
)


class FlashArguments(ctypes.Structure):
    """The argument of the kernel: `attention_arguments` of attention_forward.cu."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("query", "key", "value", "mask", "out")),
        ("logsumexp", ctypes.c_uint64),
        ("query_strides", ctypes.c_int64 * 3),
        ("key_strides", ctypes.c_int64 * 3),
        ("value_strides", ctypes.c_int64 * 3),
        ("out_strides", ctypes.c_int64 * 3),
        ("mask_strides", ctypes.c_int64 * 4),
        ("seed", ctypes.c_uint64),
        ("threshold", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("heads", "group", "queries", "keys", "blocks")),
        *((name, ctypes.c_int32) for name in ("pairs", "section", "sign")),
        ("scale", ctypes.c_float),
        ("kept", ctypes.c_float),
    ]


def refusal(call: Attention, capability: tuple[int, int]) -> str:
    """Why the kernel does not serve a call on a device of a compute capability, or ""."""
    if capability < OLDEST:
        return f"it needs sm_80 or newer, and this is sm_{capability[0]}{capability[1]}"
    if call.element not in ELEMENTS:
        return f"it computes {' and '.join(ELEMENTS)}, not {call.element}"
    if not 32 <= call.width <= 256 or call.width % 8:
        return f"heads must be 32 to 256 wide, a multiple of 8, not {call.width}"
    if call.mask is not None and call.mask_element not in {"bool", "float32", call.element}:
        return f"a mask must hold bool, float32 or {call.element}, not {call.mask_element}"
    named = {"query": call.query, "key": call.key, "value": call.value, "out": call.out}
    for name, matrix in named.items():
        if matrix.strides[3] != 1:
            return f"the numbers of a row of `{name}` must lie side by side"
    # The kernel counts positions, and the blocks of its grid, in 32 bits.
    longest = max(call.queries, call.keys) + 512
    if max(longest, call.batch * call.heads * (-(-call.queries // 64))) > _LIMIT:
        return f"lengths of {call.queries} and {call.keys} are more than it counts"
    return ""


def variant(call: Attention, shared_limit: int) -> Variant:
    """The variant for a call that is not refused.

    Args:
        call: the call.
        shared_limit: shared memory that a block may have, in bytes
            (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).
    """
    choices = next(each for widest, each in _TILES if call.width <= widest)
    candidates = [
        Variant(
            element=call.element,
            width=call.width,
            tiles=tiles,
            is_causal=call.is_causal,
            mask="" if call.mask is None else call.mask_element,
            has_dropout=call.dropout > 0,
            is_aligned=is_aligned(call),
        )
        for tiles in choices
    ]
    # The last one fits every device from sm_80 on.
    return next((each for each in candidates if each.shared_bytes <= shared_limit), candidates[-1])


def launch(call: Attention, chosen: Variant, cache_bytes: int) -> Launch | None:
    """How a call is launched; None where there is nothing to compute.

    Args:
        call: the call.
        chosen: its variant.
        cache_bytes: the second-level cache of the device
            (CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE). Blocks that are worked on side by side share keys
            that fit it; the results do not depend on it.
    """
    blocks, pairs = -(-call.queries // chosen.tiles.rows), call.batch * call.heads
    if not blocks * pairs:
        return None
    scale = ctypes.c_float(abs(call.scale) * LOG2_OF_E).value
    arguments = argument_block(call)
    arguments.blocks, arguments.pairs = blocks, pairs
    arguments.section = section(
        pairs, call.heads // call.key_heads, call.width, call.keys, cache_bytes
    )
    arguments.sign = 0 if scale == 0 else int(math.copysign(1, call.scale))
    arguments.scale = scale or 1.0
    return Launch(chosen, blocks * pairs, arguments)


def argument_block(call: Attention) -> FlashArguments:
    """The argument of a kernel of either pass, without its scale and what depends on its blocks."""
    mask = call.mask or NO_MATRIX
    return FlashArguments(
        query=call.query.address,
        key=call.key.address,
        value=call.value.address,
        mask=mask.address,
        out=call.out.address,
        logsumexp=call.logsumexp,
        query_strides=call.query.strides[:3],
        key_strides=call.key.strides[:3],
        value_strides=call.value.strides[:3],
        out_strides=call.out.strides[:3],
        mask_strides=mask.strides,
        seed=call.seed,
        threshold=int(call.dropout * 2**32),
        heads=call.heads,
        group=call.heads // call.key_heads,
        queries=call.queries,
        keys=call.keys,
        kept=call.kept,
    )


def is_aligned(call: Attention) -> bool:
    """Whether all rows begin at multiples of 16 bytes."""
    sizes = {
        "query": (call.batch, call.heads, call.queries),
        "key": (call.batch, call.key_heads, call.keys),
        "value": (call.batch, call.key_heads, call.keys),
        "out": (call.batch, call.heads, call.queries),
    }
    matrices = {"query": call.query, "key": call.key, "value": call.value, "out": call.out}
    return all(
        matrix.address % 16 == 0
        and all(
            stride % 8 == 0
            for size, stride in zip(sizes[name], matrix.strides[:3], strict=True)
            if size > 1
        )
        for name, matrix in matrices.items()
    )


def section(pairs: int, group: int, width: int, length: int, cache_bytes: int) -> int:
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
