"""`torch.backends.openmp`: whether an OpenMP runtime is here."""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import become

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether detection found an OpenMP runtime that some library here uses."""
    return base.has_kind("openmp")


become(__name__)
