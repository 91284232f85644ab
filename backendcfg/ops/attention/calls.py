"""Calls of attention: their arguments checked, and what was decided about them remembered.

A `Route` holds all that follows from shapes, dtypes and flags, so that the next call of the same
kind pays for a lookup alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from backendcfg._native import broadcast
from backendcfg.cache import ProfileCache
from backendcfg.dispatch import attention, attention_facts
from backendcfg.dispatch.array_facts import dense_facts
from backendcfg.dispatch.attention_facts import Call
from backendcfg.errors import InvalidArgumentError, NotFiniteError
from backendcfg.flags_in_force import FlagsInForce
from backendcfg.ops.arrays import element_named, is_flag
from backendcfg.ops.devices import gpu, place_named, place_of
from backendcfg.ops.explanation import Answer, Question, Reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from backendcfg.dispatch.attention_facts import Shapes
    from backendcfg.ops.arrays import ArrayView

    Arrays = tuple[ArrayView, ArrayView, ArrayView, ArrayView | None]
    from numpy.typing import NDArray

    Array = NDArray[Any]

OPERATION = "scaled_dot_product_attention"
_NOT_FOUND = (
    "No viable backend for scaled_dot_product_attention was found. This is likely due to turning "
    "off both the math kernel and the fused kernels."
)
_NOT_ABLE = "No available kernel. Aborting execution."
_ENABLE = "allow one that can: `backendcfg.backends.cuda.enable_math_sdp(True)`"


@dataclass(frozen=True, slots=True)
class Route:
    """What is known of all calls of one kind.

    Attributes:
        shapes: their sizes.
        element: what they hold.
        kernel: who serves: "flash", "efficient" or "math".
        because: why that one.
        scale: what scores are multiplied by if nobody says.
        four: whether query, key and value are (batch, heads, length, width) as kernels take them.
        grouped: whether key and value keep their heads.
        empty: whether there is nothing to compute.
        rounded: whether "math" may round scores and weights to 16 bits.
        checked: whether a result that is not finite is refused.
        sizes: the scores' shape and the width, as `explain` and `trace` tell them.
    """

    shapes: Shapes
    element: str
    kernel: str
    because: str
    scale: float
    four: bool
    grouped: bool
    empty: bool
    rounded: bool
    checked: bool
    sizes: tuple[int, ...]


routes: ProfileCache[Hashable, Route] = ProfileCache(1024)
"""What was decided, by shapes, dtypes, options and profile."""


def facts(arrays: Arrays, options: tuple[float, bool, bool]) -> Call:
    """What the choice looks at; gradients are nobody's business here."""
    query, key, value, mask = arrays
    hidden = None if mask is None else mask.facts
    return Call(query.facts, key.facts, value.facts, hidden, *options)


def check_options(
    operation: str, dropout_p: Any, scale: Any, seed: Any, booleans: Mapping[str, Any]
) -> None:
    """Refuse what no call of attention can have."""
    number = not isinstance(dropout_p, bool) and isinstance(dropout_p, (int, float, np.floating))
    if not (number and 0 <= dropout_p <= 1):
        refuse(operation, f"`dropout_p` must be a number from 0 to 1, not {dropout_p!r}")
    for name, option in booleans.items():
        if not is_flag(option):
            refuse(operation, f"`{name}` must be a bool, not {option!r}")
    if scale is not None and (
        isinstance(scale, bool) or not isinstance(scale, (int, float, np.floating, np.integer))
    ):
        refuse(operation, f"`scale` must be a number or None, not {scale!r}")
    if isinstance(scale, int) and abs(scale) > sys.float_info.max:
        refuse(operation, "`scale` must be a number that float64 holds")
    whole = not isinstance(seed, bool) and isinstance(seed, (int, np.integer))
    if seed is not None and not (whole and 0 <= seed < 1 << 64):
        refuse(operation, f"`seed` must be an integer from 0 to 2**64 - 1, or None, not {seed!r}")
    if dropout_p and seed is None:
        refuse(
            operation,
            "`seed` must be given where `dropout_p` is not 0",
            helps=["the same seed drops the same weights: `seed=int(rng.integers(2**63))`"],
        )


