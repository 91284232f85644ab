"""Views of the arrays of any library, and results of the kind that came in.

    view = arrays.take(tensor, "a", "matmul")
    result = arrays.give(compute(view.array), view)

A view is a NumPy array over the same memory. No framework is imported here: whoever passes an array
of a framework has imported it. float16 and bfloat16 are computed in float32: `widen` makes exact
float32 numbers of them, and `round_to` rounds once, at the end.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from backendcfg import _native
from backendcfg.catalogue.frameworks import JAX, NUMPY, TORCH
from backendcfg.dispatch.array_facts import ArrayFacts
from backendcfg.errors import InvalidArgumentError, NotFiniteError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backendcfg.flags_in_force import FlagsInForce

_ELEMENTS = {
    np.dtype(name): name
    for name in (
        *("float32", "float64", "float16", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
}

# DLPack's numbers. The memory of `_ON_HOST` is the host's, or can be read there.
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 9: "VPI", 10: "ROCm", 14: "oneAPI"}
_ON_HOST = (1, 3, 11, 13)

_MEANING = ("__array_finalize__", "__array_function__", "__array_ufunc__", "__array_wrap__")
"""What a subclass of NumPy's array overrides that has units, a mask or products of its own."""

_MOST_BYTES = 1 << 56
"""More than any process can address."""


