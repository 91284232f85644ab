"""Attention of arrays on CUDA devices, by our kernels or cuDNN, on their stream, without copies.

A call is checked and its kernel chosen here; C loads the kernel and puts it on the stream. What
follows from shapes, strides and flags is cached as a plan, so that the next call of the same kind
makes its results and launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg._native import current
from backendcfg.dispatch import attention_shapes
from backendcfg.dispatch.attention_facts import Call, Tensor
from backendcfg.flags import FlagsInForce
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import Arguments, DeviceView
from backendcfg.gpu.attention import cudnn as device_cudnn_attention
from backendcfg.gpu.attention import cudnn_backward
from backendcfg.gpu.attention import math as device_math
from backendcfg.gpu.attention.flash_variants import (
    Attention,
    Matrix,
    Variant,
    launch,
    refusal,
    variant,
)
from backendcfg.gpu.attention.launch import put
from backendcfg.gpu.attention.plain_programs import efficient, summed_in
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.libraries import driver as device_driver
from backendcfg.ops import serving
from backendcfg.ops.attention import choice as attention_choice
from backendcfg.ops.attention.calls import OPERATION
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Hashable

    from backendcfg.dispatch.attention_shapes import Shapes
    from backendcfg.gpu.attention import flash_backward_variants
    from backendcfg.gpu.attention.cudnn import Prepared
    from backendcfg.gpu.attention.plain_programs import Program

NAMES = ("query", "key", "value", "attn_mask")
_HELPS = [
    "meet what one of them needs, as its notes say, or compute on the CPU",
    'ask `ops.explain(..., device="cuda:0")` what stands against each',
]


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
        kernel: who serves: "flash", "efficient", "math" or "cudnn".
        because: why that one.
        driver: of the device.
        capability: of the device.
        memories: shared memory of a block and the second-level cache, in bytes.
        kernels: by variant; they differ by how memory is aligned.
        is_grouped: whether several heads of query share one of key and value.
        rounds: whether `math` may round scores and weights of 16 bits to 16 bits.
        is_checked: whether a result that is not finite is refused.
        by_cudnn: what cuDNN runs; None where it does not serve.
    """

    shapes: Shapes
    kernel: str
    because: str
    driver: loading.Driver
    capability: tuple[int, int]
    memories: tuple[int, int]
    kernels: dict[Variant | flash_backward_variants.Variant | Program, Any]
    is_grouped: bool
    rounds: bool
    is_checked: bool
    by_cudnn: Prepared | None = None


KEPT = 1024
_plans: dict[Hashable, Plan] = {}


def attend(arrays: tuple[Any, Any, Any, Any], options: Options, *, logsumexp: bool) -> Any:
    """The operation for arrays of which query is on a device, and none needs a gradient.

    Args:
        arrays: query, key, value and the mask or None.
        options: the others.
        logsumexp: give (result, logsumexp) back.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
        DeviceFailedError: the device failed.
    """
    given = Arguments(OPERATION, dict(zip(NAMES, arrays, strict=True)))
    held = taken(given)
    plan = known(given, held, (False,) * 4, options, logsumexp=logsumexp)
    return computed(given, held, plan, options, logsumexp=logsumexp)


def known(
    given: Arguments,
    held: tuple[DeviceView, DeviceView, DeviceView, DeviceView | None],
    trains: tuple[bool, ...],
    options: Options,
    *,
    logsumexp: bool = True,
) -> Plan:
    """What is known of calls of a kind, found or made.

    Args:
        given: the arrays of a call.
        held: the same, as C describes them.
        trains: which of them need a gradient.
        options: the others.
        logsumexp: whether the logarithms are wanted too.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
    """
    in_force = current()
    kind = (
        *(
            (each.element, each.shape, each.byte_strides) if each is not None else None
            for each in held
        ),
        *(held[0].kind, held[0].ordinal, trains),
        *(options.dropout > 0, options.is_causal, options.enable_gqa, in_force),
        *(logsumexp, options.scale is None or options.scale > 0),
        device_cudnn_attention.is_aligned(held),
    )
    plan = _plans.get(kind)
    if plan is None:
        plan = _plan(given, held, trains, options, logsumexp=logsumexp)
        if current() is not in_force:  # another thread has put a profile in force: which chose it?
            return plan
        if len(_plans) >= KEPT:
            _plans.clear()
        _plans[kind] = plan
    return plan


def computed(
    given: Arguments,
    held: tuple[DeviceView, DeviceView, DeviceView, DeviceView | None],
    plan: Plan,
    options: Options,
    *,
    logsumexp: bool,
) -> Any:
    """Make the results of a call that is checked, and launch; gradients are not recorded.

    Args:
        given: the arrays.
        held: the same, as C describes them.
        plan: of the call.
        options: the others.
        logsumexp: give (result, logsumexp) back.
    """
    shapes = plan.shapes
    element = held[0].element
    out, out_held = given.make(shapes.out, element)
    total, total_held = None, None
    if logsumexp:
        total, total_held = given.make(shapes.out[:-1], summed_in(element))
    results = (out_held, total_held)
    call = described(held, shapes, options, results)
    if plan.by_cudnn is not None:
        device_cudnn_attention.run(given, held, plan.by_cudnn, call.scale, results)
    elif plan.kernel == "math":
        device_math.launch(given, held, plan, call, (out, *results))
    else:
        _launch(given, held, plan, call, results)
    if plan.is_checked:
        own_library.check_finite(OPERATION, out)
    sizes = (*shapes.scores, shapes.width)
    serving.served(OPERATION, plan.kernel, plan.because, sizes, element)
    return (out, total) if logsumexp else out


