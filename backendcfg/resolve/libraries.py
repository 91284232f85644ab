"""Choosing a library by preference: which are usable here, and every reason against the others.

The kernel sets of a library that can be pinned by name are here too, with what a CPU must have to
run each.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, cast

from backendcfg.catalogue import cpu, gpu
from backendcfg.catalogue.frameworks import SCIPY, TORCH
from backendcfg.errors import InvalidValueError
from backendcfg.records import record
from backendcfg.resolve.facts import is_older, visible_gpus
from backendcfg.resolve.words import value_span
from backendcfg.schema.base import Preference
from backendcfg.schema.host import Absent, Broken, Library
from backendcfg.schema.plan import Adaptation, Check, Choice, Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backendcfg.schema.host import Cpu, Host, LibraryKind
    from backendcfg.schema.plan import Entry, Origin


@record(frozen=True)
class Kernels:
    """A set of kernels: the CPU architecture and the features that its code uses."""

    architecture: str
    features: tuple[str, ...] = ()


_AVX2 = ("avx2", "fma")
_AVX512 = ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")


def _x86(*names: str, features: tuple[str, ...] = ()) -> dict[str, Kernels]:
    return {name: Kernels("x86_64", features) for name in names}


def _arm(*names: str, features: tuple[str, ...] = ()) -> dict[str, Kernels]:
    return {name: Kernels("aarch64", features) for name in names}


# The names of dynamic.c, dynamic_arm64.c, dynamic_power.c and so on in OpenBLAS's driver/others,
# those of x86-64 checked against the wheel of 0.3.34; case does not matter. A build may leave
# sets out and then runs an older one under the name: NumPy's runs SkylakeX for SapphireRapids.
CORE_TYPES: dict[str, Kernels] = {
    **_x86("Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Atom", "Core2", "Penryn"),
    **_x86("Dunnington", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona", "Nano", "Bobcat"),
    **_x86("Nehalem", features=("sse4_2",)),
    **_x86("Sandybridge", features=("avx",)),
    **_x86("Bulldozer", features=("avx", "fma4")),
    **_x86("Piledriver", "Steamroller", features=("avx", "fma")),
    **_x86("Excavator", "Haswell", "Zen", features=_AVX2),
    **_x86("SkylakeX", features=_AVX512),
    **_x86("Cooperlake", features=(*_AVX512, "avx512_bf16")),
    **_x86("SapphireRapids", features=(*_AVX512, "avx512_bf16", "amx_tile", "amx_bf16")),
    **_arm("armv8", "cortexa53", "cortexa55", "cortexa57", "cortexa72", "cortexa73", "falkor"),
    **_arm("thunderx", "thunderx2t99", "tsv110", "emag8180", "neoversen1", "thunderx3t110"),
    **_arm("cortexa510", "cortexx1", "vortex", "ft2000"),
    **_arm("neoversev1", "neoversen2", "armv8sve", "a64fx", features=("sve",)),
    **{name: Kernels("ppc64le") for name in ("POWER6", "POWER8", "POWER9", "POWER10")},
    **{name: Kernels("s390x") for name in ("Z13", "Z14")},
}

CAPABILITIES: dict[str, Kernels] = _x86("avx2", features=_AVX2) | _x86("avx512", features=_AVX512)
"""ATen's kernel sets; PyTorch runs the one that ATEN_CPU_CAPABILITY names unchecked."""


def core_type(name: str) -> Kernels | None:
    """An OpenBLAS kernel set by name, or None when OpenBLAS has no such name."""
    lowered = name.lower()
    return next((found for known, found in CORE_TYPES.items() if known.lower() == lowered), None)


def lacking(kernels: Kernels, cpu: Cpu) -> str:
    """What a CPU lacks to run kernels, in words; "" when it can run them."""
    if kernels.architecture != cpu.architecture:
        return f"this CPU is {cpu.architecture}"
    missing = [feature for feature in kernels.features if feature not in cpu.features]
    return f"this CPU lacks {', '.join(missing)}" if missing else ""


def misnamed(entries: Mapping[str, Entry]) -> Iterator[InvalidValueError]:
    """A core type that OpenBLAS does not know, as an error."""
    entry = entries["blas.openblas.core_type"]
    if entry.value == "auto" or core_type(entry.value) is not None:
        return
    near = difflib.get_close_matches(entry.value, CORE_TYPES, n=1, cutoff=0.6)
    span = value_span(entry.origin.place, f"did you mean `{near[0]}`?" if near else "unknown")
    names = [name for name, kernels in CORE_TYPES.items() if kernels.features]
    yield InvalidValueError(
        f'`{entry.flag}` is "{entry.value}", which is no kernel set of OpenBLAS',
        spans=[span] if span else [],
        notes=[
            "OpenBLAS takes an unknown name without a word and computes with other kernels",
            f"among its kernel sets are {', '.join(names[:8])}",
        ],
        helps=[f'write "{near[0]}"' if near else 'write one of them, or "auto"'],
    )


