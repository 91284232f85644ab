"""Questions about a host: versions, what is here, who reads a flag, whether a condition holds.

One function answers a condition and explains the answer: its checks are the explanation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from backendcfg.catalogue import cpu
from backendcfg.catalogue.cpu import MKL
from backendcfg.catalogue.frameworks import FRAMEWORKS, ON_DEVICES, TORCH
from backendcfg.catalogue.gpu import AMD, CUBLAS, DRIVERS, NCCL, NVIDIA, VENDORS
from backendcfg.resolve.words import listed
from backendcfg.schema.host import Broken, Found
from backendcfg.schema.plan import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backendcfg.schema.base import Flag
    from backendcfg.schema.host import Gpu, Host
    from backendcfg.schema.profile import Condition, CpuCondition, GpuCondition, Place


_WORDS = {
    ">=": "{} or newer",
    "<=": "{} or older",
    ">": "newer than {}",
    "<": "older than {}",
    "==": "{}",
    "!=": "other than {}",
    "~=": "{} or a compatible release",
}


def parsed(text: str) -> Version | None:
    """A version, or None when the text is not one."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def within(text: str, bounds: str) -> bool:
    """Whether a version lies in a range; what cannot be compared does not."""
    version = parsed(text)
    try:
        # Drivers and nightly builds are pre-releases to the standard and are what is here.
        return version is not None and SpecifierSet(bounds).contains(version, prereleases=True)
    except ValueError:  # InvalidSpecifier, or a number of thousands of digits
        return False


def in_words(bounds: str) -> str:
    """A range as people say it: ">=8.0" is "8.0 or newer"."""
    try:
        ranges = SpecifierSet(bounds)
    except InvalidSpecifier:
        return f'in the range "{bounds}", which is not a version range'
    ordered = sorted(
        ranges,
        key=lambda one: (
            bounds.index(one.operator + one.version) if one.operator + one.version in bounds else 0
        ),
    )
    return " and ".join(_WORDS[one.operator].format(one.version) for one in ordered)


def visible_gpus(host: Host, *vendors: str) -> tuple[Gpu, ...]:
    """The GPUs that a process here would see, of some vendors or of all."""
    return tuple(gpu for gpu in host.gpus if gpu.visible and (not vendors or gpu.vendor in vendors))


def has_package(host: Host, *names: str) -> bool:
    """Whether any of these is installed."""
    return any(name in host.packages for name in names)


def is_older(host: Host, package: str, version: str) -> bool:
    """Whether an installed package is older than a version; false when it cannot be compared."""
    here = parsed(host.packages.get(package, ""))
    return here is not None and here < Version(version)


def has_kind(host: Host, kind: str) -> bool:
    """Whether a library of this kind was found, whoever brought it."""
    return any(library.kind == kind for library in host.libraries)


def has_mkl(host: Host) -> bool:
    """Whether MKL computes for somebody here: as a library, or inside PyTorch on x86-64."""
    return has_kind(host, MKL.kind) or has_mkl_inside(host)


def has_mkl_inside(host: Host) -> bool:
    """Whether PyTorch is here, built for x86-64: such builds have MKL inside."""
    return (
        has_package(host, *MKL.inside)
        and host.cpu.architecture == "x86_64"
        and host.system.os != "macos"
    )


def _package(*names: str) -> Callable[[Host], bool]:
    return lambda host: has_package(host, *names)


def _kind(kind: str) -> Callable[[Host], bool]:
    return lambda host: has_kind(host, kind)


