"""Which library PyTorch prefers for a group of operations, and how much memory two of them keep.

PyTorch's setters are careless: told to prefer a library that the build does not have,
`preferred_linalg_library` raises and prefers it all the same, and `preferred_blas_library` takes
`ck` without ROCm. So what a build has is looked up first, and a setter that raises is told the
value before. What the libraries do on a GPU was read in PyTorch's sources, not run.
"""

from __future__ import annotations

from backendcfg.bridges.torch.switches import TorchSwitch, absent, has_gpu_build
from backendcfg.catalogue.gpu import (
    AOTRITON,
    CK,
    CUBLAS,
    CUBLASLT,
    CUSOLVER,
    HIPBLAS,
    HIPBLASLT,
    MAGMA,
)
from backendcfg.transact.switch import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

BLAS = "cuda.preferred_blas_library"
LINALG = "cuda.preferred_linalg_library"
ATTENTION = "cuda.preferred_rocm_fa_library"
ENGINE = "quantized.engine"
PLANS = "cuda.cufft_plan_cache.max_size"
WORKSPACES = {
    "cuda.cublas_workspace_size": "CublasWorkspaceSize",
    "cuda.cublaslt_workspace_size": "CublasLtWorkspaceSize",
}
FLAGS = frozenset({BLAS, LINALG, ATTENTION, ENGINE, PLANS, *WORKSPACES})

_FUNCTIONS = {
    BLAS: ("_BlasBackend", "_{}_blas_preferred_backend"),
    LINALG: ("_LinalgBackend", "_{}_linalg_preferred_backend"),
    ATTENTION: ("_ROCmFABackend", "_{}_rocm_fa_preferred_backend"),
}
# hipBLAS stands for cuBLAS in a build for ROCm, under the same number.
_SAME = {HIPBLAS.name: CUBLAS.name, HIPBLASLT.name: CUBLASLT.name}
_NOT_STARTED = "the program has not started CUDA yet, and asking would start it"
_unread: set[str] = set()
"""Switches that were written without being read first."""
_ENGINES = ("none", "fbgemm", "qnnpack", "onednn", "x86")
"""By their numbers."""


class Preferred(TorchSwitch):
    """A library that is preferred: "default", "cublas", "magma", ..."""

    def __init__(self, torch: Any, flag: str, wanted: str) -> None:
        super().__init__(torch)
        self.name = f"torch.backends.{flag}"
        self.flag = flag
        enumeration, functions = _FUNCTIONS[flag]
        self._get = getattr(torch._C, functions.format("get"), None)
        self._set = getattr(torch._C, functions.format("set"), None)
        members = getattr(getattr(torch._C, enumeration, None), "__members__", {})
        self._members = {name.lower(): member for name, member in members.items()}
        self.wanted = self._resolved(_SAME.get(wanted, wanted))

    def _resolved(self, library: str) -> str:
        """What PyTorch says where it is told "default": for products, the library itself."""
        ask = getattr(self.torch._C, "_get_blas_default_backend", None)
        if library == "default" and self.flag == BLAS and ask is not None:
            return str(ask().name).lower()
        return library

    def read(self) -> str:
        if self._get is None:
            raise NotImplementedError(absent(self.torch))
        return str(self._get().name).lower()

    def write(self, value: str) -> None:
        if self._set is None:
            raise NotImplementedError(absent(self.torch))
        before = self._get() if self._get is not None else None
        try:
            self._set(self._members[value])
        except Exception:
            # It may have been taken before it was refused.
            self._set(before)
            raise

    def unsupported(self) -> str:
        if self._get is None or self._set is None or self.wanted not in self._members:
            return absent(self.torch)
        if self.flag == BLAS and self.wanted == "default":
            return f"PyTorch {self.torch.__version__} does not say which library its default is"
        return _not_built(self.torch, self.wanted)


class Engine(TorchSwitch):
    """`torch.backends.quantized.engine`, by name."""

    name = f"torch.backends.{ENGINE}"

    def __init__(self, torch: Any, wanted: str) -> None:
        super().__init__(torch)
        self.wanted = wanted

    def read(self) -> str:
        return _ENGINES[self.torch._C._get_qengine()]

    def write(self, value: str) -> None:
        self.torch._C._set_qengine(_ENGINES.index(value))

    def unsupported(self) -> str:
        has = [_ENGINES[number] for number in self.torch._C._supported_qengines()]
        if self.wanted in has:
            return ""
        return f"PyTorch {self.torch.__version__} has the engines {', '.join(has)} here"


