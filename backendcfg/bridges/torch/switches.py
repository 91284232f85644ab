"""What PyTorch's switches have in common, and the simple ones: on, off, a word or a number.

A switch that one function of `torch._C` reads and another one writes is declared with its flag in
`backendcfg/schema/`, by `calls`, and needs nothing here. Switches that need more are in the modules
beside this one.

The functions of `torch._C` are called, not the attributes of `torch.backends`: after
`torch.backends.disable_global_flags()` those refuse assignments outside a scope. That call exists
so that nobody forgets to restore a switch, and the journal and the owner table restore ours.

That the simple switches read back was measured with the CPU build of 2.13, which has all of them
but `cudnn.benchmark_limit`. What those of a GPU do was read in PyTorch's sources, not run.
"""

from __future__ import annotations

from backendcfg.bridges import afresh, imports
from backendcfg.bridges.pool_calls import inventory
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.defaults import TORCH_CALLS
from backendcfg.transact.switch import AnytimeSwitch, Latch, Reach, Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

REDUCTIONS = {
    "fp16": (
        "cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
    ),
    "bf16": (
        "cuda.matmul.allow_bf16_reduced_precision_reduction",
        "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k",
    ),
}
FAST_PATH = "mha.fastpath_enabled"
FLAGS = frozenset(
    {*TORCH_CALLS, *(flag for pair in REDUCTIONS.values() for flag in pair), FAST_PATH}
)


class TorchSwitch(AnytimeSwitch):
    """A switch of PyTorch for the whole process, which can be set at any time and put back."""

    name: str

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def read(self) -> Any:
        """The value now, from PyTorch."""
        raise NotImplementedError

    def write(self, value: Any) -> None:
        """Tell PyTorch."""
        raise NotImplementedError

    def unsupported(self) -> str:
        """Why this PyTorch cannot take the value wanted, or ""."""
        return ""


class Pair(AnytimeSwitch):
    """A switch that one function of `torch._C` reads and another one writes."""

    read: Callable[[], Any]
    write: Callable[[Any], None]

    def __init__(self, torch: Any, name: str, getter: str, setter: str) -> None:
        self.name = name
        self.torch = torch
        read = getattr(torch._C, getter, None)
        write = getattr(torch._C, setter, None)
        self._why_not = "" if read and write else absent(torch, cuda_only="_cuda_" in getter)
        # The functions themselves: a scope calls them each time that it is entered and left.
        self.read = read or self._refuse
        self.write = write or self._refuse

    def _refuse(self, *_: Any) -> Any:
        raise NotImplementedError(self._why_not)

    def unsupported(self) -> str:
        """Why this PyTorch has no such switch, or ""."""
        return self._why_not


def absent(torch: Any, *, cuda_only: bool = False) -> str:
    """Why a function of PyTorch is not there, in words."""
    if cuda_only and not has_gpu_build(torch):
        return f"PyTorch {torch.__version__} is built without CUDA and ROCm"
    return f"PyTorch {torch.__version__} has no such switch"


def has_gpu_build(torch: Any) -> bool:
    """Whether this PyTorch is built for CUDA or ROCm; ROCm's builds say so of CUDA too."""
    return bool(getattr(torch._C, "_has_cuda", False))


class Reduction(TorchSwitch):
    """Whether 16-bit products may reduce in 16 bits, and whether they may split K.

    One switch, as in PyTorch: it takes both at once, and not every pair.
    """

    def __init__(self, torch: Any, kind: str, wanted: tuple[bool, bool]) -> None:
        super().__init__(torch)
        self.name = f"torch.backends.{REDUCTIONS[kind][0]}"
        self.wanted = wanted
        functions = f"_cublas_allow_{kind}_reduced_precision_reduction"
        self._get = getattr(torch._C, f"_get{functions}", None)
        self._set = getattr(torch._C, f"_set{functions}", None)

    def read(self) -> tuple[bool, bool]:
        """Reducing, splitting."""
        if self._get is None:
            raise NotImplementedError(absent(self.torch))
        # Before 2.10 or so PyTorch knew the first alone.
        found = self._get()
        return found if isinstance(found, tuple) else (found, True)

    def write(self, value: tuple[bool, bool]) -> None:
        if self._get is None or self._set is None:
            raise NotImplementedError(absent(self.torch))
        if isinstance(self._get(), tuple):
            self._set(*value)
        else:
            self._set(value[0])

    def unsupported(self) -> str:
        if self._get is None or self._set is None:
            return absent(self.torch)
        reduces, splits = self.wanted
        if reduces and not splits:
            return "PyTorch refuses to split K only where it also refuses to reduce in 16 bits"
        if not splits and not isinstance(self._get(), tuple):
            return f"PyTorch {self.torch.__version__} cannot be told not to split K"
        return ""


class FastPath(TorchSwitch):
    """`torch.backends.mha.set_fastpath_enabled`, which takes anything."""

    name = f"torch.backends.{FAST_PATH}"

    def read(self) -> bool:
        return bool(self.torch.backends.mha.get_fastpath_enabled())

    def write(self, value: bool) -> None:
        self.torch.backends.mha.set_fastpath_enabled(value)

    def unsupported(self) -> str:
        known = hasattr(getattr(self.torch.backends, "mha", None), "set_fastpath_enabled")
        return "" if known else absent(self.torch)


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


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """What a plan wants of these switches.

    Args:
        torch: the module.
        values: every flag with its value.
        asked: the flags that somebody set.
    """
    result = [
        Setting(Pair(torch, f"torch.backends.{flag}", *functions), values[flag], flag)
        for flag, functions in TORCH_CALLS.items()
        if flag in asked
    ]
    for kind, flags in REDUCTIONS.items():
        if by := [flag for flag in flags if flag in asked]:
            wanted = (values[flags[0]], values[flags[1]])
            result.append(Setting(Reduction(torch, kind, wanted), wanted, by[0]))
    if FAST_PATH in asked:
        result.append(Setting(FastPath(torch), values[FAST_PATH], FAST_PATH))
    return result
