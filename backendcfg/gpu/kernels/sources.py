"""Our CUDA kernels, compiled when they are first needed and kept on disk.

A compiled kernel is named by the digest of everything that decides its code: the source and what
it includes, the options with the architecture and the variant's macros, and the compiler's version.
A file that is damaged or cannot be read is ignored, and the kernel compiled anew.
"""

from __future__ import annotations

import os

from backendcfg import environ
from backendcfg.gpu.kernels import compiler as cuda_compiler
from backendcfg.locks import ProcessLock
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.gpu.kernels.compiler import Compiler

OLDEST = (5, 0)
"""The first compute capability that has what our kernels need; `flash` needs a newer one."""

KEPT = 256
"""Kernels that are kept on disk; the oldest ones go. One has 30 to 100 kB."""

HEADERS = (
    "attention_numbers.h",
    "attention_parts.h",
    "attention_slices.h",
    "attention_tiles.h",
    "attention_walk.h",
    "dropout.h",
    "instructions.h",
)
"""What the sources of the attention kernels include."""

_SOURCES = os.path.dirname(__file__)
_codes: dict[str, bytes] = {}
_process = ProcessLock()


@record(frozen=True)
class Kernel:
    """A variant of one of our kernels: one for each set of macros.

    Attributes:
        name: of its source, without ".cu", and of the symbol in it.
        choices: what the source asks for, by name.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block. Above 48 KiB the function must be told first
            (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES).
    """

    name: str
    choices: tuple[tuple[str, int], ...]
    threads: int
    shared_bytes: int = 0

    @property
    def macros(self) -> dict[str, int]:
        """What the source is compiled with, by name."""
        return dict(self.choices)


def directory() -> str:
    """Where compiled kernels are kept."""
    return os.path.join(environ.cache_directory(), "kernels")


def attention(variant: Kernel, capability: tuple[int, int]) -> bytes:
    """The code of a variant of an attention kernel, for devices of a compute capability.

    The first call for a variant takes one to three seconds, unless it is kept from earlier.

    Returns:
        A cubin, for cuModuleLoadData; its function is `variant.name`.

    Raises:
        MissingLibraryError: there is no CUDA compiler, or none for such devices.
    """
    compiler = cuda_compiler.compiler()
    options = attention_options(variant, compiler.architecture(capability))
    headers = {name: source(name) for name in HEADERS}
    return code(compiler, f"{variant.name}.cu", source(f"{variant.name}.cu"), headers, options)


def attention_options(variant: Kernel, architecture: int) -> list[str]:
    """The compiler's options for a variant; `architecture` is 90 for sm_90."""
    macros = [f"-D{name}={value}" for name, value in variant.macros.items()]
    return [f"--gpu-architecture=sm_{architecture}", "--std=c++17", *macros]


def source(name: str) -> str:
    """The text of a file of backendcfg/gpu/kernels."""
    with open(os.path.join(_SOURCES, name), encoding="utf-8") as file:
        return file.read()


def code(
    compiler: Compiler,
    name: str,
    text: str,
    headers: Mapping[str, str],
    options: Sequence[str],
) -> bytes:
    """The code of a program: from this process, from the disk, or compiled now.

    Args:
        compiler: what compiles it.
        name: of the program, as messages call it.
        text: CUDA C++.
        headers: what it includes, by name.
        options: the compiler's, with the architecture.

    Raises:
        InternalError: it does not compile; the notes are the compiler's log.
    """
    key = _digest(compiler.version, name, text, headers, options)
    # Two threads that need the same kernel compile it once.
    with _process.lock:
        if key not in _codes:
            path = os.path.join(directory(), f"{key}.cubin")
            found = _read(path)
            if found is None:
                found = compiler.compile(name, text, headers, options).code
                _write(path, found)
            _codes[key] = found
        return _codes[key]


def forget() -> None:
    """Drop what this process has cached; the disk is read again."""
    with _process.lock:
        _codes.clear()


def _digest(*parts: object) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read(path: str) -> bytes | None:
    import hashlib

    try:
        with open(path, "rb") as file:
            digest, found = file.read(32), file.read()
    except OSError:
        return None
    return found if hashlib.sha256(found).digest() == digest else None


def _write(path: str, found: bytes) -> None:
    import hashlib
    from contextlib import suppress

    from backendcfg.probe import kept

    if kept.replace(path, hashlib.sha256(found).digest() + found):
        with suppress(OSError):
            _prune()


def _prune() -> None:
    files = [entry for entry in os.scandir(directory()) if entry.name.endswith(".cubin")]
    files.sort(key=lambda entry: entry.stat().st_mtime_ns)
    for entry in files[:-KEPT]:
        os.unlink(entry.path)
