"""NVIDIA's run-time compiler, NVRTC: found, and asked in a process of its own.

It needs neither a GPU nor a driver. Looked for where users have it: in the process already,
brought by a framework; then in wheels on `sys.path`, then below CUDA_PATH or CUDA_HOME, then where
the loader looks. It is never opened in this process, which it could end.
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
_process = ProcessLock()


def compiler() -> Compiler:
    """The compiler of this process: the first that can be used.

    Raises:
        MissingLibraryError: there is none, or what there is cannot be used.
    """
    global _compiler
    with _process.lock:
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
    from backendcfg.probe import ldcache
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
        yield from (path for name, path in ldcache.installed().items() if _FILE.fullmatch(name))
    except (OSError, ValueError):
        return
