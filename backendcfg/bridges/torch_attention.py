"""PyTorch's choice among its kernels for attention, and their order.

The order is checked to be one before PyTorch sees it: `torch._C._set_sdp_priority_order` copies
whatever it is given into an array of five, and past its end. On a CPU the order is ignored: the
flash kernel is tried first. Measured with the CPU build of 2.13; on a GPU the first attention may
set an order of its own over one that was set before it (read in PyTorch's sources, not run).
"""

from __future__ import annotations

from backendcfg.bridges.torch_switches import Pair, TorchSwitch, absent, has_gpu_build
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

KERNELS = {
    "cuda.enable_flash_sdp": "flash",
    "cuda.enable_mem_efficient_sdp": "mem_efficient",
    "cuda.enable_math_sdp": "math",
    "cuda.enable_cudnn_sdp": "cudnn",
}
REDUCTION = "cuda.allow_fp16_bf16_reduction_math_sdp"
PRIORITY = "cuda.sdp_priority"
FLAGS = frozenset({*KERNELS, REDUCTION, PRIORITY})

_NAMES = ("math", "flash", "efficient", "cudnn", "overrideable")
"""By their numbers in `torch.nn.attention.SDPBackend`."""
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}
_DEFAULT_ORDER = ("flash", "efficient", "math", "cudnn", "overrideable")


class Priority(TorchSwitch):
    """The order in which kernels for attention are tried, all five of them."""

    name = f"torch.backends.{PRIORITY}"

    def read(self) -> tuple[str, ...]:
        return tuple([_NAMES[number] for number in self.torch._C._get_sdp_priority_order()])

    def write(self, value: tuple[str, ...]) -> None:
        if len(value) != len(_NAMES) or set(value) != _NUMBERS.keys():
            raise ValueError(f"not an order of {', '.join(_DEFAULT_ORDER)}: {value!r}")
        self.torch._C._set_sdp_priority_order([_NUMBERS[name] for name in value])

    def unsupported(self) -> str:
        known = hasattr(self.torch._C, "_set_sdp_priority_order")
        return "" if known else absent(self.torch)

    def writer(self) -> str:
        """Who orders the kernels anew, once in a process."""
        on_gpu = has_gpu_build(self.torch) and self.torch.cuda.is_initialized()
        return "PyTorch, which orders them itself at the first attention on a GPU" if on_gpu else ""


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The kernels that are allowed, then those that are not: so that there is always one left.

    Args:
        torch: the module.
        values: every flag with its value.
        asked: the flags that somebody set.
    """
    kernels = [flag for flag in KERNELS if flag in asked]
    result = []
    for flag in sorted(kernels, key=lambda flag: not values[flag]):
        kernel = KERNELS[flag]
        switch = Pair(
            torch,
            f"torch.backends.{flag}",
            f"_get_{kernel}_sdp_enabled",
            f"_set_sdp_use_{kernel}",
        )
        result.append(Setting(switch, values[flag], flag))
    if REDUCTION in asked:
        switch = Pair(
            torch,
            f"torch.backends.{REDUCTION}",
            "_get_math_sdp_allow_fp16_bf16_reduction",
            "_set_math_sdp_allow_fp16_bf16_reduction",
        )
        result.append(Setting(switch, values[REDUCTION], REDUCTION))
    # An empty order leaves PyTorch's.
    if PRIORITY in asked and values[PRIORITY]:
        result.append(Setting(Priority(torch), complete(values[PRIORITY]), PRIORITY))
    return result


def complete(order: Iterable[str]) -> tuple[str, ...]:
    """An order of all kernels: those that are named, each once, then the others as by default."""
    return tuple(dict.fromkeys((*order, *_DEFAULT_ORDER)))
