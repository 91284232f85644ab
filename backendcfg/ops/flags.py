"""The flags that operations written in Python read, as they are in force where they are called."""

from __future__ import annotations

from typing import Any

from backendcfg import _native

DEFAULTS: dict[str, Any] = {
    "cuda.cufft_plan_cache.max_size": 4096,
    "cudnn.enabled": True,
    "cudnn.benchmark": False,
    "cudnn.benchmark_limit": 10,
    "cudnn.deterministic": False,
    "mkldnn.enabled": True,
    "mkldnn.deterministic": False,
    "opt_einsum.enabled": True,
    "opt_einsum.strategy": "auto",
    "blas.mkl.cbwr": "off",
    "determinism.tier": "none",
    "determinism.algorithms": "any",
    "ops.check_finite": False,
    "threads.count": "auto",
}
"""What holds where nothing is in force; the schema's own defaults, without importing it."""


class FlagsInForce:
    """The flags in force when it was made: an operation makes one and looks at nothing else."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        in_force = _native.current()
        self.values: dict[str, Any] = in_force.payload.values if in_force is not None else {}

    def __getitem__(self, flag: str) -> Any:
        value = self.values.get(flag)
        return DEFAULTS[flag] if value is None else value

    @property
    def tier(self) -> str:
        """What is promised: "none", "run-to-run" and so on."""
        return str(self["determinism.tier"])

    @property
    def threads(self) -> int:
        """How many threads to use; 0 leaves it to the process."""
        count = self["threads.count"]
        return count if isinstance(count, int) else 0
