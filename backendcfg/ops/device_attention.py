"""Attention of arrays on CUDA devices, by our own kernel, on their stream and without copies.

What a call is, and that it fits, is said here; C loads the kernel and puts it on the stream. All
that follows from shapes, strides and flags is remembered, so that a call of a known kind makes its
results and launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from backendcfg import _native
from backendcfg._native import current
from backendcfg.dispatch import attention_facts, attention_shapes, device_driver, device_kernels
from backendcfg.dispatch.attention_facts import Call, Tensor
from backendcfg.dispatch.device_attention import (
    Attention,
    Matrix,
    Variant,
    launch,
    refusal,
    variant,
)
from backendcfg.dispatch.device_gemm import KINDS
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.ops import attention_choice, device_products, serving
from backendcfg.ops.attention_call import KEPT, OPERATION, flags_in_force

if TYPE_CHECKING:
    from collections.abc import Hashable

    from backendcfg.dispatch.attention_shapes import Shapes

NAMES = ("query", "key", "value", "attn_mask")
_NOTHING = "nothing was computed"
_MOVE = ["move it to where the others are"]
_ITEM = {"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
_HELPS = [
    "meet what `flash` needs, as its notes say, or compute on the CPU: all kernels are there",
    'ask `ops.explain(..., device="cuda:0")` what stands against each',
]


class Held(NamedTuple):
    """An array on a device, as C describes it; strides in bytes.

    Attributes:
        holder: what keeps the memory besides the array itself.
    """

    address: int
    kind: int
    ordinal: int
    element: str
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    stream: int
    settles: bool
    holder: object

    @property
    def strides(self) -> tuple[int, ...]:
        """In numbers."""
        size = _ITEM.get(self.element, 1)
        return tuple(step // size for step in self.steps)


class Options(NamedTuple):
    """The options of a call, checked."""

    dropout: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool
    seed: int


class Plan(NamedTuple):
    """What is known of all calls of one kind.

    Attributes:
        shapes: their sizes.
        because: why `flash` serves.
        driver: of the device.
        capability: of the device.
        memories: shared memory of a block and the second-level cache, in bytes.
        kernels: by variant; they differ by how memory is aligned.
        is_checked: whether a result that is not finite is refused.
    """

    shapes: Shapes
    because: str
    driver: device_kernels.Driver
    capability: tuple[int, int]
    memories: tuple[int, int]
    kernels: dict[Variant, Any]
    is_checked: bool


_plans: dict[Hashable, Plan] = {}


def attend(arrays: tuple[Any, Any, Any, Any], options: Options, *, logsumexp: bool) -> Any:
    """The operation for arrays of which query is on a device; see `scaled_dot_product_attention`.

    Args:
        arrays: query, key, value and the mask or None.
        options: the others.
        logsumexp: give (result, logsumexp) back.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    held = _taken(arrays)
    trains = tuple(_needs_gradient(each) for each in arrays)
    kind = (
        *((each.element, each.shape, each.steps) if each is not None else None for each in held),
        *(held[0].kind, held[0].ordinal, trains),
        *(options.dropout > 0, options.is_causal, options.enable_gqa, current()),
    )
    plan = _plans.get(kind)
    if plan is None:
        plan = _plan(arrays, held, trains, options)
        if len(_plans) >= KEPT:
            _plans.clear()
        _plans[kind] = plan
    shapes = plan.shapes
    element = held[0].element
    out = _make(arrays, held[0], shapes.out, element)
    total = _make(arrays, held[0], shapes.out[:-1], "float32") if logsumexp else None
    _launch(arrays, held, plan, options, (out, total))
    if plan.is_checked:
        device_products.finite(OPERATION, out)
    sizes = (*shapes.scores, shapes.width)
    serving.served(OPERATION, "flash", plan.because, sizes, element)
    return (out, total) if logsumexp else out


def forget() -> None:
    """Forget what is known of calls; the next one of each kind is looked at anew."""
    _plans.clear()


