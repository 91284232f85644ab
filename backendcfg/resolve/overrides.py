"""Variables of other software that are set on the host and contradict the plan, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.probe.variables import contradictions
from backendcfg.resolve.words import assignment
from backendcfg.schema.initial import INITIALS

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

_INITIAL = {each.variable: each for each in INITIALS}


def overrides(ground: Ground) -> tuple[str, ...]:
    """What the environment of the host says otherwise than the plan."""
    read = {flag for flag, entry in ground.entries.items() if not entry.dormant}
    asked = {flag for flag in read if ground.asked(flag)}
    environment = ground.host.environment
    values = {flag: entry.value for flag, entry in ground.entries.items()}
    said = contradictions(values, asked, environment)
    named = {text.partition("=")[0] for text in said}
    return (*said, *_standing(ground, read, named), *_won(ground))


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


def _won(ground: Ground) -> Iterator[str]:
    """PyTorch's variables that outrank what the profile says of the same flag."""
    for flag, entry in ground.entries.items():
        name = entry.origin.place.name
        if entry.dormant or name not in _INITIAL or not entry.hides:
            continue
        lost = entry.hides[0]
        same = (entry.value, {"prefer": [entry.value]})
        if lost.origin.rank != "default" and lost.value not in same:
            text = ground.host.environment.get(name, "")
            yield f"{name}={text} wins over `{assignment(flag, lost.value)}` of {lost.origin.title}"
