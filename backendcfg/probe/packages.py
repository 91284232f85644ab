"""Versions of installed distributions that compute, without importing any of them."""

from __future__ import annotations

import re
from importlib import metadata

# By import name; the first distribution that is installed answers.
_DISTRIBUTIONS = {
    "numpy": ("numpy",),
    "scipy": ("scipy",),
    "torch": ("torch",),
    "jax": ("jax",),
    "jaxlib": ("jaxlib",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly"),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-5-0"),
    "sklearn": ("scikit-learn",),
    "numexpr": ("numexpr",),
    "numba": ("numba",),
    "triton": ("triton", "pytorch-triton"),
    "mkl": ("mkl",),
    "scipy_openblas64": ("scipy-openblas64",),
    "scipy_openblas32": ("scipy-openblas32",),
    "blis": ("blis",),
}


def versions() -> dict[str, str]:
    """Installed versions by import name, sorted."""
    found = {}
    for name, distributions in sorted(_DISTRIBUTIONS.items()):
        for distribution in distributions:
            if version := _version(distribution):
                found[name] = version
                break
    return found


def _version(distribution: str) -> str:
    """The installed version; "" when it is not installed or half installed."""
    try:
        installed = metadata.distribution(distribution)
        text = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return ""
    # `installed.version` would parse the whole description as an e-mail: 8 ms for all of them.
    version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
    return version.group(1) if version else ""
