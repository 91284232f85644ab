"""What computes in this process, without its switches: libraries, versions, processor, devices.

Libraries are told apart by their content, not by where they lie.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from glob import glob
from hashlib import blake2b
from typing import TYPE_CHECKING

import backendcfg
from backendcfg.catalogue.cpu import LIBRARIES, MKL
from backendcfg.catalogue.frameworks import FRAMEWORKS, JAXLIB, TENSORFLOW, TORCH
from backendcfg.probe import first_line_of, first_processor, loaded

if TYPE_CHECKING:
    from typing import Any

# A part of the name of every file that does arithmetic for somebody.
_HINTS = (
    *(hint for library in LIBRARIES for hint in library.hints),
    *("libdnnl", "libtorch"),
    *("libcu", "libnvrtc", "libnccl", "libhip", "librocblas", "libMIOpen", "libtensorflow"),
    *("jax_common", "xla_extension", "_multiarray_umath", "_umath_linalg", "_pocketfft"),
    *("libm.", "libm-", "libsvml", "libquadmath", "libgfortran", "backendcfg/_native"),
)
_MODULES = (*(framework.name for framework in FRAMEWORKS), *MKL.modules)
_WHOLE = 1 << 23
_SAMPLES = 256
_SAMPLE = 1 << 14


def describe() -> dict[str, dict[str, Any]]:
    """Libraries, versions, processor and devices, as JSON data."""
    return {
        "libraries": _libraries(),
        "versions": versions(),
        "processor": _processor() | _usable(),
        "devices": _devices(),
    }


def _libraries() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for path in loaded.mapped_files():
        if any(hint in path for hint in _HINTS):
            # Two packages may bring files of one name.
            found.setdefault(os.path.basename(path), []).append(_identity(path, *_stat(path)))
    return {name: " ".join(sorted(files)) for name, files in found.items()}


def _stat(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@cache
def _identity(path: str, size: int, _modified: int) -> str:
    """Size and digest of a file; of a large one, of parts spread over it."""
    digest = blake2b(digest_size=8)
    try:
        with open(path, "rb") as file:
            if size <= _WHOLE:
                digest.update(file.read())
            else:
                for number in range(_SAMPLES):
                    file.seek(number * (size - _SAMPLE) // (_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE))
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return f"{size}-{digest.hexdigest()}"


def versions() -> dict[str, str]:
    """The versions of Python, of this package and of every numeric package that is imported."""
    found = {"python": platform.python_version(), "backendcfg": backendcfg.__version__}
    for name in _MODULES:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None) if module is not None else None
        if isinstance(version, str):
            found[name] = version
    return found


@cache
def _processor() -> dict[str, Any]:
    first = first_processor()
    features = (first.get("flags") or first.get("Features") or "").split()
    return {
        "architecture": platform.machine(),
        "name": first.get("model name") or first.get("CPU part") or first.get("cpu") or "",
        "model": [first.get(name, "") for name in ("vendor_id", "cpu family", "model", "stepping")],
        "features": " ".join(sorted(features)),
        # Libraries size the blocks of their sums by these.
        "caches": [first_line_of(path) for path in sorted(glob(f"{_CACHES}/index*/size"))],
    }


_CACHES = "/sys/devices/system/cpu/cpu0/cache"


def _usable() -> dict[str, int]:
    """The processors that this process may use, where a pool that no switch steers counts them."""
    if not {JAXLIB.name, TENSORFLOW.name} & sys.modules.keys():
        return {}
    return {"usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0}


def _devices() -> dict[str, str]:
    """GPUs that PyTorch has initialised, and the driver. Read, not run, as far as a GPU answers."""
    found = {}
    if driver := first_line_of("/proc/driver/nvidia/version"):
        found["driver"] = driver
    torch: Any = sys.modules.get(TORCH.name)
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_available() and cuda.is_initialized():
        for number in range(cuda.device_count()):
            capability = ".".join(map(str, cuda.get_device_capability(number)))
            found[str(number)] = f"{cuda.get_device_name(number)} {capability}"
    return found
