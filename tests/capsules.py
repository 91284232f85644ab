"""DLPack capsules made by hand, of memory that NumPy has."""

from __future__ import annotations

import ctypes

import numpy as np


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Export:
    """A capsule made by hand, of six float32 numbers in two rows, and how often it was deleted."""

    def __init__(self, major=1, flags=0, **changed):
        self.numbers = np.arange(6, dtype=np.float32)
        self.deleted = 0
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        given = {"data": self.numbers.ctypes.data, "device": (1, 0), "dimensions": 2, "code": 2}
        given |= {"bits": 32, "lanes": 1, "shape": self.shape, "strides": None, "byte_offset": 0}
        self.managed = Versioned(major, 0, None, DELETER(self.delete), flags)
        for name, value in (given | changed).items():
            if name == "device":
                value = (ctypes.c_int32 * 2)(*value)
            elif isinstance(value, tuple):
                value = (ctypes.c_int64 * len(value))(*value)
            setattr(self.managed.tensor, name, value)

    def delete(self, managed):
        assert managed == ctypes.addressof(self.managed)
        self.deleted += 1

    def capsule(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, DELETER]
        return new(ctypes.addressof(self.managed), b"dltensor_versioned", DELETER())
