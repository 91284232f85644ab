"""A short digest of everything in force that can change bits or compiled code.

For cache keys, file names and logs. Equal tokens on equal machines mean equal arithmetic: the same
libraries with the same switches, as they read back, whoever set them. It says nothing about the
state of random generators, nor about what a program computes. Libraries are told apart by their
content, not by where they lie.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from functools import cache
from glob import glob
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from backendcfg import __version__, _native
from backendcfg.audit import facts, survey
from backendcfg.bridges.environment import started_with
from backendcfg.bridges.imports import mapped_set
from backendcfg.catalogue.cpu import LIBRARIES, MKL, ONEDNN
from backendcfg.catalogue.frameworks import FRAMEWORKS, JAXLIB, TENSORFLOW, TORCH
from backendcfg.catalogue.variables import VARIABLES
from backendcfg.probe import environment, first_line_of, first_processor, loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.transact.compiled import Compiled

# A part of the name of every file that does arithmetic for somebody.
_HINTS = (
    *(hint for library in LIBRARIES for hint in library.hints),
    *(ONEDNN.stem, "libtorch"),
    *("libcu", "libnvrtc", "libnccl", "libhip", "librocblas", "libMIOpen", "libtensorflow"),
    *("jax_common", "xla_extension", "_multiarray_umath", "_umath_linalg", "_pocketfft"),
    *("libm.", "libm-", "libsvml", "libquadmath", "libgfortran", "backendcfg/_native"),
)
_MODULES = (*(framework.name for framework in FRAMEWORKS), *MKL.modules)
_WHOLE = 1 << 23
_SAMPLES = 256
_SAMPLE = 1 << 14

FORMAT = 2
"""Raised when another release composes the digest in another way."""

_constant: tuple[Any, dict[str, Any], str] = (None, {}, "")


class Token(str):
    """Sixteen hexadecimal digits, and what went into them.

    Attributes:
        parts: `switches` with the value of each, `facts` that have no flag, `flags` that the
            profile in force sets, `variables`, `libraries` by file name with their size and a
            digest of their content, `versions`, `processor` and `devices`.
    """

    __slots__ = ("parts",)
    parts: dict[str, dict[str, Any]]

    def differences(self, other: Token) -> dict[str, tuple[Any, Any]]:
        """What differs between two tokens: `{"libraries.libopenblas.so": (this, other)}`."""
        found: dict[str, tuple[Any, Any]] = {}
        for part in self.parts:
            mine, theirs = self.parts[part], other.parts[part]
            for name in sorted({*mine, *theirs}):
                if mine.get(name) != theirs.get(name):
                    found[f"{part}.{name}"] = (mine.get(name), theirs.get(name))
        return found


def numerics_token() -> Token:
    """The digest of what is in force in this thread or task now.

    It has the libraries that are loaded, so take it when everything that computes is imported. It
    changes with every switch and fact that can change bits, by whomever it is set, and never with
    the time, the place of files, or the names of profiles.
    """
    global _constant
    named = _named()
    here = versions(), mapped_set(), named and (named, _stat(named))
    if _constant[0] != here or here[1] is None:
        constant = describe()
        _constant = (here, constant, digest(constant))
    changing = {
        "switches": _switches(),
        "facts": {name: facts.plain(value) for name, value in facts.facts().items()},
        "flags": _flags(),
        "variables": _variables(),
    }
    token = Token(digest([FORMAT, _constant[2], changing]))
    token.parts = {**changing, **_constant[1]}
    return token


def _switches() -> dict[str, Any]:
    matter = _matter()
    return {
        name: "unreadable" if switch.obstacle else switch.value
        for name, switch in survey.survey().items()
        if switch.flag in matter
    }


def _flags() -> dict[str, Any]:
    """What the profile in force sets, also for libraries that are not loaded, and for ours."""
    current = _native.current()
    if current is None:
        return {}
    compiled: Compiled = current.payload
    matter = _matter()
    values: Mapping[str, Any] = compiled.values
    found = {flag: values[flag] for flag in compiled.asked if flag in values and flag in matter}
    return {**found, "order": list(compiled.order)}


def _variables() -> dict[str, Any]:
    """Texts that no switch can be read for; both, where this process changed one since it began.

    Whoever read it may have done so before the change or after.
    """
    now, first = environment.watched(), _at_start()
    read_back = _read_back()
    names = sorted({*now, *first} - read_back)
    pairs = {name: [first.get(name), now.get(name)] for name in names if name[:3] != "LD_"}
    return {name: two if two[0] != two[1] else two[0] for name, two in pairs.items()}


@cache
def _matter() -> frozenset[str]:
    from backendcfg.schema.profile import flags

    return frozenset(name for name in flags() if survey.matters(name))


@cache
def _at_start() -> dict[str, str]:
    return environment.watched(started_with())


@cache
def _read_back() -> frozenset[str]:
    """The variables whose libraries can be asked what came of them."""
    return frozenset(row.name for row in VARIABLES if row.runtime)


def digest(data: Any) -> str:
    """Sixteen hexadecimal digits that are equal for equal JSON data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def describe() -> dict[str, dict[str, Any]]:
    """What computes in this process, without its switches, as JSON data."""
    return {
        "libraries": _libraries(),
        "versions": versions(),
        "processor": _processor() | _usable(),
        "devices": _devices(),
    }


def _libraries() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for path, identity in libraries().items():
        # Two packages may bring files of one name.
        found.setdefault(os.path.basename(path), []).append(identity)
    return {name: " ".join(sorted(files)) for name, files in found.items()}


def libraries() -> dict[str, str]:
    """Each file in this process that does arithmetic, with its size and a digest of its content.

    So is the one that `blas.path` names, under whatever name and before it is opened.
    """
    paths = [path for path in loaded.mapped_files() if any(hint in path for hint in _HINTS)]
    if named := _named():
        paths.append(named)
    return {path: _identity(path, *_stat(path)) for path in paths}


def _named() -> str:
    """The file that `blas.path` names in force here, or ""."""
    current = _native.current()
    named = current.payload.values.get("blas.path") if current is not None else ""
    return os.path.realpath(named) if named else ""


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
    found = {"python": platform.python_version(), "backendcfg": __version__}
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
