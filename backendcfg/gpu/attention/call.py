"""One call of attention on a CUDA device, as our own kernels take it: four-dimensional arrays.

given = Arguments(OPERATION, {"query": query, ...})
held = taken(given)                                  # the arrays, as C describes them
call = described(held, shapes, options, results)     # addresses, sizes and strides in numbers
start = flash.launch(call, ...)                      # the kernel, its grid and its argument
put(given, held, plan, start)                        # on the stream of query
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from backendcfg import _native
from backendcfg.gpu.kernels import loading
from backendcfg.records import record

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Shapes
    from backendcfg.gpu.arrays import Arguments, DeviceView
    from backendcfg.gpu.attention.cudnn import GradientPlans, Prepared
    from backendcfg.gpu.kernels.sources import Kernel

    Four = tuple[DeviceView, DeviceView, DeviceView, DeviceView | None]
    """Query, key, value, and the mask or None."""

Block = TypeVar("Block", bound=ctypes.Structure)

NAMES = ("query", "key", "value", "attn_mask")

CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
"""Element types as the sources number them."""

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
        batch, heads, key_heads, value_heads: sizes; heads are a multiple of the heads of key, and
            of those of value.
        queries, keys, width, value_width: sizes; value and out are value_width wide.
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
    value_heads: int
    queries: int
    keys: int
    width: int
    value_width: int
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

    @property
    def sizes(self) -> dict[str, tuple[int, int, int, int]]:
        """The four sizes of each array."""
        pairs = (self.batch, self.heads)
        return {
            "query": (*pairs, self.queries, self.width),
            "key": (self.batch, self.key_heads, self.keys, self.width),
            "value": (self.batch, self.value_heads, self.keys, self.value_width),
            "mask": (*pairs, self.queries, self.keys),
            "out": (*pairs, self.queries, self.value_width),
        }


@record(frozen=True)
class Gradients:
    """What the backward pass has besides the call, whose `out` and `logsumexp` it reads.

    Attributes:
        grad_out: the gradient of the result, in its shape and dtype.
        delta: address of (batch, heads, queries) dense numbers of `summed_in` the element, which
            one kernel writes and others read.
        into: the gradients that are written: of "query", "key", "value", "mask".
        mask_sizes: (batch, heads, queries, keys) of the mask; 1 where it is broadcast.
    """

    grad_out: Matrix
    delta: int
    into: dict[str, Matrix]
    mask_sizes: tuple[int, ...] = (1, 1, 1, 1)


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


class AttentionPlan(NamedTuple):
    """What all calls of one kind have in common.

    Attributes:
        shapes: their sizes.
        kernel: which one serves: "flash", "efficient", "math" or "cudnn".
        because: why that one.
        driver: of the device.
        capability: of the device.
        memories: shared memory of a block and the second-level cache, in bytes.
        kernels: those that were loaded, by variant; how memory is aligned decides between them.
        rounds: whether `math` may round scores and weights of 16 bits to 16 bits.
        is_checked: whether a result that is not finite is refused.
        by_cudnn: what cuDNN runs; None where it does not serve.
        gradients: what cuDNN runs for the gradients; None where nothing needs one.
    """

    shapes: Shapes
    kernel: str
    because: str
    driver: loading.Driver
    capability: tuple[int, int]
    memories: tuple[int, int]
    kernels: dict[Kernel, Any]
    rounds: bool
    is_checked: bool
    by_cudnn: Prepared | None = None
    gradients: GradientPlans | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape of the scores and the width, as `explain` and `trace` tell them."""
        return (*self.shapes.scores, self.shapes.width)


def summed_in(element: str) -> str:
    """The element type of sums and of `logsumexp`."""
    return "float64" if element == "float64" else "float32"


def taken(given: Arguments) -> Four:
    """The arrays of a call, as C describes them."""
    query, key, value = (given.take(name) for name in NAMES[:3])
    return query, key, value, None if given.given["attn_mask"] is None else given.take("attn_mask")


def matrix(held: DeviceView, wanted: tuple[int, ...]) -> Matrix:
    """An array as a kernel takes it, with four sizes: what is broadcast has strides of 0."""
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
    out, total = results
    return Attention(
        element=query.element,
        batch=lead[0],
        heads=lead[1],
        key_heads=key_heads,
        value_heads=value_heads,
        queries=shapes.queries,
        keys=shapes.keys,
        width=shapes.width,
        value_width=shapes.value_width,
        query=matrix(query, (*lead, shapes.queries, shapes.width)),
        key=matrix(key, (lead[0], key_heads, shapes.keys, shapes.width)),
        value=matrix(value, (lead[0], value_heads, shapes.keys, shapes.value_width)),
        out=matrix(out, (*lead, shapes.queries, shapes.value_width)),
        scale=shapes.width**-0.5 if options.scale is None else float(options.scale),
        mask=None if mask is None else matrix(mask, (*lead, shapes.queries, shapes.keys)),
        mask_element="bool" if mask is None else mask.element,
        logsumexp=0 if total is None else total.address,
        is_causal=options.is_causal,
        dropout=options.dropout,
        seed=options.seed,
    )


def macros(call: Attention) -> tuple[tuple[str, int], ...]:
    """What every kernel of attention is compiled for, as its source asks for it."""
    mask = 0
    if call.mask is not None:
        mask = 1 if call.mask_element == "bool" else 2 + CODES[call.mask_element]
    return (("CAUSAL", int(call.is_causal)), ("MASK", mask), ("DROPOUT", int(call.dropout > 0)))


def filled(block: type[Block], call: Attention, /, **more: Any) -> Block:
    """The argument of a kernel, each field by its name: of what is given besides, or of the call.

    A matrix fills the field of its name with its address, and `NAME_strides` with its strides.
    """
    known: dict[str, Any] = {
        **vars(call),
        "mask": call.mask or NO_MATRIX,
        "group": call.heads // call.key_heads if call.key_heads else 1,
        "threshold": int(call.dropout * 2**32),
        "kept": call.kept,
        "unused": 0,
        **more,
    }
    for name, each in [*known.items()]:
        if isinstance(each, Matrix):
            known[name], known[f"{name}_strides"] = each.address, each.strides
    return block(**{name: known[name] for name, _ in block._fields_})  # type: ignore[misc]


def put(
    given: Arguments, held: tuple[DeviceView | None, ...], plan: AttentionPlan, start: Launch | None
) -> None:
    """Put a kernel, if there is one, on the stream of the first array, in order with the others'.

    It is loaded when it is first needed, and compiled where no compiled one is on disk.

    Raises:
        DeviceFailedError: the driver failed.
    """
    if start is None:
        return
    kernel = plan.kernels.get(start.kernel)
    if kernel is None:
        ordinal = given.first.ordinal
        kernel = loading.attention(plan.driver, ordinal, plan.capability, start.kernel)
        if isinstance(kernel, tuple):
            given.failed(plan.kernel, kernel)
        plan.kernels[start.kernel] = kernel
    _, _, _, stream, others, settles = given.work(0, plan.driver.handle, *held)
    fault = _native.device_launch(
        *(kernel, stream, others, settles, start.grid, start.kernel.threads, start.arguments)
    )
    if fault is not None:
        given.failed(plan.kernel, fault)
