"""Calling a vendor's library from Python: its functions, its handles, and the bounds of a call.

    with Session(work, SolverHandle) as handle:
        library.call("cusolverDnXpotrf", handle.value, ...)

Inside a `Session` the device is current, the streams are ordered, and the library's handle is
borrowed. What a library or the driver returns instead of success is raised as `Fault`.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from backendcfg import _native
from backendcfg.gpu.libraries.signatures import TABLES
from backendcfg.locks import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from backendcfg.gpu.libraries.signatures import Function, Table

    # (library, driver, device, stream, other streams, whether to wait)
    Work = tuple["OpenLibrary | None", int, int, int, tuple[int, ...], bool]


class Complex64(ctypes.Structure):
    """A complex number that is passed by value."""

    _fields_: ClassVar = [("real", ctypes.c_float), ("imaginary", ctypes.c_float)]


class Complex128(ctypes.Structure):
    """The same, in double precision."""

    _fields_: ClassVar = [("real", ctypes.c_double), ("imaginary", ctypes.c_double)]


_TYPES: dict[str, Any] = {
    "void": None,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "long long": ctypes.c_longlong,
    "size_t": ctypes.c_size_t,
    "signed char": ctypes.c_byte,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bcfg_complex64": Complex64,
    "bcfg_complex128": Complex128,
}

IDLE_HANDLES = 64
"""How many handles of one library may lie idle on one device when another is made. A program may
make streams without end, and each handle has memory; PyTorch takes turns among 32 streams."""


class Fault(Exception):
    """A failed call of a library or a driver; `args` are the function, its status and its name.

    The function is "" in a child of a process that had used the device.
    """


class Handle:
    """A library's handle for a device and a stream; each library's family has a class of these.

    A handle stays with its stream, because its memory is written by what was put there.

    Attributes:
        value: the handle itself.
        captured: whether a graph may refer to it, so that it is never destroyed.
        captures: whether the call that has it is captured.
    """

    value: Any = None
    captured = captures = False

    def __init__(self, library: OpenLibrary, index: int, stream: int) -> None:
        self.library, self.index, self.stream = library, index, stream
        self.make()

    def make(self) -> None:
        """Make the handle; nothing is left of it where that fails."""
        raise NotImplementedError

    def close(self) -> None:
        """Destroy it. Failures are ignored: nobody uses it any more."""
        raise NotImplementedError

    def created(self, create: str, set_stream: str, destroy: str) -> Any:
        """A handle as most libraries make it, which puts its work on the stream."""
        value = ctypes.c_void_p()
        self.library.call(create, ctypes.byref(value))
        try:
            self.library.call(set_stream, value.value, self.stream)
        except Fault:
            self.library.functions[destroy](value.value)
            raise
        return value.value


@dataclass(frozen=True)
class OpenLibrary:
    """A library that is open and checked.

    Attributes:
        name: "cublas".
        handle: address of its `bcfg_device_library`, good for the process's life; 0 for a library
            that C does not call.
        path: absolute.
        version: major, minor and patch, as it says them itself; of AMD's libraries only the major.
        found: what led to the file, as in `DeviceFile`.
        functions: those that Python calls, by name.
    """

    name: str
    handle: int
    path: str
    version: tuple[int, int, int]
    found: str
    functions: dict[str, Callable[..., Any]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _idle: list[Handle] = field(default_factory=list, compare=False, repr=False)

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            Fault: it is not success.
        """
        status = self.functions[function](*arguments)
        if status:
            self.fail(function, status)

    def fail(self, function: str, status: int) -> None:
        """Raise a status that a function returned.

        Raises:
            Fault: always.
        """
        raise Fault(function.removesuffix("_v2"), status, self.word(status))

    def word(self, status: int) -> str:
        """The name of a status; "" where the library knows none."""
        table = TABLES[self.name]
        if name_of := self.functions.get(table.words):
            return (name_of(status) or b"").decode()
        named = (name for name, number in table.constants.items() if number == status)
        return next((name for name in named if name.startswith(table.words)), "")

    def borrow(self, make: type[Handle], index: int, stream: int, *, captured: bool) -> Handle:
        """A handle for a device, which is current, and a stream; `give_back` must follow.

        Only the first call on a stream makes one, in some milliseconds. Where too many are idle,
        the one that was used longest ago is destroyed first, which waits for the device: never one
        that a captured graph may refer to, and not while the stream is captured.
        """
        old = []
        with _process.lock:
            alike = [one for one in self._idle if one.index == index]
            found = next((one for one in reversed(alike) if one.stream == stream), None)
            if found is not None:
                self._idle.remove(found)
            elif not captured:
                loose = [one for one in alike if not one.captured]
                old = loose[: max(len(loose) - IDLE_HANDLES + 1, 0)]
                for one in old:
                    self._idle.remove(one)
        for one in old:
            one.close()
        handle = found or make(self, index, stream)
        handle.captures, handle.captured = captured, handle.captured or captured
        return handle

    def give_back(self, handle: Handle) -> None:
        """End a loan."""
        with _process.lock:
            self._idle.append(handle)


