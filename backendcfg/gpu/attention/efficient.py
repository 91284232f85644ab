"""`efficient`, our kernel without tensor cores: its variants, and how it is launched.

Pure functions over numbers, as in `flash.py`: the macros of a program, its grid and the bytes of
its argument. The source is backendcfg/gpu/kernels/attention_efficient.cu. What it shares with the
kernels of `math` and with those of the gradients of both stands here too.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from backendcfg.gpu.attention.call import LOG2_OF_E, NO_MATRIX, Launch
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.gpu.attention.call import Attention, Matrix

WIDEST = 256
"""Columns of values that `efficient` has registers for."""

CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
"""Element types as the sources number them."""


@record(frozen=True)
class Program:
    """What is compiled: one for each set of macros.

    Attributes:
        name: of the kernel, and of its source without ".cu".
        choices: what the source asks for, by name.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
    """

    name: str
    choices: tuple[tuple[str, int], ...]
    threads: int
    shared_bytes: int = 0

    @property
    def macros(self) -> dict[str, int]:
        """What the source asks for, as it is told to the compiler."""
        return dict(self.choices)


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


def efficient(call: Attention, value_width: int) -> Launch | None:
    """How `efficient` serves a call; None where there is nothing to compute.

    Args:
        call: one that is counted; its arrays may have any strides, and `logsumexp` is of
            `summed_in` its element.
        value_width: of value and out, at most `WIDEST`.
    """
    size = size_of(call.element)
    rows = 32 if call.element == "float64" else 64
    blocks, pairs = -(-call.queries // rows), call.batch * call.heads
    if not blocks * pairs * value_width:
        return None
    columns = -(-value_width // 64) * 64
    stage = (rows + 64) * (16 + 16 // size)
    weights = rows * (64 + 16 // size)
    mask = call.mask or NO_MATRIX
    program = Program(
        "attention_efficient",
        (
            ("ELEMENT", CODES[call.element]),
            ("COLUMNS", columns),
            # Three blocks hide more than two, where they leave a thread the registers it needs.
            ("RESIDENT", 3 if columns == 64 and size == 4 else 2),
            *macros(call),
            ("ALIGNED", int(_is_aligned(call, value_width))),
        ),
        threads=128,
        shared_bytes=size * (2 * stage + weights),
    )
    arguments = EfficientArguments(
        query=call.query.address,
        key=call.key.address,
        value=call.value.address,
        mask=mask.address,
        out=call.out.address,
        logsumexp=call.logsumexp,
        query_strides=call.query.strides,
        key_strides=call.key.strides,
        value_strides=call.value.strides,
        out_strides=call.out.strides,
        mask_strides=mask.strides,
        seed=call.seed,
        threshold=int(call.dropout * 2**32),
        scale=call.scale * LOG2_OF_E,
        kept=call.kept,
        heads=call.heads,
        group=call.heads // call.key_heads,
        queries=call.queries,
        keys=call.keys,
        width=call.width,
        value_width=value_width,
        blocks=blocks,
        pairs=pairs,
    )
    return Launch(program, blocks * pairs, arguments)


def macros(call: Attention) -> tuple[tuple[str, int], ...]:
    """The choices that a program makes for any call: masks and dropout."""
    mask = 0
    if call.mask is not None:
        mask = 1 if call.mask_element == "bool" else 2 + CODES[call.mask_element]
    return (("CAUSAL", int(call.is_causal)), ("MASK", mask), ("DROPOUT", int(call.dropout > 0)))


def size_of(element: str) -> int:
    """Bytes of what is computed with."""
    return 8 if element == "float64" else 4


def _is_aligned(call: Attention, value_width: int) -> bool:
    """Whether rows are dense, whole chunks of 16 bytes that begin at such; of 32 and 64 bits."""
    queries, keys = (call.batch, call.heads, call.queries), (call.batch, call.key_heads, call.keys)
    given = [
        (call.query, (*queries, call.width)),
        (call.key, (*keys, call.width)),
        (call.value, (*keys, value_width)),
        (call.out, (*queries, value_width)),
    ]
    return is_chunked(call.element, given)


def is_chunked(element: str, given: Sequence[tuple[Matrix, tuple[int, int, int, int]]]) -> bool:
    """Whether the rows of matrices are whole chunks of 16 bytes that begin at such.

    Args:
        element: theirs; those of 16 bits are read by numbers.
        given: each, and its sizes.
    """
    if element not in ("float32", "float64"):
        return False
    pack = 16 // size_of(element)
    return all(
        matrix.address % 16 == 0
        and sizes[3] % pack == 0
        and matrix.strides[3] == 1
        and all(
            stride % pack == 0
            for size, stride in zip(sizes[:3], matrix.strides[:3], strict=True)
            if size > 1
        )
        for matrix, sizes in given
    )
