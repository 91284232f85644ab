"""From (profile, host) to a plan. Pure: opens nothing, reads no variable, calls no library."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from backendcfg.errors import SeveralErrors
from backendcfg.probe.variables import contradictions
from backendcfg.resolve.examination import Examination, examine
from backendcfg.resolve.tiers import TIER, unkept
from backendcfg.resolve.words import assignment
from backendcfg.schema.plan import Plan
from backendcfg.schema.torch_backends import INITIALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.resolve.ground import Ground
    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack


def host_digest(host: Host) -> str:
    """SHA-256 of the host in canonical JSON, without what changes while it stays the same.

    Left out: the machine's name, its free and total memory, the interpreter's path, which
    libraries happened to be loaded and with how many threads, and what the probes said.
    """
    data = host.model_dump(mode="json", exclude={"memory", "probes"})
    del data["system"]["name"], data["python"]["executable"]
    for library in data["libraries"]:
        del library["loaded"], library["threads"]
    data["libraries"].sort(key=lambda library: (library["path"], library["provider"]))
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


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


def resolve(stack: Stack, host: Host, *, candidates: Sequence[str] = ()) -> Plan:
    """What a profile means on a host: every flag with its value, its origin and its adaptation.

    The same layers and the same host give the same plan, anywhere.

    Args:
        stack: the layers, weakest first.
        host: the machine, detected here or captured elsewhere.
        candidates: names of profiles that fit the host, offered when this one needs other
            hardware; see `backendcfg.resolve.recommend`.

    Raises:
        UnsupportedHardwareError: a requirement is not met.
        ConflictingFlagsError: two values cannot both hold; SeveralErrors when more than one
            pair does.
        InvalidValueError: a kernel set is named that does not exist.
        MissingLibraryError: a required library is not usable.
        TierNotKeptError: the flags do not keep the tier here.
    """
    found = examine(stack, host, candidates)
    if found.refusals:
        raise _first(found)
    return Plan(
        name=stack.name,
        description=stack.description,
        tier=found.ground.value(TIER),
        host=host.summary(),
        host_digest=host_digest(host),
        entries=found.entries,
        choices=found.choices,
        libraries=found.ground.libraries,
        checks=found.checks,
        unkept=unkept(found.ground.value(TIER), found.ground),
        overrides=overrides(found.ground),
    )


def _first(found: Examination) -> Exception:
    """The most fundamental refusal, with all others that end the same way."""
    first = found.refusals[0]
    alike = [error for error in found.refusals if error.exit_code == first.exit_code]
    if first.exit_code != SeveralErrors.exit_code or len(alike) == 1:
        return first
    return SeveralErrors(f"{len(alike)} errors in profile `{found.name}`", errors=alike)