def plan(operation: str, arrays: Arrays, call: Call) -> Route:
    """Check the arrays of a call and choose its kernel.

    Raises:
        InvalidArgumentError: the arrays are no call of attention, or no kernel may serve it.
    """
    if call.mask is not None and call.is_causal:
        refuse(
            operation,
            "`attn_mask` must not be given with `is_causal`",
            arrays,
            ["put the triangle into the mask: `mask & numpy.tri(*mask.shape[-2:], dtype=bool)`"],
        )
    if wrong := attention_facts.problem(call):
        refuse(operation, wrong, arrays, _way_out(call, wrong))
    values = FlagsInForce().values
    choice = attention.choose(call, values)
    if not choice.kernel:
        enabled = attention_facts.flags_of(values).enabled
        refuse(
            operation,
            _NOT_ABLE if enabled & {"flash", "efficient", "math"} else _NOT_FOUND,
            arrays,
            [_ENABLE],
            [f"{name}: {why}" for name, each in choice.reasons.items() for why in each],
        )
    shapes = attention_facts.sizes(call)
    return Route(
        shapes,
        call.query.element,
        choice.kernel,
        choice.because,
        shapes.width**-0.5 if shapes.width else 1.0,
        _fits(call, shapes),
        call.enable_gqa,
        0 in shapes.out or shapes.keys == 0,
        bool(values["cuda.allow_fp16_bf16_reduction_math_sdp"])
        and call.query.element in ("float16", "bfloat16"),
        bool(values["ops.check_finite"]),
        (*shapes.scores, shapes.width),
    )


def _fits(call: Call, shapes: Shapes) -> bool:
    """Whether kernels can take the arrays as they are."""
    query, key, value = call.query.shape, call.key.shape, call.value.shape
    return (
        len(query) == len(key) == len(value) == 4
        and query[:2] == shapes.lead
        and key[0] == value[0] == query[0]
        and key[1] == value[1]
    )


def _way_out(call: Call, wrong: str) -> list[str]:
    if "heads" not in wrong and "leading dimensions" not in wrong:
        return []
    if call.enable_gqa or min(len(call.query.shape), len(call.key.shape)) < 3:
        return []
    heads, groups = call.query.shape[-3], call.key.shape[-3]
    if groups and heads != groups and heads % groups == 0:
        return [f"share each of the {groups} heads by {heads // groups}: `enable_gqa=True`"]
    return []


def refuse(
    operation: str,
    what: str,
    arrays: tuple[ArrayView | None, ...] = (),
    helps: list[str] | None = None,
    notes: list[str] | None = None,
) -> NoReturn:
    """Raise for an argument; nothing was touched."""
    raise InvalidArgumentError(
        f"{operation}: {what}",
        notes=[*_described(arrays), *(notes or [])],
        state="nothing was computed",
        helps=helps or [],
    ) from None


def not_finite(operation: str, arrays: tuple[ArrayView | None, ...] = ()) -> NotFiniteError:
    """What is raised where `ops.check_finite` refuses a result."""
    return NotFiniteError.of(operation, notes=_described(arrays), state="nothing was returned")


def _described(arrays: tuple[ArrayView | None, ...]) -> list[str]:
    names = ("query", "key", "value", "attn_mask")
    return [
        f"{name}: {taken.element} array of shape {taken.array.shape}"
        for name, taken in zip(names, arrays, strict=False)
        if taken is not None
    ]


def arranged(
    arrays: tuple[Array, Array, Array], shapes: Shapes, *, grouped: bool
) -> tuple[Array, Array, Array]:
    """Query, key and value with four dimensions; copied only if there are more to put together.

    Args:
        arrays: query, key and value.
        shapes: of the call.
        grouped: whether key and value keep their heads, which several of query share.
    """
    query, key, value = arrays
    # One head for all is a group as well, and is then packed once.
    grouped = grouped or (heads_of(key) == heads_of(value) == 1)
    return (
        four(query, shapes.lead, heads_of_lead(shapes)),
        four(key, shapes.lead, heads_of(key) if grouped else heads_of_lead(shapes)),
        four(value, shapes.lead, heads_of(value) if grouped else heads_of_lead(shapes)),
    )


