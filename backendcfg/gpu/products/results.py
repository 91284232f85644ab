"""Results for arrays whose library makes none for others: JAX's, and all with a protocol alone.

    result = ops.matmul(a, b)       # a `jax.Array`, or a `DeviceArray`

Their memory is the driver's own. A call that makes one returns when it is computed, because its
arrays name no stream that anybody could wait for.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from backendcfg import _native
from backendcfg.errors import DeviceFailedError, InvalidArgumentError
from backendcfg.gpu import own_library
from backendcfg.gpu.messages import advice
from backendcfg.gpu.products import recipes
from backendcfg.ops.devices import CUDA, place_named

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
