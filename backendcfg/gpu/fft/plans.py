"""What a Fourier transform on a device asks of cuFFT: plans, as numbers of its ABI.

    several("rfft", 5, (3, 4), "float32")      # one Pass, or more for more than three dimensions

cuFFT transforms up to three dimensions in one call. Its data layout has one stride between signals,
and one between the numbers of a signal: what lies otherwise must be copied. A `Pass` is plain
numbers; a `CufftPlan` is made from one, and run.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import suppress
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from backendcfg.gpu import messages
from backendcfg.gpu.libraries.calling import Fault, Session
from backendcfg.gpu.products.gemm import TYPES
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.gpu.libraries.calling import OpenLibrary, Work


RANK = 3
FORWARD, INVERSE = -1, 1
ITEM = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
COMPLEX = {
    "float32": "complex64",
    "float64": "complex128",
    "complex64": "complex64",
    "complex128": "complex128",
}
REAL = {"complex64": "float32", "complex128": "float64"}

TIER = "determinism.tier"
FLAGS = ("cuda.cufft_plan_cache.max_size", "determinism.tier", "ops.check_finite")
"""The flags that are looked at."""


@record(frozen=True)
class Side:
    """Where the numbers of signals lie; distances are counted in numbers.

    Attributes:
        embed: of each dimension of a signal, the sizes that its strides follow from.
        stride: between neighbours of the last dimension.
        distance: between signals.
        type: cudaDataType's number.
    """

    embed: tuple[int, ...]
    stride: int
    distance: int
    type: int


@record(frozen=True)
class Pass:
    """One plan, and how often it is run.

    Attributes:
        sizes: of a signal, up to three.
        batch: signals in one run.
        input: where they come from.
        output: where they go.
        execution: cudaDataType's number of the complex type that is computed in.
        direction: `FORWARD` or `INVERSE`.
        within: "" from the input to the output, "output" or "input" in place there.
        count: how often it is run.
        steps: bytes by which input and output move on between runs.
    """

    sizes: tuple[int, ...]
    batch: int
    input: Side
    output: Side
    execution: int
    direction: int
    within: str = ""
    count: int = 1
    steps: tuple[int, int] = (0, 0)

    @property
    def plan(self) -> tuple[Any, ...]:
        """What the plan depends on."""
        one, two = self.input, self.output
        return (
            self.sizes,
            self.batch,
            (one.embed, one.stride, one.distance, one.type),
            (two.embed, two.stride, two.distance, two.type),
            self.execution,
        )


def ordered(kind: str, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes as they are nested: ascending, but that the one that is halved comes last."""
    if kind in ("fft", "ifft"):
        return tuple(sorted(axes))
    return (*sorted(axes[:-1]), axes[-1])


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """In numbers, of an array whose rows follow each other."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def side(
    shape: Sequence[int], strides: Sequence[int], axes: Sequence[int], element: str
) -> tuple[Side, int] | None:
    """An array's layout as cuFFT describes it, and its count of signals; None where it cannot.

    Args:
        shape: of the array, without a 0.
        strides: of the array, in numbers.
        axes: of a signal, as `ordered` gives them.
        element: of the array.
    """
    sizes = [shape[axis] for axis in axes]
    stride = strides[axes[-1]] if sizes[-1] > 1 else 1
    if stride < 1:
        return None
    step, embed = stride, []
    for axis, inner in zip(reversed(axes[:-1]), reversed(sizes[1:]), strict=True):
        room, rest = inner, 0
        if shape[axis] > 1:  # else its stride means nothing
            room, rest = divmod(strides[axis], step)
        if rest or room < inner:
            return None
        embed.append(room)
        step *= room
    embed.append(sizes[0])
    batch, distance = 1, step * sizes[0]
    for axis in reversed(range(len(shape))):
        if axis in axes or shape[axis] == 1:
            continue
        if batch == 1:
            distance = strides[axis]
        elif strides[axis] != distance * batch:
            return None
        batch *= shape[axis]
    if distance < 1:
        return None
    return Side(tuple(reversed(embed)), stride, distance, TYPES[element]), batch


def _dense(sizes: Sequence[int], element: str) -> Side:
    """Signals one after the other."""
    return Side(tuple(sizes), 1, prod(sizes), TYPES[element])


def single(
    kind: str,
    axes: tuple[int, ...],
    source: tuple[tuple[int, ...], tuple[int, ...], str],
    result: tuple[tuple[int, ...], tuple[int, ...], str],
) -> Pass | None:
    """One call for all axes between arrays as they lie; None where cuFFT cannot read or write one.

    Args:
        kind: "fft", "ifft", "rfft" or "irfft".
        axes: as `ordered` gives them.
        source: shape, strides in numbers and element of what is read.
        result: the same of what is written.
    """
    if len(axes) > RANK:
        return None
    found, made = side(source[0], source[1], axes, source[2]), side(*result[:2], axes, result[2])
    if found is None or made is None:
        return None
    signal = source[0] if kind == "rfft" else result[0]
    return Pass(
        tuple(signal[axis] for axis in axes),
        found[1],
        found[0],
        made[0],
        TYPES[COMPLEX[source[2]]],
        direction(kind),
    )


def several(kind: str, batch: int, sizes: tuple[int, ...], element: str) -> tuple[Pass, ...]:
    """Calls of up to three dimensions each, between dense arrays of (batch, *sizes).

    Complex passes work in place: on the result, or for "irfft" on the input, before the last.

    Args:
        kind: as for `single`.
        batch: signals.
        sizes: of one, all its dimensions; at least one.
        element: of what is read.
    """
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    complex_sizes = sizes if kind in ("fft", "ifft") else half
    complex_type = COMPLEX[element]
    first, *rest = [(max(stop - RANK, 0), stop) for stop in range(len(sizes), 0, -RANK)]
    inner_in = half if kind == "irfft" else sizes
    inner_out = half if kind == "rfft" else sizes
    written = REAL[element] if kind == "irfft" else complex_type
    outer = batch * prod(sizes[: first[0]])
    main = Pass(
        sizes[first[0] :],
        outer,
        _dense(inner_in[first[0] :], element),
        _dense(inner_out[first[0] :], written),
        TYPES[complex_type],
        direction(kind),
    )
    others = []
    for start, stop in rest:
        inner = prod(complex_sizes[stop:])
        place = Side(complex_sizes[start:stop], inner, 1, TYPES[complex_type])
        step = prod(complex_sizes[start:]) * ITEM[complex_type]
        others.append(
            Pass(
                complex_sizes[start:stop],
                inner,
                place,
                place,
                TYPES[complex_type],
                direction(kind),
                within="input" if kind == "irfft" else "output",
                count=batch * prod(sizes[:start]),
                steps=(step, step),
            )
        )
    return (*others, main) if kind == "irfft" else (main, *others)


def direction(kind: str) -> int:
    """Of the exponent's sign."""
    return FORWARD if kind in ("fft", "rfft") else INVERSE


