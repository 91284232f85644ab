"""Opening the libraries that compute on devices, once per process, and remembering refusals.

    answer = open_device("cublas")        # an OpenLibrary, or Unusable with a reason for each file

No context is made on a device and no driver is initialised: what is asked are files, symbols and
versions.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from dataclasses import dataclass
from typing import Any

from backendcfg import _native, native
from backendcfg.catalogue.gpu import NVIDIA
from backendcfg.dispatch.opening import is_loaded
from backendcfg.dispatch.rehearsal import rehearse_device
from backendcfg.errors import MissingLibraryError
from backendcfg.gpu.libraries.files import BY_NAME, DeviceFile, World, find

logger = logging.getLogger("backendcfg.dispatch")


class _Description(native._Struct):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("path", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("version", ctypes.c_int64),
    ]


PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "bcfg_device_kind_name": (ctypes.c_char_p, [ctypes.c_int32]),
    "bcfg_device_open": (
        ctypes.c_int32,
        [
            ctypes.c_int32,
            ctypes.c_char_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(native._Error),
        ],
    ),
    "bcfg_device_describe": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.POINTER(_Description)],
    ),
}


@dataclass(frozen=True)
class OpenLibrary:
    """A library that is open and checked.

    Attributes:
        name: "cublas".
        handle: address of its `bcfg_device_library`, good for the process's life.
        path: absolute.
        version: major, minor and patch, as it says them itself; of AMD's libraries only the major.
        found: what led to the file, as in `DeviceFile`.
    """

    name: str
    handle: int
    path: str
    version: tuple[int, int, int]
    found: str


@dataclass(frozen=True)
class Unusable:
    """No file can serve as a library: a reason for each that was tried, or that none was found."""

    name: str
    reasons: tuple[str, ...]


_answers: dict[tuple[str, str], OpenLibrary | str] = {}
_latest: dict[str, tuple[Any, OpenLibrary | Unusable]] = {}
_lock = threading.RLock()


def _after_fork() -> None:
    # A thread that the child does not have may have been opening something.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def open_device(name: str, world: World | None = None) -> OpenLibrary | Unusable:
    """The library of a name: the first usable file of `device_files.find`.

    Asked again, the answer is the same until the process has loaded or unloaded a library: a
    framework that is imported later may bring a copy that is to be preferred.

    Args:
        name: as in `device_files.BY_NAME`.
        world: where to look, instead of this process and its machine.
    """
    with _lock:
        state = _native.mapped() if world is None else None
        if state is not None and name in _latest and _latest[name][0] == state:
            return _latest[name][1]
        answer = _first_usable(name, world)
        if world is None and (state := _native.mapped()) is not None:
            _latest[name] = (state, answer)
        return answer


def require_device(name: str) -> OpenLibrary:
    """The library of a name.

    Raises:
        MissingLibraryError: no file can serve as it; the notes say why for each.
    """
    answer = open_device(name)
    if isinstance(answer, OpenLibrary):
        return answer
    raise MissingLibraryError(
        f"cannot use {BY_NAME[name].title}",
        notes=list(answer.reasons),
        state="nothing was computed",
        helps=["import the framework that made the array: it brings the library it works with"],
    )


def _first_usable(name: str, world: World | None) -> OpenLibrary | Unusable:
    reasons = []
    for file in find(name, world):
        answer = _open_once(file)
        if isinstance(answer, str):
            reasons.append(answer)
        elif reason := _driver_too_old(answer, world):
            reasons.append(reason)  # not remembered with the file: the driver may be found later
        else:
            return answer
    if not reasons:
        about = BY_NAME[name]
        also = f"; {about.absent}" if about.absent else ""
        reasons.append(f"{about.title}: no {' or '.join(about.names)} was found{also}")
    return Unusable(name, tuple(reasons))


def _open_once(file: DeviceFile) -> OpenLibrary | str:
    """The library, or why its file was refused. What answered once answers the same for ever."""
    key = (file.library, file.path)
    if key not in _answers:
        _answers[key] = _open(file)
        logger.debug("device library %s: %s", file.library, _answers[key])
    return _answers[key]


def _open(file: DeviceFile) -> OpenLibrary | str:
    kind = BY_NAME[file.library].kind
    if not is_loaded(file.path) and (reason := rehearse_device(native.file(), kind, file.path)):
        return reason if file.path in reason else f"{file.path}: {reason}"
    error, handle = native._Error(), ctypes.c_void_p()
    path = os.fsencode(file.path)
    if _function("bcfg_device_open")(kind, path, handle, error) or not handle.value:
        return str(error.detail.decode(errors="replace"))
    about = _Description()
    native._expect(_function("bcfg_device_describe")(handle, about))
    version = (about.version // 10000, about.version // 100 % 100, about.version % 100)
    return OpenLibrary(file.library, handle.value, file.path, version, file.found)


def _driver_too_old(library: OpenLibrary, world: World | None) -> str:
    """Why the driver here cannot run a library of CUDA, or "".

    A library runs on any driver of its own major version of CUDA, and on every newer one.
    """
    about = BY_NAME[library.name]
    if about.vendor != NVIDIA or about.is_driver:
        return ""
    toolkit = about.majors.get(library.version[0], 0)
    driver = open_device("cuda", world)
    if isinstance(driver, Unusable) or driver.version[0] >= toolkit:
        return ""
    return (
        f"{library.path} is of CUDA {toolkit}, and the driver here serves CUDA "
        f"{driver.version[0]}.{driver.version[1]} at most"
    )


def _function(name: str) -> Any:
    function = getattr(native.library(), name)
    function.restype, function.argtypes = PROTOTYPES[name]
    return function