READERS: dict[str, tuple[str, Callable[[Host], bool]]] = {
    cpu.NATIVE.name: ("backendcfg", lambda host: True),
    "backendcfg": ("backendcfg", lambda host: True),
    "python": ("Python", lambda host: True),
    "environment": ("the environment", lambda host: True),
    "glibc": ("glibc", lambda host: host.system.libc.startswith("glibc")),
    **{each.name: (each.title, _package(each.name)) for each in FRAMEWORKS},
    **{each.name: (each.title, _kind(each.kind)) for each in (cpu.OPENBLAS, cpu.BLIS)},
    cpu.MKL.name: (cpu.MKL.title, has_mkl),
    "torch-mkl": (f"{TORCH.title} with {cpu.MKL.title} inside", has_mkl_inside),
    cpu.OPENMP: (
        "OpenMP",
        lambda host: has_kind(host, cpu.OPENMP) or has_package(host, TORCH.name),
    ),
    cpu.ONEDNN.name: (cpu.ONEDNN.title, _package(*cpu.ONEDNN.inside)),
    **{each.name: (each.title, _package(*ON_DEVICES)) for each in (CUBLAS, NCCL)},
}
"""Who may read a flag: what people call it, and whether it is on a host."""


def dormancy(flag: Flag, host: Host) -> str:
    """Why nothing on this host reads a flag, or "" when something does."""
    vendors = tuple(need.removesuffix("-gpu") for need in flag.needs)
    if vendors and not visible_gpus(host, *vendors):
        titles = listed([VENDORS[vendor] for vendor in vendors], "or")
        hidden = any(gpu.vendor in vendors for gpu in host.gpus)
        return f"every {titles} GPU is hidden" if hidden else f"no {titles} GPU is here"
    if any(READERS[reader][1](host) for reader in flag.readers):
        return ""
    titles = listed([READERS[reader][0] for reader in flag.readers], "or")
    return f"no {titles} is here" if " or " in titles else f"{titles} is not here"


CPU_VENDORS = {**VENDORS, "arm": "Arm", "ibm": "IBM"}

SYSTEMS = {"linux": "Linux", "macos": "macOS", "windows": "Windows", "other": "another system"}


def check(condition: Condition, host: Host, because: str, place: Place) -> tuple[Check, ...]:
    """One check per line of a condition; it holds when every check is met.

    Args:
        condition: what the host must be.
        host: what it is.
        because: who asks: "`requires` in profile `h200`".
        place: where that is written.
    """
    return tuple(
        Check(need=need, found=found, met=met, because=because, place=place)
        for need, found, met in _lines(condition, host)
    )


def _lines(condition: Condition, host: Host) -> Iterator[tuple[str, str, bool]]:
    """Need, found and met of every line."""
    if condition.os is not None:
        here = host.system.os
        yield SYSTEMS[condition.os], f"this machine runs {SYSTEMS[here]}", here == condition.os
    if condition.cpu is not None:
        yield from _cpu_lines(condition.cpu, host)
    if condition.gpu is not None:
        yield _gpu_line(condition.gpu, host)
    for name, bounds in condition.libraries.items():
        yield _library_line(name, bounds, host)


def _cpu_lines(condition: CpuCondition, host: Host) -> Iterator[tuple[str, str, bool]]:
    cpu = host.cpu
    if condition.vendor is not None:
        found = f"this CPU is by {CPU_VENDORS.get(cpu.vendor, 'another vendor')}"
        yield f"a CPU by {CPU_VENDORS[condition.vendor]}", found, cpu.vendor == condition.vendor
    if condition.architecture is not None:
        yield (
            f"a CPU of architecture {condition.architecture}",
            f"this one is {cpu.architecture}",
            cpu.architecture == condition.architecture,
        )
    if (wanted := condition.microarchitecture) is not None:
        yield (
            f"CPU microarchitecture `{wanted}` or a descendant of it",
            f"this CPU is `{cpu.microarchitecture}`",
            wanted in (cpu.microarchitecture, *cpu.lineage),
        )
    if condition.features:
        missing = [name for name in condition.features if name not in cpu.features]
        yield (
            f"CPU features {', '.join(condition.features)}",
            f"this CPU lacks {', '.join(missing)}" if missing else "this CPU has them",
            not missing,
        )


