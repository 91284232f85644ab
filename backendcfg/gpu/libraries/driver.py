"""What the drivers say of a device: asked through ctypes, once for each device."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from backendcfg.gpu.libraries.opening import require_device
from backendcfg.ops.devices import CUDA

_CUDA_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_HIP_CAPABILITY = (23, 61)  # hipDeviceAttributeComputeCapabilityMajor, Minor
_SHARED_OF_A_BLOCK = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_SECOND_LEVEL_CACHE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

_asked: set[str] = set()  # drivers that a call has started


def capability(path: str, index: int, *, kind: int = CUDA, start: bool = True) -> tuple[int, int]:
    """The compute capability of a device; (0, 0) where the driver does not say.

    Args:
        path: the driver's file.
        index: of the device.
        kind: of the device, as DLPack numbers it.
        start: initialise the driver if nobody has; a process that did so cannot fork and compute on
            a device in the child.
    """
    if start:
        _asked.add(path)
    found = _capability(path, index, kind) if kind == CUDA or path in _asked else (0, 0)
    if found == (0, 0) and start:
        driver = _driver(path)
        (driver.cuInit if kind == CUDA else driver.hipInit)(0)
        _capability.cache_clear()
        found = _capability(path, index, kind)
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
def memories(path: str, index: int) -> tuple[int, int]:
    """Bytes of a CUDA device: shared memory that a block may have, and the second-level cache.

    Where the driver does not say, they are the least that kernels must do with.
    """
    driver, device, found = _driver(path), ctypes.c_int(index), []
    known = not driver.cuDeviceGet(ctypes.byref(device), index)
    for attribute, least in ((_SHARED_OF_A_BLOCK, 48 << 10), (_SECOND_LEVEL_CACHE, 0)):
        value = ctypes.c_int()
        said = known and not driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        found.append(value.value if said else least)
    return found[0], found[1]


@lru_cache(maxsize=64)
def _capability(path: str, index: int, kind: int) -> tuple[int, int]:
    driver, device, parts = _driver(path), ctypes.c_int(index), []
    if kind == CUDA:
        ask, attributes = driver.cuDeviceGetAttribute, _CUDA_CAPABILITY
        if driver.cuDeviceGet(ctypes.byref(device), index):
            return (0, 0)
    else:  # HIP starts itself at any question
        ask, attributes = driver.hipDeviceGetAttribute, _HIP_CAPABILITY
    for attribute in attributes:
        value = ctypes.c_int()
        if ask(ctypes.byref(value), attribute, device):
            return (0, 0)
        parts.append(value.value)
    return (parts[0], parts[1])


@lru_cache(maxsize=4)
def _driver(path: str) -> ctypes.CDLL:
    # The same file as is open already, so that nothing of it runs again.
    return ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
