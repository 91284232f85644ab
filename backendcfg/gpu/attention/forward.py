"""Attention of arrays on CUDA devices, by our kernels or cuDNN, on their stream, without copies.

A call is checked and its kernel chosen here; C loads the kernel and puts it on the stream. What
follows from shapes, strides and flags is cached as a plan, so that the next call of the same kind
makes its results and launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.cache import ProfileCache
from backendcfg.dispatch import attention_facts
from backendcfg.dispatch.attention_facts import Call
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.gpu import own_library
from backendcfg.gpu.arrays import Arguments
from backendcfg.gpu.attention import cudnn, flash, math, rules
from backendcfg.gpu.attention.call import NAMES, AttentionPlan, described, put, summed_in, taken
from backendcfg.gpu.attention.efficient import efficient
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.libraries import opening as device_driver
from backendcfg.ops import serving
from backendcfg.ops.attention.calls import OPERATION
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from backendcfg.gpu.attention.call import Four, Options

_HELPS = [
    "meet what one of them needs, as its notes say, or compute on the CPU",
    'ask `ops.explain(..., device="cuda:0")` what stands against each',
]

_KEPT = 1024
_plans: ProfileCache[Hashable, AttentionPlan] = ProfileCache(_KEPT)


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
    plan = plan_of(given, held, (False,) * 4, options, logsumexp=logsumexp)
    return computed(given, held, plan, options, logsumexp=logsumexp)


def plan_of(
    given: Arguments,
    held: Four,
    trains: tuple[bool, ...],
    options: Options,
    *,
    logsumexp: bool = True,
) -> AttentionPlan:
    """The plan of calls of a kind: the cached one, or a new one.

    Args:
        given: the arrays of a call.
        held: the same, as C describes them.
        trains: which of them need a gradient.
        options: the others.
        logsumexp: whether the logarithms are wanted too.

    Raises:
        InvalidArgumentError: an argument does not fit, or no kernel can serve.
    """
    kind = (
        *(
            (each.element, each.shape, each.byte_strides) if each is not None else None
            for each in held
        ),
        *(held[0].kind, held[0].ordinal, trains),
        *(options.dropout > 0, options.is_causal, options.enable_gqa),
        *(logsumexp, options.scale is None or options.scale > 0),
        cudnn.is_aligned(held),
    )
    return _plans.find(kind, lambda: _plan(given, held, trains, options, logsumexp=logsumexp))


def computed(
    given: Arguments,
    held: Four,
    plan: AttentionPlan,
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
        cudnn.run(given, held, plan.by_cudnn, call.scale, results)
    elif plan.kernel == "math":
        math.run(given, held, plan, call, (out, *results))
    else:
        if plan.kernel == "efficient":
            start = efficient(call)
        else:
            start = flash.launch(call, flash.variant(call, plan.memories[0]), plan.memories[1])
        put(given, (*held, *results), plan, start)
    if plan.is_checked:
        own_library.check_finite(OPERATION, out)
    serving.served(OPERATION, plan.kernel, plan.because, plan.sizes, element)
    return (out, total) if logsumexp else out


def forget() -> None:
    """Drop the cached plans; the next call of each kind is checked anew."""
    _plans.clear()


def _plan(
    given: Arguments,
    held: Four,
    trains: tuple[bool, ...],
    options: Options,
    *,
    logsumexp: bool,
) -> AttentionPlan:
    """Check a call and choose its kernel, for all calls of its kind."""
    query, key, value, mask = (
        None if each is None else given.facts(name, each, requires_grad=needs)
        for name, each, needs in zip(NAMES, held, trains, strict=True)
    )
    assert query and key and value  # noqa: PT018, S101 - only a mask may be missing
    call = Call(
        *(query, key, value, mask, options.dropout, options.is_causal, options.enable_gqa),
        scale=options.scale,
        is_aligned=cudnn.is_aligned(held),
    )
    if mask is not None and options.is_causal:
        given.refuse(
            "`attn_mask` must not be given with `is_causal`",
            helps=["put the triangle into the mask"],
        )
    if wrong := attention_facts.problem(call):
        given.refuse(wrong)
    values = FlagsInForce().values
    device, driver = loading.device(held[0].kind, held[0].ordinal)
    chosen = rules.choose(call, values, device)
    sizes, cudnn_plans = attention_facts.sizes(call), None
    if chosen.kernel == "cudnn":
        problem = cudnn.problem_of(
            held, sizes, is_causal=options.is_causal, with_logsumexp=logsumexp
        )
        found = _by_cudnn(given, held, problem, driver, values, trains=any(trains))
        if isinstance(found, str):  # only cuDNN knows, and only when it is asked
            chosen = rules.choose(call, values, replace(device, no_cudnn=found))
        else:
            cudnn_plans = found
    if not chosen.kernel:
        given.refuse(
            f"no kernel can serve it on {held[0].place}",
            [f"{name}: {why}" for name, each in chosen.reasons.items() for why in each],
            _HELPS,
        )
    return AttentionPlan(
        sizes,
        chosen.kernel,
        f"on a device; {chosen.because}",
        driver,
        device.sm,
        device_driver.memories(driver.path, held[0].ordinal),
        {},
        bool(values["cuda.allow_fp16_bf16_reduction_math_sdp"]),
        bool(values["ops.check_finite"]),
        *(cudnn_plans or (None, None)),
    )


def _by_cudnn(
    given: Arguments,
    held: Four,
    problem: cudnn.Problem,
    driver: loading.Driver,
    values: Mapping[str, Any],
    *,
    trains: bool,
) -> tuple[cudnn.Prepared, cudnn.GradientPlans | None] | str:
    """What cuDNN runs for calls of a kind, and for their gradients; or why it cannot."""
    prepared = cudnn.prepare(given, held, problem, driver, values)
    if isinstance(prepared, str):
        return prepared
    if not trains:
        return prepared, None
    gradients = cudnn.prepare_gradients(given, held, problem, driver, values)
    return gradients if isinstance(gradients, str) else (prepared, gradients)
