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

from functools import partial

from backendcfg.bridges import afresh, imports
from backendcfg.bridges.pool_calls import handle, inventory
from backendcfg.catalogue.cpu import MKL, is_torch
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.defaults import TORCH_CALLS
from backendcfg.probe.loaded import mapped_files
from backendcfg.transact.switch import AnytimeSwitch, Setting

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
DETECTION = "torch.mkl_detection"
FLAGS = frozenset(
    {*TORCH_CALLS, *(flag for pair in REDUCTIONS.values() for flag in pair), FAST_PATH, DETECTION}
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


class Reduction(Pair):
    """Whether 16-bit products may reduce in 16 bits, and whether they may split K.

    One switch, as in PyTorch: it takes both at once, and not every pair.
    """

    def __init__(self, torch: Any, kind: str, wanted: tuple[bool, bool]) -> None:
        functions = f"_cublas_allow_{kind}_reduced_precision_reduction"
        name = f"torch.backends.{REDUCTIONS[kind][0]}"
        super().__init__(torch, name, f"_get{functions}", f"_set{functions}")
        self.wanted = wanted
        self._knows_both = False
        if not self._why_not:
            get, set_ = self.read, self.write
            self._knows_both = isinstance(get(), tuple)
            if self._knows_both:
                self.write = lambda value: set_(*value)
            else:
                # Before 2.10 or so PyTorch knew the first alone.
                self.read = lambda: (get(), True)
                self.write = lambda value: set_(value[0])

    def unsupported(self) -> str:
        if self._why_not:
            return self._why_not
        reduces, splits = self.wanted
        if reduces and not splits:
            return "PyTorch refuses to split K only where it also refuses to reduce in 16 bits"
        if not splits and not self._knows_both:
            return f"PyTorch {self.torch.__version__} cannot be told not to split K"
        return ""


class FastPath(TorchSwitch):
    """`torch.backends.mha.set_fastpath_enabled`, which takes anything."""

    name = f"torch.backends.{FAST_PATH}"

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self.module: Any = getattr(torch.backends, "mha", None)

    def read(self) -> bool:
        return bool(self.module.get_fastpath_enabled())

    def write(self, value: bool) -> None:
        self.module.set_fastpath_enabled(value)

    def unsupported(self) -> str:
        return "" if hasattr(self.module, "set_fastpath_enabled") else absent(self.torch)


class Detection(TorchSwitch):
    """When MKL, inside PyTorch, finds out what CPU this is for its vector functions.

    By itself it does in the first call of any of them, without a lock, and MKL 2024.2 stores two
    numbers: that of the CPU, then the row of that CPU in its tables of kernels. A thread that reads
    the first one as the second takes kernels of another row for that call; where AVX-512 is used,
    those of 12 bits. A call while no other thread computes leaves nothing to find out. Measured by
    storing the first number between two calls, with PyTorch 2.13.

    MKL does not tell whether it knows, and does not forget it: this holds what it was told last.
    """

    name = DETECTION
    stays = True

    def read(self) -> str:
        return _detection[0]

    def write(self, value: str) -> None:
        if value == "at-load" and (call := _vector_call()):
            call()
        _detection[0] = value

    def dormant(self) -> str:
        return "" if _vector_call() else f"PyTorch {self.torch.__version__} computes without MKL"

    def writer(self) -> str:
        return "the profile was not in force where PyTorch was imported"


_detection = ["first-call"]
_vector_calls: list[Callable[[], object]] = []
_HIGH_ACCURACY = 2
"""VML_HA of MKL's headers, which PyTorch asks for."""


def _vector_call() -> Callable[[], object] | None:
    """A call of MKL's sqrt for one number, or None where this PyTorch has no MKL."""
    if not _vector_calls:
        import ctypes

        library = next((handle(path) for path in mapped_files() if is_torch(path)), None)
        function = getattr(library, "vmsSqrt", None)
        if function is None:
            return None
        numbers = ctypes.c_int64(1), (ctypes.c_float * 1)(), (ctypes.c_float * 1)()
        _vector_calls.append(partial(function, *numbers, ctypes.c_int64(_HIGH_ACCURACY)))
    return _vector_calls[0]


class Algorithms(TorchSwitch):
    """Deterministic algorithms: "any", "warn" or "deterministic"."""

    name = "torch.deterministic_algorithms"

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self._is_on = torch._C._get_deterministic_algorithms
        self._warns = torch._C._get_deterministic_algorithms_warn_only
        self._set = torch._C._set_deterministic_algorithms

    def read(self) -> str:
        if not self._is_on():
            return "any"
        return "warn" if self._warns() else "deterministic"

    def write(self, value: str) -> None:
        self._set(value != "any", warn_only=value == "warn")


class Inductor(TorchSwitch):
    """`torch._inductor.config.deterministic`, which every thread has for itself.

    A compilation copies the switch of `Algorithms` into this one when it has ended; the first in a
    thread would otherwise still choose its kernels by timing them.
    """

    name = "torch.inductor.deterministic"
    reach = "thread"
    latch = "each-thread"

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


class Fill(Pair):
    """`torch.utils.deterministic.fill_uninitialized_memory`."""

    def __init__(self, torch: Any) -> None:
        name = "torch.utils.deterministic.fill_uninitialized_memory"
        functions = "_deterministic_fill_uninitialized_memory"
        super().__init__(torch, name, f"_get{functions}", f"_set{functions}")


class Threads(AnytimeSwitch):
    """`torch.set_num_threads`: for the calling thread, and for threads that start later."""

    name = "torch.num_threads"
    reach = "thread"
    latch = "each-thread"
    reads = afresh.readers("threads.count")
    read: Callable[[], int]

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.read = torch.get_num_threads
        self._inside = [
            pool for pool in inventory().pools if pool.label.startswith(f"{MKL.name}[{TORCH.name}")
        ]

    def write(self, value: int) -> None:
        # It also sets MKL's count for this thread, and turns MKL's dynamic switch off for good;
        # both have switches of their own (see bridges/pools.py).
        dynamic = [pool.get_dynamic() if pool.get_dynamic else None for pool in self._inside]
        local = [pool.set_local(0) if pool.set_local else None for pool in self._inside]
        self.torch.set_num_threads(value)
        for pool, was_dynamic, mine in zip(self._inside, dynamic, local, strict=True):
            if pool.set_dynamic is not None and was_dynamic is not None:
                pool.set_dynamic(was_dynamic)
            if pool.set_local is not None and mine is not None:
                pool.set_local(mine)

    def afresh(self, variables: Mapping[str, Any]) -> int:
        """The count that PyTorch starts with under these variables."""
        return int(afresh.ask(TORCH.name, "threads", variables))


class InteropThreads(TorchSwitch):
    """`torch.set_num_interop_threads`: once, before the pool's first work."""

    name = "torch.num_interop_threads"
    latch = "before-first-use"
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
    if DETECTION in asked and values[DETECTION] == "at-load":
        result.append(Setting(Detection(torch), "at-load", DETECTION))
    return result
