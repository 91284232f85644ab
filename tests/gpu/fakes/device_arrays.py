"""Arrays that say they are on a device, over memory of the host: what fakes of libraries compute on.

`OnDevice` has DLPack's table of C functions, as PyTorch's tensors; `ByInterface` only
`__cuda_array_interface__`, as CuPy's arrays; `ByCapsule` only `__dlpack__`.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
)

import numpy as np

CODES = {
    "float32": (2, 32),
    "float64": (2, 64),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    "int8": (0, 8),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "bool": (6, 8),
}
NAMES = {code: name for name, code in CODES.items()}


def held(element):
    """The type of NumPy's that holds an element."""
    return np.dtype("uint16" if element == "bfloat16" else element)


def narrowed(values):
    """float32 values as the bits of bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widened(bits):
    """The values of bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("kind", c_int32),
        ("index", c_int32),
        ("dimensions", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("offset", c_uint64),
    ]


class Managed(Structure):
    pass


DELETER = ctypes.PYFUNCTYPE(None, POINTER(Managed))
Managed._fields_ = [
    ("major", c_uint32),
    ("minor", c_uint32),
    ("context", c_void_p),
    ("deleter", DELETER),
    ("flags", c_uint64),
    ("tensor", Tensor),
]
SET_ERROR = ctypes.PYFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
ALLOCATE = ctypes.PYFUNCTYPE(c_int, POINTER(Tensor), POINTER(POINTER(Managed)), c_void_p, SET_ERROR)
FROM_OBJECT = ctypes.PYFUNCTYPE(c_int, py_object, POINTER(POINTER(Managed)))
TO_OBJECT = ctypes.PYFUNCTYPE(c_int, POINTER(Managed), POINTER(c_void_p))
BORROW = ctypes.PYFUNCTYPE(c_int, py_object, POINTER(Tensor))
STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class Table(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("previous", c_void_p),
        ("allocate", ALLOCATE),
        ("managed_from_object", FROM_OBJECT),
        ("object_from_managed", TO_OBJECT),
        ("tensor_from_object", BORROW),
        ("current_stream", STREAM),
    ]


FILLED = 1 << 20


def aligned(shape, dtype):
    """An array whose memory starts at a multiple of 256, as an allocator of a device gives it.

    What it holds is nobody's: neither zeros nor numbers that would pass for a result. Of a library's
    workspace, which has tens of MiB and which the handle of a stream keeps, that is the beginning: no
    fake reads the rest, and the process need not have it.
    """
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.empty(size + 256, np.uint8)
    room[:FILLED] = 0xA5
    start = -room.ctypes.data % 256
    return room[start : start + size].view(dtype).reshape(shape)


class OnDevice:
    """An array on a device: `array` is its memory.

    Attributes:
        stream: what the table says is current, for all arrays.
        allocated: the sizes in bytes of what was asked of the allocator.
        full: whether the allocator has no more memory; the name of a type: for that alone.
    """

    stream = 0
    allocated: list[int] = []
    full = False

    def __init__(self, array, element=None, place=(2, 0)):
        self.array = array
        self.element = element or array.dtype.name
        self.place = place
        self.dtype = self.element

    @property
    def shape(self):
        return self.array.shape

    def __dlpack_device__(self):
        return self.place

    def contiguous(self):
        fresh = aligned(self.array.shape, self.array.dtype)
        fresh[...] = self.array
        return OnDevice(fresh, self.element, self.place)

    def detach(self):
        return self

    def copy_(self, source):
        self.array[...] = source.array

    def add_(self, source):
        total = self.values() + source.values()
        self.array[...] = narrowed(total) if self.element == "bfloat16" else total

    def zero_(self):
        self.array[...] = 0

    def mul_(self, factor):
        self.array *= factor

    def conj_physical_(self):
        np.conj(self.array, out=self.array)

    def item(self):
        return self.array.item()

    def permute(self, order):
        return OnDevice(self.array.transpose(order), self.element, self.place)

    def roll(self, shifts, axes):
        return OnDevice(np.roll(self.array, shifts, axes), self.element, self.place)

    def __getitem__(self, index):
        return OnDevice(self.array[index], self.element, self.place)

    def _like(self, array):
        """An array of the same type; what NumPy computed of it is rounded to bfloat16."""
        if self.element == "bfloat16" and array.dtype != np.uint16:
            array = narrowed(array).reshape(array.shape)  # that has a dimension at least
        return OnDevice(array, self.element, self.place)

    def transpose(self, axes):
        return self._like(self.array.transpose(axes))

    def reshape(self, shape):
        return self._like(self.array.reshape(shape))

    def diagonal(self, axis1, axis2):
        return self._like(self.array.diagonal(axis1=axis1, axis2=axis2))

    def repeat(self, count, axis):
        return self._like(self.array.repeat(count, axis=axis))

    def sum(self, axis):
        values = self.values()
        return self._like(values.sum(axis=axis, dtype=values.dtype))

    def __mul__(self, other):
        return self._like(self.values() * other.values())

    def values(self):
        """What it holds, in a type that NumPy computes."""
        return widened(self.array) if self.element == "bfloat16" else self.array


