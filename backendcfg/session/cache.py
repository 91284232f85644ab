"""Compiled plans on disk, so that a process starts under a profile without resolving it.

A cache only: every entry can be lost. An entry that cannot be read or whose stamp does not hold
is as good as none.
"""

from __future__ import annotations

import json
import os

from backendcfg import __version__, environ
from backendcfg.probe.stamp import holds, relevant_environment
from backendcfg.transact.compiled import Compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


KEPT = 64
"""Plans that are kept; the oldest ones go."""


def directory() -> str:
    """Where compiled plans are kept."""
    return os.path.join(environ.cache_directory(), "plans")


def key(
    name: str,
    rank: str,
    arguments: Mapping[str, str],
    directory: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    """A file name for what was asked, where, and in which environment: each changes the answer."""
    # _sha1 rather than hashlib, whose import opens OpenSSL and costs more than this function.
    from _sha1 import sha1  # type: ignore[import-not-found]

    variables = sorted(relevant_environment(environment).items())
    asked = json.dumps([__version__, name, rank, sorted(arguments.items()), directory, variables])
    return str(sha1(asked.encode()).hexdigest())


def read(key: str, environment: Mapping[str, str] | None = None) -> Compiled | None:
    """The stored plan, or None when there is none that still holds in an environment (this one)."""
    try:
        with open(os.path.join(directory(), f"{key}.json"), encoding="utf-8") as file:
            stored = Compiled.from_dict(json.load(file))
        return stored if not holds(stored.stamp, environment=environment) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write(key: str, compiled: Compiled) -> None:
    """Store a plan; a cache that cannot be written is not an error."""
    from contextlib import suppress

    from backendcfg.probe import kept

    if kept.replace(os.path.join(directory(), f"{key}.json"), compiled.to_json()):
        with suppress(OSError):
            _prune()


def _prune() -> None:
    plans = [entry for entry in os.scandir(directory()) if entry.name.endswith(".json")]
    plans.sort(key=lambda entry: entry.stat().st_mtime_ns)
    for entry in plans[:-KEPT]:
        os.unlink(entry.path)