def checks(entries: Mapping[str, Entry]) -> Iterator[tuple[Entry, Kernels]]:
    """The entries that pin kernels which somebody here would run, with those kernels."""
    for flag, known in (
        ("blas.openblas.core_type", core_type),
        ("torch.cpu_capability", CAPABILITIES.get),
    ):
        entry = entries[flag]
        if not entry.dormant and (kernels := known(entry.value)) is not None:
            yield entry, kernels


def pinned(entries: Mapping[str, Entry], cpu: Cpu) -> tuple[Check, ...]:
    """Whether this CPU can run every kernel set that is pinned by name."""
    return tuple(
        Check(
            need=f"a CPU that runs {entry.value} kernels"
            f" ({', '.join((kernels.architecture, *kernels.features))})",
            found=lacking(kernels, cpu) or "this CPU runs them",
            met=not lacking(kernels, cpu),
            because=f"`{entry.flag}`",
            place=entry.origin.place,
        )
        for entry, kernels in checks(entries)
    )


@record(frozen=True)
class Chosen:
    """A choice and how firm it is.

    Attributes:
        choice: what was chosen, and the reasons against the others.
        adaptation: how the host changed the wish, if it did.
        required: the library that was required, or "".
    """

    choice: Choice
    adaptation: Adaptation | None
    required: str


def preference(value: Any) -> Preference[str]:
    """A preference from JSON data; a bare name is preferred."""
    if isinstance(value, str):
        return Preference[str](prefer=[value])
    return Preference[str].model_validate(value)


def choose(
    flag: str,
    value: Any,
    candidates: Sequence[str],
    unusable: Callable[[str], tuple[str, ...]],
    *,
    origin: Origin,
    stand_in: Callable[[str], str] = str,
    conditions: Callable[[str], tuple[str, ...]] = lambda name: (),
) -> Chosen:
    """The first usable candidate, and why each earlier one is not used.

    Args:
        flag: the flag that chooses.
        value: its value, a preference as JSON data.
        candidates: every name, in the order that holds when nothing is preferred.
        unusable: why a name cannot be used on this host; empty when it can.
        origin: who set the value; named as the reason for what is forbidden.
        stand_in: for a name, the one that does its work where it cannot be.
        conditions: under which a usable name serves, where that is for each process to find out.
    """
    wish = preference(value)
    order: list[str] = []
    for name in wish.prefer:
        order += [name, stand_in(name)]
    ranked = list(dict.fromkeys([*order, *candidates]))
    reasons: dict[str, tuple[str, ...]] = {}
    for name in ranked:
        forbidden = (f"forbidden by {origin.title}",) if name in wish.forbid else ()
        only = (
            (f"{wish.require} is required by {origin.title}",)
            if wish.require not in (None, name) and not forbidden
            else ()
        )
        reasons[name] = (*forbidden, *only, *unusable(name))
    usable = tuple(name for name in ranked if not reasons[name])
    required = wish.require or ""
    chosen = usable[0] if usable else required
    first = next(iter(wish.prefer), None)
    adaptation = None
    if usable and first not in (None, chosen) and wish.require is None:
        passed = ranked[: ranked.index(chosen)]
        because = "; ".join(f"{name}: {', '.join(reasons[name])}" for name in passed)
        adaptation = Adaptation(requested=first, got=chosen, because=because)
    rejected = tuple(
        Rejection(candidate=name, reasons=reasons[name]) for name in ranked if reasons[name]
    )
    named = tuple(name for name in usable if name in (*order, required))
    conditional = tuple(
        Rejection(candidate=name, reasons=until) for name in usable if (until := conditions(name))
    )
    choice = Choice(
        flag=flag,
        chosen=chosen,
        order=usable,
        named=named,
        rejected=rejected,
        conditional=conditional,
    )
    return Chosen(choice, adaptation, required)


def title(name: str) -> str:
    """A library as people call it where it serves our operations."""
    if (library := cpu.BY_NAME.get(name)) is not None:
        return library.role or library.title
    return gpu.BY_NAME[name].title if name in gpu.BY_NAME else name