def _taken(arrays: tuple[Any, Any, Any, Any]) -> tuple[Held, Held, Held, Held | None]:
    query, key, value, mask = arrays
    first = _held(arrays, "query", query, None)
    return (
        first,
        _held(arrays, "key", key, first),
        _held(arrays, "value", value, first),
        None if mask is None else _held(arrays, "attn_mask", mask, first),
    )


def _held(arrays: tuple[Any, ...], name: str, value: Any, first: Held | None) -> Held:
    """An argument, which must be where the first one is."""
    try:
        described = _native.device_array(value)
    except MemoryError:
        raise
    except Exception as error:  # a foreign library's, of whatever type
        _refuse(arrays, f"`{name}` cannot be read: {error}")
    where = "a device" if first is None else _place(first)
    if described is None:
        _refuse(arrays, f"`{name}` must be an array on {where}, as `query` is", helps=_MOVE)
    held = Held(*described)
    if first is not None and (held.kind, held.ordinal) != (first.kind, first.ordinal):
        what = f"`{name}` must be on {where}, as `query` is, not on {_place(held)}"
        _refuse(arrays, what, helps=_MOVE)
    if held.element in _ITEM and any(step % _ITEM[held.element] for step in held.steps):
        _refuse(arrays, f"`{name}` must have strides that are multiples of its numbers' size")
    return held


def _needs_gradient(value: Any) -> bool:
    return getattr(value, "requires_grad", False) is True and attention_facts.grad_enabled(value)


def _plan(
    arrays: tuple[Any, ...],
    held: tuple[Held, Held, Held, Held | None],
    trains: tuple[bool, ...],
    options: Options,
) -> Plan:
    """Check a call and choose its kernel, for all calls of its kind."""
    query, key, value = (
        _fact(each, array, needs)
        for each, array, needs in zip(held[:3], arrays[:3], trains[:3], strict=True)
    )
    mask = None if held[3] is None else _fact(held[3], arrays[3], trains[3])
    call = Call(query, key, value, mask, options.dropout, options.is_causal, options.enable_gqa)
    if mask is not None and options.is_causal:
        _refuse(
            arrays,
            "`attn_mask` must not be given with `is_causal`",
            helps=["put the triangle into the mask"],
        )
    if wrong := attention_shapes.problem(call):
        _refuse(arrays, wrong)
    values = flags_in_force()
    device, driver = device_kernels.device(held[0].kind, held[0].ordinal)
    choice = attention_choice.choose(call, values, device)
    if not choice.kernel:
        _refuse(
            arrays,
            f"no kernel can serve it on {_place(held[0])}",
            [f"{name}: {why}" for name, each in choice.reasons.items() for why in each],
            _HELPS,
        )
    return Plan(
        attention_shapes.sizes(call),
        f"on a device; {choice.because}",
        driver,
        device.sm,
        device_driver.memories(driver.path, held[0].ordinal),
        {},
        bool(values["ops.check_finite"]),
    )


def _fact(held: Held, value: Any, needs: bool) -> Tensor:
    element = held.element or str(getattr(value, "dtype", "")).rpartition(".")[2]
    return Tensor(held.shape, held.strides, element, "cuda", held.ordinal, needs)


def _make(arrays: tuple[Any, ...], held: Held, shape: tuple[int, ...], element: str) -> Any:
    """Memory for a result, by the library that owns query."""
    made = _native.device_make(arrays[0], shape, element)
    if made is not None:
        return made
    try:
        return device_products.make(arrays[0], shape, element, held.kind, held.ordinal)
    except InvalidArgumentError:
        what = "`query` must be of a library that makes its results: PyTorch or CuPy"
        _refuse(arrays, what, helps=["pass it as one of theirs: `torch.from_dlpack(query)`"])


def _matrix(held: Held, lead: tuple[int, ...], lengths: tuple[int, int]) -> Matrix:
    """An array as the kernel takes it: what is broadcast has steps of 0."""
    wanted = (*lead, *lengths)
    shape, steps = held.shape, held.strides
    missing = len(wanted) - len(shape)
    found = [0] * missing + [
        0 if have == 1 and want != 1 else step
        for have, want, step in zip(shape, wanted[missing:], steps, strict=True)
    ]
    return Matrix(held.address, (found[0], found[1], found[2], found[3]))