class ArrayView(NamedTuple):
    """An argument of an operation, over its own memory.

    Attributes:
        array: the memory as a NumPy array; bfloat16 is held as uint16.
        element: "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool",
            "int64" and so on, as NumPy names them.
        framework: "numpy", "torch", "jax", or "other" for what came by a protocol.
        origin: what `give` needs besides: a NumPy array's dtype, or a JAX array's device.
    """

    array: NDArray[Any]
    element: str
    framework: str
    origin: Any = None

    @property
    def facts(self) -> ArrayFacts:
        """What is known of it without its memory; gradients are not recorded on the CPU."""
        array, size = self.array, max(1, self.array.itemsize)
        steps = tuple([step // size for step in array.strides])
        return ArrayFacts(array.shape, steps, self.element)


def take(value: Any, name: str, operation: str) -> ArrayView:
    """An argument as a NumPy array over the same memory.

    Nothing is copied, but for what cannot be read as it lies: foreign byte order, and PyTorch's
    lazy conjugates and negatives. A tensor that needs a gradient is read without it.

    What a protocol says is checked before a byte is read: sizes, strides, the device, and that all
    lies in the buffer, where the exporter gives one. Whether an address is memory of the exporter,
    and stays so, cannot be checked.

    Args:
        value: a NumPy array, a PyTorch tensor or JAX array on the CPU, or anything that has
            `__array_interface__`, or `__dlpack__` and is on the CPU.
        name: of the argument, for the message.
        operation: for the message.

    Raises:
        InvalidArgumentError: it is no such array, or not on the CPU.
    """
    if type(value) is np.ndarray:
        return _numpy(value, NUMPY.name)
    if (torch := sys.modules.get(TORCH.name)) is not None and isinstance(value, torch.Tensor):
        try:  # most tensors need nothing; what does is refused by PyTorch, and looked at below
            if value.dtype is torch.bfloat16:
                return ArrayView(
                    value.view(torch.int16).numpy().view(np.uint16), "bfloat16", TORCH.name
                )
            array = value.numpy()
            return ArrayView(array, _ELEMENTS[array.dtype], TORCH.name)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            return _torch(torch, value, name, operation)
    if isinstance(value, (np.ndarray, np.generic)):
        return _subclass(value, name, operation)
    if (jax := sys.modules.get(JAX.name)) is not None and isinstance(value, jax.Array):
        return _jax(jax, value, name, operation)
    return _other(value, name, operation)


def take_out(value: Any, operation: str) -> ArrayView:
    """`out` as a NumPy array over its own memory.

    Raises:
        InvalidArgumentError: it is no array on the CPU, or `take` would copy it.
    """
    lazy = any(getattr(value, name, bool)() for name in ("is_conj", "is_neg"))
    if lazy:
        _refuse(operation, "`out` must be no lazy conjugate or negative", "pass its base")
    if not getattr(getattr(value, "dtype", None), "isnative", True):
        _refuse(operation, "`out` must be in this machine's byte order", "leave `out` away")
    return take(value, "out", operation)


def place_named(kind: int, index: int) -> str:
    """A place as DLPack numbers it, for people: "Metal:0"; "the CPU"."""
    if kind in _ON_HOST:
        return "the CPU"
    return f"{_DEVICES.get(int(kind), f'DLPack device {int(kind)}')}:{index}"


def dtype_of(value: Any) -> str:
    """The element type of an array, or the type of what is none."""
    return str(getattr(value, "dtype", type(value).__name__))


def described(value: Any) -> str:
    """An argument for people: "float32 array of shape (2, 3) on cuda:0", or its type."""
    shape, place = getattr(value, "shape", None), getattr(value, "place", "")
    if shape is None:
        return _kind(value)
    return f"{dtype_of(value)} array of shape {tuple(shape)}{place and f' on {place}'}"


def give(array: NDArray[Any], like: ArrayView) -> Any:
    """A result as what an argument was, over the same memory.

    Args:
        array: the result; a uint16 array where `like.element` is "bfloat16" holds bfloat16.
        like: the argument whose kind it takes.

    Returns:
        A PyTorch tensor, a JAX array on the argument's device (a copy where the memory is not
        aligned as JAX needs it), or the NumPy array.
    """
    narrow = like.element == "bfloat16" and array.dtype == np.uint16
    if like.framework == TORCH.name:
        torch = sys.modules[TORCH.name]
        array = np.asarray(array)  # the product of two vectors is a scalar, and no array
        if narrow:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if like.framework == JAX.name:
        jax = sys.modules[JAX.name]
        if narrow:
            array = array.view(jax.numpy.bfloat16.dtype)
        return jax.device_put(array, like.origin, may_alias=True)
    return array.view(like.origin) if narrow and like.origin is not None else array


def _numpy(array: NDArray[Any], framework: str) -> ArrayView:
    dtype = array.dtype
    if (element := _ELEMENTS.get(dtype)) is not None:
        return ArrayView(array, element, framework)
    if not dtype.isnative:
        return ArrayView(array.astype(dtype.newbyteorder("=")), dtype.name, framework)
    if dtype.name == "bfloat16":  # ml_dtypes', which NumPy cannot compute
        return ArrayView(array.view(np.uint16), "bfloat16", framework, dtype)
    return ArrayView(array, dtype.name, framework)


def _subclass(value: Any, name: str, operation: str) -> ArrayView:
    if isinstance(value, np.ma.MaskedArray):
        _refuse(
            operation,
            f"`{name}` must have no mask: it would be lost",
            f"fill it: `{name}.filled(value)`",
        )
    kind = type(value)
    if not isinstance(value, (np.generic, np.memmap, np.recarray)) and any(
        getattr(kind, method) is not getattr(np.ndarray, method) for method in _MEANING
    ):
        _refuse(
            operation,
            f"`{name}` must be a plain array: what {_kind(value)} means would be lost",
            f"pass `numpy.asarray({name})`",
        )
    return _numpy(np.asarray(value).view(np.ndarray), NUMPY.name)


def _torch(torch: Any, value: Any, name: str, operation: str) -> ArrayView:
    if value.device.type != "cpu":
        _refuse(operation, _away(name, str(value.device)), f"move it: `{name}.cpu()`")
    if value.layout is not torch.strided:
        _refuse(operation, f"`{name}` must be dense, not {value.layout}", f"`{name}.to_dense()`")
    try:
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.dtype is torch.bfloat16:
            return ArrayView(
                plain.view(torch.int16).numpy().view(np.uint16), "bfloat16", TORCH.name
            )
        return _numpy(plain.numpy(), TORCH.name)
    except (RuntimeError, TypeError, ValueError) as error:  # traced, fake, or of a type without
        _refuse(
            operation,
            f"`{name}` cannot be read: {_first_line(error)}",
            "pass a plain tensor on the CPU",
        )


def _jax(jax: Any, value: Any, name: str, operation: str) -> ArrayView:
    if isinstance(value, jax.core.Tracer):
        _refuse(
            operation,
            f"`{name}` must be an array, not a value that JAX traces",
            "call it outside `jax.jit` and `jax.grad`, or by `jax.pure_callback`",
        )
    try:
        devices = sorted(value.devices(), key=str)
        if len(devices) != 1:
            _refuse(
                operation,
                f"`{name}` must be on one device, not on {len(devices)}",
                f"gather it: `jax.device_put({name}, jax.devices('cpu')[0])`",
            )
        if devices[0].platform != "cpu":
            _refuse(
                operation,
                _away(name, str(devices[0])),
                f"move it: `jax.device_put({name}, jax.devices('cpu')[0])`",
            )
        return _numpy(np.asarray(value), JAX.name)._replace(origin=devices[0])
    except (RuntimeError, TypeError, ValueError) as error:  # deleted, donated, or a key
        if isinstance(error, InvalidArgumentError):
            raise
        _refuse(operation, f"`{name}` cannot be read: {_first_line(error)}")


def _other(value: Any, name: str, operation: str) -> ArrayView:
    """By a protocol; by NumPy's if it has both, because that needs no capsule."""
    device = getattr(value, "__dlpack_device__", None)
    has_interface = hasattr(value, "__array_interface__")
    if isinstance(value, type) or not (has_interface or device is not None):
        if hasattr(value, "__cuda_array_interface__"):
            _refuse(operation, _away(name, "a CUDA device"), "copy it to the host")
        _refuse(operation, f"`{name}` must be an array, not {_kind(value)}")
    try:
        if device is not None and (where := device())[0] not in _ON_HOST:
            _refuse(operation, _away(name, place_named(*where)), "copy it to the host")
        if has_interface:
            return _numpy(_by_interface(value), "other")
        array, element = _native.from_dlpack(_capsule(value))
    except InvalidArgumentError:
        raise
    except Exception as error:  # whatever a foreign library raises
        _refuse(operation, f"`{name}` cannot be read: {_first_line(error)}")
    return ArrayView(array, element, "other", _narrow_dtype() if element == "bfloat16" else None)


def _by_interface(value: Any) -> NDArray[Any]:
    """What `__array_interface__` describes; NumPy does not look where strides and offsets lead."""
    interface = value.__array_interface__
    data = interface.get("data")
    if interface.get("mask") is not None:
        raise ValueError("it has a mask, which would be lost")
    if data is None:  # the memory is had by the buffer protocol, which is checked by Python
        return np.asarray(value)
    # Asked once, so that what is checked is what is read.
    array = np.asarray(SimpleNamespace(__array_interface__=interface, owner=value))
    if array.size == 0:
        return array
    reach = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    low = sum(each for each in reach if each < 0)
    high = sum(each for each in reach if each > 0) + array.itemsize
    if isinstance(data, tuple):
        if high - low > _MOST_BYTES:
            raise ValueError("it reaches beyond all memory")
    else:
        start = array.ctypes.data - np.frombuffer(data, np.uint8).ctypes.data
        if start + low < 0 or start + high > memoryview(data).nbytes:
            raise ValueError("it reaches beyond its buffer")
    return array


def _capsule(value: Any) -> object:
    """What it exports: versioned, so that read-only memory can be had, else as of old."""
    try:
        return value.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter of before 1.0 does not know the argument
        return value.__dlpack__()


def _narrow_dtype() -> Any:
    """The bfloat16 of ml_dtypes where somebody has it, so that results say what they are."""
    found = sys.modules.get("ml_dtypes")
    return np.dtype(found.bfloat16) if found is not None else None


def _away(name: str, place: str) -> str:
    return f"`{name}` must be on the CPU, not on {place}"


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _refuse(operation: str, what: str, way_out: str = "pass `numpy.asarray(x)`") -> NoReturn:
    raise InvalidArgumentError(
        f"{operation}: {what}", state="nothing was computed", helps=[way_out]
    ) from None


NARROW = ("float16", "bfloat16")


def widen(array: NDArray[Any], element: str) -> NDArray[Any]:
    """The same numbers as float32; what is not narrow as it is."""
    if element == "float16":
        return array.astype(np.float32)
    if element == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def round_to(array: NDArray[Any], element: str) -> NDArray[Any]:
    """float32 rounded to the nearest, ties to even, as `widen` takes it; else as it is."""
    if element == "float16":
        with np.errstate(over="ignore"):  # to infinity, as the format says
            return array.astype(np.float16)
    if element == "bfloat16":
        bits = np.asarray(array, order="C").view(np.uint32)  # ascontiguousarray adds a dimension
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype(np.uint16)
    return array


def broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of a shape can be repeated to fill another shape."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(size in (1, full) for size, full in pairs)


def check_finite(
    array: NDArray[Any], operation: str, flags: FlagsInForce, element: str = ""
) -> None:
    """Refuse a result that holds NaN or infinity where the flag is on.

    Args:
        array: the result; uint16 where `element` is "bfloat16".
        operation: for the message.
        flags: the flags.
        element: what it holds, where its dtype does not say.

    Raises:
        NotFiniteError: it does; the message tells the first place.
    """
    if not flags["ops.check_finite"]:
        return
    array = widen(array, element)
    if array.dtype.kind not in "fc":
        return
    finite = np.isfinite(array)
    if finite.all():
        return
    place = tuple(int(i) for i in np.argwhere(~finite)[0])
    raise NotFiniteError.of(
        operation, f"the result is {array[place]} at {place}", state="nothing was returned"
    )


def is_flag(value: object) -> bool:
    """Whether an argument is True or False, Python's or NumPy's.

    What else has a truth is a mistake: "no" is true, and so is an array of one False.
    """
    return isinstance(value, (bool, np.bool_))


def element_named(dtype: Any) -> str:
    """NumPy's name of a type of NumPy's, PyTorch's or ml_dtypes'."""
    name = str(dtype).removeprefix("torch.")
    if name in NARROW:
        return name
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return name
