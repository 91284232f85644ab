"""Control of the compiled part through its C ABI: open libraries, make snapshots, ask for reasons.

The prototypes are those of what native/include/backendcfg.h exports; it says what each means.
Calls with data go through `backendcfg._native` instead: ctypes costs a microsecond.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from backendcfg.errors import InternalError, MissingLibraryError, NativeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ABI = 3
OPERATIONS = (
    *("sgemm", "dgemm", "cgemm", "zgemm"),
    *("sgemv", "dgemv", "cgemv", "zgemv"),
    *("bgemm", "hgemm"),
)
OWN = ("bgemm", "hgemm")
"""Operations on bfloat16 and float16, which no library has: our own kernels serve them."""
ELEMENTS = ("float32", "float64", "complex64", "complex128")
ROUTINES = (
    *(("getrf", "getrf"), ("potrf", "potrf"), ("geqrf", "geqrf")),
    *(("syevd", "heevd"), ("gesdd", "gesdd")),
)
"""LAPACK's names of the factorisations whose libraries are measured, for real and complex."""
FACTORISATIONS = tuple(
    f"{letter}{names[letter in 'cz']}" for names in ROUTINES for letter in "sdcz"
)
"""The same for each type: "dgetrf", "cheevd"."""
VERDICTS = ("serves", "behind", "too-large", "not-listed", "lacks")
REASONS = ("first", "fastest", "able")
"""Why the choice fell on a provider: see `bcfg_reason` in the header."""

SIZE_CLASSES = 64
NOT_MEASURED = 255
_INTERFACES = {"": 0, "lp64": 32, "ilp64": 64}


class _Struct(ctypes.Structure):
    """A struct of the ABI, which starts with its version and size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(abi=ABI, size=ctypes.sizeof(self), **fields)


class _Error(_Struct):
    _fields_ = [("abi", c_uint32), ("size", c_uint32), ("detail", c_char * 480)]


class _Library(_Struct):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_uint32),
        ("name", c_char_p),
        ("path", c_char_p),
        ("prefix", c_char_p),
        ("suffix", c_char_p),
        ("interface", c_int32),
    ]


class _Description(_Struct):
    _fields_ = [
        *_Library._fields_,
        *((name, c_uint64 * len(OPERATIONS)) for name in ("calls", "by_speed", "by_need")),
    ]


class _Flag(_Struct):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_uint32),
        ("name", c_char_p),
        ("kind", c_int32),
        ("choices", c_char_p),
    ]


class _Order(ctypes.Structure):
    _fields_ = [
        ("providers", POINTER(c_void_p)),
        ("count", c_uint32),
        ("preferred", POINTER(c_uint8)),
    ]


class _Content(_Struct):
    _fields_ = [
        ("abi", c_uint32),
        ("size", c_uint32),
        ("values", POINTER(c_int64)),
        ("value_count", c_uint32),
        ("order_count", c_uint32),
        ("orders", POINTER(_Order)),
        ("factorisations", POINTER(POINTER(c_uint8))),
    ]


PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "bcfg_abi": (c_uint32, []),
    "bcfg_open": (c_int32, [POINTER(_Library), POINTER(c_void_p), POINTER(_Error)]),
    "bcfg_reference": (c_void_p, []),
    "bcfg_native": (c_void_p, []),
    "bcfg_describe": (c_int32, [c_void_p, POINTER(_Description)]),
    "bcfg_flag_count": (c_uint32, []),
    "bcfg_flag_at": (c_int32, [c_uint32, POINTER(_Flag)]),
    "bcfg_intern": (c_int32, [POINTER(_Content), POINTER(c_void_p), POINTER(_Error)]),
    "bcfg_set_default": (None, [c_void_p]),
    "bcfg_value": (c_int64, [c_void_p, c_uint32]),
    "bcfg_size_class": (c_uint32, [c_int64, c_int64, c_int64]),
    "bcfg_choice_reason": (c_int32, [c_void_p, c_int32, c_int64, c_int64, c_int64]),
    "bcfg_ordered": (c_void_p, [c_void_p, c_int32, c_uint32]),
    "bcfg_judge": (c_int32, [c_void_p, c_int32, c_void_p, c_int64, c_int64, c_int64]),
}

_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The compiled part, with every prototype declared.

    Raises:
        NativeUnavailableError: it is missing, or from another release.
    """
    global _library
    if _library is None:
        _library = _load()
    return _library


