"""What a requirement of a tier is, and the questions about a host that the table asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.catalogue.cpu import BLIS, COMPILED_IN, OPENBLAS
from backendcfg.catalogue.frameworks import JAX, NUMPY, ON_DEVICES, TORCH
from backendcfg.catalogue.gpu import AMD, NVIDIA
from backendcfg.resolve.facts import has_kind, has_package, is_older, visible_gpus
from backendcfg.resolve.words import assignment, listed, literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.resolve.ground import Ground


@dataclass(frozen=True)
class Requirement:
    """One thing that a tier needs.

    Attributes:
        tiers: those that need it.
        flag: the flag that decides it, or `environment.NAME`, or "" for the host itself.
        wanted: what it must be, after "must be".
        keeps: whether a value keeps the tier.
        why: what breaks it otherwise.
        concerns: whether this host is concerned at all.
        cure: what keeps it, as a help line.
        found: for the host itself, what is here.
    """

    tiers: tuple[str, ...]
    flag: str
    wanted: str
    keeps: Callable[[Any, Ground], bool]
    why: str
    concerns: Callable[[Ground], bool]
    cure: str
    found: Callable[[Ground], str] = lambda ground: ""


def exactly(
    tiers: tuple[str, ...], flag: str, value: Any, why: str, concerns: Callable[[Ground], bool]
) -> Requirement:
    """A flag that must have one value."""
    return Requirement(
        tiers,
        flag,
        literal(value),
        lambda found, ground: bool(found == value),
        why,
        concerns,
        f"set `{assignment(flag, value)}`",
    )


def with_torch(ground: Ground) -> bool:
    """PyTorch is installed."""
    return has_package(ground.host, TORCH.name)


def torch_on_gpu(ground: Ground) -> bool:
    """PyTorch would compute on a GPU."""
    return with_torch(ground) and bool(visible_gpus(ground.host, NVIDIA, AMD))


def old_torch_on_nvidia(ground: Ground) -> bool:
    """A PyTorch before 2.13 would compute on an NVIDIA GPU."""
    # 2.13 is the first release known to give every handle and stream a workspace of its own.
    return (
        with_torch(ground)
        and bool(visible_gpus(ground.host, NVIDIA))
        and is_older(ground.host, TORCH.name, "2.13")
    )


def jax_on_gpu(ground: Ground) -> bool:
    """JAX would compute on a GPU."""
    return has_package(ground.host, JAX.name) and bool(visible_gpus(ground.host, NVIDIA, AMD))


def several_nvidia_gpus(ground: Ground) -> bool:
    """PyTorch would see several NVIDIA GPUs, and NCCL may connect them."""
    return with_torch(ground) and len(visible_gpus(ground.host, NVIDIA)) > 1


def chooses_algorithm(algo: Any, ground: Ground) -> bool:
    """Whether NCCL_ALGO or NCCL_NVLS_ENABLE keeps NVLS out, or PyTorch does so by itself."""
    if not algo:
        return ground.value("nccl.nvls") == "off" or not is_older(ground.host, TORCH.name, "2.13")
    return bool(algo.startswith("^") == ("NVLS" in algo))


def with_openblas(ground: Ground) -> bool:
    """Some OpenBLAS is here."""
    return has_kind(ground.host, OPENBLAS.kind)


def served_by_ours(library: Any, ground: Ground) -> bool:
    """Whether a library is one of the two that are compiled in."""
    return library in COMPILED_IN


def threads_matter(ground: Ground) -> bool:
    """Whether some library here sums in another order at another thread count."""
    return (
        not served_by_ours(ground.value("blas.library"), ground)
        or with_openblas(ground)
        or has_package(ground.host, TORCH.name)
    )


def serves_blis(ground: Ground) -> bool:
    """BLIS may serve our products."""
    return any(library.provider == BLIS.name for library in ground.libraries)


def on_x86(ground: Ground) -> bool:
    """The CPU is an x86-64 one."""
    return ground.host.cpu.architecture == "x86_64"


def leaves_out_avx512(text: Any, ground: Ground) -> bool:
    """Whether NPY_DISABLE_CPU_FEATURES names AVX-512 as this NumPy does; it ignores other names."""
    name = "AVX512F" if is_older(ground.host, NUMPY.name, "2.4") else "X86_V4"
    return name in (text or "").replace(",", " ").split()


def with_jax(ground: Ground) -> bool:
    """JAX is installed."""
    return has_package(ground.host, JAX.name)


def with_framework(ground: Ground) -> bool:
    """Some framework that would compute on a GPU is installed."""
    return has_package(ground.host, *ON_DEVICES)


def gpus_found(ground: Ground) -> str:
    """The visible GPUs, in words."""
    names = sorted({gpu.name for gpu in visible_gpus(ground.host)})
    return f"{listed(names)} can be used" if names else "no GPU is visible"


def is_required(library: Any, ground: Ground) -> bool:
    """Whether another machine would refuse rather than take another library."""
    return bool(ground.required.get("blas.library") == library)
