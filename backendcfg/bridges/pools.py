"""Thread counts of every BLAS and OpenMP runtime in the process, and the kernels that run.

`pool_calls.py` finds the calls; this file makes switches of them. Switches are named after the
library and who brought it: `openblas[numpy].threads`, `mkl[torch].dynamic`,
`openmp[libgomp torch].threads`, `openblas[scipy].core_type`.

NumPy's own loops have kernels too, of which NPY_DISABLE_CPU_FEATURES leaves some out. NumPy reads
it when it is imported, ignores a name that it does not know with no more than an ImportWarning, and
its releases have different names for the same thing. So it is asked what it uses (seen with 2.4).
"""

from __future__ import annotations

import sys

from backendcfg import environ
from backendcfg.bridges import afresh, imports
from backendcfg.bridges.pool_calls import inventory
from backendcfg.catalogue.cpu import BLIS, MKL, OPENBLAS
from backendcfg.catalogue.frameworks import NUMPY
from backendcfg.records import record
from backendcfg.transact.switch import AnytimeSwitch, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import ModuleType
    from typing import Any

    from backendcfg.bridges.pool_calls import Inventory, Pool
    from backendcfg.transact.protocol import Latch, Reach


FRAMEWORK: str | None = None
SCOPED_FLAGS = frozenset({"threads.count", "threads.dynamic"})

FEATURES = "NPY_DISABLE_CPU_FEATURES"
# The package moved in 2.0.
_MODULES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")


@record(frozen=True)
class Threads:
    """The thread count of one library.

    OpenMP keeps it for each thread apart, every BLAS for the process.
    """

    pool: Pool
    reversible: bool = True

    @property
    def name(self) -> str:
        return f"{self.pool.label}.threads"

    @property
    def reach(self) -> Reach:
        return "thread" if self.pool.kind == "openmp" else "process"

    @property
    def latch(self) -> Latch:
        return "each-thread" if self.pool.kind == "openmp" else "anytime"

    @property
    def read(self) -> Callable[[], int]:
        """What answers: a scope asks each time that it is entered and left."""
        if self.pool.kind != MKL.name:
            return self.pool.get
        get, path = self.pool.get, self.pool.path

        def read() -> int:
            found = get()
            if path not in _asked:
                return found
            asked, seen = _asked[path]
            # While MKL_DYNAMIC is on, it answers at most the number of cores, whatever it was told.
            return asked if found == seen and asked > seen and self._clips() else found

        return read

    def write(self, value: int) -> None:
        if type(value) is not int or not 1 <= value <= self.pool.limit:
            raise ValueError(f"{self.name} must be from 1 to {self.pool.limit}, not {value!r}")
        self.pool.set(value)
        if self.pool.kind == MKL.name:
            _asked[self.pool.path] = (value, self.pool.get())

    def too_late(self) -> str:
        return ""

    @property
    def reads(self) -> frozenset[str]:
        """The variables that decide the count which the library starts with."""
        return afresh.readers("threads.count")

    def afresh(self, variables: Mapping[str, Any]) -> int:
        """The count that it starts with under these variables."""
        return int(afresh.ask(self.pool.path, "threads", variables))

    def begins(self, variables: Mapping[str, Any]) -> int:
        """The count that it gives a thread that starts, under these variables."""
        return int(afresh.ask(self.pool.path, "begins", variables))

    def _clips(self) -> bool:
        return self.pool.get_dynamic is not None and self.pool.get_dynamic()


_asked: dict[str, tuple[int, int]] = {}
"""By file of MKL: what it was told last, and what it answered right after."""


@record(frozen=True)
class LocalThreads(AnytimeSwitch):
    """MKL's count for one thread, which outranks its count for the process; 0 is none.

    `torch.set_num_threads` sets it. A profile wants none, so that the process's count decides.
    """

    pool: Pool
    reach = "thread"
    latch = "each-thread"

    @property
    def name(self) -> str:
        return f"{self.pool.label}.local_threads"

    @property
    def read(self) -> Callable[[], int]:
        """What answers: it exchanges the count for none, and puts it back."""
        exchange = self.write

        def read() -> int:
            found: int = exchange(0)
            if found:
                exchange(found)
            return found

        return read

    @property
    def write(self) -> Callable[[int], Any]:
        """What sets it, and returns what it was."""
        if self.pool.set_local is None:
            raise RuntimeError(f"{self.pool.label} has no such switch")
        return self.pool.set_local


@record(frozen=True)
class Dynamic:
    """Whether a library may use fewer threads than its count."""

    pool: Pool
    reversible: bool = True

    @property
    def name(self) -> str:
        return f"{self.pool.label}.dynamic"

    @property
    def reach(self) -> Reach:
        return "thread" if self.pool.kind == "openmp" else "process"

    @property
    def latch(self) -> Latch:
        return "each-thread" if self.pool.kind == "openmp" else "anytime"

    @property
    def read(self) -> Callable[[], bool]:
        """What answers."""
        if self.pool.get_dynamic is None:
            raise RuntimeError(f"{self.pool.label} has no such switch")
        return self.pool.get_dynamic

    @property
    def write(self) -> Callable[[int], None]:
        """What sets it."""
        if self.pool.set_dynamic is None:
            raise RuntimeError(f"{self.pool.label} has no such switch")
        return self.pool.set_dynamic

    def too_late(self) -> str:
        return ""

    @property
    def reads(self) -> frozenset[str]:
        """The variables that decide what the library starts with."""
        return afresh.readers("threads.dynamic")

    def afresh(self, variables: Mapping[str, Any]) -> bool:
        """What it starts with under these variables."""
        return bool(afresh.ask(self.pool.path, "dynamic", variables))

    begins = afresh


