"""Kernel sets that can be pinned by name, and what a CPU must have to run each.

OpenBLAS takes a name without looking at the CPU: one that the CPU cannot run ends the process at
its first product, and one that it does not know silently selects other kernels.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from backendcfg.errors import InvalidValueError
from backendcfg.records import record
from backendcfg.resolve.words import value_span
from backendcfg.schema.plan import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.schema.host import Cpu
    from backendcfg.schema.plan import Entry


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
