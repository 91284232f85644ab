"""An operation of NumPy run again by itself, from the arguments that a recorded run kept."""

from __future__ import annotations

import importlib
import itertools
import pickle
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native
from backendcfg.audit.trace.nested import mapped
from backendcfg.audit.trace.numpy_operations import MODULES, Generator, observe, target_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.audit.trace.numpy_operations import Target


def load(path: str) -> dict[str, Any]:
    """What a recorded run kept of an operation."""
    with open(path, "rb") as file:
        # A file that a run wrote into a folder that the asking process made.
        kept: dict[str, Any] = pickle.load(file)  # noqa: S301
    return kept


def again(kept: dict[str, Any], places: Sequence[int], repeats: int) -> dict[int, list[int]]:
    """The digests of what an operation computes, with its arguments at each place in memory.

    Args:
        kept: what `load` gives.
        places: bytes beyond a multiple of 64.
        repeats: how often it runs at each.
    """
    name = kept["operation"]
    known = _known(name)
    target = target_of(name, known)
    function, draws = target.called, target.draws
    digests: list[int] = []
    found: dict[int, list[int]] = {}
    # What draws has another state of its generator at each call.
    for place, _ in itertools.product(places[:1] if draws else places, range(repeats)):
        args, kwargs = mapped(partial(_placed, place), (kept["args"], kept["kwargs"]))
        before = _native.bind(computed=lambda _, digest, *ignored: digests.append(digest))
        try:
            function(*args, **kwargs)
        finally:
            _native.bind(**before)
        found.setdefault(place, []).append(digests[-1])
        if draws:
            break
    return found


def _known(name: str) -> dict[str, Target]:
    """What is recorded of the module of an operation, by name; its calls are told from now on."""
    found: dict[str, Target] = {}
    for module in MODULES:
        if name.startswith(f"{module}.") or module == "numpy":
            importlib.import_module(module)
            found |= observe(module)
    return found


def _placed(place: int, value: Any) -> Any:
    """An argument; the elements of an array so many bytes beyond a multiple of 64."""
    if isinstance(value, Generator):
        return _generator(value)
    if not isinstance(value, np.ndarray):
        return value
    if not value.nbytes or value.dtype.hasobject or place % value.dtype.alignment:
        return value.copy("K")
    dense = value.copy("K")
    room = np.empty(dense.nbytes + 64 + place, np.uint8)
    begin = -room.ctypes.data % 64 + place
    made = np.ndarray(dense.shape, dense.dtype, room.data, begin, dense.strides)
    made[...] = dense
    return made


def _generator(kept: Generator) -> Any:
    """A generator as a program that starts now has it."""
    random = sys.modules["numpy.random"]
    if not kept.kind:
        return random.mtrand._rand
    bits = getattr(random, kept.kind)()
    return random.RandomState(bits) if kept.legacy else random.Generator(bits)


def apart(one: Sequence[Any], other: Sequence[Any]) -> dict[str, Any]:
    """How far the results of two runs are apart: `elements`, `differing`, `apart`."""
    elements, differing, largest = 0, 0, 0.0
    for first, second in zip(one, other, strict=False):
        elements += first.size
        if first.shape != second.shape:
            return {"elements": elements, "differing": elements, "apart": None}
        a, b = (_as_numbers(each) for each in (first, second))
        odd = (a != b) & ~(np.isnan(a) & np.isnan(b))
        differing += int(odd.sum())
        if odd.any():
            with np.errstate(all="ignore"):
                scale = np.maximum(np.abs(a[odd]), np.abs(b[odd]))
                largest = max(largest, float((np.abs(a[odd] - b[odd]) / scale).max()))
    finite = bool(np.isfinite(largest))
    return {"elements": elements, "differing": differing, "apart": largest if finite else None}


def _as_numbers(array: Any) -> Any:
    if array.dtype.kind in "mM":
        array = array.view(np.int64)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
