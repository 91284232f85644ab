"""PyTorch's two thread counts. Measured with the CPU build of 2.13."""

from __future__ import annotations

from backendcfg.bridges import afresh, imports
from backendcfg.bridges.pool_calls import inventory
from backendcfg.bridges.torch.switches import TorchSwitch
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.transact.switch import Latch, Reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Threads(TorchSwitch):
    """`torch.set_num_threads`: for the calling thread, and for threads that start later."""

    name = "torch.num_threads"
    reach = Reach.THREAD
    latch = Latch.EACH_THREAD
    reads = afresh.readers("threads.count")

    def read(self) -> int:
        return int(self.torch.get_num_threads())

    def write(self, value: int) -> None:
        # It also sets MKL's count for this thread, and turns MKL's dynamic switch off for good;
        # both have switches of their own (see bridges/pools.py).
        inside = [pool for pool in inventory().pools if pool.label.startswith("mkl[torch")]
        dynamic = [(pool.set_dynamic, pool.get_dynamic()) for pool in inside if pool.get_dynamic]
        local = [(pool.set_local, pool.set_local(0)) for pool in inside if pool.set_local]
        self.torch.set_num_threads(value)
        for set_dynamic, before in dynamic:
            if set_dynamic is not None:
                set_dynamic(before)
        for set_local, before in local:
            set_local(before)

    def afresh(self, variables: Mapping[str, Any]) -> int:
        """The count that PyTorch starts with under these variables."""
        return int(afresh.ask(TORCH.name, "threads", variables))


class InteropThreads(TorchSwitch):
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
        if imports.is_finishing(TORCH.name):
            return ""
        return "torch was imported before, and takes this only before its first parallel work"