class Workspace(TorchSwitch):
    """Bytes that cuBLAS or cuBLASLt keep for each handle and stream that is used from then on.

    Until somebody sets it PyTorch computes it from the device, so that asking would start CUDA. It
    is then written without being read, and cannot be put back. Measured with a CUDA build of 2.14
    without a GPU.
    """

    def __init__(self, torch: Any, flag: str) -> None:
        super().__init__(torch)
        self.name = f"torch.backends.{flag}"
        self._get = getattr(torch._C, f"_cuda_get{WORKSPACES[flag]}", None)
        self._set = getattr(torch._C, f"_cuda_set{WORKSPACES[flag]}", None)
        self.reversible = self.name not in _unread and _is_started(torch)

    def read(self) -> int:
        if self._get is None:
            raise NotImplementedError(absent(self.torch, cuda_only=True))
        if self.name not in _unread and not _is_started(self.torch):
            raise RuntimeError(_NOT_STARTED)
        return int(self._get())

    def write(self, value: int) -> None:
        if self._set is None:
            raise NotImplementedError(absent(self.torch, cuda_only=True))
        self._set(value)
        if not self.reversible:
            _unread.add(self.name)

    def unsupported(self) -> str:
        known = self._get is not None and self._set is not None
        return "" if known else absent(self.torch, cuda_only=True)


class PlanCache(TorchSwitch):
    """The plans that cuFFT keeps for one device. Read in PyTorch's sources, not run."""

    def __init__(self, torch: Any, index: int) -> None:
        super().__init__(torch)
        self.index = index
        self.name = f"torch.backends.cuda.cufft_plan_cache[{index}].max_size"

    def read(self) -> int:
        return int(self.torch._cufft_get_plan_cache_max_size(self.index))

    def write(self, value: int) -> None:
        self.torch._cufft_set_plan_cache_max_size(self.index, value)

    def unsupported(self) -> str:
        if not has_gpu_build(self.torch):
            return absent(self.torch, cuda_only=True)
        return "" if _is_started(self.torch) else _NOT_STARTED


def collect(torch: Any, values: Mapping[str, Any], asked: Collection[str]) -> list[Setting]:
    """What a plan wants preferred; an engine "default" and a size of 0 leave PyTorch's.

    Args:
        torch: the module.
        values: every flag with its value; of a preference, the library that was chosen.
        asked: the flags that somebody set.
    """
    result = []
    for flag in _FUNCTIONS:
        if flag in asked:
            switch = Preferred(torch, flag, values[flag])
            result.append(Setting(switch, switch.wanted, flag))
    result += [
        Setting(Workspace(torch, flag), values[flag], flag)
        for flag in WORKSPACES
        if flag in asked and values[flag]
    ]
    if PLANS in asked:
        devices = torch.cuda.device_count() if _is_started(torch) else 1
        result += [Setting(PlanCache(torch, at), values[PLANS], PLANS) for at in range(devices)]
    if ENGINE in asked and values[ENGINE] != "default":
        result.append(Setting(Engine(torch, values[ENGINE]), values[ENGINE], ENGINE))
    return result


def _is_started(torch: Any) -> bool:
    """Whether the program uses CUDA or ROCm already."""
    return has_gpu_build(torch) and bool(torch.cuda.is_initialized())


def _not_built(torch: Any, library: str) -> str:
    """Why a build of PyTorch does not have a library, or ""."""
    version = f"PyTorch {torch.__version__}"
    if library in (CK.name, AOTRITON.name) and torch.version.hip is None:
        return f"{version} is not built for ROCm"
    if library in (CUBLASLT.name, CUSOLVER.name) and not has_gpu_build(torch):
        return f"{version} is built without CUDA and ROCm"
    if library == MAGMA.name and not getattr(torch._C, "_has_magma", False):
        return f"{version} is built without MAGMA"
    return ""
