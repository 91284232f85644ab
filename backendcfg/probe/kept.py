"""Files of the cache, and the answers of libraries that are kept there.

A file is written whole or not at all, and is as good as absent when it is damaged. A cache that
cannot be written is not an error, and is told to nobody but the log.

Opening a library takes up to a second, so its answer is remembered by the file's identity and by
everything that changes it: the variables that choose kernels, and the processor. What is broken is
asked again each time; only a file that hung is left alone for a while.
"""

from __future__ import annotations

import json
import os
import platform
import time

from backendcfg import environ, log, startup
from backendcfg.probe import HUNG_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from backendcfg.probe.inspection import Answer, Request


def entries(path: str) -> dict[str, Any]:
    """What a file of entries has; nothing where it is absent or holds anything else."""
    try:
        found = json.loads(startup.read(path, own=True) or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def add(path: str, fresh: Mapping[str, Any], *, most: int) -> bool:
    """Add entries to a file, whose oldest ones go.

    Args:
        path: the file.
        fresh: what is new; it wins over what is there.
        most: how many entries are kept.

    Returns:
        Whether it was written.
    """
    # Read now: another process may have added since.
    newest = list({**entries(path), **fresh}.items())[-most:]
    return replace(path, json.dumps(dict(newest)))


def replace(path: str, content: str | bytes) -> bool:
    """Give a file new content, for its owner alone; whether that could be done."""
    import tempfile
    from contextlib import suppress

    folder = os.path.dirname(path)
    temporary = ""
    if environ.leads_elsewhere(folder):
        return False
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError as error:
        log.debug("%s is not kept: %s", path, error)
        with suppress(OSError):
            os.unlink(temporary)
        return False
    return True


def keep_newest(folder: str, suffix: str, most: int) -> None:
    """Remove all files with a suffix but the newest ones, of which `most`, 1 or more, stay."""
    from contextlib import suppress

    with suppress(OSError):
        files = [entry for entry in os.scandir(folder) if entry.name.endswith(suffix)]
        files.sort(key=lambda entry: entry.stat().st_mtime_ns)
        for entry in files[:-most]:
            os.unlink(entry.path)


_MOST = 400
_KERNELS = (
    "BLIS_ARCH_TYPE",
    "GLIBC_TUNABLES",
    "LD_BIND_NOW",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_INTERFACE_LAYER",
    "MKL_THREADING_LAYER",
    "OPENBLAS_CORETYPE",
)


class Store:
    """The answers of earlier processes on this machine."""

    def __init__(self, processor: str, environment: Mapping[str, str] | None = None) -> None:
        """Read what is there.

        Args:
            processor: names the processor and its features; a home directory may be shared.
            environment: that the libraries are asked under, instead of this process's.
        """
        source = environ.copy() if environment is None else environment
        asker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "symbols.py")
        self._context = [
            os.stat(asker).st_mtime_ns,
            platform.machine(),
            processor,
            {name: source[name] for name in _KERNELS if source.get(name)},
        ]
        self._path = os.path.join(environ.cache_directory(), "libraries.json")
        self._entries = entries(self._path)
        self._fresh: dict[str, Any] = {}

    def recall(self, request: Request) -> Answer | None:
        """The answer, if the file is what it was."""
        from backendcfg.probe.inspection import Answer

        entry = self._entries.get(self._key(request))
        if not isinstance(entry, dict):
            return None
        if isinstance(entry.get("facts"), dict):
            return Answer(entry["facts"])
        until = entry.get("until")
        if isinstance(until, int | float) and 0 < until - time.time() <= HUNG_SECONDS:
            return Answer(error=str(entry.get("error")), hung=True, again_after=HUNG_SECONDS)
        return None

    def remember(self, request: Request, answer: Answer) -> None:
        """Keep an answer for `save`; what is broken is not kept, what hung for a while."""
        if answer.facts is not None:
            self._fresh[self._key(request)] = {"facts": answer.facts}
        elif answer.hung:
            self._fresh[self._key(request)] = {
                "error": answer.error,
                "until": time.time() + HUNG_SECONDS,
            }

    def save(self) -> None:
        """Write what is new; a cache that cannot be written is not an error."""
        if self._fresh:
            add(self._path, self._fresh, most=_MOST)

    def _key(self, request: Request) -> str:
        try:
            status = os.stat(request.path)
        except OSError:
            return ""
        identity = [request.path, status.st_mtime_ns, status.st_size, status.st_ino]
        return json.dumps([*identity, request.kind, self._context])
