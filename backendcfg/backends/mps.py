"""`torch.backends.mps`: Apple's GPU. Written from PyTorch's sources and Apple's documents, not run.

Nothing raises away from a Mac: there is then no such GPU.
"""

from __future__ import annotations

import platform
import re
import subprocess

from backendcfg.backends import base
from backendcfg.backends.base import become
from backendcfg.catalogue.frameworks import TORCH

__all__ = [
    "get_core_count",
    "get_name",
    "is_available",
    "is_built",
    "is_macos13_or_newer",
    "is_macos_or_newer",
]

_IOREG = ("/usr/sbin/ioreg", "-l", "-r", "-d", "1", "-c", "AGXAccelerator")


def is_built() -> bool:
    """Whether PyTorch is installed for a Mac with Apple's own processor."""
    here = base.host()
    return (
        here.system.os == "macos" and platform.machine() == "arm64" and TORCH.name in here.packages
    )


def is_available() -> bool:
    """Whether this process may use a GPU of Apple's."""
    return bool(base.gpus("apple"))


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether this is macOS of a version, or a newer one."""
    return _macos() >= (major, minor)


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Whether this is macOS 13 of a minor version, or a newer one."""
    return is_macos_or_newer(13, minor)


def get_name() -> str:
    """The GPU's name by Metal, such as "Apple M3 Max"; "" without one."""
    return next((gpu.name for gpu in base.gpus("apple")), "")


def get_core_count() -> int:
    """The number of the GPU's cores; 0 without one, or where the system does not say."""
    if not is_available():
        return 0
    try:
        said = subprocess.run(_IOREG, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'"gpu-core-count"\s*=\s*(\d+)', said.stdout)
    return int(found[1]) if found else 0


def _macos() -> tuple[int, int]:
    """The version of macOS; (0, 0) elsewhere."""
    numbers = [int(part) for part in platform.mac_ver()[0].split(".") if part.isdigit()]
    return (*numbers, 0, 0)[0], (*numbers, 0, 0)[1]


become(__name__)