def _call(
    held: tuple[Held, Held, Held, Held | None],
    shapes: Shapes,
    options: Options,
    results: tuple[Held, Held | None],
) -> Attention:
    query, key, value, mask = held
    lead = (1,) * (2 - len(shapes.lead)) + shapes.lead
    # Heads that share a key keep their own number; others are broadcast like all else.
    key_heads = key.shape[-3] if options.enable_gqa else lead[1]
    keyed = (lead[0], key_heads)
    out, total = results
    return Attention(
        element=query.element,
        batch=lead[0],
        heads=lead[1],
        key_heads=key_heads,
        queries=shapes.queries,
        keys=shapes.keys,
        width=shapes.width,
        query=_matrix(query, lead, (shapes.queries, shapes.width)),
        key=_matrix(key, keyed, (shapes.keys, shapes.width)),
        value=_matrix(value, keyed, (shapes.keys, shapes.width)),
        out=_matrix(out, lead, (shapes.queries, shapes.width)),
        scale=shapes.width**-0.5 if options.scale is None else float(options.scale),
        mask=None if mask is None else _matrix(mask, lead, (shapes.queries, shapes.keys)),
        mask_element="bool" if mask is None else mask.element,
        logsumexp=0 if total is None else total.address,
        is_causal=options.is_causal,
        dropout=options.dropout,
        seed=options.seed,
    )


def _launch(
    arrays: tuple[Any, ...],
    held: tuple[Held, Held, Held, Held | None],
    plan: Plan,
    options: Options,
    results: tuple[Any, Any],
) -> None:
    """Put the kernel on the stream of query."""
    query = held[0]
    out = _held(arrays, "the result", results[0], query)
    total = None if results[1] is None else _held(arrays, "the result", results[1], query)
    call = _call(held, plan.shapes, options, (out, total))
    chosen = variant(call, plan.memories[0])
    start = launch(call, chosen, plan.memories[1])
    if start is None:
        return
    kernel = plan.kernels.get(chosen)
    if kernel is None:
        if why := refusal(call, plan.capability):
            _refuse(arrays, f"no kernel can serve it on {_place(query)}", [f"flash: {why}"])
        kernel = device_kernels.attention(plan.driver, query.ordinal, plan.capability, chosen)
        if isinstance(kernel, tuple):
            _failed(arrays, kernel)
        plan.kernels[chosen] = kernel
    everything = [each for each in (*held, out, total) if each is not None]
    others = tuple({each.stream for each in everything} - {query.stream})
    fault = _native.device_launch(
        kernel,
        query.stream,
        others,
        any(each.settles for each in everything),
        start.grid,
        start.threads,
        start.arguments,
    )
    if fault is not None:
        _failed(arrays, fault)


def _failed(arrays: tuple[Any, ...], fault: tuple[str, int, str]) -> NoReturn:
    """Raise what the driver answered; it stays usable."""
    function, status, name = fault
    if not function:
        device_products.forked(OPERATION)
    raise DeviceFailedError(
        f"{OPERATION}: the device's driver failed: "
        f"{function} returned {name or 'status'} ({status})",
        notes=_described(arrays),
        state="the result was not computed; the next call starts anew",
        # No library of products has to do with it.
        helps=[one for one in device_products.advice(function, name) if "_blas_" not in one],
    )


def _described(arrays: tuple[Any, ...]) -> list[str]:
    return [
        f"{name}: {device_products.describe(value)}"
        for name, value in zip(NAMES, arrays, strict=True)
        if value is not None
    ]


def _refuse(
    arrays: tuple[Any, ...],
    what: str,
    notes: list[str] | None = None,
    helps: list[str] | None = None,
) -> NoReturn:
    raise InvalidArgumentError(
        f"{OPERATION}: {what}",
        notes=[*_described(arrays), *(notes or [])],
        state=_NOTHING,
        helps=helps or [],
    ) from None


def _place(held: Held) -> str:
    return f"{KINDS[held.kind]}:{held.ordinal}"
