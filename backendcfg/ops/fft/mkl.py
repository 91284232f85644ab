"""Transforms by MKL's DFTI, over the library that the snapshot has open."""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_long, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from backendcfg import _native, native
from backendcfg.ops.fft.plans import MAX_SIZE, plan_cache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.flags_in_force import FlagsInForce
    from backendcfg.ops.fft.arguments import Request

# The numbers of mkl_dfti.h.
_FORWARD_SCALE, _BACKWARD_SCALE, _NUMBER_OF_TRANSFORMS = 4, 5, 7
_CONJUGATE_EVEN_STORAGE, _PLACEMENT = 10, 11
_INPUT_STRIDES, _OUTPUT_STRIDES, _INPUT_DISTANCE, _OUTPUT_DISTANCE = 12, 13, 14, 15
_COMPLEX, _REAL, _COMPLEX_COMPLEX, _NOT_INPLACE = 32, 33, 39, 44

MOST_DIMENSIONS = 7


class UnservedError(Exception):
    """MKL cannot compute it; the text says why."""


class Plan:
    """A descriptor, destroyed with the last reference to it. Threads may share it."""

    made = 0
    destroyed = 0

    def __init__(self, library: ctypes.CDLL, handle: c_void_p) -> None:
        self._library = library
        self._handle = handle
        Plan.made += 1

    def compute(self, source: NDArray[Any], target: NDArray[Any], *, forward: bool) -> None:
        """Transform; without the interpreter's lock."""
        function = (
            self._library.DftiComputeForward if forward else self._library.DftiComputeBackward
        )
        _check(self._library, function(self._handle, source.ctypes.data, target.ctypes.data))

    def __del__(self) -> None:
        if self._handle:
            self._library.DftiFreeDescriptor(byref(self._handle))
            Plan.destroyed += 1


def compute(request: Request, flags: FlagsInForce) -> NDArray[Any]:
    """The result of a request.

    Raises:
        UnservedError: it has too many dimensions, or MKL refused.
    """
    if len(request.axes) > MOST_DIMENSIONS:
        raise UnservedError(f"it has no transforms of {len(request.axes)} dimensions")
    library = _library()
    most, scale = int(flags[MAX_SIZE]), _scale(request)
    part = _Part(request.kind, resized(request), request.axes, request.sizes, scale)
    if part.kind == "irfft" and len(part.axes) > 1:
        # Its own, of several dimensions, would trust that the input is Hermitian in all of them.
        first = _Part("ifft", part.array, part.axes[:-1], part.sizes[:-1], 1.0)
        array = _run(library, most, first)
        part = part._replace(array=array, axes=part.axes[-1:], sizes=part.sizes[-1:])
    return _run(library, most, part)


class _Part(NamedTuple):
    """One call of MKL; as in `Request`, with what the result is multiplied by."""

    kind: str
    array: NDArray[Any]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    scale: float


class _Layout(NamedTuple):
    """Everything that a plan depends on; strides and distances in elements.

    Attributes:
        path: of the library.
        threads: that it may use: it divides the work when the plan is made.
        kind: as in `Request`.
        single: whether it computes in float32.
        sizes: of the signal.
        transforms: how many signals, `distance` apart in the input, dense in the output.
        strides: of the input.
        scale: of the result.
    """

    path: str
    threads: int
    kind: str
    single: bool
    sizes: tuple[int, ...]
    transforms: int
    strides: tuple[int, ...]
    distance: int
    scale: float


