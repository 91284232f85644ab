"""Products of device arrays, by cuBLAS, cuBLASLt, hipBLAS and hipBLASLt: what C asks of Python.

These are messages, choices, and results. The library that owns an array makes its results; where it
makes none for others, as JAX and what has a protocol alone, their memory is the driver's own:

    result = ops.matmul(a, b)       # a `jax.Array`, or a `DeviceArray`

Such a call returns when it is computed, because its arrays name no stream that anybody could wait
for.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from backendcfg import _native
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu import own_library
from backendcfg.gpu.libraries.opening import device_of
from backendcfg.gpu.messages import advice, describe, dtype_of, forked, is_of_driver
from backendcfg.gpu.products import recipes
from backendcfg.ops.devices import CUDA, place_named
from backendcfg.ops.products import TYPES

if TYPE_CHECKING:
    from collections.abc import Callable


# DLPack's code and bits, and the type's name in `__cuda_array_interface__`, where it has one.
_TYPES = {
    "float32": (2, 32, "<f4"),
    "float64": (2, 64, "<f8"),
    "complex64": (5, 64, "<c8"),
    "complex128": (5, 128, "<c16"),
    "bfloat16": (4, 16, ""),
    "float16": (2, 16, "<f2"),
}


class DeviceArray:
    """A result on a device, its rows one after the other, in memory of the driver's own.

    Hand it on by DLPack, `torch.from_dlpack(result)`, or by `__cuda_array_interface__`,
    `cupy.asarray(result)`: no byte is copied. The memory is given back with the last who holds it,
    which waits for the device.

    Attributes:
        shape: its sizes.
        dtype: of its elements, by name: "float32".
    """

    __slots__ = ("_address", "_index", "_kind", "_memory", "dtype", "shape")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        place: tuple[int, int],
        memory: tuple[object, int],
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._kind, self._index = place
        self._memory, self._address = memory

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def device(self) -> str:
        """Where it is: "cuda:0"."""
        return place_named((self._kind, self._index))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        name = _TYPES[self.dtype][2]
        if self._kind != CUDA or not name:
            raise AttributeError(f"no `__cuda_array_interface__` for {self.dtype} on {self.device}")
        data = (self._address, False)
        said = {"shape": self.shape, "typestr": name, "data": data, "strides": None}
        return {**said, "stream": None, "version": 3}  # computed: there is nothing to wait for

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, self._index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("it is lent where it is, and not copied")
        code, bits, _ = _TYPES[self.dtype]
        versioned = max_version is not None and max_version[0] >= 1
        place = (self._kind, self._index)
        return _native.device_lend(
            self._memory, self._address, *place, code, bits, self.shape, versioned
        )

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"


def make(like: Any, shape: tuple[int, ...], element: str, kind: int, index: int) -> Any:
    """Memory for a result, by the library that owns an operand, or for it.

    Raises:
        DeviceFailedError: the driver has no memory.
    """
    try:
        return own_library.make(like, shape, element, kind, index)
    except InvalidArgumentError:
        made = DeviceArray(shape, element, (kind, index), _memory(shape, element, kind, index))
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(like, jax.Array):
        return jax.dlpack.from_dlpack(made, copy=False)
    return made


def _memory(shape: tuple[int, ...], element: str, kind: int, index: int) -> tuple[object, int]:
    size = math.prod(shape) * _TYPES[element][1] // 8
    answer = _native.device_memory(recipes.driver_of(kind), index, size)
    if len(answer) == 2:
        return answer
    function, status, name = answer
    raise DeviceFailedError(
        "no memory for a result: the device's driver failed: "
        f"{function} returned {name or 'status'} ({status})",
        notes=[f"{element} array of shape {shape} on {place_named((kind, index))}"],
        state="nothing was computed",
        helps=advice(function, name),
    )


_MESSAGES = {
    "dimensions": "`{0}` must have {1}",
    "inner": "`{a}` and `{b}` must fit: the columns of one are the rows of the other",
    "batch": "the leading dimensions of `{a}` and `{b}` must fit",
    "broadcast": "`{0}` must broadcast to the shape of the product",
    "out-shape": "`out` must have the shape of the product",
    "read-only": "`out` must be writeable",
    "repeats": "`out` must not repeat an element",
    "overlap": "`out` must share no memory with `{0}`",
}
_HELPS = {
    "place": ["move it to where the others are"],
    "element": ["convert one of them: nothing is converted on a device"],
    "overlap": ["leave `out` away, or give it memory of its own"],
}


def refuse(
    operation: str, reason: str, detail: str, names: tuple[str, ...], values: tuple[Any, ...]
) -> NoReturn:
    """Refuse a product on a device; nothing has been written.

    Args:
        operation: "matmul".
        reason: which check failed, as native/gpu/python/shape.c names it.
        detail: the argument's name, or the message itself.
        names: of the arguments: the factors, what is added, and `out`; "" for none.
        values: as they were passed, None for none.

    Raises:
        InvalidArgumentError: always.
    """
    given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    if reason == "type":
        message = f"`{detail}` must hold {TYPES}, not {dtype_of(given[detail])}"
    elif reason == "element":
        message = f"`{detail}` must hold {dtype_of(given[names[0]])}, as `{names[0]}` does"
    elif reason == "forked":
        forked(operation)
    else:
        wanted = {"matmul": "at least one dimension", "addmm": "2 dimensions"}
        template = _MESSAGES.get(reason, detail.replace("{", "{{").replace("}", "}}"))
        message = template.format(
            detail, wanted.get(operation, "3 dimensions"), a=names[0], b=names[1]
        )
    raise InvalidArgumentError(
        f"{operation}: {message}",
        notes=[f"{name}: {describe(value)}" for name, value in given.items()],
        state="nothing was computed",
        helps=_HELPS.get(reason, []),
    ) from None


def failed(
    operation: str,
    library: str,
    fault: tuple[str, int, str],
    sizes: tuple[int, int, int],
    element: str,
) -> NoReturn:
    """Raise the status that a library of products returned; the library stays usable.

    Args:
        operation: "matmul".
        library: "cublas".
        fault: the function of the library or of its driver, the status that it returned, and the
            status' name; "" where the library has none.
        sizes: m, n, k of the product.
        element: of the arrays.

    Raises:
        DeviceFailedError: always.
    """
    (function, status, name), (m, n, k) = fault, sizes
    if is_of_driver(function):
        library = "the device's driver"
    raise DeviceFailedError(
        f"{operation}: {library} failed: {function} returned {name or 'status'} ({status})",
        notes=[f"{element} product of ({m}, {k}) and ({k}, {n})"],
        state="the result was not computed; the next call starts anew",
        helps=advice(function, name),
    )


CALLBACKS: dict[str, Callable[..., Any]] = {
    "refuse": refuse,
    "failed": failed,
    "place": device_of,
    "recipe": recipes.recipe_for,
    "make": make,
    "dense": own_library.dense,
    "copy": own_library.copy,
    "finite": own_library.check_finite,
    "stream": own_library.stream_of,
}
"""What `_native.device_bind` takes."""