class ByInterface:
    """An array with `__cuda_array_interface__` alone."""

    def __init__(self, array, stream=None, *, place=None, version=3):
        self.array, self.stream, self.version = array, stream, version
        self.dtype, self.shape = array.dtype, array.shape
        if place is not None:
            self.__dlpack_device__ = lambda: place

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            "data": (self.array.ctypes.data, False),
            "strides": self.array.strides,
            "stream": self.stream,
            "version": self.version,
        }


_alive: dict[int, tuple] = {}


def fill(tensor, owner):
    """Describe an array to a consumer; the numbers live as long as the owner."""
    array, (code, bits) = owner.array, CODES[owner.element]
    count = array.ndim
    owner.numbers = (
        (c_int64 * count)(*array.shape),
        (c_int64 * count)(*(step // array.itemsize for step in array.strides)),
    )
    tensor.data, tensor.offset = array.ctypes.data, 0
    tensor.kind, tensor.index = owner.place
    tensor.dimensions, tensor.code, tensor.bits, tensor.lanes = count, code, bits, 1
    tensor.shape, tensor.strides = owner.numbers


@DELETER
def _delete(managed):
    _alive.pop(ctypes.addressof(managed.contents), None)


def manage(owner):
    """A managed tensor that keeps its array alive."""
    managed = Managed(1, 0, None, _delete, 0)
    fill(managed.tensor, owner)
    _alive[ctypes.addressof(managed)] = (managed, owner)
    return managed


@ALLOCATE
def _allocate(prototype, out, context, set_error):
    asked = prototype.contents
    shape = tuple(asked.shape[i] for i in range(asked.dimensions))
    element = NAMES[asked.code, asked.bits]
    if OnDevice.full in (True, element):
        set_error(context, b"MemoryError", b"the device is full")
        return -1
    array = aligned(shape, held(element))
    OnDevice.allocated.append(array.nbytes)
    out[0] = ctypes.pointer(manage(OnDevice(array, element, (asked.kind, asked.index))))
    return 0


@FROM_OBJECT
def _managed(value, out):
    out[0] = ctypes.pointer(manage(value))
    return 0


@TO_OBJECT
def _object(managed, out):
    _, owner = _alive.pop(ctypes.addressof(managed.contents))
    ctypes.pythonapi.Py_IncRef(py_object(owner))
    out[0] = id(owner)
    return 0


@BORROW
def _borrow(value, out):
    fill(out.contents, value)
    return 0


@STREAM
def _stream(kind, index, out):
    out[0] = OnDevice.stream or None
    return 0


_table = Table(1, 3, None, _allocate, _managed, _object, _borrow, _stream)
# A function of our own: `pythonapi.PyCapsule_New` is one for all, and others say what it takes too.
_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
# A capsule keeps the address of its name.
_API, _CAPSULE = b"dlpack_exchange_api", b"dltensor_versioned"
OnDevice.__dlpack_c_exchange_api__ = _new(ctypes.addressof(_table), _API, None)


class ByCapsule:
    """An array with `__dlpack__` alone; `asked` is what its last consumer passed."""

    def __init__(self, array, element=None, place=(2, 0), *, versioned=True):
        self.owner = OnDevice(array, element, place)
        self.versioned = versioned
        self.dtype, self.shape = self.owner.element, array.shape
        self.asked = None

    def __dlpack_device__(self):
        return self.owner.place

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked = (stream, max_version)
        managed = manage(self.owner)
        return _new(ctypes.addressof(managed), _CAPSULE, None)
