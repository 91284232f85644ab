"""What a transform is asked for, and what is refused."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from backendcfg import _native
from backendcfg.catalogue.frameworks import JAX, NUMPY, TORCH
from backendcfg.errors import InvalidArgumentError
from backendcfg.ops import devices
from backendcfg.ops.arrays import NARROW, ArrayView, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FLOATING = ("float32", "float64", "complex64", "complex128")
NORMS = ("backward", "ortho", "forward")
DEVICE = "device"
"""What `ArrayView.framework` says of an array on a device; its `origin` is its view."""
WHOLE = ("bool", "int8", "uint8", "int32", "int64")


class Request(NamedTuple):
    """One transform.

    Attributes:
        operation: as it was called: "hfft".
        kind: "fft", "ifft", "rfft" (real to half complex) or "irfft" (half complex to real).
        array: float32 or float64 where `kind` is "rfft", else complex64 or complex128; an array on
            a device as it was passed, of any type.
        axes: what is transformed, from 0 on, each once; "rfft" and "irfft" halve the last.
        sizes: of each, in the signal.
        norm: one of `NORMS`.
        came: the input, for `give`.
        shape: of the result; "rfft" halves the last of its axes.
        conjugates: whether the conjugate of `array` is what is transformed.
    """

    operation: str
    kind: str
    array: Any
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    norm: str
    came: ArrayView
    shape: tuple[int, ...]
    conjugates: bool = False

    @property
    def dtype(self) -> str:
        """The name of the array's; NumPy takes microseconds to say it."""
        return _NAMES[self.array.dtype.char]


_NAMES = {np.dtype(name).char: name for name in FLOATING}


