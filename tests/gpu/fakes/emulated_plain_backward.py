"""Runs the gradients of attention without tensor cores on the host, and says what they should be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import emulated_plain as plain
import numpy as np
from emulated_gpu import matrix

from backendcfg.gpu.attention.call import Gradients, Matrix, summed_in
from backendcfg.gpu.attention.efficient import NEEDS_DELTA, OF, delta, gradient


@dataclass
class Run:
    """What came out, by name: in float64, and as bytes; and the reports."""

    gradients: dict
    bits: dict
    reports: list

    @property
    def faults(self):
        return [each.fault for each in self.reports if each.fault]

    def ways(self, name):
        return {each.ways[plain.OPERATIONS.index(name)] for each in self.reports}


def four(queries, keys, width, **rest):
    """Query, key, value, and the gradient of the result."""
    arrays = plain.three(queries, keys, width, **rest)
    shape = (*arrays[0].shape[:3], arrays[2].shape[3])
    return [*arrays, plain.numbers(shape, rest.get("element", "float32"), 3)]


def forward(query, key, value, *, element="float32", **rest):
    """(out, logsumexp) as the forward pass hands them on: computed in float64, and rounded."""
    weights, _, _, wide_value, sums = _weights(query, key, value, element=element, **rest)
    kept = 1.0 if rest.get("factors") is None else rest["factors"]
    out = plain.narrow((weights * kept) @ wide_value, element)
    return out, sums.astype(summed_in(element))


def run(compiler, query, key, value, grad_out, *, of=OF[:3], mask=None, element="float32",
        factors=None, into=None, results=None, schedule=0, mutant=None, **rest):  # fmt: skip
    """Runs the kernels of some gradients on arrays of (batch, heads, length, width).

    Args:
        of: which gradients.
        mask: as it is; it may be broadcast.
        factors: what weights are multiplied by under dropout, for the forward pass alone.
        into: arrays that are written, by name.
        results: (out, logsumexp), where the forward pass has been run.
    """
    out, logsumexp = results or forward(
        query, key, value, mask=mask, element=element, factors=factors, **rest
    )
    call = plain.describe(
        query, key, value, out, mask=mask, element=element, logsumexp=logsumexp.ctypes.data, **rest
    )
    totals = np.full(query.shape[:3], np.nan, summed_in(element))
    sizes = (1, 1, 1, 1) if mask is None else mask.shape
    passed = Gradients(matrix(grad_out), totals.ctypes.data, {}, sizes)
    read = [each for each in (query, key, value, grad_out, out, mask) if each is not None]
    reports, bits, gradients = [], {}, {}
    if set(of) & set(NEEDS_DELTA) and (begun := delta(call, passed)) is not None:
        reports.append(compiler.start(begun, [out, grad_out], [totals], schedule=schedule))
    arrays = dict(zip(OF, (query, key, value, mask), strict=True))
    for name in of:
        kind = rest.get("mask_element", "bool") if name == "mask" else element
        given = (into or {}).get(name)
        made = plain.narrow(np.full(arrays[name].shape, np.nan), kind) if given is None else given
        target = matrix(made)
        if name == "mask":
            steps = [
                0 if size == 1 else step
                for size, step in zip(made.shape, target.strides, strict=True)
            ]
            target = Matrix(target.address, tuple(steps))
        passed.into[name] = target
        begun = gradient(name, call, passed)
        if begun is not None:
            parts = [*read, logsumexp, *([totals] if name in NEEDS_DELTA else [])]
            reports.append(compiler.start(begun, parts, [made], schedule=schedule, mutant=mutant))
        bits[name], gradients[name] = made.tobytes(), plain.wide(made, kind)
    return Run(gradients, bits, reports)


def _weights(query, key, value, *, element="float32", mask=None, mask_element="bool",
             is_causal=False, scale=None, **_):  # fmt: skip
    """Weights, and query, key and value in float64, repeated for each head of query."""
    query, key, value = (plain.wide(each, element) for each in (query, key, value))
    key, value = (each.repeat(query.shape[1] // each.shape[1], 1) for each in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * scale
    weights, sums = plain.softmax_of(
        scores, mask=mask, mask_element=mask_element, is_causal=is_causal
    )
    return weights, query, key, value, sums


def expected(query, key, value, grad_out, *, element="float32", mask=None, mask_element="bool",
             scale=None, factors=None, **rest):  # fmt: skip
    """{name: (gradient, bound)} in float64: by how much rounding may change each number."""
    weights, wide_query, wide_key, wide_value, sums = _weights(
        query,
        key,
        value,
        element=element,
        mask=mask,
        mask_element=mask_element,
        scale=scale,
        **rest,
    )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    pushed = plain.wide(grad_out, element)
    kept = 1.0 if factors is None else factors
    pulls = (pushed @ wide_value.swapaxes(-1, -2)) * kept
    out = (weights * kept) @ wide_value
    slopes = weights * (pulls - (pushed * out).sum(-1, keepdims=True))
    # Of a weight, what its score and logsumexp are rounded by; of a slope, that of the result too.
    unit = 2.0**-52 if element == "float64" else 2.0**-23
    rounded = plain.ROUNDED[element]
    sizes = np.abs(wide_query) @ np.abs(wide_key).swapaxes(-1, -2) * abs(scale)
    sums = np.where(np.isneginf(sums), 0, np.abs(sums))[..., None]
    shaky = unit * (8 + 4 * sizes + 4 * sums)
    if mask is not None and mask.dtype != bool:
        added = plain.wide(mask, mask_element)
        shaky = shaky + unit * 4 * np.abs(np.where(np.isinf(added), 0, added))
    spread = (np.abs(pushed) * np.abs(out)).sum(-1, keepdims=True)
    heavy = np.abs(pushed) @ np.abs(wide_value).swapaxes(-1, -2) * kept
    rough = weights * ((shaky + 8 * unit) * (heavy + spread) + rounded * spread)
    rough_weights = weights * kept * shaky

    def shared(array, like):  # the sum over the heads that share one
        batch, heads, length, width = array.shape
        own = like.shape[1]
        return array.reshape(batch, own, heads // own, length, width).sum(2)

    def folded(array, like):  # the sum over what a mask is broadcast by
        along = tuple(i for i in range(4) if like.shape[i] == 1)
        return array.sum(along, keepdims=True)

    turned, size = slopes.swapaxes(-1, -2), abs(scale)
    found = {
        "query": (slopes @ wide_key * scale, rough @ np.abs(wide_key) * size),
        "key": (
            shared(turned @ wide_query * scale, key),
            shared(rough.swapaxes(-1, -2) @ np.abs(wide_query) * size, key),
        ),
        "value": (
            shared((weights * kept).swapaxes(-1, -2) @ pushed, value),
            shared(rough_weights.swapaxes(-1, -2) @ np.abs(pushed), value),
        ),
    }
    last = dict.fromkeys(found, rounded)
    if mask is not None and mask.dtype != bool:
        found["mask"] = folded(slopes, mask), folded(rough, mask)
        last["mask"] = plain.ROUNDED[mask_element]
    smallest = 2.0**-24 if "float16" in (element, mask_element) else 0
    return {
        name: (right, bound * 2 + (last[name] + 16 * unit) * np.abs(right) + smallest + 1e-30)
        for name, (right, bound) in found.items()
    }


def check(it, wanted):
    """That a run has no fault and is as near as rounding lets it be."""
    assert it.faults == []
    for name, found in it.gradients.items():
        right, bound = wanted[name]
        far = np.abs(found - right) / bound
        assert (far <= 1).all(), (name, np.nanmax(far), np.argwhere(~(far <= 1))[:5])
