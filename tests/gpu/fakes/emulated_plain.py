"""Runs the attention programs without tensor cores on the host; see `emulated_gpu`."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field

import numpy as np
from emulated_gpu import OPERATIONS, Range, Report, compiled, from_bits, matrix, to_bits, whole

from backendcfg.gpu.attention.call import Attention, summed_in
from backendcfg.gpu.attention.efficient import efficient
from backendcfg.gpu.attention.math import gather, softmax
from backendcfg.gpu.kernels import sources

PROGRAMS = {
    "attention_efficient": 1,
    "attention_gather": 2,
    "attention_softmax": 3,
    "attention_efficient_backward": 4,
    "attention_delta": 5,
}
ROUNDED = {"float32": 0, "float64": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""What the rounding of a result to an element type changes, at most."""


@dataclass
class Compiler:
    """Compiles programs, each once."""

    libraries: dict = field(default_factory=dict)

    def library(self, program, mutant=None):
        """The library of a program; a mutant is what is replaced in its source, and by what."""
        key = program, mutant
        if key not in self.libraries:
            texts = {}
            for name in (f"{program.name}.cu", *sources.HEADERS):
                text = sources.source(name)
                texts[name] = text.replace(*mutant) if mutant else text
            macros = [f"-D{name}={value}" for name, value in program.macros.items()]
            macros.append(f"-DPROGRAM={PROGRAMS[program.name]}")
            place = compiled("gpu_plain.c", texts, macros)
            self.libraries[key] = ctypes.CDLL(str(place / "it.so"))
        return self.libraries[key]

    def start(self, begun, read, written, *, schedule=0, mutant=None):
        """Runs what `begun` says; the report of it."""
        library = self.library(begun.kernel, mutant)
        assert library.arguments_size() == ctypes.sizeof(begun.arguments)
        assert library.shared_bytes() == begun.kernel.shared_bytes
        ranges = (Range * library.ranges())()
        for index, (array, is_written) in enumerate(
            [*((each, 0) for each in read), *((each, 1) for each in written)]
        ):
            held = whole(array)
            ranges[index] = Range(held.ctypes.data, held.nbytes, is_written)
        report = Report()
        library.run_program(
            ctypes.byref(begun.arguments), begun.grid,
            ctypes.c_uint64(begun.kernel.shared_bytes), schedule, ranges, ctypes.byref(report),
        )  # fmt: skip
        return report


def narrow(values, element):
    """Numbers as an array of an element type; those of 16 bits as their bits."""
    return to_bits(values, element) if "16" in element else values.astype(element)


def wide(array, element):
    """The same in float64; bools stay bools."""
    if array.dtype == bool:
        return array
    return from_bits(array, element) if array.dtype == np.uint16 else array.astype("float64")


def numbers(shape, element="float32", seed=0):
    return narrow(np.random.default_rng(seed).standard_normal(shape), element)


def three(queries, keys, width, *, value_width=None, batch=1, heads=1, key_heads=1,
          element="float32"):  # fmt: skip
    last = width if value_width is None else value_width
    shapes = (
        (batch, heads, queries, width), (batch, key_heads, keys, width),
        (batch, key_heads, keys, last),
    )  # fmt: skip
    return [numbers(shape, element, seed) for seed, shape in enumerate(shapes)]


def describe(query, key, value, out, *, element="float32", mask=None, mask_element="bool", **rest):
    batch, heads, queries, width = query.shape
    rest.setdefault("scale", 1 / math.sqrt(width or 1))
    if mask is not None:
        mask = np.broadcast_to(mask, (batch, heads, queries, key.shape[2]))
    return Attention(
        element=element, batch=batch, heads=heads, key_heads=key.shape[1],
        value_heads=value.shape[1], queries=queries, keys=key.shape[2], width=width,
        value_width=value.shape[3], query=matrix(query),
        key=matrix(key), value=matrix(value), out=matrix(out),
        mask=None if mask is None else matrix(mask), mask_element=mask_element, **rest,
    )  # fmt: skip


@dataclass
class Run:
    """What came out: `out` and `logsumexp` in float64, their bits, and the reports."""

    out: np.ndarray
    logsumexp: np.ndarray
    bits: bytes
    reports: list

    @property
    def faults(self):
        return [each.fault for each in self.reports if each.fault]

    def ways(self, name):
        """The most accesses of one phase to one bank, of each kernel."""
        return [each.ways[OPERATIONS.index(name)] for each in self.reports]