def forget() -> None:
    """Drop the cached plans; the next call of each kind is checked anew."""
    _plans.clear()


def taken(given: Arguments) -> tuple[DeviceView, DeviceView, DeviceView, DeviceView | None]:
    """The arrays of a call, as C describes them."""
    query, key, value = (given.take(name) for name in NAMES[:3])
    return query, key, value, None if given.given["attn_mask"] is None else given.take("attn_mask")


def _plan(
    given: Arguments,
    held: tuple[DeviceView, DeviceView, DeviceView, DeviceView | None],
    trains: tuple[bool, ...],
    options: Options,
    *,
    logsumexp: bool,
) -> Plan:
    """Check a call and choose its kernel, for all calls of its kind."""
    arrays = tuple(given.given.values())
    query, key, value = (
        _fact(each, array, needs)
        for each, array, needs in zip(held[:3], arrays[:3], trains[:3], strict=True)
    )
    mask = None if held[3] is None else _fact(held[3], arrays[3], trains[3])
    call = Call(
        *(query, key, value, mask, options.dropout, options.is_causal, options.enable_gqa),
        scale=options.scale,
        is_aligned=device_cudnn_attention.is_aligned(held),
    )
    if mask is not None and options.is_causal:
        given.refuse(
            "`attn_mask` must not be given with `is_causal`",
            helps=["put the triangle into the mask"],
        )
    if wrong := attention_shapes.problem(call):
        given.refuse(wrong)
    values = FlagsInForce().values
    device, driver = loading.device(held[0].kind, held[0].ordinal)
    choice = attention_choice.choose(call, values, device)
    sizes, prepared = attention_shapes.sizes(call), None
    if choice.kernel == "cudnn":
        problem = device_cudnn_attention.problem_of(
            held, sizes, is_causal=options.is_causal, with_logsumexp=logsumexp
        )
        found = device_cudnn_attention.prepare(given, held, problem, driver, values)
        if any(trains) and not isinstance(found, str):
            found = cudnn_backward.prepare(
                *(found, given, held, problem), driver=driver, values=values
            )
        if isinstance(found, str):  # only cuDNN knows, and only when it is asked
            choice = attention_choice.choose(call, values, replace(device, no_cudnn=found))
        else:
            prepared = found
    if not choice.kernel:
        given.refuse(
            f"no kernel can serve it on {held[0].place}",
            [f"{name}: {why}" for name, each in choice.reasons.items() for why in each],
            _HELPS,
        )
    return Plan(
        sizes,
        choice.kernel,
        f"on a device; {choice.because}",
        driver,
        device.sm,
        device_driver.memories(driver.path, held[0].ordinal),
        {},
        options.enable_gqa,
        bool(values["cuda.allow_fp16_bf16_reduction_math_sdp"]),
        bool(values["ops.check_finite"]),
        prepared,
    )


def _fact(held: DeviceView, value: Any, needs: bool) -> Tensor:
    element = held.element or str(getattr(value, "dtype", "")).rpartition(".")[2]
    return Tensor(held.shape, held.strides, element, "cuda", held.ordinal, needs)


def matrix(held: DeviceView, lead: tuple[int, ...], lengths: tuple[int, int]) -> Matrix:
    """An array as the kernel takes it: what is broadcast has steps of 0."""
    wanted = (*lead, *lengths)
    shape, steps = held.shape, held.strides
    missing = len(wanted) - len(shape)
    found = [0] * missing + [
        0 if have == 1 and want != 1 else step
        for have, want, step in zip(shape, wanted[missing:], steps, strict=True)
    ]
    return Matrix(held.address, (found[0], found[1], found[2], found[3]))


def described(
    held: tuple[DeviceView, DeviceView, DeviceView, DeviceView | None],
    shapes: Shapes,
    options: Options,
    results: tuple[DeviceView, DeviceView | None],
) -> Attention:
    """A call as the kernels take it, with where its results are."""
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


def _launch(
    given: Arguments,
    held: tuple[DeviceView, DeviceView, DeviceView, DeviceView | None],
    plan: Plan,
    call: Attention,
    results: tuple[DeviceView, DeviceView | None],
) -> None:
    """Put the kernel on the stream of query, where there is something to compute."""
    query = held[0]
    if plan.kernel == "efficient":
        begun = efficient(call, plan.shapes.value_width)
        if begun is not None:
            put(given, (*held, *results), plan, begun.program, begun)
        return
    chosen = variant(call, plan.memories[0])
    start = launch(call, chosen, plan.memories[1])
    if start is None:
        return
    if chosen not in plan.kernels and (why := refusal(call, plan.capability)):
        given.refuse(f"no kernel can serve it on {query.place}", [f"flash: {why}"])
    put(given, (*held, *results), plan, chosen, start)
