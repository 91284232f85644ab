"""What is on this machine and in this process, for the modules of `backendcfg.backends`.

A framework that is loaded is asked how it was built, because it knows; none is imported for that.
Otherwise detection answers, once until `reload()`. What is loaded meanwhile is seen at once.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache

from backendcfg.bridges import imports
from backendcfg.catalogue.frameworks import TORCH
from backendcfg.session import adjust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from backendcfg.schema.host import Gpu, Host

_WHEELS = ("nvidia/*/lib", "nvidia/*/*/lib", "torch/lib", "_rocm_sdk_*/lib")


def host() -> Host:
    """This machine, detected once until `reload()`."""
    return _detected(adjust.edition)


@lru_cache(maxsize=1)
def _detected(_edition: int) -> Host:
    from backendcfg.session.planning import detect

    return detect()


def gpus(*vendors: str) -> tuple[Gpu, ...]:
    """The GPUs that this process may use, of these vendors."""
    return tuple(gpu for gpu in host().gpus if gpu.visible and gpu.vendor in vendors)


def installed(*packages: str) -> bool:
    """Whether any of these is installed, by import name, among those that detection knows."""
    return any(package in host().packages for package in packages)


def has_kind(kind: str) -> bool:
    """Whether detection found a library of this kind, whoever brought it."""
    return any(library.kind == kind for library in host().libraries)


def ask_torch(question: Callable[[Any], Any]) -> Any:
    """What a PyTorch that is loaded here answers; None where none is, or it cannot say."""
    if not imports.is_imported(TORCH.name):
        return None
    try:
        return question(sys.modules[TORCH.name])
    except AttributeError:
        return None


def library(stem: str) -> str:
    """The file of a library by the start of its name, as "libcudnn.so"; "" where there is none.

    One that is loaded wins, then those of wheels, then what the loader would find.
    """
    from backendcfg.probe.loaded import mapped_files

    for path in mapped_files():
        if os.path.basename(path).startswith(stem):
            return path
    return _on_disk(stem, adjust.edition)


def places() -> list[str]:
    """The folders in which wheels are installed."""
    return sys.path


@lru_cache(maxsize=64)
def _on_disk(stem: str, _edition: int) -> str:
    import glob

    from backendcfg.probe import ldcache

    for directory in places():
        for pattern in _WHEELS:
            found = sorted(glob.glob(os.path.join(directory or ".", pattern, f"{stem}*")))
            if found:
                return os.path.realpath(found[-1])
    try:
        named = ldcache.installed()
    except (OSError, ValueError):
        return ""
    return next((path for name, path in sorted(named.items()) if name.startswith(stem)), "")


def version(path: str, distributions: tuple[str, ...] = ()) -> tuple[int, int, int] | None:
    """The version of a library, as (major, minor, patch); None where nothing says it.

    The file is not opened for it: its name says the version, or the wheel that it came in.

    Args:
        path: its file.
        distributions: wheels that the file may come from.
    """
    if found := re.search(r"\.so\.(\d+)\.(\d+)\.(\d+)$", path):
        return int(found[1]), int(found[2]), int(found[3])
    return _of_wheel(path, distributions)


def _of_wheel(path: str, distributions: tuple[str, ...]) -> tuple[int, int, int] | None:
    from importlib import metadata

    if "site-packages" not in path and "dist-packages" not in path:
        return None
    for name in distributions:
        try:
            numbers = re.findall(r"\d+", metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
        if len(numbers) >= 3:
            return int(numbers[0]), int(numbers[1]), int(numbers[2])
    return None
