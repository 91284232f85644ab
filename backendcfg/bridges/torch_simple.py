"""Switches of PyTorch that are on, off or a number: cuDNN, oneDNN, NNPACK, MIOpen, 16-bit sums.

What those of a GPU do was read in PyTorch's sources, not run; that they read back was measured with
the CPU build of 2.13, which has them all but `cudnn.benchmark_limit`.
"""

from __future__ import annotations

from backendcfg.bridges.torch_switches import Pair, TorchSwitch, absent
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

PAIRS = {
    "cudnn.enabled": ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    "cudnn.benchmark": ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    "cudnn.benchmark_limit": (
        "_cuda_get_cudnn_benchmark_limit",
        "_cuda_set_cudnn_benchmark_limit",
    ),
    "cudnn.deterministic": ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    "cudnn.depthwise_kernel": ("_get_cudnn_depthwise_kernel", "_set_cudnn_depthwise_kernel"),
    "mkldnn.enabled": ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    "mkldnn.deterministic": ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
    "nnpack.enabled": ("_get_nnpack_enabled", "_set_nnpack_enabled"),
    "miopen.immediate": ("_get_miopen_immediate", "_set_miopen_immediate"),
    "cuda.matmul.allow_fp16_accumulation": (
        "_get_cublas_allow_fp16_accumulation",
        "_set_cublas_allow_fp16_accumulation",
    ),
}
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
FLAGS = frozenset({*PAIRS, *(flag for pair in REDUCTIONS.values() for flag in pair), FAST_PATH})


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


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """What a plan wants of these switches.

    Args:
        torch: the module.
        values: every flag with its value.
        asked: the flags that somebody set.
    """
    result = [
        Setting(Pair(torch, f"torch.backends.{flag}", *functions), values[flag], flag)
        for flag, functions in PAIRS.items()
        if flag in asked
    ]
    for kind, flags in REDUCTIONS.items():
        if by := [flag for flag in flags if flag in asked]:
            wanted = (values[flags[0]], values[flags[1]])
            result.append(Setting(Reduction(torch, kind, wanted), wanted, by[0]))
    if FAST_PATH in asked:
        result.append(Setting(FastPath(torch), values[FAST_PATH], FAST_PATH))
    return result
