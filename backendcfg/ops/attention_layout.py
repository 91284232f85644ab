"""Arrays of attention as (batch, heads, length, width), and results as they are asked for."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from backendcfg._native import broadcast

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.dispatch.attention_shapes import Shapes

    Array = NDArray[Any]


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
