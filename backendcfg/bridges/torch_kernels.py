"""Kernels of PyTorch that are written in Triton or CuTe, which PyTorch 2.12 and later register.

Disabling one gives the operator its built-in kernel back. PyTorch accepts any name; an operator
that has no such kernel, and a dispatch key that PyTorch does not know, are refused here. Enabling
one again makes PyTorch warn that a kernel is overridden. What these kernels do was read in
PyTorch's sources, not run: the CPU build of 2.13 registers one, for CUDA.
"""

from __future__ import annotations

import sys

from backendcfg.bridges.torch_switches import TorchSwitch, absent
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

LANGUAGES = {
    "python_native.cutedsl.enabled": "cutedsl",
    "python_native.triton.enabled": "triton",
}
OPERATIONS = "python_native.disabled_operations"
KEYS = "python_native.disabled_dispatch_keys"
FLAGS = frozenset({*LANGUAGES, OPERATIONS, KEYS})


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


class Operations(TorchSwitch):
    """The operators whose kernels of this kind are disabled, sorted."""

    name = f"torch.backends.{OPERATIONS}"

    def __init__(self, torch: Any, native: Any, wanted: tuple[str, ...]) -> None:
        super().__init__(torch)
        self.native = native
        self.wanted = wanted

    def read(self) -> tuple[str, ...]:
        return tuple(sorted(self.native._get_filter_state()._op_symbols))

    def write(self, value: tuple[str, ...]) -> None:
        now = set(self.read())
        if off := sorted(set(value) - now):
            self.native.disable_operations(*off)
        if on := sorted(now - set(value)):
            self.native.enable_operations(*on)

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


class DispatchKeys(TorchSwitch):
    """The dispatch keys whose kernels of this kind are disabled, sorted."""

    name = f"torch.backends.{KEYS}"

    def __init__(self, torch: Any, native: Any, wanted: tuple[str, ...]) -> None:
        super().__init__(torch)
        self.native = native
        self.wanted = wanted

    def read(self) -> tuple[str, ...]:
        return tuple(sorted(self.native._get_filter_state()._dispatch_keys))

    def write(self, value: tuple[str, ...]) -> None:
        now = set(self.read())
        if off := sorted(set(value) - now):
            self.native.disable_dispatch_keys(*off)
        if on := sorted(now - set(value)):
            self.native.enable_dispatch_keys(*on)

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
    """What a plan wants of the kernels written in Python.

    Args:
        torch: the module.
        values: every flag with its value.
        asked: the flags that somebody set.
    """
    native = sys.modules.get("torch.backends.python_native")
    result = [
        Setting(Language(torch, native, flag), values[flag], flag)
        for flag in LANGUAGES
        if flag in asked
    ]
    if OPERATIONS in asked:
        wanted = tuple(sorted(set(values[OPERATIONS])))
        result.append(Setting(Operations(torch, native, wanted), wanted, OPERATIONS))
    if KEYS in asked:
        keys = tuple(sorted(set(values[KEYS])))
        result.append(Setting(DispatchKeys(torch, native, keys), keys, KEYS))
    return result