def _gpu_line(condition: GpuCondition, host: Host) -> tuple[str, str, bool]:
    met = any(_serves(gpu, condition) for gpu in visible_gpus(host))
    return _gpu_need(condition), _gpu_found(condition, host, met=met), met


def _serves(gpu: Gpu, condition: GpuCondition) -> bool:
    """Whether one GPU meets every line."""
    bounds = condition.compute_capability
    return (
        (condition.vendor is None or gpu.vendor == condition.vendor)
        and (condition.architecture is None or gpu.architecture == condition.architecture)
        and (bounds is None or within(gpu.compute_capability, bounds))
    )


def _gpu_need(condition: GpuCondition) -> str:
    parts = []
    if condition.compute_capability is not None:
        parts.append(f"CUDA compute capability {in_words(condition.compute_capability)}")
    if condition.architecture is not None:
        parts.append(f"architecture `{condition.architecture}`")
    if condition.vendor is None and parts:
        # A GPU's capability or architecture says whose it is.
        return parts[0] if len(parts) == 1 else f"one GPU of {' and '.join(parts)}"
    title = VENDORS.get(condition.vendor or "", "")
    article = "an" if title[:1] in ("A", "I", "N") else "a"
    whose = f"{article} {title} GPU" if title else "a GPU"
    return f"{whose} of {' and '.join(parts)}" if parts else whose


def _gpu_found(condition: GpuCondition, host: Host, *, met: bool) -> str:
    gpus = visible_gpus(host)
    if met:
        serving = next(gpu for gpu in gpus if _serves(gpu, condition))
        return f"gpu {serving.index} is {describe(serving)}"
    if not gpus:
        return "every GPU here is hidden from this process" if host.gpus else "no GPU is here"
    capabilities = [
        (version, gpu.compute_capability)
        for gpu in gpus
        if (version := parsed(gpu.compute_capability)) is not None
    ]
    if condition.compute_capability and capabilities:
        return f"the newest GPU here has {max(capabilities)[1]}"
    return f"the GPUs here are {', '.join(sorted({gpu.name for gpu in gpus}))}"


def describe(gpu: Gpu) -> str:
    """A GPU in words: "Tesla T4, compute capability 7.5"."""
    detail = (
        f"compute capability {gpu.compute_capability}"
        if gpu.compute_capability
        else gpu.architecture
    )
    return f"{gpu.name}, {detail}" if detail else gpu.name


def gpu_notes(host: Host) -> list[str]:
    """Every GPU of the host with its driver, and what kept a probe from seeing more."""
    notes = [
        f"the probe for {VENDORS[probe.probe]} GPUs says: {probe.reason}"
        for probe in host.probes
        if probe.probe in VENDORS
        and not isinstance(probe, Found)
        and (isinstance(probe, Broken) or not host.gpus)
    ]
    for gpu in host.gpus:
        driver = {NVIDIA: ("driver", "nvidia"), AMD: ("ROCm", "rocm")}.get(gpu.vendor)
        version = host.drivers.get(driver[1], "") if driver else ""
        tail = f", {driver[0]} {version}" if driver and version else ""
        hidden = "" if gpu.visible else ", hidden from this process"
        notes.append(f"gpu {gpu.index} is {describe(gpu)}{tail}{hidden}")
    return notes


def _library_line(name: str, bounds: str, host: Host) -> tuple[str, str, bool]:
    versions = _versions(name, host)
    title = DRIVERS.get(name, name)
    need = f"{title} {in_words(bounds)}"
    if not versions:
        return need, f"{title} is not here", False
    found = f"{title} {' and '.join(versions)}"
    return need, found, any(within(version, bounds) for version in versions)


def _versions(name: str, host: Host) -> tuple[str, ...]:
    """Every version of a driver, a package or a BLAS provider that is here."""
    if name in DRIVERS:
        return (host.drivers[name],) if host.drivers.get(name) else ()
    if name in host.packages:
        return (host.packages[name],)
    found = [library.version for library in host.libraries if library.provider == name]
    return tuple(dict.fromkeys(version for version in found if version))
