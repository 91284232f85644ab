"""Opening the library of a provider, once per process, and remembering why one was refused."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass

from backendcfg import native
from backendcfg.catalogue.cpu import COMPILED_IN, NATIVE
from backendcfg.dispatch.providers import LibraryFile, hazard
from backendcfg.dispatch.rehearsal import rehearse
from backendcfg.errors import MissingLibraryError
from backendcfg.probe.loaded import mapped_files

logger = logging.getLogger("backendcfg.dispatch")

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
_lock = threading.RLock()


def _after_fork() -> None:
    # A thread that the child does not have may have been opening something.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


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
    with _lock:
        answer = _answers.get((name, library))
        if answer is None:
            if not is_loaded(library.path) and (reason := hazard(name)):
                return Refused(library.path, reason)
            answer = _answers[name, library] = _open(name, library)
            logger.debug("provider %s: %s", name, answer)
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
    return Refused(path, reasons[-1])


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
