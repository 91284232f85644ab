"""Detection: what this machine and this process have, as one frozen `Host`.

Every probe answers for itself. One that fails in a way that nobody foresaw is reported as broken
like a file that is, and the others go on.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from backendcfg import environ
from backendcfg.probe import environment, first_processor, limits
from backendcfg.probe.cpu import describe_cpu
from backendcfg.probe.gpus import Devices, probe_amd, probe_apple, probe_nvidia
from backendcfg.probe.inspection import again_after
from backendcfg.probe.installed import versions
from backendcfg.probe.libraries import probe_libraries
from backendcfg.probe.limits import local_rank, read_cores
from backendcfg.schema.host import Broken, Cpu, Found, Host, Interpreter, Library, Memory, System

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.schema.host import Probe

T = TypeVar("T")


def detect() -> Host:
    """What this machine and this process have.

    No framework is imported, no library is opened in this process and no variable is set:
    libraries that are not loaded here are asked in child processes. Takes a few hundredths of a
    second when they were asked before, else up to a second or two.
    """
    probes: list[Probe] = []
    nothing: dict[str, str] = {}
    no_libraries: tuple[tuple[Library, ...], tuple[Probe, ...]] = ((), ())
    allowed = _guarded("limits", limits.read_limits, limits.Limits(_logical(), _logical()), probes)
    first = _guarded("cpu", first_processor, nothing, probes)
    libraries: list[tuple[tuple[Library, ...], tuple[Probe, ...]]] = []

    def ask_libraries() -> None:
        processor = f"{first.get('model name', '')} {first.get('flags', first.get('Features', ''))}"
        found = _guarded(
            "libraries",
            lambda: probe_libraries(processor, affinity=allowed.affinity),
            no_libraries,
            late,
        )
        libraries.append(found)

    late: list[Probe] = []
    # The children start while the rest is read.
    asking = threading.Thread(target=ask_libraries, daemon=True)
    try:
        asking.start()
    except RuntimeError:  # no thread can be started
        ask_libraries()
    cpu = _guarded("cpu", lambda: describe_cpu(allowed, read_cores(allowed)), None, probes)
    if cpu is not None:
        detail = f"{cpu.name}, {cpu.microarchitecture}"
        probes.append(Found(probe="cpu", detail=detail))
    memory = _guarded("memory", lambda: _memory(allowed), Memory(total=0), probes)
    packages = _guarded("packages", versions, nothing, probes)
    vendors = [
        _guarded(name, ask, Devices(), probes)
        for name, ask in (("nvidia", probe_nvidia), ("amd", probe_amd), ("apple", probe_apple))
    ]
    if asking.ident is not None:
        asking.join()
    found, said = libraries[0] if libraries else no_libraries
    return Host(
        system=_guarded("system", _system, System(os="other"), probes),
        python=Interpreter(
            version=platform.python_version(),
            implementation=platform.python_implementation(),
            executable=sys.executable or "",
        ),
        cpu=cpu or _unknown_cpu(allowed),
        memory=memory,
        gpus=tuple(gpu for devices in vendors for gpu in devices.gpus),
        drivers={name: version for devices in vendors for name, version in devices.drivers.items()},
        libraries=found,
        packages=packages,
        environment=_guarded("environment", environment.relevant, nothing, probes),
        probes=(*probes, *(probe for devices in vendors for probe in devices.probes), *late, *said),
    )


def _guarded(name: str, ask: Callable[[], T], otherwise: T, probes: list[Probe]) -> T:
    """What a probe answers; `otherwise`, and a broken probe, when it fails."""
    try:
        return ask()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        probes.append(Broken(probe=name, reason=reason, again_after=again_after(error)))
        return otherwise


def _memory(allowed: limits.Limits) -> Memory:
    total = limits.total_memory()
    limit = allowed.memory
    rank = local_rank(environ.copy())
    return Memory(
        total=total,
        limit=limit if limit is not None and limit < total else None,
        ranks=rank.size if rank is not None else 1,
    )


def _system() -> System:
    names = {"linux": "linux", "darwin": "macos", "win32": "windows"}
    system = next((name for start, name in names.items() if sys.platform == start), "other")
    distribution = ""
    if system == "linux":
        try:
            distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
        except OSError:
            distribution = ""
    elif system == "macos":
        distribution = f"macOS {platform.mac_ver()[0]}"
    return System.model_validate(
        {
            "os": system,
            "release": platform.release(),
            "distribution": distribution,
            "libc": _libc(),
            "name": platform.node(),
        }
    )


def _libc() -> str:
    """As "glibc 2.36"; "" where the C library does not say."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def _logical() -> int:
    return os.cpu_count() or 1


def _unknown_cpu(allowed: limits.Limits) -> Cpu:
    """A processor of which only its number is known."""
    return Cpu(
        vendor="other",
        name="unknown",
        architecture=platform.machine(),
        microarchitecture=platform.machine(),
        lineage=(platform.machine(),),
        logical=allowed.logical,
        physical=allowed.logical,
        usable=allowed.usable,
        cores=allowed.usable,
        limits=allowed.sentences(),
    )
