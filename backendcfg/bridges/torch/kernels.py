"""PyTorch's choice among its kernels: for attention, and those written in Triton or CuTe.

Attention: the order of kernels is checked before PyTorch sees it, because
`torch._C._set_sdp_priority_order` copies whatever it is given into an array of five, and past its
end. On a CPU PyTorch ignores the order and tries the flash kernel first (measured with the CPU
build of 2.13). On a GPU the first attention may replace an order that was set before it (read in
PyTorch's sources, not run).

Kernels in Python, which PyTorch 2.12 and later register: disabling one gives the operator its
built-in kernel back. PyTorch accepts any name, so an operator without such a kernel and an unknown
dispatch key are refused here. When a kernel is enabled again, PyTorch warns that one is overridden.
What these kernels do was read in PyTorch's sources, not run: the CPU build of 2.13 registers one,
for CUDA.
"""

from __future__ import annotations

import sys

from backendcfg.bridges.torch.switches import Pair, TorchSwitch, absent, has_gpu_build
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
PRIORITY = "cuda.sdp_priority"

_NAMES = ("math", "flash", "efficient", "cudnn", "overrideable")
"""By their numbers in `torch.nn.attention.SDPBackend`."""
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}
_DEFAULT_ORDER = ("flash", "efficient", "math", "cudnn", "overrideable")
LANGUAGES = {
    "python_native.cutedsl.enabled": "cutedsl",
    "python_native.triton.enabled": "triton",
}
OPERATIONS = "python_native.disabled_operations"
KEYS = "python_native.disabled_dispatch_keys"
FLAGS = frozenset({*KERNELS, PRIORITY, *LANGUAGES, OPERATIONS, KEYS})


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


class Language(TorchSwitch):
    """`torch.backends.python_native.triton.enabled`."""

    def __init__(self, torch: Any, native: Any, flag: str) -> None:
        super().__init__(torch)
        self.native = native
        self.name = f"torch.backends.{flag}"
        self.language = LANGUAGES[flag]

    def read(self) -> bool:
        return not self.native.is_dsl_disabled(self.language)

    def write(self, value: bool) -> None:
        # Its attribute `enabled` is frozen by disable_global_flags.
        language = getattr(self.native, self.language)
        (language.enable if value else language.disable)()

    def unsupported(self) -> str:
        known = self.native is not None and self.language in self.native.all_dsls
        return "" if known else absent(self.torch)


class Disabled(TorchSwitch):
    """Some of what these kernels are for is disabled: names, sorted."""

    what = ""
    """In the names of PyTorch's functions that disable and enable it."""

    field = ""
    """Where PyTorch keeps it."""

    def __init__(self, torch: Any, native: Any, wanted: tuple[str, ...]) -> None:
        super().__init__(torch)
        self.native = native
        self.wanted = wanted

    def read(self) -> tuple[str, ...]:
        return tuple(sorted(getattr(self.native._get_filter_state(), self.field)))

    def write(self, value: tuple[str, ...]) -> None:
        now = set(self.read())
        if off := sorted(set(value) - now):
            getattr(self.native, f"disable_{self.what}")(*off)
        if on := sorted(now - set(value)):
            getattr(self.native, f"enable_{self.what}")(*on)


class Operations(Disabled):
    """The operators whose kernels of this kind are disabled."""

    name = f"torch.backends.{OPERATIONS}"
    what, field = "operations", "_op_symbols"

    def unsupported(self) -> str:
        if self.native is None:
            return absent(self.torch)
        # Not `get_dsl_operations`, which leaves out kernels of no language.
        _, _, graphs, _ = self.native._get_registry_functions()
        known = {operation for operation, _ in graphs}
        if unknown := [one for one in self.wanted if one not in known]:
            has = f"only for {', '.join(sorted(known))}" if known else "for no operator"
            return (
                f"PyTorch {self.torch.__version__} has such kernels {has} here, not for"
                f" {', '.join(unknown)}"
            )
        return ""


class DispatchKeys(Disabled):
    """The dispatch keys whose kernels of this kind are disabled."""

    name = f"torch.backends.{KEYS}"
    what, field = "dispatch_keys", "_dispatch_keys"

    def unsupported(self) -> str:
        if self.native is None:
            return absent(self.torch)
        if unknown := [key for key in self.wanted if not self._is_known(key)]:
            return f"PyTorch {self.torch.__version__} has no dispatch key {', '.join(unknown)}"
        return ""

    def _is_known(self, key: str) -> bool:
        try:
            self.torch._C._dispatch_key_parse(key)
        except RuntimeError:
            return False
        return True


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """What a plan wants of these switches.

    Args:
        torch: the module.
        values: every flag with its value.
        asked: the flags that somebody set.
    """
    return _attention(torch, values, asked) + _in_python(torch, values, asked)


def _attention(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """The kernels that are allowed, then those that are not: so that there is always one left."""
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
    # An empty order leaves PyTorch's.
    if PRIORITY in asked and values[PRIORITY]:
        result.append(Setting(Priority(torch), complete(values[PRIORITY]), PRIORITY))
    return result


def complete(order: Iterable[str]) -> tuple[str, ...]:
    """An order of all kernels: those that are named, each once, then the others as by default."""
    return tuple(dict.fromkeys((*order, *_DEFAULT_ORDER)))


def _in_python(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """What a plan wants of the kernels that are written in Python."""
    native = sys.modules.get("torch.backends.python_native")
    result = [
        Setting(Language(torch, native, flag), values[flag], flag)
        for flag in LANGUAGES
        if flag in asked
    ]
    for flag, disabled in ((OPERATIONS, Operations), (KEYS, DispatchKeys)):
        if flag in asked:
            wanted = tuple(sorted(set(values[flag])))
            result.append(Setting(disabled(torch, native, wanted), wanted, flag))
    return result
