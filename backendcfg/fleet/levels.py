"""Instruction sets that unlike processors have in common, and how libraries are brought to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from backendcfg.catalogue.frameworks import JAX, NUMPY, TENSORFLOW
from backendcfg.resolve.facts import parsed
from backendcfg.resolve.ground import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.schema.host import Host

CBWR = "blas.mkl.cbwr"

PINS: dict[str, dict[str, Any]] = {
    "x86_64_v4": {
        "blas.openblas.core_type": "SkylakeX",
        "blas.blis.arch_type": "skx",
        "torch.cpu_capability": "avx512",
        "onednn.max_cpu_isa": "avx512_core",
        CBWR: "compatible",
    },
    "x86_64_v3": {
        "blas.openblas.core_type": "Haswell",
        "blas.blis.arch_type": "haswell",
        "torch.cpu_capability": "avx2",
        "onednn.max_cpu_isa": "avx2",
        CBWR: "compatible",
    },
    "aarch64": {
        "blas.openblas.core_type": "armv8",
        "torch.cpu_capability": "default",
        "mkldnn.enabled": False,
    },
}
"""By what processors have in common, best first: the kernels that all of them can run.

The same as in profiles/reproducible-anywhere.toml, where the sources of each are. MKL has other
branches for Intel's processors alone; "compatible" is the one that it has on all.
"""

LOOPS = {
    "x86_64_v4": (
        "AVX512_ICL AVX512_SPR",
        "AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    ),
    "x86_64_v3": (
        "X86_V4 AVX512_ICL AVX512_SPR",
        "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    ),
}
"""What NumPy's own loops must not use then, as NumPy 2.4 names it, and as older releases do."""

RENAMED = Version("2.4.dev0")
"""The first release of NumPy with the new names."""

COMPILED = {"x86_64_v4": "AVX512", "x86_64_v3": "AVX2"}
"""What XLA must compile for then."""


def common(hosts: Sequence[Host]) -> str:
    """The nearest instruction set that all processors have, by archspec's lineages; "" for none."""
    lineages = [(host.cpu.architecture, *host.cpu.lineage) for host in hosts]
    return next((one for one in PINS if all(one in lineage for lineage in lineages)), "")


def of_level(level: str, packages: Mapping[str, str]) -> dict[str, Any]:
    """The flags that bring the libraries of these packages to a level; none for no level."""
    wanted = dict(PINS.get(level, {}))
    variables = {}
    if NUMPY.name in packages and level in LOOPS:
        found = parsed(packages[NUMPY.name])
        new = found is not None and found >= RENAMED
        variables["NPY_DISABLE_CPU_FEATURES"] = LOOPS[level][0 if new else 1]
    if level in COMPILED and any(each.name in packages for each in (JAX, TENSORFLOW)):
        variables["XLA_FLAGS"] = f"--xla_cpu_max_isa={COMPILED[level]}"
    return wanted | ({ENVIRONMENT: variables} if variables else {})
