"""`torch.backends.mkl`: whether MKL is here, and what it prints."""

from __future__ import annotations

from backendcfg.backends import presence
from backendcfg.backends.base import become
from backendcfg.backends.verbosity import MklVerbose

__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]

VERBOSE_OFF = 0
VERBOSE_ON = 1

verbose = MklVerbose


def is_available() -> bool:
    """Whether an MKL is here: inside a PyTorch that is loaded, or found on this machine."""
    from backendcfg.resolve.facts import has_mkl

    return bool(presence.ask_torch(lambda torch: torch._C.has_mkl)) or has_mkl(presence.host())


become(__name__)
