"""PyTorch's own variables that give its switches their first value.

PyTorch reads them once, when it is imported. Whoever sets one says what the flag shall be, as
plainly as by BACKENDCFG_<FLAG>, so it counts with the same rank, and the latter wins when both are
set. That PyTorch starts with these values was measured on the CPU build of 2.13; what they do on a
GPU, and CUBLASLT_WORKSPACE_SIZE, was read in PyTorch's sources (Context.h, CublasHandlePool.cpp),
not run. A text that PyTorch ignores with a warning ("yes") is ignored here too.
"""

from __future__ import annotations

from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


@record(frozen=True)
class Initial:
    """A variable and what it makes of a flag.

    Attributes:
        variable: its name.
        flag: the flag that it gives a value.
        values: what its texts mean; others mean nothing, except numbers when there is a unit.
        unit: for a size, the bytes that one stands for; 0 for what is no size.
    """

    variable: str
    flag: str
    values: Mapping[str, Any] = field(default_factory=dict)
    unit: int = 0

    def value(self, text: str) -> Any:
        """What a text makes of the flag, or None when PyTorch makes nothing of it."""
        if self.unit:
            return int(text) * self.unit if text.isascii() and text.isdecimal() else None
        return self.values.get(text)


INITIALS: tuple[Initial, ...] = (
    Initial("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "cuda.matmul.fp32_precision", {"1": "tf32"}),
    Initial("TORCH_LINALG_PREFER_HIPSOLVER", "cuda.preferred_linalg_library", {"1": "cusolver"}),
    Initial("TORCH_LINALG_PREFER_CUSOLVER", "cuda.preferred_linalg_library", {"1": "cusolver"}),
    Initial(
        "TORCH_BLAS_PREFER_HIPBLASLT",
        "cuda.preferred_blas_library",
        {"1": "hipblaslt", "0": "hipblas"},
    ),
    Initial(
        "TORCH_BLAS_PREFER_CUBLASLT",
        "cuda.preferred_blas_library",
        {"1": "cublaslt", "0": "cublas"},
    ),
    Initial("TORCH_ROCM_FA_PREFER_CK", "cuda.preferred_rocm_fa_library", {"1": "ck"}),
    Initial("CUBLASLT_WORKSPACE_SIZE", "cuda.cublaslt_workspace_size", unit=1024),
)
"""Where two give one flag a value, the later wins, and a 1 over a 0."""


def settings(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """The flags that an environment gives a value in this way: `{flag: (variable, value)}`."""
    found: dict[str, tuple[str, Any]] = {}
    for each in INITIALS:
        text = environment.get(each.variable, "")
        if (value := each.value(text)) is None or (text == "0" and each.flag in found):
            continue
        found[each.flag] = (each.variable, value)
    return found
