"""Variables of other software that are set on the host and contradict the plan, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.probe.variables import contradictions
from backendcfg.resolve.words import assignment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.resolve.ground import Ground

# Set once for a whole machine and then forgotten: they are said even when no profile asks for the
# opposite, because they decide NumPy's speed and bits.
_ALWAYS = {
    "OPENBLAS_CORETYPE": (
        "blas.openblas.core_type",
        "chooses the kernels of every OpenBLAS, whatever the CPU could run",
    ),
    "OPENBLAS_L2_SIZE": (
        "blas.openblas.core_type",
        (
            "replaces the cache size that OpenBLAS sizes its blocks by, which changes NumPy's bits "
            "and can halve its speed"
        ),
    ),
    "NVIDIA_TF32_OVERRIDE": (
        "cuda.matmul.fp32_precision",
        "outranks every framework's precision in NVIDIA's libraries, and no getter shows it",
    ),
}

# PyTorch starts from these and our own writes win afterwards, but only once they happened.
_STARTING_VALUES = {
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("cuda.matmul.fp32_precision", {"1": "tf32"}),
    "TORCH_BLAS_PREFER_CUBLASLT": (
        "cuda.preferred_blas_library",
        {"1": "cublaslt", "0": "cublas"},
    ),
    "TORCH_BLAS_PREFER_HIPBLASLT": (
        "cuda.preferred_blas_library",
        {"1": "hipblaslt", "0": "hipblas"},
    ),
    "TORCH_LINALG_PREFER_CUSOLVER": ("cuda.preferred_linalg_library", {"1": "cusolver"}),
}


def overrides(ground: Ground) -> tuple[str, ...]:
    """What the environment of the host says otherwise than the plan."""
    read = {flag for flag, entry in ground.entries.items() if not entry.dormant}
    asked = {flag for flag in read if ground.asked(flag)}
    environment = ground.host.environment
    values = {flag: entry.value for flag, entry in ground.entries.items()}
    said = contradictions(values, asked, environment)
    named = {text.partition("=")[0] for text in said}
    return (*said, *_standing(ground, read, named), *_starting(ground, asked))


def _standing(ground: Ground, read: set[str], named: set[str]) -> Iterator[str]:
    for name, (flag, effect) in _ALWAYS.items():
        text = ground.host.environment.get(name)
        if text and name not in named and flag in read and not _agrees(ground, flag, text):
            value = ground.value(flag)
            yield f"{name}={text} {effect}; the plan has `{assignment(flag, value)}`"


def _agrees(ground: Ground, flag: str, text: str) -> bool:
    """Whether the plan asks for the very thing that a variable says."""
    value = ground.value(flag)
    if flag == "cuda.matmul.fp32_precision":
        return ground.asked(flag)
    return bool(value.lower() == text.lower())


def _starting(ground: Ground, asked: set[str]) -> Iterator[str]:
    for name, (flag, means) in _STARTING_VALUES.items():
        text = ground.host.environment.get(name, "")
        value = ground.value(flag)
        if flag in asked and text in means and value != means[text]:
            yield f"{name}={text} contradicts `{assignment(flag, value)}`"
