"""`torch.backends.xnnpack`: the kernels of XNNPACK inside PyTorch."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import PropModule, ReadOnly, become

TYPE_CHECKING = False
if TYPE_CHECKING:
    enabled: bool

__all__ = ["XNNPACKEngine"]


def _enabled() -> bool:
    """Whether the PyTorch that is loaded was built with XNNPACK; it exists nowhere else."""
    return bool(base.ask_torch(lambda torch: torch._C._is_xnnpack_enabled()))


class XNNPACKEngine(PropModule):
    """`backendcfg.backends.xnnpack` with its attribute."""

    enabled = ReadOnly(_enabled, "`enabled` cannot be set: it is how PyTorch was built")


become(__name__, XNNPACKEngine)
