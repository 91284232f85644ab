"""The thread variables of an instance, and presets that contradict its processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

COUNTS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
"""Variables that say how many threads some library starts; the first is set in every instance."""

PLACES = {"GOMP_CPU_AFFINITY": "", "OMP_PLACES": "{", "KMP_AFFINITY": "proclist"}
"""Variables that send threads to numbered processors, and what is in them when they do."""


def threads(
    environment: Mapping[str, str],
    cores: int,
    decided: Collection[str] = (),
    preset: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """What to set in an instance's environment, and what to tell about it.

    A preset count above the number of cores, or one that is none, contradicts the binding and is
    replaced; one below leaves cores idle, which may be meant, and stays. Either is told. What a
    profile says stays, and is told when there are fewer cores, or when it replaces a preset that
    contradicts the binding.

    Args:
        environment: what the instance has.
        cores: how many cores it has.
        decided: variables that its profile sets.
        preset: what the user's environment has, where the profile may have replaced it.
    """
    preset = preset or {}
    changes: dict[str, str] = {}
    notes: list[str] = []
    for name in COUNTS:
        text, given = environment.get(name), preset.get(name)
        if name in decided and given and given != text and not 0 < _count(given) <= cores:
            instead = f"the profile sets {text}" if text else "the profile unsets it"
            notes.append(f"{name}={given} contradicts {cores} bound cores; {instead}")
        if not text:
            continue
        count = _count(text)
        if name in decided:
            if count > cores:
                notes.append(f"the profile sets {name}={text}, on {cores} bound cores")
        elif not 0 < count <= cores:
            changes[name] = str(cores)
            notes.append(f"{name}={text} contradicts {cores} bound cores; instances get {cores}")
        elif count < cores:
            notes.append(f"{name}={text} is set, so {cores - count} of {cores} cores will idle")
    if not environment.get(COUNTS[0]):
        changes[COUNTS[0]] = str(cores)
    notes += [
        f"{name}={environment[name]} is set, which may send threads to cores of other instances"
        for name, mark in PLACES.items()
        if name not in decided and (text := environment.get(name)) and mark in text
    ]
    return changes, notes


def _count(text: str) -> int:
    """The number of threads that a variable asks for, of nested levels the first; 0 for none."""
    first = text.split(",", maxsplit=1)[0].strip()
    return int(first) if first.isdecimal() else 0
