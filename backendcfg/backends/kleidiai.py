"""`torch.backends.kleidiai`: Arm's kernels inside PyTorch."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import become

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether the PyTorch that is loaded in this process was built with KleidiAI.

    The kernels exist inside PyTorch alone, so without it the answer is False.
    """
    return bool(base.ask_torch(lambda torch: torch._C._has_kleidiai))


become(__name__)
