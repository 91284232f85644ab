"""Gradients of attention in float64, and those by cuDNN of arrays on devices beside them."""

import numpy as np
from attention_on_device import normal

from backendcfg import ops

NAME = "scaled_dot_product_attention_backward"


def in_float64(grad_out, query, key, value, mask=None, *, is_causal=False, scale=None):
    """The gradients of query, key and value, by the formulas, with all scores at once."""
    heads, scale = query.shape[1], query.shape[-1] ** -0.5 if scale is None else scale
    keys, values = (each.repeat(heads // each.shape[1], axis=1) for each in (key, value))
    scores = query @ keys.swapaxes(2, 3) * scale + (0 if mask is None else mask)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    slopes = grad_out @ values.swapaxes(2, 3)
    slopes = weights * (slopes - (slopes * weights).sum(-1, keepdims=True)) * scale
    of_keys, of_values = slopes.swapaxes(2, 3) @ query, weights.swapaxes(2, 3) @ grad_out

    def shared(gradient, like):
        batch, few, length, width = like.shape
        return gradient.reshape(batch, few, heads // few, length, width).sum(2)

    return slopes @ keys, shared(of_keys, key), shared(of_values, value)


def three(queries=(2, 3, 40, 64), keys=(2, 3, 70, 64), values=(), element="bfloat16"):
    """A query, keys and values on a device."""
    shapes = queries, keys, values or keys
    return [normal(shape, element, seed) for seed, shape in enumerate(shapes)]


def passed(*arrays, mask=None, grad_out=None, **options):
    """The gradients of arrays on a device, and those in float64."""
    query, _, value = arrays
    if grad_out is None:
        grad_out = normal((*query.shape[:3], value.shape[3]), query.element, seed=9)
    out, total = ops.scaled_dot_product_attention(*arrays, mask, return_logsumexp=True, **options)
    found = ops.scaled_dot_product_attention_backward(
        grad_out, *arrays, out, total, mask, **options
    )
    options.pop("enable_gqa", None)
    given = [np.asarray(each.values(), "float64") for each in (grad_out, *arrays)]
    added = None if mask is None else np.asarray(mask.values(), "float64")
    return found, in_float64(*given, added, **options)


def served():
    """Who served gradients on the device since the fakes were new."""
    return [one.provider for one in ops.stats().operations if one.operation == NAME]
