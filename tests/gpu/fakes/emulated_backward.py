"""Runs the backward kernels of attention for GPUs on the host, and says what they should compute."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import emulated_gpu as gpu
import numpy as np

from backendcfg.gpu.attention.call import Gradients
from backendcfg.gpu.attention.flash import FlashBackwardArguments, launch_backward, variants

NAMES = ("grad_query", "grad_key", "grad_value")


@dataclass
class Run:
    """What came out, in float64 and as bits, and the reports of both kernels."""

    gradients: list
    bits: list
    reports: list

    @property
    def fault(self):
        return b"".join(each.fault for each in self.reports)

    def ways(self, *names):
        found = [gpu.OPERATIONS.index(name) for name in names]
        return [max(each.ways[index] for each in self.reports) for index in found]

    def count(self, name):
        return [each.count[gpu.OPERATIONS.index(name)] for each in self.reports]


def run(compiler, query, key, value, grad_out, *, into=None, mask=None, shared=gpu.SHARED,
        cache=gpu.CACHE, schedule=0, mutant=None, forward=None, **rest):  # fmt: skip
    """Runs both on arrays of bits, (batch, heads, length, width), after the forward kernel.

    Args:
        forward: (out, logsumexp), where the forward pass has been run.
    """
    element = rest.get("element", "bfloat16")
    if forward is None:
        out = np.full(query.shape, 0x7FFF, np.uint16)
        it = gpu.run(compiler, query, key, value, out=out, mask=mask, shared=shared, **rest)
        assert it.report.fault == b""
        forward = out, it.logsumexp.astype(np.float32)
    out, logsumexp = forward
    into = into or [np.full(each.shape, 0x7FFF, np.uint16) for each in (query, key, value)]
    delta = np.full(query.shape[:3], np.nan, np.float32)
    call = gpu.describe(query, key, value, out, mask=mask, logsumexp=logsumexp.ctypes.data, **rest)
    matrices = dict(zip(("query", "key", "value"), map(gpu.matrix, into), strict=True))
    gradients = Gradients(gpu.matrix(grad_out), delta.ctypes.data, matrices)
    reports = []
    for chosen in variants(call, gradients, shared):
        start = launch_backward(call, gradients, chosen, cache)
        if start is None:
            continue
        library = compiler.library(chosen, mutant)
        assert library.arguments_size() == ctypes.sizeof(FlashBackwardArguments)
        assert library.shared_bytes() == chosen.shared_bytes <= shared
        of_keys = chosen.macros["OF_KEYS"]
        written = into[1:] if of_keys else [into[0], delta]
        read = [query, key, value, grad_out, logsumexp, *([delta] if of_keys else [out])]
        parts = [*((each, 1) for each in written), *((each, 0) for each in read)]
        if mask is not None:
            parts.append((mask, 0))
        ranges = (gpu.Range * gpu.RANGES)()
        for index, (array, is_written) in enumerate(parts):
            held = gpu.whole(array)
            ranges[index] = gpu.Range(held.ctypes.data, held.nbytes, is_written)
        reports.append(gpu.Report())
        library.run_attention(
            ctypes.byref(start.arguments), start.grid, ctypes.c_uint64(chosen.shared_bytes),
            schedule, ranges, ctypes.byref(reports[-1]),
        )  # fmt: skip
    return Run([gpu.from_bits(each, element) for each in into], into, reports)


def expected(query, key, value, grad_out, *, element="bfloat16", mask=None, is_causal=False,
             scale=None, factors=None, **_):  # fmt: skip
    """(gradients, bounds) in float64: by how much rounding may change each number of them."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query, key, value, grad_out = (
        gpu.from_bits(each, element) for each in (query, key, value, grad_out)
    )
    key_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    wide_key, wide_value = key.repeat(group, 1), value.repeat(group, 1)
    scores = query @ wide_key.swapaxes(-1, -2) * scale
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + (gpu.from_bits(mask, element) if mask.dtype == np.uint16 else mask)
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    kept = 1.0 if factors is None else factors
    pulls = (grad_out @ wide_value.swapaxes(-1, -2)) * kept
    delta = (weights * pulls).sum(-1, keepdims=True)
    slopes = weights * (pulls - delta)

    def shared(array):  # the sum over the heads that share a key
        batch, _, length, width = array.shape
        return array.reshape(batch, key_heads, group, length, width).sum(2)

    gradients = [
        slopes @ wide_key * scale,
        shared(slopes.swapaxes(-1, -2) @ query * scale),
        shared((weights * kept).swapaxes(-1, -2) @ grad_out),
    ]
    # Slopes, weights and results are rounded to 16 bits once each; delta is of an `out` that was.
    unit = 2.0**-8 if element == "bfloat16" else 2.0**-11
    smallest = 0 if element == "bfloat16" else 2.0**-24
    out = (weights * kept) @ wide_value
    rough = weights * 2 * unit * (np.abs(grad_out) * np.abs(out)).sum(-1, keepdims=True)
    rough += (1.1 * unit + 1e-4) * weights * (np.abs(pulls) + np.abs(delta)) + smallest
    size = abs(scale)
    bounds = [
        rough @ np.abs(wide_key) * size,
        shared(rough.swapaxes(-1, -2) @ np.abs(query) * size),
        shared(
            ((1.1 * unit + 1e-4) * weights * kept + smallest).swapaxes(-1, -2) @ np.abs(grad_out)
        ),
    ]
    bounds = [
        bound + unit * np.abs(gradient) + smallest + 1e-30
        for bound, gradient in zip(bounds, gradients, strict=True)
    ]
    return gradients, bounds


def check(it, wanted):
    """That a run has no fault and is as near as rounding lets it be."""
    assert it.fault == b""
    for name, found, right, bound in zip(NAMES, it.gradients, *wanted, strict=True):
        far = np.abs(found - right) / bound
        assert (far <= 1).all(), (name, np.max(far), np.argwhere(~(far <= 1))[:5])
