"""The processor: vendor, microarchitecture with its lineage, features, cores.

The microarchitecture is archspec's: names and ancestry that compilers and packagers share.
"""

from __future__ import annotations

import os
import platform
import warnings
from typing import TYPE_CHECKING, Literal

from backendcfg.probe import first_processor
from backendcfg.records import record
from backendcfg.schema.host import Cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.probe.limits import Cores, Limits

Vendor = Literal["intel", "amd", "arm", "apple", "ibm", "nvidia", "other"]

_VENDORS: dict[str, Vendor] = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "HygonGenuine": "amd",
    # ARM's list of implementers (MIDR_EL1).
    "0x41": "arm",
    "0x4e": "nvidia",
    "0x61": "apple",
    "Apple": "apple",
    "IBM": "ibm",
    "POWER": "ibm",
}


@record(frozen=True)
class Microarchitecture:
    """archspec's answer: the name, it and its ancestors nearest first, and its features."""

    name: str
    lineage: tuple[str, ...]
    features: tuple[str, ...] = ()


def describe_cpu(
    limits: Limits,
    cores: Cores,
    root: str = "/",
    *,
    microarchitecture: Microarchitecture | None = None,
) -> Cpu:
    """The processor of this machine.

    Args:
        limits: what this process may use of it.
        cores: what it should compute on.
        root: where /proc and /sys are found.
        microarchitecture: instead of asking archspec about this machine.
    """
    if microarchitecture is None:
        microarchitecture = identify()
    first = first_processor(root)
    features = first.get("flags") or first.get("Features") or ""
    return Cpu(
        vendor=_vendor(first),
        name=first.get("model name") or first.get("cpu") or _brand() or microarchitecture.name,
        architecture=platform.machine(),
        microarchitecture=microarchitecture.name,
        lineage=microarchitecture.lineage,
        features=tuple(sorted(set(features.split()))) or microarchitecture.features,
        logical=limits.logical,
        physical=min(_cores(root) or limits.logical, limits.logical),
        usable=limits.usable,
        cores=cores.count,
        limits=(*limits.sentences(), *filter(None, [cores.sentence])),
    )


def identify() -> Microarchitecture:
    """This machine's microarchitecture; a generic name when archspec does not know it."""
    import archspec.cpu

    with warnings.catch_warnings():
        # It warns and answers generically when /proc/cpuinfo is odd: the answer says it all.
        warnings.simplefilter("ignore")
        host = archspec.cpu.host()
    ancestors = sorted(host.ancestors, key=lambda target: -len(target.ancestors))
    lineage = (host.name, *(target.name for target in ancestors))
    return Microarchitecture(host.name, lineage, tuple(sorted(host.features)))


def _vendor(first: Mapping[str, str]) -> Vendor:
    said = first.get("vendor_id") or first.get("CPU implementer") or first.get("cpu") or ""
    if not said and platform.system() == "Darwin":
        said = "Apple" if platform.machine() == "arm64" else "GenuineIntel"
    return next((name for start, name in _VENDORS.items() if said.startswith(start)), "other")


def _brand() -> str:
    """The name that macOS gives, or archspec's for the part number of an ARM processor."""
    import archspec.cpu

    try:
        return archspec.cpu.brand_string() or ""
    except Exception:
        # It runs sysctl and reads cpuid; whatever fails there costs a name only.
        return ""


def _cores(root: str) -> int:
    """Cores by the sets of processors that share one; 0 when the kernel does not say."""
    processors = os.path.join(root, "sys/devices/system/cpu")
    shared = set()
    try:
        names = [name for name in os.listdir(processors) if name.removeprefix("cpu").isdigit()]
    except OSError:
        return 0
    for name in names:
        path = os.path.join(processors, name, "topology", "thread_siblings_list")
        try:
            with open(path, encoding="ascii") as file:
                shared.add(file.read().strip())
        except OSError:
            continue  # offline
    return len(shared)
