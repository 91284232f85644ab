"""`torch.backends.cusparselt`: whether NVIDIA's library of sparse products is here.

Nothing here was run on a GPU.
"""

from __future__ import annotations

from backendcfg.backends import base
from backendcfg.backends.base import become
from backendcfg.catalogue.gpu import CUSPARSELT

__all__ = ["get_max_alg_id", "is_available", "version"]

_LIBRARY = CUSPARSELT.stem
_WHEELS = ("nvidia-cusparselt-cu13", "nvidia-cusparselt-cu12", "nvidia-cusparselt-cu11")
_MAX_ALGORITHM = {400: 4, 502: 5, 602: 37}
"""Known to PyTorch 2.13 by version of the library; it has None for others, and so have we."""


def is_available() -> bool:
    """Whether an NVIDIA GPU that this process may use has the library here."""
    return bool(base.gpus("nvidia") and base.library_file(_LIBRARY))


def version() -> int | None:
    """The version of the library: 602 for 0.6.2; None without one."""
    if not is_available():
        return None
    found = base.version(base.library_file(_LIBRARY), _WHEELS)
    return found and found[0] * 1000 + found[1] * 100 + found[2]


def get_max_alg_id() -> int | None:
    """The highest number of an algorithm that may be asked for; None where nobody knows."""
    here = version()
    return _MAX_ALGORITHM.get(here) if here is not None else None


become(__name__)
