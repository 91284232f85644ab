"""From folded flags to the entries of a plan: every value concrete, every change with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.catalogue.cpu import PROVIDERS
from backendcfg.catalogue.gpu import INTEL
from backendcfg.resolve import dormant, libraries
from backendcfg.schema.base import candidates
from backendcfg.schema.plan import Adaptation, Entry
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.resolve.fold import Folded
    from backendcfg.schema.host import Host, Library
    from backendcfg.schema.plan import Choice


@dataclass(frozen=True)
class Adapted:
    """Entries in schema order, and how libraries were chosen.

    Attributes:
        entries: by flag.
        choices: one per flag that chooses a library.
        required: for a flag that requires a library, that library.
        libraries: the files that may serve products of CPU arrays, best first.
    """

    entries: dict[str, Entry]
    choices: tuple[Choice, ...]
    required: dict[str, str]
    libraries: tuple[Library, ...]


def adapt(folded: Mapping[str, Folded], host: Host) -> Adapted:
    """What each flag becomes on this host."""
    entries: dict[str, Entry] = {}
    choices: list[Choice] = []
    required: dict[str, str] = {}
    path = str(folded["blas.path"].value)
    for flag, found in folded.items():
        field = flags()[flag]
        names = candidates(field.info.annotation)
        if not names:
            adaptation = _adaptation(flag, found.value, host)
        else:
            chosen = _choose(flag, found, names, host, path)
            choices.append(chosen.choice)
            adaptation = chosen.adaptation
            if chosen.required:
                required[flag] = chosen.required
        entries[flag] = Entry(
            flag=flag,
            value=_value(found.value, adaptation, choices[-1] if names else None),
            origin=found.origin,
            hides=found.hides,
            adaptation=adaptation,
            dormant=dormant.reason(field.flag, host),
            carried=field.flag.carried,
        )
    order = next(choice.order for choice in choices if choice.flag == "blas.library")
    files = tuple(file for name in order for file in libraries.files(name, host, path))
    return Adapted(entries, tuple(choices), required, files)


def _value(value: Any, adaptation: Adaptation | None, choice: Choice | None) -> Any:
    if choice is not None:
        return choice.chosen
    return value if adaptation is None else adaptation.got


def _choose(
    flag: str, found: Folded, names: tuple[str, ...], host: Host, path: str
) -> libraries.Chosen:
    if flag == "blas.library":
        return libraries.choose(
            flag,
            found.value,
            [provider.name for provider in PROVIDERS],
            lambda name: libraries.unusable(name, host, path),
            origin=found.origin,
            conditions=lambda name: libraries.conditions(name, host),
        )
    return libraries.choose(
        flag,
        found.value,
        names,
        lambda name: libraries.unusable_on_devices(name, host),
        origin=found.origin,
        stand_in=libraries.stand_in,
    )


def _adaptation(flag: str, value: Any, host: Host) -> Adaptation | None:
    """How the host changes a plain value, if it does."""
    if flag in ("threads.count", "threads.interop") and value == "auto":
        return Adaptation(requested=value, got=host.cpu.usable, because=_processors(host))
    if flag == "blas.mkl.cbwr" and value.startswith("avx") and host.cpu.vendor != INTEL:
        return Adaptation(
            requested=value,
            got="auto",
            because="MKL knows this branch on Intel's processors only and takes AUTO elsewhere",
        )
    return None


def _processors(host: Host) -> str:
    cpu = host.cpu
    count = f"{cpu.usable} of {cpu.logical} processors"
    if cpu.limits:
        return f"this process may use {count} ({'; '.join(cpu.limits)})"
    return f"this process may use {count}"
