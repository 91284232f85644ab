"""One call of attention on a CUDA device, as our own kernels take it: four-dimensional arrays.

given = Arguments(OPERATION, {"query": query, ...})
held = taken(given)                                  # the arrays, as C describes them
call = described(held, shapes, options, results)     # addresses, sizes and strides in numbers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg.records import record

if TYPE_CHECKING:
    import ctypes

    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.kernels.sources import Kernel

    Four = tuple[DeviceView, DeviceView, DeviceView, DeviceView | None]
    """Query, key, value, and the mask or None."""

NAMES = ("query", "key", "value", "attn_mask")

LOG2_OF_E = 1.4426950408889634
"""The kernels take powers of 2, so that a scale is multiplied by this first."""


class Options(NamedTuple):
    """The options of a call, checked."""

    dropout: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool
    seed: int


def options_of(dropout_p: Any, is_causal: Any, scale: Any, enable_gqa: Any, seed: Any) -> Options:
    """The options as plain numbers of Python's, of those that were passed and checked."""
    factor = None if scale is None else float(scale)
    return Options(float(dropout_p), bool(is_causal), factor, bool(enable_gqa), int(seed or 0))


@record(frozen=True)
class Matrix:
    """An array on a device.

    Attributes:
        address: of its first number, in the device's memory.
        strides: in numbers, for (batch, head, row, column); 0 where it is broadcast.
    """

    address: int
    strides: tuple[int, int, int, int]


NO_MATRIX = Matrix(0, (0, 0, 0, 0))
"""What a kernel is passed in place of a mask that is not there."""


@record(frozen=True)
class Attention:
    """One call, all of its arrays four-dimensional: (batch, heads, length, width).

    Attributes:
        element: what query, key, value and out hold.
        batch, heads, key_heads, queries, keys, width: sizes; heads are a multiple of key_heads.
        query, key, value, out: the arrays.
        mask: (batch, heads, queries, keys), or None.
        mask_element: "bool", true where a key is seen, or what is added: "float32" or `element`.
        logsumexp: address of (batch, heads, queries) dense float32 numbers; 0 where not wanted.
        is_causal: query i sees keys 0 to i.
        scale: what scores are multiplied by.
        dropout: the probability that a weight is dropped, from 0 to 1.
        seed: of the dropout, 64 bits.
    """

    element: str
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    query: Matrix
    key: Matrix
    value: Matrix
    out: Matrix
    scale: float
    mask: Matrix | None = None
    mask_element: str = "bool"
    logsumexp: int = 0
    is_causal: bool = False
    dropout: float = 0.0
    seed: int = 0

    @property
    def kept(self) -> float:
        """What weights that are not dropped are multiplied by."""
        return 1 / (1 - self.dropout) if self.dropout < 1 else 0.0


@record(frozen=True)
class Launch:
    """What a driver needs to start a kernel.

    Attributes:
        kernel: which.
        grid: blocks, along the first dimension.
        arguments: the kernel's one argument.
    """

    kernel: Kernel
    grid: int
    arguments: ctypes.Structure

    @property
    def threads(self) -> int:
        """Of a block, along the first dimension."""
        return self.kernel.threads

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.kernel.shared_bytes


def summed_in(element: str) -> str:
    """The element type of sums and of `logsumexp`."""
    return "float64" if element == "float64" else "float32"


def taken(given: Arguments) -> Four:
    """The arrays of a call, as C describes them."""
    query, key, value = (given.take(name) for name in NAMES[:3])
    return query, key, value, None if given.given["attn_mask"] is None else given.take("attn_mask")


def matrix(held: DeviceView, lead: tuple[int, ...], lengths: tuple[int, int]) -> Matrix:
    """An array as a kernel takes it: what is broadcast has strides of 0."""
    wanted = (*lead, *lengths)
    shape, strides = held.shape, held.strides
    missing = len(wanted) - len(shape)
    found = [0] * missing + [
        0 if have == 1 and want != 1 else stride
        for have, want, stride in zip(shape, wanted[missing:], strides, strict=True)
    ]
    return Matrix(held.address, (found[0], found[1], found[2], found[3]))


def described(
    held: Four, shapes: Shapes, options: Options, results: tuple[DeviceView, DeviceView | None]
) -> Attention:
    """A call as our kernels take it.

    Args:
        held: query, key, value and the mask or None.
        shapes: the sizes of the call.
        options: the others.
        results: memory of the result, and of the logarithms or None.
    """
    query, key, value, mask = held
    lead = (1,) * (2 - len(shapes.lead)) + shapes.lead
    # Heads that share a key keep their own number; others are broadcast like all else.
    key_heads = key.shape[-3] if options.enable_gqa else lead[1]
    value_heads = value.shape[-3] if options.enable_gqa else lead[1]
    keyed, valued = (lead[0], key_heads), (lead[0], value_heads)
    out, total = results
    return Attention(
        element=query.element,
        batch=lead[0],
        heads=lead[1],
        key_heads=key_heads,
        queries=shapes.queries,
        keys=shapes.keys,
        width=shapes.width,
        query=matrix(query, lead, (shapes.queries, shapes.width)),
        key=matrix(key, keyed, (shapes.keys, shapes.width)),
        value=matrix(value, valued, (shapes.keys, shapes.value_width)),
        out=matrix(out, lead, (shapes.queries, shapes.value_width)),
        scale=shapes.width**-0.5 if options.scale is None else float(options.scale),
        mask=None if mask is None else matrix(mask, lead, (shapes.queries, shapes.keys)),
        mask_element="bool" if mask is None else mask.element,
        logsumexp=0 if total is None else total.address,
        is_causal=options.is_causal,
        dropout=options.dropout,
        seed=options.seed,
    )
