"""What the CUDA driver says of a device: asked through ctypes, once for each device."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from backendcfg.dispatch.device_opening import require_device

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def capability(path: str, index: int, *, start: bool = True) -> tuple[int, int]:
    """The compute capability of a device; (0, 0) where the driver does not say.

    Args:
        path: the driver's file.
        index: of the device.
        start: initialise the driver if nobody has; a process that did so cannot fork and compute on
            a device in the child.
    """
    found = _capability(path, index)
    if found == (0, 0) and start:
        _driver(path).cuInit(0)
        _capability.cache_clear()
        found = _capability(path, index)
    return found


def device_of(pointer: int) -> int:
    """The device that a pointer of CUDA belongs to.

    Raises:
        MissingLibraryError: there is no driver.
        ValueError: the pointer is none of CUDA's.
    """
    index = ctypes.c_int(-1)
    status = _driver(require_device("cuda").path).cuPointerGetAttribute(
        ctypes.byref(index), _DEVICE_ORDINAL, ctypes.c_uint64(pointer)
    )
    if status or index.value < 0:
        raise ValueError(f"the CUDA driver does not know its memory (status {status})")
    return index.value


@lru_cache(maxsize=64)
def _capability(path: str, index: int) -> tuple[int, int]:
    driver, device, parts = _driver(path), ctypes.c_int(), []
    if driver.cuDeviceGet(ctypes.byref(device), index):
        return (0, 0)
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return (0, 0)
        parts.append(value.value)
    return (parts[0], parts[1])


@lru_cache(maxsize=4)
def _driver(path: str) -> ctypes.CDLL:
    # The same file as is open already, so that nothing of it runs again.
    return ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