def scale(kind: str, norm: str, sizes: Sequence[int]) -> float:
    """What the numbers of a transform are multiplied with: cuFFT's have no scale."""
    count = prod(sizes)
    if norm == "ortho":
        return 1 / sqrt(count)
    return 1 / count if (norm == "forward") == (direction(kind) == FORWARD) else 1.0


def unkept(tier: str) -> str:
    """Why cuFFT does not keep a tier, or ""."""
    return messages.unkept(tier, "cuFFT does not keep")


class CufftPlan:
    """A plan without a work area of its own: each run passes one.

    Attributes:
        bytes: that it needs to work in.
    """

    def __init__(self, library: OpenLibrary, driver: int, index: int, of: Pass) -> None:
        """Make a plan; nothing is left of it where that fails.

        Raises:
            Fault: it fails.
        """
        self._library, self._made, self._captured = library, False, False
        self._work: Work = (library, driver, index, 0, (), False)
        self._busy = threading.Lock()  # while a run sets the stream and launches
        plan, size = ctypes.c_int(), ctypes.c_size_t()
        with Session(self._work):
            library.call("cufftCreate", ctypes.byref(plan))
            self._plan = plan.value
            try:
                library.call("cufftSetAutoAllocation", self._plan, 0)
                one, two = (
                    (_numbers(side.embed), side.stride, side.distance, side.type)
                    for side in (of.input, of.output)
                )
                given = (len(of.sizes), _numbers(of.sizes), *one, *two, of.batch)
                made = (ctypes.byref(size), of.execution)
                library.call("cufftXtMakePlanMany", self._plan, *given, *made)
            except Fault:
                library.functions["cufftDestroy"](self._plan)
                raise
        self.bytes, self._made = size.value, True

    def run(self, work: Work, of: Pass, addresses: tuple[int, int, int]) -> None:
        """Put a plan's work on a stream. Threads that run one plan at once take turns.

        Args:
            work: where.
            of: how often, and how input and output move on.
            addresses: of what is read, of what is written, and of `bytes` to work in.

        Raises:
            Fault: it fails.
        """
        call, session = self._library.call, Session(work)
        source, target, area = addresses
        with session, self._busy:
            self._captured = self._captured or session.captured
            call("cufftSetStream", self._plan, work[3])
            if area:
                call("cufftSetWorkArea", self._plan, area)
            for at in range(of.count):
                start, end = source + at * of.steps[0], target + at * of.steps[1]
                call("cufftXtExec", self._plan, start, end, of.direction)

    def __del__(self) -> None:
        # While the process ends the driver may be gone already. In a forked process a plan is
        # forgotten, and so is one that a captured graph may refer to.
        if self._made and not self._captured and not sys.is_finalizing():
            with suppress(Fault), Session(self._work):
                self._library.functions["cufftDestroy"](self._plan)


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_longlong * len(values))(*values)
