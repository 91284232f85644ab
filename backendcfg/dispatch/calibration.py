"""The calibration: who was measured to be the fastest on this machine, kept on disk.

    <cache>/calibration/<machine>-<threads>.json    one table for each number of threads

`backendcfg tune` writes a table; whoever makes a snapshot reads it. It is used only where it was
made: on the same processor, with the same files and the same variables that choose kernels. It says
nothing of `resolve.plan.host_digest`, which changes whenever any package is installed.

Standard library only. Without a table this costs one look at a directory.
"""

from __future__ import annotations

import json
import os
import time
from functools import lru_cache

from backendcfg import __version__, environ, plain_json, startup
from backendcfg.errors import StateUnwritableError
from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from backendcfg.transact.compiled import Compiled

VERSION = 2
OLDER = (1,)
"""Versions that are read too: those of 1 hold products alone."""

KERNELS = (
    "BLIS_ARCH_TYPE",
    "GLIBC_TUNABLES",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_THREADING_LAYER",
    "OMP_WAIT_POLICY",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "OPENBLAS_THREAD_TIMEOUT",
)
"""Variables that choose kernels or how threads wait, and so change who is the fastest."""

THREADS = (
    "BLIS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)
"""Variables that say how many threads libraries start with."""


@record(frozen=True)
class Measured:
    """What calls of one provider took.

    Attributes:
        seconds: of one call, the median of the turns.
        spread: median distance of a turn from that, as a part of it.
        turns: how many there were.
    """

    seconds: float
    spread: float = 0.0
    turns: int = 1


@record(frozen=True)
class Measurable:
    """A library as it was measured.

    Attributes:
        path: its file; "" for what is compiled in.
        version: as detection found it, or "".
        identity: of the file: time of change in nanoseconds, size in bytes.
        pool: whose threads it computes with; two names are two pools, "" is no threads at all.
    """

    path: str
    version: str = ""
    identity: tuple[int, ...] = ()
    pool: str = ""


@record(frozen=True)
class Table:
    """What was measured on one machine with one number of threads.

    Attributes:
        machine: digest of the processor, see `machine`.
        processor: its name, for people.
        threads: of each library.
        taken: when it ended, in seconds since the epoch.
        libraries: by the provider's name.
        environment: those of KERNELS that were set.
        times: `{operation: {size class: {provider: Measured}}}`; operations are those of BLAS and
            LAPACK, "dgemm" and "zheevd".
        release: of backendcfg.
    """

    machine: str
    processor: str
    threads: int
    taken: float
    libraries: dict[str, Measurable] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    times: dict[str, dict[int, dict[str, Measured]]] = field(default_factory=dict)
    release: str = __version__

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        from dataclasses import asdict

        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Table:
        """The inverse, also through JSON.

        Raises:
            TypeError, KeyError, ValueError, AttributeError: it is no table of this release.
        """
        fields = dict(data)
        if fields.pop("version") not in (VERSION, *OLDER):
            raise ValueError("another version")
        fields["libraries"] = {
            name: Measurable(**{**one, "identity": tuple(one["identity"])})
            for name, one in data["libraries"].items()
        }
        fields["times"] = {
            operation: {
                int(size): {name: Measured(**one) for name, one in row.items()}
                for size, row in rows.items()
            }
            for operation, rows in data["times"].items()
        }
        return cls(**fields)

    @property
    def day(self) -> str:
        """When it was taken, for people: "2026-11-21"."""
        return time.strftime("%Y-%m-%d", time.localtime(self.taken))


def directory() -> str:
    """Where tables are kept; it need not exist."""
    return os.path.join(environ.cache_directory(), "calibration")


def path(threads: int) -> str:
    """The file of this machine's table."""
    return os.path.join(directory(), f"{machine()[0][:16]}-{threads}.json")


def machine() -> tuple[str, str]:
    """A digest of what decides how fast kernels are, and the processor's name."""
    import platform
    from hashlib import sha256

    from backendcfg.probe import first_processor
    from backendcfg.probe.limits import read_limits

    first = first_processor()
    name = first.get("model name") or first.get("cpu") or platform.processor()
    features = " ".join(sorted((first.get("flags") or first.get("Features") or "").split()))
    facts = (platform.machine(), name, features, str(read_limits().usable))
    return sha256("\n".join(facts).encode()).hexdigest(), name


def threads(values: Mapping[str, Any], asked: tuple[str, ...] = ()) -> int:
    """How many threads libraries compute with: what the profile asks for, else what variables say.

    What a program sets at run time by other means is not followed.
    """
    if "threads.count" in asked and isinstance(values.get("threads.count"), int):
        return int(values["threads.count"])
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = environ.foreign([name]).get(name, "")
        if text.isdigit() and int(text) > 0:
            return int(text)
    from backendcfg.probe.limits import read_limits

    return read_limits().usable


def kernels(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that choose kernels, as they are set."""
    source = environ.copy() if environment is None else environment
    return {name: source[name] for name in KERNELS if source.get(name)}


def identity(path: str) -> tuple[int, ...]:
    """What changes when a file is replaced; () when it is not there."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_mtime_ns, status.st_size)


def table_for(
    compiled: Compiled | None, environment: Mapping[str, str] | None = None
) -> Table | str:
    """The calibration that a profile, or None for none, may use; else why not.

    Args:
        compiled: the profile.
        environment: of the process that would use it, instead of this process's.
    """
    if environ.disabled():
        return "BACKENDCFG_DISABLE turns it off"
    if compiled is None:
        return read(threads({}), environment)
    if not compiled.values.get("ops.calibration", True):
        return "`ops.calibration` is off"
    if compiled.tier != "none":
        return f"profile `{compiled.name}` has tier `{compiled.tier}`: speed decides no bits"
    if compiled.values.get("blas.path"):
        return "`blas.path` says which library serves"
    if len(compiled.named) == 1:
        return f"`blas.library` names `{compiled.named[0]}` alone"
    return read(threads(compiled.values, compiled.asked), environment)


def read(threads: int, environment: Mapping[str, str] | None = None) -> Table | str:
    """This machine's table, or why there is none that may be used in an environment (this one)."""
    try:
        names = os.listdir(directory())
    except OSError:
        names = []
    if not any(name.endswith(".json") for name in names):
        return "there is none: `backendcfg tune` makes one"
    file = path(threads)
    try:
        table = _parsed(file, _edition(os.stat(file)))
    except FileNotFoundError:
        return _others(os.path.basename(file), names, threads)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return f"{file} cannot be read: `backendcfg tune` makes it anew"
    return unfit(table, threads, environment) or table


def _edition(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _parsed(file: str, edition: tuple[int, ...]) -> Table:
    """A table as it was written, once for all profiles that go by it: it has a thousand numbers."""
    return Table.from_dict(plain_json.loads(startup.take(file)[0].decode()))


def in_words(threads: int) -> str:
    """1 thread, 2 threads."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def _others(wanted: str, names: list[str], threads: int) -> str:
    """Why none of the tables that are there fits."""
    mine = wanted.rpartition("-")[0]
    counts = sorted(
        int(count)
        for head, _, count in (name.removesuffix(".json").rpartition("-") for name in names)
        if head == mine and count.isdigit()
    )
    if counts:
        had = ", ".join(map(str, counts))
        return f"there is none for {in_words(threads)}, only for {had}"
    return "there are only those of other machines"


def unfit(table: Table, threads: int, environment: Mapping[str, str] | None = None) -> str:
    """Why a table was made elsewhere or under other conditions, or ""."""
    if table.release != __version__:
        return f"it was made by release {table.release}"
    if table.machine != machine()[0]:
        return f"it was made on another machine: {table.processor}"
    if table.threads != threads:
        return f"it was made with {in_words(table.threads)}, and {threads} are in force"
    now = kernels(environment)
    for name in KERNELS:
        before, value = table.environment.get(name), now.get(name)
        if before != value:
            was = f"was {before}" if before else "was not set"
            return f"{name} {was} when it was made, and is {value or 'not set'} now"
    return ""


def replaced(table: Table, name: str, path: str) -> str:
    """Why what was measured as a provider is not the file that serves now, or ""."""
    library = table.libraries.get(name)
    if library is None:
        return ""
    if os.path.realpath(library.path) != os.path.realpath(path):
        return f"`{name}` was {library.path} when it was made, and is {path} now"
    if library.identity != identity(path):
        return f"`{name}` was replaced since it was made"
    return ""


def write(table: Table) -> str:
    """Store a table whole or not at all; the path of its file.

    Raises:
        StateUnwritableError: it cannot be stored, and the one before it is as it was.
    """
    file = path(table.threads)
    _store(file, json.dumps(table.to_dict(), indent=1, sort_keys=True).encode())
    return file


def refuse_unwritable() -> None:
    """Fail as `write` would, before anything is measured.

    Raises:
        StateUnwritableError: no table can be stored.
    """
    from backendcfg.transact import disk

    trial = os.path.join(directory(), f"trial-{os.getpid()}")
    _store(trial, b"")
    disk.discard(trial)


def _store(file: str, content: bytes) -> None:
    from backendcfg.transact import disk

    try:
        disk.make_directory(os.path.dirname(file))
        disk.replace(file, content)
    except StateUnwritableError as error:
        raise StateUnwritableError(
            error.message,
            state="the calibration is as it was before",
            helps=["set BACKENDCFG_CACHE_DIR to a directory that is yours"],
        ) from error