def file() -> str:
    """The path of the compiled part."""
    return str(library()._name)


def _load() -> ctypes.CDLL:
    help_text = "reinstall backendcfg: `pip install --force-reinstall backendcfg`"
    try:
        from backendcfg import _native

        loaded = ctypes.CDLL(_native.__file__)
    except (ImportError, OSError) as error:
        raise NativeUnavailableError(
            "the compiled part of backendcfg cannot be loaded",
            notes=[str(error)],
            helps=[help_text],
        ) from error
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise NativeUnavailableError(
                f"{_native.__file__} has no {name}: it is from another release of backendcfg",
                helps=[help_text],
            )
        function.restype, function.argtypes = result, arguments
    if (found := loaded.bcfg_abi()) != ABI:
        raise NativeUnavailableError(
            f"{_native.__file__} has ABI {found}, not {ABI}: it is from another release",
            helps=[help_text],
        )
    return loaded


@dataclass(frozen=True)
class NativeFlag:
    """A flag that snapshots hold; its kind is "bool", "integer" or "choice"."""

    name: str
    kind: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Opened:
    """An open provider: who it is, what file it is, and what it has served."""

    name: str
    path: str
    interface: str
    calls: dict[str, int]


@cache
def flags() -> tuple[NativeFlag, ...]:
    """The flags of a snapshot, in the order of their ids."""
    native, found = library(), []
    for number in range(native.bcfg_flag_count()):
        flag = _Flag()
        _expect(native.bcfg_flag_at(number, flag))
        choices = tuple(flag.choices.decode().split("|")) if flag.choices else ()
        found.append(
            NativeFlag(flag.name.decode(), ("bool", "integer", "choice")[flag.kind], choices)
        )
    return tuple(found)


def encode(values: Mapping[str, Any]) -> dict[str, int]:
    """A plan's values as a snapshot holds them; flags that C does not need are left out.

    A word where a number may stand ("auto") is -1, and so is a choice that is not made.
    """
    encoded = {}
    for flag in flags():
        value = values.get(flag.name)
        if flag.kind == "choice":
            encoded[flag.name] = flag.choices.index(value) if value in flag.choices else -1
        elif value is not None:
            encoded[flag.name] = int(value) if isinstance(value, int) else -1
    return encoded


def decode(snapshot: int) -> dict[str, Any]:
    """The flags that a snapshot holds, as a plan has them; None for a choice that is not made.

    A word where a number may stand is 0.
    """
    native, values = library(), dict[str, Any]()
    for number, flag in enumerate(flags()):
        value = int(native.bcfg_value(snapshot, number))
        if flag.kind == "choice":
            values[flag.name] = flag.choices[value] if value >= 0 else None
        else:
            values[flag.name] = bool(value) if flag.kind == "bool" else max(value, 0)
    return values


def open_provider(
    provider: str, path: str, prefix: str = "", suffix: str = "", interface: str = ""
) -> int:
    """Open a library and check it by calling it; the handle is good for the process's life.

    Args:
        provider: how it is called.
        path: absolute.
        prefix: before each symbol.
        suffix: after each symbol.
        interface: "lp64", "ilp64", or "" to find out.

    Raises:
        MissingLibraryError: it cannot be opened, or is not what it is said to be.
    """
    native, error, handle = library(), _Error(), c_void_p()
    asked = _Library(
        name=provider.encode(),
        path=os.fsencode(path),
        prefix=prefix.encode(),
        suffix=suffix.encode(),
        interface=_INTERFACES[interface],
    )
    if native.bcfg_open(asked, handle, error) == 0 and handle.value:
        return handle.value
    raise MissingLibraryError(
        f"cannot use {path} as {provider}",
        notes=[error.detail.decode(errors="replace")],
        helps=["run `backendcfg detect` to list the libraries that were found"],
    )