_process = ProcessLock()


class Session:
    """The bounds of one call on a device.

    Attributes:
        captured: whether the stream is being captured into a graph; true also where the driver does
            not say.
    """

    def __init__(self, work: Work, make: type[Handle] | None = None) -> None:
        self.library, self._place, self._synchronizes = work[0], work[1:5], work[5]
        self._make = make
        self.handle: Any = None
        self.captured = False
        self._before = -1

    def __enter__(self) -> Any:
        begun = _native.device_begin(*self._place)
        if len(begun) == 3:
            raise Fault(*begun)
        self._before, self.captured = begun
        if self.library is not None and self._make is not None:
            _, index, stream, _ = self._place
            try:
                self.handle = self.library.borrow(self._make, index, stream, captured=self.captured)
            except BaseException:
                self._end(failed=True)
                raise
        return self.handle

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end(failed=kind is not None)
        finally:
            if self.handle is not None and self.library is not None:
                self.library.give_back(self.handle)

    def _end(self, *, failed: bool) -> None:
        fault = _native.device_end(*self._place, self._synchronizes, self._before, failed)
        if fault is not None:
            raise Fault(*fault)


def bind(library: ctypes.CDLL, table: Table) -> dict[str, Callable[..., Any]]:
    """The functions of a table in an open library; optional ones that it lacks are left out.

    Raises:
        AttributeError: its `name` is that of a function that is missing.
    """
    found = {}
    for name, function in table.functions.items():
        try:
            found[name] = _typed(getattr(library, name), function)
        except AttributeError:
            if not function.optional:
                raise AttributeError(name=name) from None
    return found


def _typed(function: Any, like: Function) -> Any:
    function.argtypes = [_type(each) for each in like.parameters]
    is_text = like.result == "const char*"
    function.restype = ctypes.c_char_p if is_text else _type(like.result)
    return function


def _type(name: str) -> Any:
    return ctypes.c_void_p if name.endswith("*") else _TYPES[name]


_WIDE = -2


def examine(name: str, path: str) -> OpenLibrary | str:
    """A file opened as a library that Python calls; or why it cannot be.

    Args:
        name: a key of `signatures.TABLES`.
        path: absolute.
    """
    table = TABLES[name]
    try:
        opened = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        functions = bind(opened, table)
    except OSError as error:
        return str(error)
    except AttributeError as error:
        return f"{path} has no symbol {error.name}"
    version = _version(table, functions, opened._handle)
    major, minor, patch = version // 10000, version // 100 % 100, version % 100
    oldest, newest = table.majors
    if version == _WIDE:
        return f"{path} is built with 64-bit integers (MAGMA_ILP64), which are not served"
    if version < 0:
        return f"{path} does not say its version"
    if major < oldest:
        return f"{path} has version {major}.{minor}; {oldest} is the oldest that is served"
    if major > newest:
        return (
            f"{path} has version {major}.{minor}; {newest} is the newest whose interface is known"
        )
    return OpenLibrary(name, 0, path, (major, minor, patch), "", functions)


def _version(table: Table, functions: dict[str, Callable[..., Any]], handle: int) -> int:
    """As 10000 * major + 100 * minor + patch; -1 where it does not say."""
    ask = functions.get(table.version)
    if ask is None:
        return int(_native.device_soname(handle))
    if table.version == "magma_version":
        # It writes three integers of the width that all of MAGMA's have in this build.
        parts = (ctypes.c_int * 6)(*[-1] * 6)
        ask(*(ctypes.byref(parts, at * ctypes.sizeof(ctypes.c_int)) for at in (0, 2, 4)))
        major, wide, minor, _, patch, _ = parts
        return _WIDE if wide != -1 else 10000 * major + 100 * minor + patch
    if table.version == "cudnnGetVersion":  # before 9 a major version had less room
        said = int(ask())
        return said if said >= 90000 else said // 1000 * 10000 + said % 1000
    part, version = ctypes.c_int(), 0
    for at in range(3):
        if ask(at, ctypes.byref(part)):
            return -1
        version = 100 * version + part.value
    return version
