"""One record per provider of CPU products, in the order that holds when nobody chooses."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from backendcfg import environ

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class LibraryFile:
    """A file that could serve as a provider, as detection or a profile describes it.

    Attributes:
        path: absolute.
        prefix: before each symbol.
        suffix: after each symbol.
        interface: "lp64", "ilp64", or "" to find out by calling it.
        owner: who brought it.
    """

    path: str
    prefix: str = ""
    suffix: str = ""
    interface: str = ""
    owner: str = ""


def never(_library: LibraryFile) -> str:
    """The hazard of a library that has none."""
    return ""


def mkl_hazard(_library: LibraryFile) -> str:
    """Why opening MKL now would break something, or "".

    MKL opens its parts RTLD_GLOBAL. PyTorch, imported after that, binds thousands of its own MKL
    symbols to them; imported before, none. Under LD_BIND_NOW, MKL ends the process.
    """
    if environ.foreign(["LD_BIND_NOW"]):
        return "MKL ends the process when LD_BIND_NOW is set"
    if "torch" not in sys.modules and find_spec("torch") is not None:
        return (
            "PyTorch is installed and not imported yet, and would bind to this MKL: import it first"
        )
    return ""


def as_it_is(library: LibraryFile) -> LibraryFile:
    """The library under the names that detection found."""
    return library


def mkl_names(library: LibraryFile) -> LibraryFile:
    """MKL's 64-bit names, which every build has; its bare names are 32-bit."""
    return LibraryFile(library.path, "", "_64", "ilp64", library.owner)


@dataclass(frozen=True)
class Provider:
    """What is particular to one provider.

    Attributes:
        name: as profiles spell it.
        summary: what it is, for people.
        hazard: why a library must not be opened now, or "".
        names: the symbols to use, where detection's are not the ones.
        owners: whose copy to take first when several are there.
        pool: whose threads it computes with: None for its own, "" for no threads.
    """

    name: str
    summary: str
    hazard: Callable[[LibraryFile], str] = never
    names: Callable[[LibraryFile], LibraryFile] = as_it_is
    owners: tuple[str, ...] = ()
    pool: str | None = None


NATIVE = "native"
REFERENCE = "reference"
COMPILED_IN = frozenset({NATIVE, REFERENCE})
"""Providers without a file of their own."""

INVARIANT = ("thread-invariant", "cross-machine", "batch-invariant")
"""Tiers under which neither threads nor a batch may change a bit: libraries do not promise that."""

PROVIDERS = (
    Provider("openblas", "the OpenBLAS that NumPy computes with", owners=("numpy",)),
    Provider("scipy-openblas", "the OpenBLAS that SciPy computes with", owners=("scipy",)),
    Provider("mkl", "Intel's MKL", hazard=mkl_hazard, names=mkl_names),
    Provider("blis", "BLIS"),
    Provider(NATIVE, "our own kernels, compiled in: the same bits at any threads, in any batch"),
    Provider(REFERENCE, "ours, compiled in: slow, serial, the same bits everywhere", pool=""),
)
BY_NAME = {provider.name: provider for provider in PROVIDERS}


def files_of(name: str, libraries: Sequence[Mapping[str, Any]]) -> list[LibraryFile]:
    """The files that could serve as a provider, in the order to try them.

    Args:
        name: of the provider.
        libraries: as `schema.host.Library` dumps them; others' are passed over.
    """
    provider = BY_NAME[name]
    rank = {owner: position for position, owner in enumerate(provider.owners)}
    mine = [library for library in libraries if library.get("provider") == name]
    mine.sort(key=lambda library: rank.get(library.get("owner", ""), len(rank)))
    return [
        provider.names(
            LibraryFile(
                library["path"],
                library.get("prefix", ""),
                library.get("suffix", ""),
                library.get("interface", "").replace("both", ""),
                library.get("owner", ""),
            )
        )
        for library in mine
    ]
