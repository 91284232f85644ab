"""Runs the attention kernel for GPUs on the host, and says what it should have computed.

The kernel's own source is compiled by a C compiler with native/fakes/gpu/gpu_block.h in the place of
the device's instructions, once for each variant.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from backendcfg.gpu.attention.call import Attention, Matrix
from backendcfg.gpu.attention.flash import FlashArguments, launch, variant
from backendcfg.gpu.kernels import sources

# A program of its own has only its own directory in its path.
sys.path.append(next(str(p) for p in Path(__file__).resolve().parents if (p / "once.py").exists()))
from once import once

FAKES = Path(__file__).resolve().parents[3] / "native" / "fakes" / "gpu"
SHARED = 232448
"""Bytes of shared memory of a block, at most, on an H200."""
RANGES = 16
"""Arrays that a kernel may be handed, at most."""
CACHE = 50 << 20
OPERATIONS = (
    "sync", "exchange", "multiply", "matrix", "transposed", "copy", "load", "store", "store_word",
    "load_word",
)  # fmt: skip


class Range(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("is_written", ctypes.c_uint64),
    ]  # fmt: skip


class Report(ctypes.Structure):
    _fields_ = [
        ("fault", ctypes.c_char * 256),
        ("count", ctypes.c_uint64 * len(OPERATIONS)),
        ("ways", ctypes.c_uint64 * len(OPERATIONS)),
    ]


def compiled(block, texts, macros):
    """The folder with `it.so`, a kernel of these sources; compiled once in a run of pytest."""

    def compile_it(place):
        for name, text in texts.items():
            (place / name).write_text(text)
        # Fortified, longjmp would take a change of stacks for an error.
        flags = ["-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Werror",
                 "-Wno-unused-function", "-Wno-type-limits", f"-I{place}", f"-I{FAKES}"]  # fmt: skip
        command = ["cc", *flags, *macros, FAKES / block, "-lm", "-o", place / "it.so"]
        subprocess.run(command, check=True)

    return once(repr((block, texts, macros)), compile_it)


@dataclass
class Compiler:
    """Compiles variants, each once."""

    libraries: dict = field(default_factory=dict)

    def library(self, chosen, mutant=None):
        """The library of a variant; a mutant is what is replaced in its source, and by what."""
        key = chosen, mutant
        if key not in self.libraries:
            texts = {}
            for name in (f"{chosen.name}.cu", *sources.HEADERS):
                text = sources.source(name)
                texts[name] = text.replace(*mutant) if mutant else text
            macros = [f"-D{name}={value}" for name, value in chosen.macros.items()]
            place = compiled("gpu_attention.c", texts, macros)
            self.libraries[key] = ctypes.CDLL(str(place / "it.so"))
        return self.libraries[key]


def to_bits(values, element):
    """Numbers as the 16 bits of an element, rounded to nearest even."""
    if element == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def from_bits(bits, element):
    if element == "float16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def numbers(shape, element="bfloat16", seed=0):
    return to_bits(np.random.default_rng(seed).standard_normal(shape), element)


def matrix(array):
    return Matrix(array.ctypes.data, tuple(stride // array.itemsize for stride in array.strides))


@dataclass
class Run:
    """What came out: `out` and `logsumexp` in float64, the bits of `out`, and the report."""

    out: np.ndarray
    logsumexp: np.ndarray
    bits: np.ndarray
    report: Report

    def ways(self, *names):
        return [self.report.ways[OPERATIONS.index(name)] for name in names]

    def count(self, name):
        return self.report.count[OPERATIONS.index(name)]


def describe(query, key, value, out, *, element="bfloat16", mask=None, mask_element="bool", **rest):
    batch, heads, queries, width = query.shape
    rest.setdefault("scale", 1 / math.sqrt(width))
    if mask is not None:
        mask = np.broadcast_to(mask, (batch, heads, queries, key.shape[2]))
    return Attention(
        element=element, batch=batch, heads=heads, key_heads=key.shape[1],
        value_heads=value.shape[1], queries=queries, keys=key.shape[2], width=width,
        value_width=value.shape[3], query=matrix(query), key=matrix(key), value=matrix(value),
        out=matrix(out), mask=None if mask is None else matrix(mask), mask_element=mask_element,
        **rest,
    )  # fmt: skip


def whole(array):
    """The memory that an array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def run(compiler, query, key, value, *, out=None, mask=None, shared=SHARED, cache=CACHE, schedule=0,
        mutant=None, **rest):  # fmt: skip
    """Runs the kernel on arrays of bits, (batch, heads, length, width)."""
    out = np.full(query.shape, 0x7FFF, np.uint16) if out is None else out
    logsumexp = np.full(query.shape[:3], np.nan, np.float32)
    call = describe(query, key, value, out, mask=mask, logsumexp=logsumexp.ctypes.data, **rest)
    chosen = variant(call, shared)
    start = launch(call, chosen, cache)
    library = compiler.library(chosen, mutant)
    assert library.arguments_size() == ctypes.sizeof(FlashArguments)
    assert library.shared_bytes() == chosen.shared_bytes
    parts = [(query, 0), (key, 0), (value, 0), (out, 1), (logsumexp, 1)]
    if mask is not None:
        parts.append((mask, 0))
    ranges = (Range * RANGES)()
    for index, (array, is_written) in enumerate(parts):
        held = whole(array)
        ranges[index] = Range(held.ctypes.data, held.nbytes, is_written)
    report = Report()
    library.run_attention(
        ctypes.byref(start.arguments), start.grid, ctypes.c_uint64(chosen.shared_bytes), schedule,
        ranges, ctypes.byref(report),
    )  # fmt: skip
    element = rest.get("element", "bfloat16")
    return Run(from_bits(out, element), logsumexp.astype(np.float64), out, report)


def expected(query, key, value, *, element="bfloat16", mask=None, is_causal=False, scale=None,
             factors=None, **_):  # fmt: skip
    """(out, logsumexp, bound): float64, and by how much rounding may change each number of out."""
    query, key, value = (from_bits(each, element) for each in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat(group, 1), value.repeat(group, 1)
    scores = (
        query @ key.swapaxes(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    )
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + (from_bits(mask, element) if mask.dtype == np.uint16 else mask)
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logsumexp = (highest + np.log(total))[..., 0]
    weights = weights / np.where(total == 0, 1, total)
    if factors is not None:
        weights = weights * factors
    # A weight and a number of the result are rounded once each; float16 has subnormal weights.
    unit = 2.0**-8 if element == "bfloat16" else 2.0**-11
    size = weights @ np.abs(value)
    bound = (2.1 * unit + 1e-4) * size
    if element == "float16":
        bound += 2.0**-24 * (1 + np.abs(value).sum(-2, keepdims=True))
    return weights @ value, logsumexp, bound + 1e-30


def check(it, wanted):
    """That a run has no fault and is as near as rounding lets it be."""
    out, logsumexp, bound = wanted
    assert it.report.fault == b""
    assert (np.abs(it.out - out) <= bound).all(), np.max(np.abs(it.out - out) / bound)
    empty = np.isneginf(logsumexp)
    assert (np.isneginf(it.logsumexp) == empty).all()
    np.testing.assert_allclose(it.logsumexp[~empty], logsumexp[~empty], rtol=2e-5, atol=2e-5)
