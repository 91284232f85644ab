"""NVRTC, called in a process of its own: a compiler that breaks ends the process that it runs in.

The child runs this file by its path, isolated from the environment's start-up files, so this module
imports only the standard library; `sources.py` starts it. It reads a request as JSON, with the
"path" of the compiler and, to compile, "name", "source", "headers" and "options"; it answers with a
line of JSON and the bytes of the code. The line has "version" and "architectures", or "status",
"message" and "log" of a compilation; only "error" where the compiler could not be called.
"""

from __future__ import annotations

import ctypes
import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _FailedCallError(Exception):
    """A function of the compiler did not succeed."""


class _Nvrtc:
    """The calls; only the child makes them."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        if status := getattr(self.library, name)(*arguments):
            raise _FailedCallError(f"`{name}` failed: {self.message(status)}")

    def message(self, status: int) -> str:
        return str(self.library.nvrtcGetErrorString(status).decode(errors="replace"))

    def text(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"{name}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(name, program, text)
        return text.raw

    def describe(self) -> dict[str, Any]:
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", numbers)
        for name in ("nvrtcGetCUBINSize", "nvrtcGetCUBIN"):  # from CUDA 11.2 on
            getattr(self.library, name)
        return {"version": [major.value, minor.value], "architectures": sorted(numbers)}

    def compile(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        headers, options = request["headers"], request["options"]
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            request["source"].encode(),
            request["name"].encode(),
            len(headers),
            _strings(headers.values()),
            _strings(headers),
        )
        status = self.library.nvrtcCompileProgram(program, len(options), _strings(options))
        log = self.text(program, "nvrtcGetProgramLog").rstrip(b"\0\n").decode(errors="replace")
        code = b"" if status else self.text(program, "nvrtcGetCUBIN")
        return {"status": status, "message": self.message(status), "log": log}, code


def _strings(texts: Any) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def _child() -> None:
    request = json.load(sys.stdin)
    answer: dict[str, Any]
    code = b""
    try:
        nvrtc = _Nvrtc(request["path"])
        if "source" in request:
            answer, code = nvrtc.compile(request)
        else:
            answer = nvrtc.describe()
    except (OSError, AttributeError, _FailedCallError) as error:
        answer = {"error": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + code)


if __name__ == "__main__":
    _child()
