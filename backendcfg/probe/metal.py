"""Apple's GPU by Metal's C and Objective-C interfaces.

A child interpreter runs this file (`child.py`). Standard library only.
"""

from __future__ import annotations

import ctypes
from typing import Any

_FRAMEWORKS = "/System/Library/Frameworks"


def inspect(request: dict[str, Any]) -> dict[str, Any]:
    """The default device: name, and memory it may use in bytes.

    Raises:
        OSError: there is no Metal here.
        LookupError: Metal has no device.
    """
    # Without CoreGraphics a command-line process is told that there is no device.
    ctypes.CDLL(f"{_FRAMEWORKS}/CoreGraphics.framework/CoreGraphics")
    metal = ctypes.CDLL(f"{_FRAMEWORKS}/Metal.framework/Metal")
    runtime = ctypes.CDLL("/usr/lib/libobjc.dylib")
    metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
    device = metal.MTLCreateSystemDefaultDevice()
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
