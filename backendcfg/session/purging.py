"""Everything that backendcfg keeps outside its package, to be shown and removed.

What a user writes, settings and profiles, is not ours and stays.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg import environ, startup
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CACHED = ("plans", "calibration", "kernels", "libraries.json", "xla_flags.json")
"""What lies in the cache directory; a test compares it with who writes there."""


@dataclass(frozen=True)
class Kept:
    """A file or directory that backendcfg wrote.

    Attributes:
        kind: "state", "cache", "trust" or "start-up".
        path: where it is.
        files: how many files that is.
        bytes: how large they are together.
    """

    kind: str
    path: str
    files: int
    bytes: int


def kept() -> tuple[Kept, ...]:
    """What is there of the state, the cache, the record of trust and the start-up files."""
    from backendcfg.load.trust import store
    from backendcfg.session import autoload

    places = [("state", path) for path in _states()]
    cache = environ.cache_directory()
    places += [("cache", os.path.join(cache, name)) for name in CACHED]
    places += [("trust", str(path)) for path in (store(), store().with_suffix(".lock"))]
    places += [("start-up", path) for path in (*autoload.off_files(), *autoload.old_files())]
    return tuple(Kept(kind, path, *_size(path)) for kind, path in places if os.path.lexists(path))


def remove(found: Sequence[Kept]) -> None:
    """Remove all of it, and the directories that are empty then.

    Raises:
        StateUnwritableError: something cannot be removed; `state` says what was.
    """
    disk.remove((each.path for each in found), trees=True)
    ours = {os.path.dirname(each.path) for each in found if each.kind != "start-up"}
    for folder in sorted(ours | {_state_base(), environ.cache_directory()}, reverse=True):
        with suppress(OSError):  # somebody else's files are in it, or it is not there
            os.rmdir(folder)


def _state_base() -> str:
    """The directory that has the user's state; "" where there is no home directory."""
    return os.path.dirname(startup.state_directory())


def _states() -> Iterator[str]:
    """What is active for the user, by 0.1.0 too, which kept it by host, and for the environment."""
    base, environment = _state_base(), startup.environment_directory()
    for old in (os.path.join(base, name, "v1") for name in _names(base)):
        if os.path.lexists(os.path.join(old, "active")):  # or it is another program's
            yield old
    yield startup.state_directory()
    if os.access(environment, os.W_OK):
        names = (name for name in _names(environment) if name != startup.OFF)
        yield from (os.path.join(environment, name) for name in names)


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _size(path: str) -> tuple[int, int]:
    if os.path.islink(path) or not os.path.isdir(path):
        return 1, os.lstat(path).st_size
    files = [os.path.join(where, name) for where, _, names in os.walk(path) for name in names]
    return len(files), sum(os.lstat(file).st_size for file in files)