class _Sizes(NamedTuple):
    """What of a request depends on shapes alone."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    norm: str
    shape: tuple[int, ...]


def one(  # noqa: PLR0917
    operation: str, kind: str, value: Any, n: int | None, dim: int, norm: str | None
) -> Request:
    """A transform along one dimension.

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it.
    """
    for name, number, wanted in (("dim", dim, "a whole number"), ("n", n, "whole numbers")):
        if isinstance(number, bool) or not (number is None or hasattr(number, "__index__")):
            refuse(operation, f"`{name}` must be {wanted}, not {number!r}")
    if dim is None:
        refuse(operation, "`dim` must be a whole number, not None")
    lengths = None if n is None else (n.__index__(),)
    return _request(operation, kind, value, lengths, (dim.__index__(),), norm, "n")


def several(  # noqa: PLR0917
    operation: str,
    kind: str,
    value: Any,
    s: Sequence[int] | None,
    dim: Sequence[int] | None,
    norm: str | None,
) -> Request:
    """A transform along several dimensions.

    Raises:
        InvalidArgumentError: an argument does not fit; the message names it.
    """
    lengths, dims = whole_numbers(operation, "s", s), whole_numbers(operation, "dim", dim)
    return _request(operation, kind, value, lengths, dims, norm, "s")


def _request(  # noqa: PLR0917
    operation: str,
    kind: str,
    value: Any,
    lengths: tuple[int, ...] | None,
    dims: tuple[int, ...] | None,
    norm: str | None,
    name: str,
) -> Request:
    came = taken(operation, value)
    array = _numbers(operation, kind, came)
    norm = norm if norm is None or type(norm) is str else repr(norm)  # what can be a key
    found = _sizes(operation, kind, tuple(array.shape), lengths, dims, norm, name)
    return Request(operation, kind, array, *found[:3], came, found.shape)


@lru_cache(maxsize=1024)
def _sizes(  # noqa: PLR0917
    operation: str,
    kind: str,
    shape: tuple[int, ...],
    lengths: tuple[int, ...] | None,
    dims: tuple[int, ...] | None,
    norm: str | None,
    name: str,
) -> _Sizes:
    dimensions = len(shape)
    axes = shape_of(operation, dimensions, dims)
    if axes is None:
        count = dimensions if lengths is None else len(lengths)
        if count > dimensions:
            refuse(operation, f"`s` must have {dimensions} sizes at most, not {count}")
        axes = tuple(range(dimensions - count, dimensions))
    if lengths is not None and len(lengths) != len(axes):
        refuse(operation, f"`s` must have as many sizes as `dim`, {len(axes)}, not {len(lengths)}")
    if kind in ("rfft", "irfft") and not axes:
        refuse(operation, "`dim` must have at least one dimension")
    if norm is not None and norm not in NORMS:
        refuse(operation, f'`norm` must be "backward", "ortho" or "forward", not {norm!r}')
    sizes = [shape[axis] for axis in axes]
    if kind == "irfft":
        sizes[-1] = 2 * (sizes[-1] - 1)
    for position, length in enumerate(lengths or ()):
        if length != -1 or name == "n":
            sizes[position] = length
    result = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        if size < 1:
            refuse(operation, f"`{name}` must be at least 1 for dimension {axis}, not {size}")
        result[axis] = size
    if kind == "rfft":
        result[axes[-1]] = sizes[-1] // 2 + 1
    return _Sizes(axes, tuple(sizes), norm or "backward", tuple(result))


def flipped(norm: str) -> str:
    """The scale of the other direction."""
    return {"backward": "forward", "forward": "backward"}.get(norm, norm)


def shape_of(operation: str, dimensions: int, dims: Sequence[int] | None) -> tuple[int, ...] | None:
    """Dimensions from 0 on; None for all."""
    if dims is None:
        return None
    for dim in dims:
        if not -dimensions <= dim < dimensions:
            limit = f"from {-dimensions} to {dimensions - 1}" if dimensions else "left out"
            refuse(operation, f"`dim` must be {limit}, not {dim}: `input` has {dimensions}")
    found = tuple(dim % dimensions for dim in dims)
    if len(set(found)) < len(found):
        refuse(operation, f"`dim` must have each dimension once, not {tuple(dims)}")
    return found


def taken(operation: str, value: Any, *, everything: bool = False) -> ArrayView:
    """The input.

    Raises:
        InvalidArgumentError: it is no array, or not of numbers that can be transformed.
    """
    if type(value) is not np.ndarray and _native.device_holds(value):
        came: ArrayView = devices.gpu().take_signal(operation, value, everything=everything)
        return came
    came = take(value, "input", f"fft.{operation}")
    if not everything and came.element not in FLOATING:
        check_element(operation, came.element, came.framework)
    return came


def check_element(operation: str, element: str, framework: str = NUMPY.name) -> None:
    """Refuse what nobody can transform.

    PyTorch refuses numbers of 16 bits on the CPU, too.

    Raises:
        InvalidArgumentError: these are such.
    """
    if element in FLOATING or (element != "bfloat16" and np.dtype(element).kind in "biu"):
        return
    refuse_element(operation, element, framework=framework)


def refuse_element(
    operation: str, element: str, value: Any = None, framework: str = ""
) -> NoReturn:
    """Refuse an element type that nobody transforms.

    Raises:
        InvalidArgumentError: always.
    """
    is_torch = framework == TORCH.name or hasattr(value, "float")
    way = "input.float()" if is_torch else 'input.astype("float32")'
    narrow = element in NARROW
    refuse(
        operation,
        f"`input` must hold {', '.join(FLOATING)} or integers, not {element}",
        f"transform it in float32: `{way}`" if narrow else f"convert it: `{way}`",
    )


def check_real(operation: str, element: str) -> None:
    """Refuse complex numbers where a real signal is transformed.

    Raises:
        InvalidArgumentError: these are such.
    """
    if operation.startswith(("rfft", "ihfft")) and element.startswith("complex"):
        refuse(operation, f"`input` must be real, not {element}", "take its real part, or `fft`")


def _numbers(operation: str, kind: str, came: ArrayView) -> NDArray[Any]:
    """As it is transformed: integers as the framework makes real numbers of them."""
    array = came.array
    if came.framework == DEVICE:  # converted there
        if came.element.startswith("complex"):
            check_real(operation, came.element)
        return array
    if came.element not in FLOATING:
        single = False
        if came.framework == TORCH.name:
            torch = sys.modules[TORCH.name]
            single = torch.get_default_dtype() is not torch.float64
        elif came.framework == JAX.name:
            single = not sys.modules[JAX.name].config.jax_enable_x64
        array = array.astype(np.float32 if single else np.float64)
    is_complex = array.dtype.kind == "c"
    if is_complex:
        check_real(operation, _NAMES[array.dtype.char])
    if kind == "rfft" or is_complex:
        return array
    return array.astype(np.complex64 if array.dtype == np.float32 else np.complex128)


def whole_numbers(operation: str, name: str, value: Any) -> tuple[int, ...] | None:
    """One whole number or several; None for None."""
    if value is None:
        return None
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return (value.__index__(),)
    try:
        return tuple([each.__index__() for each in value])
    except (AttributeError, TypeError):
        refuse(operation, f"`{name}` must be whole numbers, not {value!r}")


def refuse(operation: str, what: str, *helps: str) -> NoReturn:
    """Raise for an argument of a transform."""
    raise InvalidArgumentError(
        f"fft.{operation}: {what}", state="nothing was computed", helps=[*helps]
    )
