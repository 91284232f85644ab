"""PyTorch's deterministic algorithms, and TorchInductor's own switch for them.

`torch.use_deterministic_algorithms` writes both, but imports TorchInductor for it, which takes a
second. So each has a switch here, and TorchInductor's is offered once it is loaded.
`torch.set_deterministic_debug_mode` forgets TorchInductor's. Measured with the CPU build of 2.13.
"""

from __future__ import annotations

from backendcfg.bridges.torch.switches import TorchSwitch, absent
from backendcfg.transact.switch import Latch, Reach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Algorithms(TorchSwitch):
    """Deterministic algorithms: "any", "warn" or "deterministic"."""

    name = "torch.deterministic_algorithms"

    def read(self) -> str:
        if not self.torch.are_deterministic_algorithms_enabled():
            return "any"
        warns = self.torch.is_deterministic_algorithms_warn_only_enabled()
        return "warn" if warns else "deterministic"

    def write(self, value: str) -> None:
        self.torch._C._set_deterministic_algorithms(value != "any", warn_only=value == "warn")


class Inductor(TorchSwitch):
    """`torch._inductor.config.deterministic`, which every thread has for itself.

    A compilation copies the switch of `Algorithms` into this one when it has ended; the first in a
    thread would otherwise still choose its kernels by timing them.
    """

    name = "torch.inductor.deterministic"
    reach = Reach.THREAD
    latch = Latch.EACH_THREAD

    def __init__(self, torch: Any, config: Any) -> None:
        super().__init__(torch)
        self.config = config

    def read(self) -> bool:
        return bool(self.config.deterministic)

    def write(self, value: bool) -> None:
        self.config.deterministic = value

    def unsupported(self) -> str:
        # Without the attribute the module's own __setattr__ would raise.
        has = hasattr(self.config, "deterministic")
        return "" if has else f"TorchInductor of PyTorch {self.torch.__version__} has no such mode"


class Fill(TorchSwitch):
    """`torch.utils.deterministic.fill_uninitialized_memory`."""

    name = "torch.utils.deterministic.fill_uninitialized_memory"

    def read(self) -> bool:
        return bool(self.torch.utils.deterministic.fill_uninitialized_memory)

    def write(self, value: bool) -> None:
        self.torch.utils.deterministic.fill_uninitialized_memory = value

    def unsupported(self) -> str:
        here = getattr(self.torch.utils, "deterministic", None)
        return "" if hasattr(here, "fill_uninitialized_memory") else absent(self.torch)
