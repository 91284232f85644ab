"""PyTorch's thread counts and its switch for deterministic algorithms.

Acts on a PyTorch that the program has imported, never imports it. Every value is read back from
PyTorch. Sources: https://docs.pytorch.org/docs/2.13/notes/randomness.html and measurements of
the 2.13 wheel.
"""

from __future__ import annotations

import sys

from backendcfg.bridges import imports
from backendcfg.bridges.pool_calls import inventory
from backendcfg.transact.knob import Latch, Reach, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import ModuleType
    from typing import Any

FRAMEWORK: str | None = "torch"

_LEVELS = {"any": 0, "warn": 1, "deterministic": 2}


class _Switch:
    """What PyTorch's knobs have in common."""

    name: str
    reach = Reach.PROCESS
    latch = Latch.ANYTIME
    reversible = True

    def __init__(self, torch: ModuleType) -> None:
        self.torch: Any = torch

    def read(self) -> Any:
        """The value now, from PyTorch."""
        raise NotImplementedError

    def write(self, value: Any) -> None:
        """Tell PyTorch."""
        raise NotImplementedError

    def too_late(self) -> str:
        return ""


class Threads(_Switch):
    """`torch.set_num_threads`: for the calling thread, and for threads that start later."""

    name = "torch.num_threads"
    reach = Reach.THREAD
    latch = Latch.EACH_THREAD

    def read(self) -> int:
        return int(self.torch.get_num_threads())

    def write(self, value: int) -> None:
        # It also sets MKL's count for this thread, and turns MKL's dynamic switch off for good;
        # both have knobs of their own (see bridges/pools.py).
        inside = [pool for pool in inventory().pools if pool.label.startswith("mkl[torch")]
        dynamic = [(pool.set_dynamic, pool.get_dynamic()) for pool in inside if pool.get_dynamic]
        local = [(pool.set_local, pool.set_local(0)) for pool in inside if pool.set_local]
        self.torch.set_num_threads(value)
        for set_dynamic, before in dynamic:
            if set_dynamic is not None:
                set_dynamic(before)
        for set_local, before in local:
            set_local(before)


class InteropThreads(_Switch):
    """`torch.set_num_interop_threads`: once, before the pool's first work."""

    name = "torch.num_interop_threads"
    latch = Latch.BEFORE_FIRST_USE
    reversible = False

    def read(self) -> int:
        return int(self.torch.get_num_interop_threads())

    def write(self, value: int) -> None:
        self.torch.set_num_interop_threads(value)

    def too_late(self) -> str:
        # PyTorch tells whether the pool is in use only by failing, so the one sure moment counts.
        if imports.is_finishing("torch"):
            return ""
        return "torch was imported before, and takes this only before its first parallel work"


class Algorithms(_Switch):
    """Deterministic algorithms: "any", "warn" or "deterministic"."""

    name = "torch.deterministic_algorithms"

    def read(self) -> str:
        if not self.torch.are_deterministic_algorithms_enabled():
            return "any"
        warns = self.torch.is_deterministic_algorithms_warn_only_enabled()
        return "warn" if warns else "deterministic"

    def write(self, value: str) -> None:
        # use_deterministic_algorithms would import TorchInductor, which takes a second. The first
        # compilation copies this switch into TorchInductor's; see `Inductor`.
        self.torch.set_deterministic_debug_mode(_LEVELS[value])


class Inductor(_Switch):
    """`torch._inductor.config.deterministic`, which every thread has for itself."""

    name = "torch.inductor.deterministic"
    reach = Reach.THREAD
    latch = Latch.EACH_THREAD

    def read(self) -> bool:
        return bool(self.torch.deterministic)

    def write(self, value: bool) -> None:
        self.torch.deterministic = value


class Fill(_Switch):
    """`torch.utils.deterministic.fill_uninitialized_memory`."""

    name = "torch.utils.deterministic.fill_uninitialized_memory"

    def read(self) -> bool:
        return bool(self.torch.utils.deterministic.fill_uninitialized_memory)

    def write(self, value: bool) -> None:
        self.torch.utils.deterministic.fill_uninitialized_memory = value


def settings(
    values: Mapping[str, Any], asked: Collection[str], name: str = "PROFILE"
) -> list[Setting]:
    """The settings of the PyTorch in this process, for the flags that were asked.

    Args:
        values: every flag with its value; thread counts are numbers.
        asked: the flags that somebody set; others are left alone.
        name: the profile, for the remedies.
    """
    if not imports.is_imported("torch"):
        return []
    torch = sys.modules["torch"]
    remedy = f"backendcfg run {name} -- python ..."
    wanted = [
        (Threads, "threads.count"),
        (InteropThreads, "threads.interop"),
        (Algorithms, "determinism.algorithms"),
        (Fill, "determinism.fill_uninitialized_memory"),
    ]
    result = [
        Setting(switch(torch), values[flag], flag, remedy)
        for switch, flag in wanted
        if flag in asked and values[flag] != "auto"
    ]
    if "determinism.algorithms" in asked and imports.is_imported("torch._inductor.config"):
        inductor = Inductor(sys.modules["torch._inductor.config"])
        on = values["determinism.algorithms"] != "any"
        result.append(Setting(inductor, on, "determinism.algorithms", remedy))
    return result