@record(frozen=True)
class CoreType(AnytimeSwitch):
    """The kernels that an OpenBLAS or a BLIS runs; it chooses them once, when it is loaded."""

    pool: Pool
    wanted: str
    latch = "before-import"
    reversible = False

    @property
    def name(self) -> str:
        return f"{self.pool.label}.core_type"

    def read(self) -> str:
        if self.pool.core_type is None:
            raise RuntimeError(f"{self.pool.label} gives no core type")
        return self.pool.core_type()

    def write(self, value: str) -> None:
        raise RuntimeError(self.too_late())

    def too_late(self) -> str:
        if self.was_told():
            return (
                f"it was started with OPENBLAS_CORETYPE={self.wanted} and runs {self.read()}: "
                "it has no such kernels, or this processor cannot run them"
            )
        return f"it chose {self.read()} when it was loaded"

    def was_told(self) -> bool:
        """Whether this process was started with the wanted core type."""
        told = environ.foreign(["OPENBLAS_CORETYPE"]).get("OPENBLAS_CORETYPE", "")
        return self.pool.kind == OPENBLAS.name and told.lower() == self.wanted.lower()


class DisabledFeatures(AnytimeSwitch):
    """Of the instruction sets that shall be left out, those that NumPy leaves out; sorted names."""

    name = "numpy.disabled_cpu_features"
    latch = "before-import"
    reversible = False

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def read(self) -> tuple[str, ...]:
        used = _features()
        return tuple(
            name for name in self.names if name in _dispatched() and used.get(name) is False
        )

    def write(self, value: tuple[str, ...]) -> None:
        raise RuntimeError(self.too_late())

    def too_late(self) -> str:
        used = _features()
        version = sys.modules[NUMPY.name].__version__
        said = []
        if unknown := [name for name in self.names if name not in _dispatched()]:
            said.append(
                f"NumPy {version} ignores {', '.join(unknown)}: it has no loops for that name"
            )
        if taken := [name for name in self.names if name not in unknown and used.get(name)]:
            said.append(
                f"NumPy uses {', '.join(taken)}, as it read {FEATURES} when it was imported"
            )
        return "; ".join(said)


def settings(
    values: Mapping[str, Any],
    asked: Collection[str],
    remedy: str = "",
    *,
    found: Inventory | None = None,
) -> list[Setting]:
    """The settings of the pools that are in this process now, for the flags that were asked.

    Args:
        values: every flag with its value; `threads.count` is a number.
        asked: the flags that somebody set; others are left alone.
        remedy: the command that starts a process where what is pending holds.
        found: the pools to steer, else those of this process.
    """
    result = _left_out(values, asked, remedy)
    if _FLAGS.isdisjoint(asked):
        return result
    pools = (inventory() if found is None else found).pools
    if "threads.dynamic" in asked:
        # Before the counts, which MKL clips while it is on.
        wanted = bool(values["threads.dynamic"])
        result += [
            Setting(Dynamic(pool), wanted, "threads.dynamic") for pool in pools if pool.get_dynamic
        ]
    if "threads.count" in asked:
        count = values["threads.count"]
        result += [
            Setting(Threads(pool), min(count, pool.limit), "threads.count") for pool in pools
        ]
        result += [
            Setting(LocalThreads(pool), 0, "threads.count") for pool in pools if pool.set_local
        ]
    for flag, kind in _CORE_TYPES.items():
        if flag in asked and values[flag] != "auto":
            result += [
                _core_type(pool, values[flag], flag, remedy)
                for pool in pools
                if pool.kind == kind and pool.core_type is not None
            ]
    return result


def missing(found: Inventory | None = None) -> dict[str, str]:
    """The switches that are not offered, each with the reason."""
    have = inventory() if found is None else found
    return {**have.missing, **have.waiting}


def capped(count: int, found: Inventory | None = None) -> dict[str, int]:
    """The pools that were built for fewer threads, `{switch name: most it can}`."""
    have = inventory() if found is None else found
    return {Threads(pool).name: pool.limit for pool in have.pools if pool.limit < count}


_CORE_TYPES = {"blas.openblas.core_type": OPENBLAS.name, "blas.blis.arch_type": BLIS.name}
_FLAGS = frozenset({"threads.count", "threads.dynamic", *_CORE_TYPES})


def _core_type(pool: Pool, wanted: str, flag: str, remedy: str) -> Setting:
    switch = CoreType(pool, wanted)
    running = switch.read()
    if running.lower() == wanted.lower():
        # OpenBLAS compares without regard to case, and answers in its own spelling.
        wanted = running
    return Setting(switch, wanted, flag, "" if switch.was_told() else remedy)


def _left_out(values: Mapping[str, Any], asked: Collection[str], remedy: str) -> list[Setting]:
    """The instruction sets that a profile leaves out of the loops of the NumPy in this process."""
    text = (values.get("environment") or {}).get(FEATURES) if "environment" in asked else None
    names = tuple(sorted(set((text or "").replace(",", " ").split())))
    if not names or not imports.is_imported(NUMPY.name) or not _features():
        return []
    return [Setting(DisabledFeatures(names), names, "environment", remedy)]


def _features() -> dict[str, bool]:
    """What NumPy says of each instruction set that it knows: whether it uses it."""
    return getattr(_compiled(), "__cpu_features__", {})


def _dispatched() -> tuple[str, ...]:
    """The instruction sets that NumPy has loops of their own for, and can leave out."""
    return tuple(getattr(_compiled(), "__cpu_dispatch__", ()))


def _compiled() -> ModuleType | None:
    return next(filter(None, map(sys.modules.get, _MODULES)), None)
