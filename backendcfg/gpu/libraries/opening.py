"""The libraries that compute on devices, opened once per process, and what drivers say of a device.

    answer = open_device("cublas")        # an OpenLibrary, or Unusable with a reason for each file

Refused files stay refused. Opening makes no context on a device and initialises no driver: it asks
for files, symbols and versions.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from backendcfg import _native, log, native
from backendcfg.catalogue.gpu import NVIDIA
from backendcfg.dispatch.providers import is_loaded
from backendcfg.dispatch.rehearsal import rehearse_device
from backendcfg.errors import MissingLibraryError
from backendcfg.gpu.libraries import calling
from backendcfg.gpu.libraries.calling import OpenLibrary
from backendcfg.gpu.libraries.files import BY_NAME, DeviceFile, World, find
from backendcfg.gpu.libraries.signatures import TABLES
from backendcfg.locks import ProcessLock
from backendcfg.ops.devices import CUDA, KINDS, ROCM


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
class Unusable:
    """No file can serve as a library; `reasons` has one for each file, or that none was found."""

    name: str
    reasons: tuple[str, ...]


DRIVERS = {CUDA: "cuda", ROCM: "hip"}
"""The library of the driver, by kind of device."""

_answers: dict[tuple[str, str], OpenLibrary | str] = {}
_latest: dict[str, tuple[Any, OpenLibrary | Unusable]] = {}
_process = ProcessLock()


def open_device(name: str, world: World | None = None) -> OpenLibrary | Unusable:
    """The library of a name: the first usable file of `files.find`.

    Asked again, the answer is the same until the process has loaded or unloaded a library: a
    framework that is imported later may bring a copy that is to be preferred.

    Args:
        name: as in `catalogue.gpu.BY_NAME`.
        world: where to look, instead of this process and its machine.
    """
    with _process.lock:
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


@dataclass(frozen=True)
class SoleLibrary:
    """The library that alone serves a family of operations on NVIDIA's devices, or why not.

    Attributes:
        library: it; None where it cannot serve.
        driver: the handle of the driver.
        path: of the library's file.
        reasons: why it cannot serve, a line each.
    """

    library: OpenLibrary | None = None
    driver: int = 0
    path: str = ""
    reasons: tuple[str, ...] = ()


def sole_library(name: str, kind: int, oldest: tuple[int, int, int] = (0, 0, 0)) -> SoleLibrary:
    """The library of a name for devices of a kind.

    Args:
        name: as in `files.BY_NAME`.
        kind: of the devices, as DLPack numbers it.
        oldest: the oldest version that serves, where the file's name does not say it.
    """
    title = BY_NAME[name].title
    if kind != CUDA:
        return SoleLibrary(reasons=(f"{title} is NVIDIA's: it serves no {KINDS[kind]} device",))
    driver = open_device("cuda")
    if isinstance(driver, Unusable):
        return SoleLibrary(reasons=driver.reasons)
    library = open_device(name)
    if isinstance(library, Unusable):
        return SoleLibrary(reasons=library.reasons)
    if library.version < oldest:
        version, least = (".".join(map(str, each)) for each in (library.version, oldest[:2]))
        reason = f"{library.path} is {title} {version}: {least} is the oldest served"
        return SoleLibrary(reasons=(reason,))
    return SoleLibrary(library, driver.handle, library.path)


def _first_usable(name: str, world: World | None) -> OpenLibrary | Unusable:
    reasons = []
    for file in find(name, world):
        answer = _open_once(file)
        if isinstance(answer, str):
            reasons.append(answer)
        elif reason := _driver_too_old(answer, world):
            reasons.append(reason)  # not kept with the file: the driver may be found later
        else:
            return answer
    if not reasons:
        about = BY_NAME[name]
        also = f"; {about.absent}" if about.absent else ""
        reasons.append(f"{about.title}: no {' or '.join(about.names)} was found{also}")
    return Unusable(name, tuple(reasons))


def _open_once(file: DeviceFile) -> OpenLibrary | str:
    """The library, or why its file was refused. The first answer stays."""
    key = (file.library, file.path)
    if key not in _answers:
        _answers[key] = _open(file)
        log.debug("device library %s: %s", file.library, _answers[key])
    return _answers[key]


def _open(file: DeviceFile) -> OpenLibrary | str:
    kind = BY_NAME[file.library].kind
    who = str(kind) if kind >= 0 else f"{calling.__name__}:{file.library}"
    if not is_loaded(file.path) and (reason := rehearse_device(native.file(), who, file.path)):
        return reason if file.path in reason else f"{file.path}: {reason}"
    if kind < 0:
        opened = calling.examine(file.library, file.path)
        return opened if isinstance(opened, str) else replace(opened, found=file.found)
    error, handle = native._Error(), ctypes.c_void_p()
    path = os.fsencode(file.path)
    if _function("bcfg_device_open")(kind, path, handle, error) or not handle.value:
        return str(error.detail.decode(errors="replace"))
    about = _Description()
    native._expect(_function("bcfg_device_describe")(handle, about))
    version = (about.version // 10000, about.version // 100 % 100, about.version % 100)
    functions = {}
    if file.library in TABLES:
        functions = calling.bind(ctypes.CDLL(file.path), TABLES[file.library])
    return OpenLibrary(file.library, handle.value, file.path, version, file.found, functions)


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