def results(query, value, element, out=None):
    shape = (*query.shape[:3], value.shape[3])
    if out is None:
        out = narrow(np.full(shape, np.nan), element)
    return out, np.full(query.shape[:3], np.nan, summed_in(element))


def run(compiler, query, key, value, *, out=None, mask=None, element="float32", schedule=0,
        mutant=None, **rest):  # fmt: skip
    """Runs `efficient` on arrays of (batch, heads, length, width)."""
    out, logsumexp = results(query, value, element, out)
    call = describe(
        query, key, value, out, mask=mask, element=element, logsumexp=logsumexp.ctypes.data, **rest
    )
    read = [each for each in (query, key, value, mask) if each is not None]
    begun = efficient(call)
    report = compiler.start(begun, read, (out, logsumexp), schedule=schedule, mutant=mutant)
    return _ended(out, logsumexp, element, [report])


def weigh(compiler, scores, *, element="float32", mask=None, mask_element="bool", scale=1.0,
          schedule=0, **rest):  # fmt: skip
    """Runs the softmax on a copy of scores, (batch, heads, queries, keys)."""
    scores = np.array(scores)
    empty = np.zeros((*scores.shape[:2], scores.shape[2], 0))
    logsumexp = np.full(scores.shape[:3], np.nan, summed_in(element))
    keys = np.zeros((1, scores.shape[1], scores.shape[3], 0))
    call = describe(
        empty, keys, keys, empty, element=element, mask=mask, mask_element=mask_element,
        logsumexp=logsumexp.ctypes.data, scale=1.0, **rest,
    )  # fmt: skip
    begun = softmax(call, scores.ctypes.data, element, scale=scale)
    read = [] if mask is None else [mask]
    report = compiler.start(begun, read, (scores, logsumexp), schedule=schedule)
    return _ended(scores, logsumexp, element, [report])


def collect(compiler, array, shape, elements, *, group=1, factor=1.0):
    """Runs the gathering of an array into (batch, heads, rows, columns)."""
    made = narrow(np.full(shape, np.nan), elements[1])
    begun = gather(matrix(array), made.ctypes.data, shape, elements, group=group, factor=factor)
    report = compiler.start(begun, [array], [made])
    assert report.fault == b""
    return made


def _ended(out, logsumexp, element, reports):
    bits = out.tobytes() + logsumexp.tobytes()
    return Run(wide(out, element), logsumexp.astype("float64"), bits, reports)


def expected(query, key, value, *, element="float32", mask=None, mask_element="bool",
             is_causal=False, scale=None, factors=None, **_):  # fmt: skip
    """(out, logsumexp, bound): float64, and by how much rounding may change each number of out."""
    query, key, value = (wide(each, element) for each in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat(group, 1), value.repeat(group, 1)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * scale
    largest = np.abs(scores).max(-1, keepdims=True, initial=0)
    weights, logsumexp = softmax_of(
        scores, mask=mask, mask_element=mask_element, is_causal=is_causal
    )
    if factors is not None:
        weights = weights * factors
    # What the rounding of a score is to its weight; then that of the sums, and of the result.
    unit = 2.0**-52 if element == "float64" else 2.0**-23
    bound = (unit * (8 + 2 * largest) + ROUNDED[element]) * (weights @ np.abs(value))
    bound += 2.0**-24 if element == "float16" else 0
    return weights @ value, logsumexp, bound + 1e-30


def softmax_of(scores, *, mask=None, mask_element="bool", is_causal=False):
    """(weights, logsumexp) of scores in float64."""
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + wide(mask, mask_element)
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logsumexp = (highest + np.log(total))[..., 0]
    return weights / np.where(total == 0, 1, total), logsumexp


def check(it, wanted, element="float32"):
    """That a run has no fault and is as near as rounding lets it be."""
    out, logsumexp, bound = wanted
    assert it.faults == []
    assert (np.abs(it.out - out) <= bound).all(), np.max(np.abs(it.out - out) / bound)
    empty = np.isneginf(logsumexp)
    assert (np.isneginf(it.logsumexp) == empty).all()
    unit = 1e-13 if element == "float64" else 2e-6
    np.testing.assert_allclose(it.logsumexp[~empty], logsumexp[~empty], rtol=unit, atol=unit)
