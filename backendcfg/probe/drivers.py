"""What drivers of GPUs answer: NVIDIA's management library (NVML), and Apple's Metal.

A child interpreter runs this file (`child.py`): a driver that crashes or hangs must not take the
user's process with it. Standard library only. NVML makes no context; its signatures are those of
nvml.h of the CUDA toolkit. Metal is asked by its C and Objective-C interfaces.
"""

from __future__ import annotations

import ctypes
from typing import Any

_SUCCESS = 0
_NOT_FOUND = 6
_MIG_ENABLED = 1


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


def inspect(request: dict[str, Any]) -> dict[str, Any]:
    """What the driver that `request["kind"]` names answers.

    Raises:
        OSError: the library cannot be opened or initialised.
        LookupError: there is no device.
    """
    return metal() if request["kind"] == "metal" else nvml(request["path"])


def nvml(path: str) -> dict[str, Any]:
    """Devices and versions that NVML reports.

    Keys: driver, cuda, count, gpus (index, name, uuid, memory, compute_capability, mig,
    instances) and broken: what could not be read, in words. `mig` says whether the device is
    divided; `instances` are the identifiers of its parts.

    Raises:
        OSError: the library cannot be opened or initialised.
    """
    library = ctypes.CDLL(path)
    _check(library, "nvmlInit_v2")
    version = ctypes.c_int()
    broken: list[str] = []
    count = ctypes.c_uint()
    _check(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    gpus = []
    for index in range(count.value):
        try:
            gpus.append(_nvml_device(library, index))
        except (OSError, AttributeError) as error:
            broken.append(f"device {index}: {error}")
    try:
        _check(library, "nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
        driver = _text(library, "nvmlSystemGetDriverVersion")
    except (OSError, AttributeError) as error:
        broken.append(str(error))
        driver = ""
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""
    library.nvmlShutdown()
    return {
        "driver": driver,
        "cuda": cuda,
        "count": count.value,
        "gpus": gpus,
        "broken": broken,
    }


def _nvml_device(library: ctypes.CDLL, index: int) -> dict[str, Any]:
    device = ctypes.c_void_p()
    _check(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(
        library,
        "nvmlDeviceGetCudaComputeCapability",
        device,
        ctypes.byref(major),
        ctypes.byref(minor),
    )
    memory = _Memory()
    total = 0
    # Devices that share the host's memory (Grace Hopper's small siblings) refuse this question.
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == _SUCCESS:
        total = memory.total
    divided, instances = _instances(library, device)
    return {
        "index": index,
        "name": _text(library, "nvmlDeviceGetName", device),
        "uuid": _text(library, "nvmlDeviceGetUUID", device),
        "memory": total,
        "compute_capability": f"{major.value}.{minor.value}",
        "mig": divided,
        "instances": instances,
    }


def _instances(library: ctypes.CDLL, device: ctypes.c_void_p) -> tuple[bool, list[str]]:
    """Whether a device is divided by MIG, and the identifiers of its parts."""
    if not hasattr(library, "nvmlDeviceGetMigMode"):
        return False, []
    now, pending, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    asked = library.nvmlDeviceGetMigMode(device, ctypes.byref(now), ctypes.byref(pending))
    if asked != _SUCCESS or now.value != _MIG_ENABLED:
        return False, []
    _check(library, "nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
    found = []
    for index in range(most.value):
        part = ctypes.c_void_p()
        status = library.nvmlDeviceGetMigDeviceHandleByIndex(
            device, ctypes.c_uint(index), ctypes.byref(part)
        )
        if status == _SUCCESS:
            found.append(_text(library, "nvmlDeviceGetUUID", part))
        elif status != _NOT_FOUND:
            break
    return True, found


def _text(library: ctypes.CDLL, name: str, *leading: Any) -> str:
    """What a function writes into a buffer whose length it takes last."""
    buffer = ctypes.create_string_buffer(128)
    _check(library, name, *leading, buffer, ctypes.c_uint(len(buffer)))
    return buffer.value.decode(errors="replace")


def _check(library: ctypes.CDLL, name: str, *arguments: Any) -> None:
    """Call, and raise with NVML's own words when it fails."""
    status = getattr(library, name)(*arguments)
    if status != _SUCCESS:
        library.nvmlErrorString.restype = ctypes.c_char_p
        words = library.nvmlErrorString(status)
        raise OSError(f"{name}: {words.decode() if words else status}")


_FRAMEWORKS = "/System/Library/Frameworks"


def metal() -> dict[str, Any]:
    """Metal's default device: name, and memory it may use in bytes.

    Raises:
        OSError: there is no Metal here.
        LookupError: Metal has no device.
    """
    # Without CoreGraphics a command-line process is told that there is no device.
    ctypes.CDLL(f"{_FRAMEWORKS}/CoreGraphics.framework/CoreGraphics")
    framework = ctypes.CDLL(f"{_FRAMEWORKS}/Metal.framework/Metal")
    runtime = ctypes.CDLL("/usr/lib/libobjc.dylib")
    framework.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
    device = framework.MTLCreateSystemDefaultDevice()
    if not device:
        raise LookupError("Metal has no device")
    runtime.sel_registerName.restype = ctypes.c_void_p
    runtime.sel_registerName.argtypes = [ctypes.c_char_p]

    def send(receiver: int, message: bytes, result: Any) -> Any:
        # objc_msgSend has no signature of its own; each call declares the method's.
        function = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p)(
            ("objc_msgSend", runtime)
        )
        return function(receiver, runtime.sel_registerName(message))

    name = send(send(device, b"name", ctypes.c_void_p), b"UTF8String", ctypes.c_char_p)
    return {
        "name": name.decode() if name else "",
        "memory": send(device, b"recommendedMaxWorkingSetSize", ctypes.c_uint64),
    }
