"""The loader's list of installed libraries: /etc/ld.so.cache, as ldconfig writes it.

Format: sysdeps/generic/dl-cache.h of glibc. Reading it costs a tenth of running `ldconfig -p`,
which is not on the path of every user either.
"""

from __future__ import annotations

import os
import struct
import sys

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("=20sII")
_HEADER_SIZE = 48
_ENTRY = struct.Struct("=iIIIQ")


def installed(root: str = "/") -> dict[str, str]:
    """Every library that the loader finds by name: `{soname: path}`, the preferred file of each.

    Raises:
        OSError: there is no cache, as on musl or NixOS.
        ValueError: it is not in a format that glibc has written since 1999.
    """
    with open(os.path.join(root, "etc/ld.so.cache"), "rb") as file:
        data = file.read()
    start = data.find(_MAGIC)
    if start < 0:
        raise ValueError("/etc/ld.so.cache does not hold the glibc 2.2 format")
    try:
        _, count, _ = _HEADER.unpack_from(data, start)
        found: dict[str, str] = {}
        for index in range(count):
            _, key, value, _, _ = _ENTRY.unpack_from(
                data, start + _HEADER_SIZE + index * _ENTRY.size
            )
            name = _string(data, start + key)
            path = _string(data, start + value)
            if path.startswith("/") and _fits(path):
                found.setdefault(name, os.path.join(root, path.lstrip("/")))
    except struct.error as error:
        raise ValueError("/etc/ld.so.cache ends too early") from error
    return found


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset)
    return os.fsdecode(data[offset:end]) if end >= 0 else ""


def _fits(path: str) -> bool:
    """Leave out the 32-bit copies that a 64-bit system may have beside its own."""
    return sys.maxsize <= 2**32 or not path.startswith(("/lib/i386", "/usr/lib/i386", "/usr/lib32"))
