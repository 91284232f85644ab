"""The value that a library of this process would have started with under other variables.

Only the library can tell: OpenBLAS, MKL and the OpenMP runtimes each read several variables in an
order of their own, limit them by what they were built for, and count cores in their own way. So a
child process with these variables opens the same files and asks them. It runs no start-up file
and imports no framework. It is needed when a profile is taken back that was in force when its
libraries were loaded, and takes about half a second with PyTorch, less without.
"""

from __future__ import annotations

import os
import sys
from functools import cache, lru_cache

from backendcfg import environ
from backendcfg.catalogue import variables as table
from backendcfg.catalogue.cpu import MKL, is_torch
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.probe import limits, loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LIMIT_SECONDS = 60

_PROGRAM = """
import json, sys
request = json.load(sys.stdin)
sys.path.insert(0, request["root"])
from backendcfg.bridges.afresh import answer
answer(request)
"""


@cache
def readers(flag: str) -> frozenset[str]:
    """The variables that decide what a running library can be told by a call for a flag."""
    rows = [row for row in table.VARIABLES if row.flag == flag and row.runtime]
    return frozenset(name for row in rows for name in (row.name, *row.rivals))


def texts(variables: Mapping[str, Any]) -> dict[str, str | None]:
    """Readings of variables as what stood there; see `Meaning` in `environment.py`."""
    return {name: getattr(value, "text", value) for name, value in variables.items()}


def ask(subject: str, what: str, variables: Mapping[str, Any]) -> Any:
    """What a library would hold.

    Args:
        subject: its file, or the name of PyTorch.
        what: "threads", "dynamic", or "begins", the count before PyTorch changed it.
        variables: what it would find, as the registry has it; None is unset. All others are as they
            are now.

    Raises:
        LookupError: nobody can know; the message says why.
    """
    environment = environ.changed(environ.copy(), {**texts(variables), environ.DISABLE.name: "1"})
    found, obstacle = _ask(tuple(sorted(environment.items())), tuple(_files()))
    if obstacle:
        raise LookupError(f"what it would hold without could not be found out: {obstacle}")
    if what not in found.get(subject, {}):
        raise LookupError("what it would hold without could not be found out: it cannot be asked")
    return found[subject][what]


def _files() -> list[str]:
    """What to open, OpenMP runtimes last: one that binds threads binds the child's as well."""
    from backendcfg.bridges.pool_calls import inventory

    found = inventory().files
    torch = [path for path in loaded.mapped_files() if is_torch(path)]
    blas = [path for label, path in found.items() if not label.startswith("openmp[")]
    plain = [path for path in blas if path not in torch]
    return list(dict.fromkeys([*plain, *torch, *found.values()]))


@lru_cache(maxsize=4)
def _ask(
    environment: tuple[tuple[str, str], ...], files: tuple[str, ...]
) -> tuple[dict[str, dict[str, Any]], str]:
    """What the child says, and why it said nothing, of which one is empty."""
    import json

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    request = {"root": root, "files": files, "processors": limits.processors}
    from backendcfg import childprocess

    done = childprocess.run(
        ["-c", _PROGRAM],
        dict(environment),
        given=json.dumps(request),
        seconds=LIMIT_SECONDS,
        isolated=True,
    )
    try:
        found: dict[str, dict[str, Any]] = done.answer()
    except ValueError:
        because = done.obstacle or f"{done.how}: {done.last_line()}"
        return {}, f"a child process that asked {because}"
    return found, ""


def answer(request: Mapping[str, Any]) -> None:
    """In the child: open the files, ask them, print the answers as one line, and leave."""
    import ctypes
    import json
    from contextlib import suppress

    if request["processors"]:
        with suppress(OSError):  # some may be gone since
            os.sched_setaffinity(0, request["processors"])
    opened = {}
    for path in request["files"]:
        with suppress(OSError):
            opened[path] = ctypes.CDLL(path)
    from backendcfg.bridges.pool_calls import take_inventory

    pools = take_inventory(loaded.libraries_in_process()).pools
    found: dict[str, dict[str, Any]] = {pool.path: {} for pool in pools}
    for pool in pools:
        if pool.kind == "openmp":
            found[pool.path]["begins"] = pool.get()
    for path, library in opened.items():
        # PyTorch gives the count that it takes to its OpenMP runtime.
        count = getattr(library, "_ZN2at15get_num_threadsEv", None) if is_torch(path) else None
        if count is not None:
            found[TORCH.name] = {"threads": count()}
    for pool in pools:
        if pool.get_dynamic is not None:
            found[pool.path]["dynamic"] = pool.get_dynamic()
        if pool.kind == MKL.name and pool.set_dynamic is not None:
            pool.set_dynamic(0)  # else it clips its answer
        found[pool.path]["threads"] = pool.get()
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    sys.stdout.flush()
    # Not through the destructors of libraries that nobody else has opened like this.
    os._exit(0)
