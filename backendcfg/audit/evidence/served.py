"""Whose code computes an operation: found from where the processor is while it runs.

What a switch, a plan or a table of symbols says does not matter. A timer interrupts the thread that
calls the operation, and the library in which it is found most often is the one that computes.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from backendcfg import _native, session
from backendcfg.audit.evidence.operations import operations
from backendcfg.audit.evidence.probes import FORMATS
from backendcfg.catalogue.cpu import KINDS, MKL, NATIVE, ONEDNN, OPENMP, is_torch, kind_of
from backendcfg.catalogue.frameworks import JAX, TENSORFLOW, TORCH
from backendcfg.errors import UsageError
from backendcfg.probe.loaded import owner_of
from backendcfg.session.shell import FRAMEWORKS
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from backendcfg.audit.evidence.operations import Operation
    from backendcfg.audit.evidence.probes import Array, Kind

EVERY = 200
"""Microseconds from one sample to the next."""

TURN = 0.02
"""Seconds for which an operation is called again and again before its samples are looked at."""

ENOUGH = 50
"""Samples of threads that compute, after which no more are taken."""

LEAST = 10
"""The same, of fewer of which nothing is said."""

LIMIT = 1.0
"""Seconds after which no more are taken. On a busy machine, a thread mostly waits for others."""

SIZES = (512, 1024, 2048)
"""Rows and columns of matrices: larger ones where it is not clear who computes."""

CLEAR = 0.75
"""The part of the samples from which on it is clear. With small matrices, a fast kernel takes less
time than the code that calls it."""

# Who waits, copies or interprets, whoever computes.
_OTHERS = re.compile(r"(ld-|lib(c|m|pthread|stdc\+\+|gcc_s)[.-]|(lib)?python|linux-vdso)")
_WAITS = re.compile(r"wait|exec_blas|barrier|yield")

_MAKERS = {TORCH.name: ONEDNN.title, JAX.name: "XLA", TENSORFLOW.name: f"{ONEDNN.title} or XLA"}
"""Who makes code for the CPU at run time, by the package of the operation."""


@dataclass(frozen=True)
class Served:
    """Whose code computes.

    Attributes:
        library: "numpy's OpenBLAS", "torch's MKL", "torch's own code", "oneDNN", "our own kernels".
        kernel: the function of it in which most samples are, as it exports its name; "" where it
            exports none.
        part: how many of the samples of a thread that computes are in this library, from 0 to 1.
    """

    library: str
    kernel: str
    part: float


def served(operation: Operation) -> Served | None:
    """Whose code computes an operation of this process.

    Returns:
        None for one that does not compute on the CPU, where the system tells no addresses, and
        where too few samples were taken to say anything.

    Raises:
        Exception: what the operation raises.
    """
    if operation.device != "cpu":
        return None
    carrier = FORMATS[operation.dtype].carrier
    maker = _MAKERS.get(operation.name.partition(".")[0], "code made at run time")
    who = None
    for size in SIZES:
        arrays = [array.astype(carrier) for array in _operands(operation.kind, size)]
        call = operation.ready(*arrays) if operation.ready else partial(operation.call, *arrays)
        who = sampled(call, maker) or who
        if who and who.part >= CLEAR:
            break
    return who


def testify(*, name: str) -> dict[str, Any]:
    """In a child: whose code computes an operation, in each type in which it is measured.

    Returns:
        `profile`: the one in force, "" for none; `known`: the names of the operations of the same
        package; `served`: by dtype, a `Served` as data, or None.

    Raises:
        UsageError: the package of the operation cannot be imported.
    """
    package = name.partition(".")[0]
    for module in FRAMEWORKS:
        if module.partition(".")[0] == package:
            try:
                importlib.import_module(module)
            except Exception as error:
                why = f"{type(error).__name__}: {reason(error)}"
                raise UsageError(
                    f"nothing serves `{name}` here: `{package}` cannot be imported", notes=[why]
                ) from error
    found = [each for each in operations() if each.name.startswith(f"{package}.")]
    of = {each.dtype: served(each) for each in found if each.name == name and each.device == "cpu"}
    active = session.active()
    return {
        "profile": active.compiled.name if active else "",
        "known": sorted({each.name for each in found}),
        "served": {dtype: who and asdict(who) for dtype, who in of.items()},
    }


def sampled(call: Callable[[], object], made: str) -> Served | None:
    """Call a function again and again, and say whose code computes in it.

    Args:
        call: what is called.
        made: what to call code that is in no file.
    """

    def turn() -> None:
        end = time.perf_counter() + TURN
        while time.perf_counter() < end:
            call()

    call()  # what is done once does not count
    found: list[tuple[str, str]] = []
    end = time.perf_counter() + LIMIT
    while len(found) < ENOUGH and time.perf_counter() < end:
        addresses = _native.sampled(turn, EVERY)
        if addresses is None:
            return None
        found += _located(addresses, made)
    return named(found)


def named(found: Sequence[tuple[str, str]]) -> Served | None:
    """Who computes, by the library and the function of each sample."""
    if len(found) < LEAST:
        return None
    library, count = Counter(library for library, _ in found).most_common(1)[0]
    kernels = Counter(
        symbol for each, symbol in found if each == library and symbol and not _WAITS.search(symbol)
    )
    kernel, times = kernels.most_common(1)[0] if kernels else ("", 0)
    # Of a library that exports few names, the few are chance.
    return Served(library, kernel if 4 * times >= count else "", count / len(found))


def _operands(kind: Kind, size: int) -> list[Array]:
    random = np.random.default_rng(0)
    shapes: dict[Kind, tuple[tuple[int, ...], ...]] = {
        "product": ((size, size),) * 2,
        "solve": ((size, size),) * 2,
        "convolution": ((1, 32, size // 4, size // 4), (32, 32, 3, 3)),
        "attention": ((1, 8, size, 64),) * 3,
    }
    return [random.standard_normal(shape) for shape in shapes[kind]]


class _Place(ctypes.Structure):
    """What dladdr(3) says of an address."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _located(addresses: Sequence[int], made: str) -> Iterable[tuple[str, str]]:
    """The library and the function of each address of code that computes.

    At most `ENOUGH` of them, evenly chosen: in a library with as many symbols as PyTorch's, one
    takes a millisecond.
    """
    dladdr = ctypes.CDLL(None).dladdr
    for address in addresses[:: -(-len(addresses) // ENOUGH) or 1]:
        place = _Place()
        if not dladdr(ctypes.c_void_p(address), ctypes.byref(place)):
            yield made, ""
            continue
        path, symbol = os.fsdecode(place.file or b""), os.fsdecode(place.symbol or b"")
        if not _OTHERS.match(os.path.basename(path)) and kind_of(path) != OPENMP:
            # What a compiler of C++ calls a function is not for people.
            yield _library(path, symbol), "" if symbol.startswith("_Z") else symbol


def _library(path: str, symbol: str) -> str:
    """What people call a library."""
    if path == _native.__file__:
        return NATIVE.title
    owner = owner_of(path, sys.prefix)
    if is_torch(path):
        return f"{owner}'s {MKL.title}" if symbol.startswith("mkl_") else f"{owner}'s own code"
    kind = kind_of(path)
    if kind:
        return f"{owner}'s {KINDS[kind]}"
    return os.path.basename(path) if owner == "system" else f"{owner}'s own code"
