"""`torch.backends.mkl`: whether MKL is here, and what it prints."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import Verbose, become

__all__ = ["VERBOSE_OFF", "VERBOSE_ON", "is_available", "verbose"]

VERBOSE_OFF = 0
VERBOSE_ON = 1


class verbose(Verbose):  # noqa: N801 - PyTorch's name
    """A scope in which MKL prints a line for each of its calls, or none.

    Args:
        enable: `VERBOSE_OFF` or `VERBOSE_ON`; checked on entering.
    """

    def __init__(self, enable: int) -> None:
        super().__init__("mkl.verbose", enable)
        self.enable = enable


def is_available() -> bool:
    """Whether an MKL is here: inside a PyTorch that is loaded, or found on this machine."""
    from backendcfg.resolve.facts import has_mkl

    return bool(base.ask_torch(lambda torch: torch._C.has_mkl)) or has_mkl(base.host())


become(__name__)