def files(provider: str, host: Host, path: str = "") -> tuple[Library, ...]:
    """The library files that could serve as a provider of CPU products, best first."""
    if path:
        return tuple(library for library in [at(path, host)] if library.provider == provider)
    found = [
        library
        for library in host.libraries
        if library.provider == provider and library.owner != TORCH.name
    ]
    owners = cpu.BY_NAME[provider].owners if provider in cpu.BY_NAME else ()
    ranks = {owner: rank for rank, owner in enumerate(owners)}
    return tuple(sorted(found, key=lambda one: ranks.get(one.owner, len(ranks))))


def at(path: str, host: Host) -> Library:
    """The file that `blas.path` names: as detected, else what its name says it is.

    Width, prefix and suffix stay empty when it was not detected: whoever opens it probes them.
    """
    for library in host.libraries:
        if library.path == path:
            provider = library.provider or _provider(library.kind)
            return library.model_copy(update={"provider": provider})
    name = path.rpartition("/")[2]
    kind = next(
        (each.kind for each in cpu.PROVIDERS if each.stem and each.stem in name),
        cpu.NETLIB_BLAS.kind,
    )
    return Library(
        kind=cast("LibraryKind", kind), provider=_provider(kind), owner="path", path=path
    )


def _provider(kind: str) -> str:
    return cpu.provider_of(kind, "path", serves=True) or cpu.OPENBLAS.name


def unusable(provider: str, host: Host, path: str = "") -> tuple[str, ...]:
    """Why a provider of CPU products cannot serve here, every reason; empty when it can."""
    if provider in cpu.COMPILED_IN:
        return ()
    if path and at(path, host).provider != provider:
        return ("`blas.path` names another library",)
    reasons = [] if path else _not_found(provider, host)
    return tuple(
        reasons
        or (
            hazard.reason
            for hazard in cpu.BY_NAME[provider].hazards
            if host.environment.get(hazard.variable)
        )
    )


def conditions(provider: str, host: Host) -> tuple[str, ...]:
    """Under which conditions a usable provider serves: what passes inside a process."""
    return tuple(
        hazard.until
        for hazard in cpu.BY_NAME[provider].hazards
        if hazard.framework in host.packages
    )


def _not_found(provider: str, host: Host) -> list[str]:
    """Why there is no file of a provider: what is broken, else where was looked."""
    if files(provider, host):
        return []
    record = cpu.BY_NAME[provider]
    inside = any(one.kind == provider and one.owner in record.inside for one in host.libraries)
    if inside:
        whose = TORCH.title
        return [
            f"the only {record.title} here is the one inside {whose}, which serves {whose} alone"
        ]
    probes = [probe for probe in host.probes if probe.probe == record.kind]
    broken = [
        f"{probe.path}: {probe.reason}" if probe.path else probe.reason
        for probe in probes
        if isinstance(probe, Broken) and _may_be(provider, probe.path)
    ]
    absent = [probe.reason for probe in probes if isinstance(probe, Absent)]
    return broken or absent[:1] or ["no file of it was found"]


def _may_be(provider: str, path: str) -> bool:
    """Whether a file could have been this provider's: SciPy's OpenBLAS lies in its directories."""
    directory = path.rpartition("/")[0]
    if not directory or cpu.BY_NAME[provider].kind != cpu.OPENBLAS.kind:
        return True
    return (f"/{SCIPY.name}" in directory) == (provider == cpu.SCIPY_OPENBLAS.name)


def unusable_on_devices(library: str, host: Host) -> tuple[str, ...]:
    """Why a library cannot serve device arrays here, every reason; empty when it can."""
    record = gpu.BY_NAME.get(library)
    if record is None:
        return ()
    reasons = []
    if not visible_gpus(host, *record.vendors):
        makers = " or ".join(gpu.VENDORS[vendor] for vendor in record.vendors)
        others = sorted({each.name for each in visible_gpus(host)})
        here = f"the GPU here is {', '.join(others)}" if others else "no GPU is visible here"
        reasons.append(f"{record.title} needs a GPU by {makers}; {here}")
    here = host.packages.get(TORCH.name, "")
    if record.dropped and here and not is_older(host, TORCH.name, record.dropped):
        reasons.append(
            f"{TORCH.title} deprecated {record.title} in {record.dropped} and ignores it for "
            f"several decompositions; {here} is here"
        )
    return tuple(reasons)


def stand_in(library: str) -> str:
    """The library that does another one's work on another vendor's devices, or the same one."""
    record = gpu.BY_NAME.get(library)
    return (record.stand_in if record is not None else "") or library