def heads_of(array: Array) -> int:
    """The third dimension from behind; 1 where there is none."""
    return array.shape[-3] if array.ndim > 2 else 1


def heads_of_lead(shapes: Shapes) -> int:
    """The heads of the result."""
    return shapes.lead[-1] if shapes.lead else 1


def four(array: Array, lead: tuple[int, ...], heads: int) -> Array:
    """An array of some heads, broadcast to what leads the result, with four dimensions."""
    length, width = array.shape[-2:]
    batch = lead[:-1]
    if lead or array.ndim > 2:
        array = broadcast(array, (*batch, heads, length, width))
    return array.reshape(prod(batch), heads, length, width)


def four_of_mask(mask: Array, shapes: Shapes) -> Array:
    """A mask broadcast to the scores, with four dimensions."""
    batch, heads = prod(shapes.lead[:-1]), heads_of_lead(shapes)
    target = (batch, heads, shapes.queries, shapes.keys)
    while mask.ndim > 3 and mask.shape[0] == 1:
        mask = mask[0]
    if mask.ndim <= 3 or len(shapes.lead) <= 2:
        return broadcast(mask, target)
    return broadcast(mask, shapes.scores).reshape(target)


def back(gradient: Array, like: Array, lead: tuple[int, ...]) -> Array:
    """A gradient of an array that was broadcast: summed over what it was broadcast to.

    Args:
        gradient: (batch, heads, length, width).
        like: the array, as it was given.
        lead: what the result has before (length, width).
    """
    if gradient.shape == like.shape:
        return gradient
    full = gradient.reshape(*lead[:-1], *((gradient.shape[1],) if lead else ()), *like.shape[-2:])
    more = full.ndim - like.ndim
    own = (1,) * more + like.shape
    summed = tuple(at for at, length in enumerate(own) if length != full.shape[at])
    if summed:
        full = full.sum(axis=summed, keepdims=True)
    return full.reshape(like.shape)


def explain(question: Question) -> Answer:
    """`scaled_dot_product_attention` of query, key, value and perhaps a mask."""
    shapes = question.shapes_of(3, 4)
    name = element_named(question.dtype)
    hidden = element_named(question.option("mask_dtype", "bool"))
    place = place_of(question.option("device", "cpu"))
    # On a device the backward pass is that of the kernel that gives gradients.
    trains = place is not None and question.operation != OPERATION
    query, key, value = (dense_facts(shape, name, requires_grad=trains) for shape in shapes[:3])
    dropout, scale = question.option("dropout_p", 0.0), question.option("scale")
    is_causal = question.flag("is_causal", default=False)
    if question.operation == OPERATION:
        question.flag("return_logsumexp", default=False)
    seed = question.option("seed", 0)
    check_options("explain", dropout, scale, seed, {})
    if len(shapes) == 4 and is_causal:
        raise InvalidArgumentError("explain: `attn_mask` must not be given with `is_causal`")
    call = Call(
        query,
        key,
        value,
        dense_facts(shapes[3], hidden) if len(shapes) == 4 else None,
        float(dropout),
        is_causal,
        question.flag("enable_gqa", default=False),
        scale=None if scale is None else float(scale),
    )
    if wrong := attention_facts.problem(call):
        raise InvalidArgumentError(f"explain: {wrong}")
    served: tuple[str, ...] = attention.OURS
    if place is None:
        choice = attention.choose(call, question.values)
    else:
        served, choice = gpu().choose_attention(place, call, question.values)
    where = "" if place is None else f" on {place_named(place)}"
    sizes = attention_facts.sizes(call)
    return Answer(
        question.operation,
        f"{question.operation} of {', '.join(map(str, shapes[:3]))} {name}{where}",
        (*sizes.scores, sizes.width),
        choice.kernel,
        "",
        f"on a device; {choice.because}" if where and choice.kernel else choice.because,
        tuple(
            Reason(kernel, "", "; ".join(choice.reasons.get(kernel, ("not in the order",))))
            for kernel in served
            if kernel != choice.kernel
        ),
        attention_facts.FLAGS,
    )