def reference() -> int:
    """The handle of the provider that is compiled in."""
    return int(library().bcfg_reference())


def own() -> int:
    """The handle of the provider of our own kernels, compiled in too."""
    return int(library().bcfg_native())


def describe(handle: int) -> Opened:
    """Who a provider is, and what it has served since the counters were last reset."""
    native, about = library(), _Description()
    _expect(native.bcfg_describe(handle, about))
    calls = {name: count for name, count in zip(OPERATIONS, about.calls, strict=True) if count}
    interface = {width: name for name, width in _INTERFACES.items()}[about.interface]
    return Opened(about.name.decode(), about.path.decode(errors="replace"), interface, calls)


def intern(
    values: Mapping[str, int],
    handles: Sequence[int],
    preferred: Mapping[str, bytes] | None = None,
) -> int:
    """The snapshot with these values and this order of providers; flags not named are 0.

    What only our own kernels can compute is theirs in every order.

    The same content gives the same address, for the process's life.

    Args:
        values: of flags, encoded.
        handles: the providers of every operation, best first.
        preferred: by operation or factorisation, for each of the SIZE_CLASSES the position in
            `handles` of who was measured to be the fastest, or NOT_MEASURED.
    """
    native, known, error, address = library(), flags(), _Error(), c_void_p()
    numbers = (c_int64 * len(known))(*(values.get(flag.name, 0) for flag in known))
    providers = (c_void_p * len(handles))(*handles)
    own_order = _Order((c_void_p * 1)(own()), 1)
    classes = {name: (c_uint8 * SIZE_CLASSES)(*row) for name, row in (preferred or {}).items()}
    orders = (_Order * len(OPERATIONS))(
        *(
            own_order if name in OWN else _Order(providers, len(handles), classes.get(name))
            for name in OPERATIONS
        )
    )
    factorisations = (POINTER(c_uint8) * len(FACTORISATIONS))()
    for number, name in enumerate(FACTORISATIONS):
        if name in classes:
            factorisations[number] = ctypes.cast(classes[name], POINTER(c_uint8))
    content = _Content(
        values=numbers,
        value_count=len(known),
        order_count=len(OPERATIONS),
        orders=orders,
        factorisations=factorisations,
    )
    _expect(native.bcfg_intern(content, address, error), error)
    return address.value or 0


def set_default(snapshot: int) -> None:
    """What holds where no profile does; 0 for the built-in reference."""
    library().bcfg_set_default(snapshot)


def ordered(snapshot: int, operation: str) -> list[int]:
    """The handles of a snapshot's providers for one operation, best first."""
    native, number = library(), OPERATIONS.index(operation)
    found: list[int] = []
    while handle := native.bcfg_ordered(snapshot, number, len(found)):
        found.append(handle)
    return found


def judge(snapshot: int, operation: str, handle: int, sizes: Iterable[int]) -> str:
    """What the choice thinks of one provider for a product of `sizes` m, n, k: see `VERDICTS`."""
    return VERDICTS[library().bcfg_judge(snapshot, OPERATIONS.index(operation), handle, *sizes)]


def reason(snapshot: int, operation: str, sizes: Iterable[int]) -> str:
    """Why the choice falls on whom it does, see `REASONS`; "" when nobody serves."""
    found = library().bcfg_choice_reason(snapshot, OPERATIONS.index(operation), *sizes)
    return REASONS[found] if found >= 0 else ""


def size_class(m: int, n: int, k: int) -> int:
    """The class of sizes that a product is in: the whole part of log2(m n k)."""
    return int(library().bcfg_size_class(m, n, k))


def _expect(status: int, error: _Error | None = None) -> None:
    """Raise for a failure that no user can cause."""
    if status:
        detail = error.detail.decode(errors="replace") if error is not None else ""
        raise InternalError(f"the compiled part answered {status} {detail}".rstrip())
