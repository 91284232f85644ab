"""What is not as a lock has it, the likeliest cause first; and results against those locked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.resolve.words import literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.audit.evidence.lock import Library, Lock, Numerics, Present, Results


@dataclass(frozen=True)
class Drift:
    """One thing that is not as locked.

    Attributes:
        name: "libraries.numpy", "profile.flags.threads.count".
        locked: what the lock has; None for nothing.
        here: what is here; None for nothing.
        where: what more there is to say, or "".
    """

    name: str
    locked: Any
    here: Any
    where: str = ""

    def __str__(self) -> str:
        more = f", {self.where}" if self.where else ""
        return f"{self.name}: {_shown(self.locked)} (locked) -> {_shown(self.here)}{more}"


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    return value if isinstance(value, str) else literal(value)


def drifts(locked: Lock, here: Present) -> list[Drift]:
    """Everything but results that is not as locked: flags, libraries, Python, machine, token."""
    found = [*_profile(locked, here), *_libraries(locked.libraries, here.libraries)]
    explained = {one.name.removeprefix("libraries.") for one in found}
    found += [one for one in _python(locked, here) if one.name.rpartition(".")[2] not in explained]
    found += _machine(locked, here)
    found += _numerics(locked.numerics, here.numerics)
    return found


def _between(prefix: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Drift]:
    for name in sorted({*a, *b}):
        if (locked := a.get(name)) != (here := b.get(name)):
            yield Drift(f"{prefix}.{name}", locked, here)


def _profile(locked: Lock, here: Present) -> Iterator[Drift]:
    a, b = locked.profile, here.profile
    names = ({"name": one.name, "tier": one.tier} for one in (a, b))
    yield from _between("profile", *names)
    yield from _between("profile.flags", a.flags, b.flags)
    yield from _between("profile", {"order": a.order}, {"order": b.order})


def _libraries(a: Mapping[str, Library], b: Mapping[str, Library]) -> Iterator[Drift]:
    """Each package of another version; of those of the same, each file that is another one."""
    for name in sorted({*a, *b}):
        locked, here = a.get(name), b.get(name)
        if locked is None or here is None:
            of_lock, of_here = (one and (one.version or "there") for one in (locked, here))
            yield Drift(f"libraries.{name}", of_lock, of_here)
        elif locked.version != here.version:
            yield Drift(f"libraries.{name}", locked.version, here.version)
        else:
            yield from _between(f"libraries.{name}", locked.files, here.files)


def _python(locked: Lock, here: Present) -> Iterator[Drift]:
    a, b = ({**dict(one.python), "packages": {}} for one in (locked, here))
    yield from _between("python", a, b)
    yield from _between("python.packages", locked.python.packages, here.python.packages)


def _machine(locked: Lock, here: Present) -> Iterator[Drift]:
    a, b = ({**dict(one.machine), "features": "", "drivers": {}} for one in (locked, here))
    yield from _between("machine", a, b)
    of_lock, of_here = (one.machine.features.split() for one in (locked, here))
    lost = " ".join(one for one in of_lock if one not in of_here)
    more = " ".join(one for one in of_here if one not in of_lock)
    if lost or more:
        yield Drift("machine.features", lost, more, "of those that only one of them has")
    yield from _between("machine.drivers", locked.machine.drivers, here.machine.drivers)


def _numerics(a: Numerics, b: Numerics) -> Iterator[Drift]:
    if a.composed != b.composed:
        return  # another release composes tokens otherwise, and is named as one
    yield from _between("numerics.switches", a.switches, b.switches)
    yield from _between("numerics.facts", a.facts, b.facts)
    yield from _between("numerics.variables", a.variables, b.variables)
    if a.token != b.token:
        changed = [one.name.removeprefix("parts.") for one in _between("parts", a.parts, b.parts)]
        yield Drift("numerics.token", a.token, b.token, f"by its {', '.join(changed)}")


def differing(locked: Results, here: Results) -> list[str]:
    """The results that are not those locked, in words."""
    words = []
    if locked.text != here.text:
        words.append("another text was printed")
    if locked.records != here.records:
        words.append("other values were recorded")
    if locked.files is None or here.files is None:
        return words
    for path in sorted({*locked.files, *here.files}):
        one, other = locked.files.get(path), here.files.get(path)
        if one is None or other is None:
            words.append(f"{path}: only one of them wrote it")
        elif one != other:
            words.append(f"{path}: other content")
    return words
