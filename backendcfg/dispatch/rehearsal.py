"""Open a library in a child process first: a broken one can end the process that opens it.

The child runs this file by its path, isolated from the environment's start-up files, so this module
imports only the standard library at its top.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module

SECONDS = 30.0
"""How long a library may take to open and to answer."""


def rehearse(native: str, path: str, prefix: str, suffix: str, interface: str) -> str:
    """Why a library cannot be opened, or "" when a child process opened and called it.

    Args:
        native: the file of `backendcfg._native`.
        path: the library's file, absolute.
        prefix: before each symbol.
        suffix: after each symbol.
        interface: "lp64", "ilp64", or "" to find out.
    """
    return _tried(native, path, prefix, suffix, interface)


def rehearse_device(native: str, who: str, path: str) -> str:
    """Why a library of devices cannot be opened, or "" when a child process opened it.

    Args:
        native: the file of `backendcfg._native`.
        who: who opens it: a module and what its `examine` calls the library, "module:name"; or its
            number in native/include/backendcfg_device.h.
        path: the library's file, absolute.
    """
    return _tried(native, who, path)


def _tried(*arguments: str) -> str:
    from backendcfg import childprocess

    done = childprocess.run([__file__, *arguments], seconds=SECONDS, isolated=True)
    if done.status is None:
        return f"a child process that was to try it {done.obstacle}"
    said = done.text if done.status >= 0 else ""
    if said == "usable":
        return ""
    return said or f"tried in a child process, it ended that process {ended(done.status)}"


def ended(code: int) -> str:
    """How a child process ended, by its return code: "by SIGSEGV", "with code 3"."""
    from backendcfg.childprocess import signal_name

    return f"by {signal_name(-code)}" if code < 0 else f"with code {code}"


def _lend_package(native: str) -> None:
    """Let this child import modules of the package, whose own start would apply a profile in it."""
    package = type(sys)("backendcfg")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    package.__path__ = [here, os.path.dirname(native)]
    sys.modules["backendcfg"] = package


def _open(path: str, prefix: str, suffix: str, interface: str) -> str:
    from backendcfg import native
    from backendcfg.errors import MissingLibraryError

    try:
        native.open_provider("child", path, prefix, suffix, interface)
    except MissingLibraryError as error:
        return error.notes[0]
    return "usable"


def _open_device(who: str, path: str) -> str:
    module, _, name = who.partition(":")
    if name:
        opened = import_module(module).examine(name, path)
        return opened if isinstance(opened, str) else "usable"
    from backendcfg import native

    function = native.library().bcfg_device_open
    function.argtypes = [ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    error, handle = native._Error(), ctypes.c_void_p()
    status = function(int(who), os.fsencode(path), ctypes.byref(handle), ctypes.byref(error))
    return error.detail.decode(errors="replace") or f"status {status}" if status else "usable"


def _main() -> None:
    native, *arguments = sys.argv[1:]
    _lend_package(native)
    from backendcfg.childprocess import begin_answers

    answer = begin_answers()  # libraries print, as MKL does under MKL_VERBOSE
    said = _open_device(*arguments) if len(arguments) == 2 else _open(*arguments)
    os.write(answer, said.encode())


if __name__ == "__main__":
    _main()
