"""`torch.backends.mha`: the fused path of multi-head attention in inference."""

from __future__ import annotations

from backendcfg.backends.base import assign, become, read

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]


def get_fastpath_enabled() -> bool:
    """Whether the fused path may be taken; PyTorch takes it where its other conditions hold too."""
    return bool(read("mha.fastpath_enabled"))


def set_fastpath_enabled(value: bool) -> None:
    """Allow or forbid the fused path, for this process."""
    assign({"mha.fastpath_enabled": value})


become(__name__)