def _run(library: ctypes.CDLL, most: int, part: _Part) -> NDArray[Any]:
    kind, sizes, count = part.kind, part.sizes, len(part.axes)
    ends = range(-count, 0)
    source = np.moveaxis(part.array, part.axes, ends)
    if (distance := _distance(source, count)) is None:
        source = np.ascontiguousarray(source)
        distance = _distance(source, count) or 1
    batch = source.shape[:-count]
    single = source.dtype in (np.float32, np.complex64)
    complex_type, real_type = (np.complex64, np.float32) if single else (np.complex128, np.float64)
    target = np.empty(
        (*batch, *_result(kind, sizes)), real_type if kind == "irfft" else complex_type
    )
    layout = _Layout(
        library._name,
        library.MKL_Get_Max_Threads(),
        kind,
        single,
        sizes,
        math.prod(batch),
        tuple(step // source.itemsize for step in source.strides[-count:]),
        distance,
        part.scale,
    )
    plan = plan_cache["cpu"].get(layout, lambda: _plan(library, layout), most)
    plan.compute(source, target, forward=kind in ("fft", "rfft"))
    return np.moveaxis(target, ends, part.axes)


def _result(kind: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a transformed signal."""
    return (*sizes[:-1], sizes[-1] // 2 + 1 if kind == "rfft" else sizes[-1])


def _plan(library: ctypes.CDLL, layout: _Layout) -> Plan:
    kind, sizes = layout.kind, layout.sizes
    handle, domain = c_void_p(), _COMPLEX if kind in ("fft", "ifft") else _REAL
    rank = len(sizes)
    create = library[
        f"DftiCreateDescriptor_{'s' if layout.single else 'd'}_{'1d' if rank == 1 else 'md'}"
    ]
    create.restype = c_long
    lengths = [c_long(sizes[0])] if rank == 1 else [c_long(rank), (c_long * rank)(*sizes)]
    _check(library, create(byref(handle), c_int(domain), *lengths))
    plan = Plan(library, handle)
    shape = _result(kind, sizes)
    settings: list[tuple[int, Any]] = [
        (_PLACEMENT, c_int(_NOT_INPLACE)),
        (_NUMBER_OF_TRANSFORMS, c_long(layout.transforms)),
        (_INPUT_STRIDES, (c_long * (rank + 1))(0, *layout.strides)),
        (_OUTPUT_STRIDES, (c_long * (rank + 1))(0, *_dense(shape))),
        (_INPUT_DISTANCE, c_long(layout.distance)),
        (_OUTPUT_DISTANCE, c_long(math.prod(shape))),
        (_FORWARD_SCALE if kind in ("fft", "rfft") else _BACKWARD_SCALE, c_double(layout.scale)),
    ]
    if domain == _REAL:
        settings.append((_CONJUGATE_EVEN_STORAGE, c_int(_COMPLEX_COMPLEX)))
    for name, value in settings:
        _check(library, library.DftiSetValue(handle, c_int(name), value))
    _check(library, library.DftiCommitDescriptor(handle))
    return plan


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps)


def _distance(array: NDArray[Any], count: int) -> int | None:
    """Elements from one signal to the next; None where the signals are not equally far apart."""
    size = array.itemsize
    if not array.flags.aligned or any(step % size or step <= 0 for step in array.strides[-count:]):
        return None
    distance, reach = 0, 0
    for length, step in zip(
        array.shape[-count - 1 :: -1], array.strides[-count - 1 :: -1], strict=True
    ):
        if length == 1:
            continue
        if step <= 0 or step % size or (reach and step != reach):
            return None
        distance = distance or step
        reach = step * length
    return distance // size or 1


def resized(request: Request) -> NDArray[Any]:
    """The input, cropped or padded with zeros to what the transform reads."""
    array: NDArray[Any] = request.array
    shape = list(array.shape)
    for axis, size in zip(request.axes, request.sizes, strict=True):
        shape[axis] = size
    if request.kind == "irfft":
        shape[request.axes[-1]] = request.sizes[-1] // 2 + 1
    kept = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, shape, strict=True))
    if all(a >= b for a, b in zip(array.shape, shape, strict=True)):
        return array[kept]
    padded = np.zeros(shape, array.dtype)
    padded[kept] = array[kept]
    return padded


def _scale(request: Request) -> float:
    count = math.prod(request.sizes)
    if request.norm == "ortho":
        return float(count**-0.5)
    return 1.0 / count if (request.norm == "forward") == (request.kind in ("fft", "rfft")) else 1.0


def _library() -> ctypes.CDLL:
    return _declared(first_opened(_native.snapshot()).path)


@lru_cache(maxsize=256)
def first_opened(snapshot: int) -> native.Opened:
    """The provider that a snapshot prefers; snapshots are for the life of the process."""
    return native.describe(native.ordered(snapshot, "dgemm")[0])


@lru_cache(maxsize=8)
def _declared(path: str) -> ctypes.CDLL:
    """MKL, which dispatch has opened, with the prototypes of what is not variadic.

    Raises:
        UnservedError: it has no transforms.
    """
    library = ctypes.CDLL(path)
    try:
        for name in ("DftiComputeForward", "DftiComputeBackward"):
            function = getattr(library, name)  # by index would be another object
            function.restype, function.argtypes = c_long, [c_void_p, c_void_p, c_void_p]
        library.DftiFreeDescriptor.argtypes = [POINTER(c_void_p)]
        library.DftiCommitDescriptor.restype = c_long
        library.DftiCommitDescriptor.argtypes = [c_void_p]
        library.DftiSetValue.restype = c_long
        library.DftiErrorMessage.restype = c_char_p
        library.DftiErrorMessage.argtypes = [c_long]
        library.MKL_Get_Max_Threads.restype = c_int
    except AttributeError as error:
        raise UnservedError(f"{path} has no transforms: {error}") from None
    return library


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        text = library.DftiErrorMessage(status) or b""
        raise UnservedError(text.decode(errors="replace") or f"status {status}")
