"""Our CUDA kernels, compiled when they are first needed and kept on disk.

The compiler is NVIDIA's NVRTC, which is found here and asked in a process of its own: see
`compiling.py`. A compiled kernel is named by the digest of everything that decides its code: the
source and what it includes, the options with the architecture and the variant's macros, and the
compiler's version.
A file that is damaged or cannot be read is ignored, and the kernel compiled anew.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys

from backendcfg import environ
from backendcfg.dispatch.rehearsal import ended
from backendcfg.errors import InternalError, MissingLibraryError
from backendcfg.gpu.kernels import compiling
from backendcfg.locks import ProcessLock
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any


_FILE = re.compile(r"libnvrtc\.so(\.\d+)*")
_WHEELS = ("nvidia/cu[0-9]*/lib", "nvidia/cuda_nvrtc/lib")
_VARIABLES = ("CUDA_PATH", "CUDA_HOME")
_INSTALL = "run `pip install nvidia-cuda-nvrtc`, which needs neither a GPU nor a driver"
_LOOKED = (
    "libnvrtc.so is not in this process, in no wheel on sys.path, not below CUDA_PATH or "
    "CUDA_HOME, and not where the loader looks"
)
_NOTHING = "nothing was compiled"
TIMEOUT = 600.0
"""Seconds; a variant of our largest kernel takes three."""
_SUCCESS, _COMPILATION = 0, 6  # nvrtcResult: NVRTC_SUCCESS, NVRTC_ERROR_COMPILATION
_LINES = 20
"""Of a compiler's log, what an error shows."""


@record(frozen=True)
class Compiled:
    """What came out of a compilation.

    Attributes:
        code: a cubin, as cuModuleLoadData takes it.
        log: what the compiler said, without the end of its last line.
    """

    code: bytes
    log: str


class Compiler:
    """One NVRTC.

    Attributes:
        path: its file.
        version: major and minor.
        architectures: what it compiles for, as 90 for sm_90, ascending.

    Raises:
        MissingLibraryError: the file cannot be opened, or is no NVRTC from CUDA 11.2 on.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        answer, _ = _ask({"path": path})
        if "error" in answer:
            raise MissingLibraryError(
                "the CUDA compiler that was found cannot be used",
                notes=[f"{path}: {answer['error']}"],
                state=_NOTHING,
                helps=[_INSTALL],
            )
        self.version: tuple[int, int] = tuple(answer["version"])
        self.architectures: tuple[int, ...] = tuple(answer["architectures"])

    def architecture(self, capability: tuple[int, int]) -> int:
        """What to compile for, for devices of a compute capability, as 90 for sm_90.

        That is the newest of the same major version that is not newer than the device: its code
        runs there too.

        Raises:
            MissingLibraryError: this compiler is too old, or too new, for such devices.
        """
        major, minor = capability
        usable = [each for each in self.architectures if major * 10 <= each <= major * 10 + minor]
        if usable:
            return int(usable[-1])
        version = ".".join(map(str, self.version))
        known = ", ".join(f"sm_{each}" for each in self.architectures)
        raise MissingLibraryError(
            f"the CUDA compiler, version {version}, does not compile for sm_{major}{minor}",
            notes=[f"{self.path} compiles for {known}"],
            state=_NOTHING,
            helps=["install an `nvidia-cuda-nvrtc` that does"],
        )

    def compile(
        self, name: str, source: str, headers: Mapping[str, str], options: Sequence[str]
    ) -> Compiled:
        """Compile a program to the code of one architecture.

        Args:
            name: of the program, as the log calls it.
            source: CUDA C++.
            headers: files that it may include, by the names that it includes them by.
            options: as NVRTC takes them; `--gpu-architecture=sm_NN` is one of them.

        Raises:
            InternalError: it does not compile; the notes are the compiler's log.
        """
        request = {
            "path": self.path,
            "name": name,
            "source": source,
            "headers": dict(headers),
            "options": list(options),
        }
        answer, code = _ask(request)
        if answer.get("status") == _SUCCESS:
            return Compiled(code, answer["log"])
        raise self._refused(name, answer, options)

    def _refused(self, name: str, answer: dict[str, Any], options: Sequence[str]) -> InternalError:
        if "error" in answer:
            lines = [answer["error"]]
        else:
            lines = answer["log"].splitlines()
            if answer["status"] != _COMPILATION:
                lines.insert(0, answer["message"])
        if len(lines) > _LINES:
            lines[_LINES:] = [f"and {len(lines) - _LINES} more lines"]
        version = ".".join(map(str, self.version))
        return InternalError(
            f"`{name}` does not compile",
            notes=[*lines, f"by version {version}, {self.path}", f"with {' '.join(options)}"],
            state=_NOTHING,
            helps=["report this, with all of the above"],
        )


def _ask(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """What the child answers, as compiling.py says, and the code; empty without one."""
    if not sys.executable:
        return {"error": "it runs in a child process, and sys.executable is not set"}, b""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", compiling.__file__],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it did not answer within {TIMEOUT:g} s"}, b""
    head, _, code = done.stdout.partition(b"\n")
    try:
        return json.loads(head), code
    except ValueError:
        return {"error": f"it ended the process that it ran in, {ended(done.returncode)}"}, b""


_compiler: Compiler | None = None
_found_once = ProcessLock()


def compiler() -> Compiler:
    """The compiler of this process: the first that can be used.

    Raises:
        MissingLibraryError: there is none, or what there is cannot be used.
    """
    global _compiler
    with _found_once.lock:
        if _compiler is None:
            _compiler = _first_usable()
        return _compiler


def _first_usable() -> Compiler:
    reasons: list[str] = []
    for path in candidates():
        try:
            return Compiler(path)
        except MissingLibraryError as error:
            reasons += error.notes
    if reasons:
        message = "no CUDA compiler, NVRTC, that was found can be used"
    else:
        message = "no CUDA compiler, NVRTC, was found"
        reasons.append(_LOOKED)
    raise MissingLibraryError(message, notes=reasons, state=_NOTHING, helps=[_INSTALL])


def candidates() -> Iterator[str]:
    """Files that may be NVRTC, best first, each once."""
    seen = set()
    for path in _places():
        real = os.path.realpath(path)
        if _FILE.fullmatch(os.path.basename(path)) and real not in seen:
            seen.add(real)
            yield path


def _places() -> Iterator[str]:
    from backendcfg.probe import installed
    from backendcfg.probe.loaded import mapped_files

    yield from mapped_files()
    folders = [glob.escape(entry or ".") for entry in sys.path]
    roots = environ.foreign(_VARIABLES)
    # In the order in which they are asked for, the newest version of a folder first.
    patterns = [os.path.join(folder, wheel) for wheel in _WHEELS for folder in folders]
    patterns += [
        os.path.join(glob.escape(roots[name]), library)
        for name in _VARIABLES
        if name in roots
        for library in ("lib64", "lib")
    ]
    for pattern in patterns:
        yield from sorted(glob.glob(os.path.join(pattern, "libnvrtc.so*")), reverse=True)
    try:
        yield from (
            path for name, path in installed.loader_cache().items() if _FILE.fullmatch(name)
        )
    except (OSError, ValueError):
        return


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
    nvrtc = compiler()
    options = attention_options(variant, nvrtc.architecture(capability))
    headers = {name: source(name) for name in HEADERS}
    return code(nvrtc, f"{variant.name}.cu", source(f"{variant.name}.cu"), headers, options)


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

    from backendcfg.probe import kept

    if kept.replace(path, hashlib.sha256(found).digest() + found):
        kept.keep_newest(directory(), ".cubin", KEPT)
