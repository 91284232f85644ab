"""Open a library in a child process first: a broken one can end the process that opens it.

The child runs this file by its path, isolated from the environment's start-up files, so this module
imports only the standard library at its top.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import suppress

TIMEOUT = 30.0
_ABI = 3


class _Library(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        *((name, ctypes.c_char_p) for name in ("name", "path", "prefix", "suffix")),
        ("interface", ctypes.c_int32),
    ]


class _Error(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("detail", ctypes.c_char * 480),
    ]


def rehearse(native: str, path: str, prefix: str, suffix: str, interface: int) -> str:
    """Why a library cannot be opened, or "" when a child process opened and called it.

    Args:
        native: the file of `backendcfg._native`.
        path: the library's file, absolute.
        prefix: before each symbol.
        suffix: after each symbol.
        interface: 32, 64, or 0 to find out.
    """
    return _tried(native, path, prefix, suffix, str(interface))


def rehearse_device(native: str, kind: int, path: str) -> str:
    """Why a library of devices cannot be opened, or "" when a child process opened it.

    Args:
        native: the file of `backendcfg._native`.
        kind: its number in native/include/backendcfg_device.h.
        path: the library's file, absolute.
    """
    return _tried(native, str(kind), path)


def _tried(*arguments: str) -> str:
    if not sys.executable:
        return "it cannot be tried in a child process: sys.executable is not set"
    command = [sys.executable, "-I", "-S", __file__, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"tried in a child process, it did not answer within {TIMEOUT:g} s"
    said = done.stdout.decode(errors="replace") if done.returncode >= 0 else ""
    if said == "usable":
        return ""
    return said or f"tried in a child process, it ended that process {ended(done.returncode)}"


def ended(code: int) -> str:
    """How a child process ended, by its return code: "by SIGSEGV", "with code 3"."""
    from backendcfg.childprocess import signal_name

    return f"by {signal_name(-code)}" if code < 0 else f"with code {code}"


def _child(native: str, path: str, prefix: str, suffix: str, interface: str) -> str:
    library = ctypes.CDLL(native)
    library.bcfg_open.argtypes = [ctypes.c_void_p] * 3
    error = _Error(_ABI, ctypes.sizeof(_Error))
    texts = (text.encode(errors="surrogateescape") for text in ("child", path, prefix, suffix))
    asked = _Library(_ABI, ctypes.sizeof(_Library), *texts, int(interface))
    handle = ctypes.c_void_p()
    status = library.bcfg_open(ctypes.byref(asked), ctypes.byref(handle), ctypes.byref(error))
    return error.detail.decode(errors="replace") or f"status {status}" if status else "usable"


def _child_of_device(native: str, kind: str, path: str) -> str:
    library = ctypes.CDLL(native)
    pointers = (ctypes.c_void_p, ctypes.c_void_p)
    library.bcfg_device_open.argtypes = [ctypes.c_int32, ctypes.c_char_p, *pointers]
    error, handle = _Error(_ABI, ctypes.sizeof(_Error)), ctypes.c_void_p()
    status = library.bcfg_device_open(
        int(kind), os.fsencode(path), ctypes.byref(handle), ctypes.byref(error)
    )
    return error.detail.decode(errors="replace") or f"status {status}" if status else "usable"


def _main() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        # A library that crashes here is expected; a core file of it is not.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = os.dup(1)
    os.dup2(2, 1)  # where libraries print, as MKL does under MKL_VERBOSE
    arguments = sys.argv[1:]
    said = _child_of_device(*arguments) if len(arguments) == 3 else _child(*arguments)
    os.write(answer, said.encode())


if __name__ == "__main__":
    _main()
