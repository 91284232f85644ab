"""The files that can serve products of CPU arrays, and opening one, once per process.

What is known of each provider, and their order, is in `backendcfg.catalogue.cpu`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from backendcfg import environ, log, native
from backendcfg.catalogue.cpu import BY_NAME, COMPILED_IN, NATIVE
from backendcfg.dispatch.rehearsal import rehearse
from backendcfg.errors import MissingLibraryError
from backendcfg.locks import ProcessLock
from backendcfg.probe.loaded import mapped_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


INVARIANT = ("thread-invariant", "cross-machine", "batch-invariant")
"""Tiers under which neither threads nor a batch may change a bit: libraries do not promise that."""


def hazard(name: str) -> str:
    """Why opening a provider's library in this process now would break something, or ""."""
    for each in BY_NAME[name].hazards:
        if each.variable and environ.foreign([each.variable]):
            return each.reason
        late = each.framework and each.framework not in sys.modules
        if late and find_spec(each.framework) is not None:
            return each.reason
    return ""


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
    found = []
    for library in mine:
        prefix, suffix, interface = provider.affixes or (
            library.get("prefix", ""),
            library.get("suffix", ""),
            library.get("interface", "").replace("both", ""),
        )
        owner = library.get("owner", "")
        found.append(LibraryFile(library["path"], prefix, suffix, interface, owner))
    return found


_AFFIXES = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", "_64"), ("", ""))


@dataclass(frozen=True)
class Usable:
    """An open library."""

    handle: int
    path: str


@dataclass(frozen=True)
class Refused:
    """A library that cannot serve, and why."""

    path: str
    reason: str


_answers: dict[tuple[str, LibraryFile], Usable | Refused] = {}
_process = ProcessLock()


def is_loaded(path: str) -> bool:
    """Whether a file is in this process already."""
    real = os.path.realpath(path)
    return any(os.path.realpath(mapped) == real for mapped in mapped_files())


def compiled_in(name: str) -> Usable:
    """One of the providers that need no file."""
    return Usable(native.own() if name == NATIVE.name else native.reference(), "")


def open_file(name: str, library: LibraryFile) -> Usable | Refused:
    """Open one file as a provider. What answered once answers the same for the process's life.

    A hazard is asked for every time, because it passes: PyTorch may be imported later.
    """
    if name in COMPILED_IN:
        return compiled_in(name)
    with _process.lock:
        answer = _answers.get((name, library))
        if answer is None:
            if not is_loaded(library.path) and (reason := hazard(name)):
                return Refused(library.path, reason)
            answer = _answers[name, library] = _open(name, library)
            log.debug("provider %s: %s", name, answer)
        return answer


def open_path(name: str, path: str) -> Usable | Refused:
    """Open a file whose symbols nobody has described, under the first names that it has."""
    reasons = []
    for prefix, suffix in _AFFIXES:
        answer = open_file(name, LibraryFile(path, prefix, suffix))
        if isinstance(answer, Usable):
            return answer
        reasons.append(answer.reason)
        if "has no symbol" not in answer.reason:
            break
    # Under the names that it has, the first product is found and something else is missing.
    return Refused(path, next((why for why in reasons if "cblas_sgemm" not in why), reasons[-1]))


def _open(name: str, library: LibraryFile) -> Usable | Refused:
    if not is_loaded(library.path):
        reason = rehearse(
            native.file(), library.path, library.prefix, library.suffix, library.interface
        )
        if reason:
            return Refused(library.path, reason)
    try:
        handle = native.open_provider(
            name, library.path, library.prefix, library.suffix, library.interface
        )
    except MissingLibraryError as error:
        return Refused(library.path, "; ".join(error.notes))
    return Usable(handle, library.path)
