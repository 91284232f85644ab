"""What the rules look at: the host, and every flag as it would be applied there.

`fold` joins the layers, weakest first, into one value per flag that remembers what it won over;
`adapt` says what each becomes on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.catalogue.cpu import PROVIDERS
from backendcfg.catalogue.gpu import INTEL
from backendcfg.records import record
from backendcfg.resolve import facts, libraries
from backendcfg.resolve.facts import dormancy
from backendcfg.resolve.words import assignment
from backendcfg.schema.base import candidates
from backendcfg.schema.plan import Adaptation, Check, Entry, Hidden, Origin
from backendcfg.schema.profile import defaults, flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.host import Host, Library
    from backendcfg.schema.plan import Choice
    from backendcfg.schema.profile import Assignment, Dropped, Layer, Stack

ENVIRONMENT = "environment"

INTEROP_THREADS = 2
"""Threads for tasks side by side, unless a profile says how many."""

PART_OF_MEMORY = 8
"""Which part of its memory a process may keep freed, unless a profile says how much: the n-th."""

LEAST_KEPT = 128 << 20
"""Bytes that are worth setting: by itself glibc keeps up to 64 MiB."""

MOST_KEPT = (1 << 31) - 1
"""Bytes that mallopt(3) can be told: it takes an int."""


@record(frozen=True)
class Subject:
    """Something with a value that somebody set: a flag, or a variable in `[environment]`."""

    name: str
    value: Any
    origin: Origin

    @property
    def asked(self) -> bool:
        """Whether somebody set it, as opposed to a default."""
        return self.origin.rank != "default"


@record(frozen=True)
class Ground:
    """What a profile comes to on a host, before anybody says whether it may.

    Attributes:
        host: the machine.
        entries: every flag with its concrete value.
        required: the library that is required, by flag; another one would be an error.
        libraries: files that may serve products of CPU arrays.
        variables: who set each variable of `[environment]`.
    """

    host: Host
    entries: Mapping[str, Entry]
    required: Mapping[str, str]
    libraries: tuple[Library, ...]
    variables: Mapping[str, Origin]

    def value(self, flag: str) -> Any:
        """The value that would be applied."""
        return self.entries[flag].value

    def asked(self, flag: str) -> bool:
        """Whether somebody set a flag."""
        return self.entries[flag].origin.rank != "default"

    def variable(self, name: str) -> str:
        """A variable that `[environment]` sets, or ""."""
        return str(self.value(ENVIRONMENT).get(name, ""))

    def subject(self, name: str) -> Subject | None:
        """A flag or an `environment.NAME`; None when nothing here reads it or nobody sets it."""
        table, _, variable = name.partition(".")
        if table == ENVIRONMENT and variable:
            if variable not in self.variables:
                return None
            return Subject(name, self.variable(variable), self.variables[variable])
        entry = self.entries[name]
        return None if entry.dormant else Subject(name, entry.value, entry.origin)

    def precision(self, leaf: str) -> str:
        """The float32 precision in force at a leaf: its own, else its parents', else its own.

        A leaf at its default follows a parent that somebody set, as in PyTorch.
        """
        own = self.entries[leaf]
        if own.origin.rank != "default" and own.value != "none":
            return str(own.value)
        parent = "mkldnn.fp32_precision" if leaf.startswith("mkldnn.") else "cudnn.fp32_precision"
        for name in (parent, "fp32_precision"):
            if (value := self.value(name)) != "none":
                # CUDA has no bfloat16 mode for float32; PyTorch reads the parent as none there.
                return "none" if value == "bf16" and parent.startswith("cudnn") else str(value)
        return str(own.value)


DEFAULT = Origin(rank="default", title="default")


@record(frozen=True)
class Written:
    """One value that one layer gives a flag."""

    value: Any
    origin: Origin
    profile: str


@record(frozen=True)
class Folded:
    """A flag after folding.

    Attributes:
        value: the value that won, before the host adapts it.
        origin: who set it.
        hides: what it won over, nearest first, the default last.
        parts: for a table of variables, who set each of them.
    """

    value: Any
    origin: Origin
    hides: tuple[Hidden, ...]
    parts: Mapping[str, Origin]


def fold(stack: Stack, host: Host) -> tuple[dict[str, Folded], tuple[Check, ...]]:
    """Every flag in schema order, and what each `[[when]]` table found.

    A table applies directly after its file's own assignments. `drop` removes what weaker layers
    of the same profile chain wrote; settings of files, variables and arguments stay.
    """
    written: dict[str, list[Written]] = {flag: [] for flag in defaults()}
    looked_at: list[Check] = []
    for layer in stack.layers:
        for dropped in layer.dropped:
            _drop(dropped, written)
        for one in layer.assignments:
            _write(one, layer, written)
        for when in layer.whens:
            because = f"`[[when]]` in {layer.title}"
            checks = facts.check(when.condition, host, because, when.place)
            looked_at += checks
            if all(check.met for check in checks):
                for one in when.assignments:
                    _write(one, layer, written)
    folded = {flag: _settle(found, defaults()[flag]) for flag, found in written.items()}
    return folded, tuple(looked_at)


def _write(one: Assignment, layer: Layer, written: dict[str, list[Written]]) -> None:
    origin = Origin(rank=layer.rank, title=layer.title, place=one.place)
    written[one.flag].append(Written(one.value, origin, layer.profile))


def _drop(dropped: Dropped, written: dict[str, list[Written]]) -> None:
    """Remove a flag, a whole table, one variable, or what a legacy spelling stands for."""
    for flag, found in written.items():
        if covers(dropped.flag, flag):
            found[:] = [one for one in found if not one.profile]
    table, _, variable = dropped.flag.partition(".")
    if table == "environment" and variable:
        written[table][:] = [_without(one, variable) for one in written[table]]


def covers(name: str, flag: str) -> bool:
    """Whether dropping `name` unsets `flag`: itself, a table with it, or a spelling of it."""
    declared = flags().get(name)
    spelled = declared.flag.spells.values() if declared else ()
    names = {name, *(target for targets in spelled for target in targets)}
    return any(flag == gone or flag.startswith(f"{gone}.") for gone in names)


def _without(one: Written, variable: str) -> Written:
    if not one.profile:
        return one
    rest = {name: text for name, text in one.value.items() if name != variable}
    return Written(rest, one.origin, one.profile)


def _settle(found: list[Written], default: Any) -> Folded:
    """The strongest value, over everything weaker; tables of variables add up."""
    hides = (
        *(Hidden(value=one.value, origin=one.origin) for one in reversed(found)),
        Hidden(value=default, origin=DEFAULT),
    )
    value, parts = hides[0].value, {}
    if isinstance(default, dict) and found and all(_is_table(one.value) for one in found):
        value = {name: text for one in found for name, text in one.value.items()}
        parts = {name: one.origin for one in found for name in one.value}
    return Folded(value, hides[0].origin, hides[1:], parts)


def _is_table(value: Any) -> bool:
    """Whether a value is a table of variables rather than a preference among libraries."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


@record(frozen=True)
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
            adaptation = _adaptation(flag, found.value, host) or _beside(flag, found.value, folded)
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
            dormant=dormancy(field.flag, host),
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


REDUCING = "mkldnn.matmul.fp32_precision"
"""The flag by which oneDNN computes PyTorch's products of float32 in fewer bits."""


def _beside(flag: str, value: Any, folded: Mapping[str, Folded]) -> Adaptation | None:
    """How another flag changes a plain value, if it does."""
    if flag == "route.torch.matmul" and value == "float32":
        precision = folded[REDUCING].value
        if precision not in ("none", "ieee"):
            because = f"`{assignment(REDUCING, precision)}` asks for oneDNN's, in fewer bits"
            return Adaptation(requested=value, got="keep", because=because)
    return None


def _adaptation(flag: str, value: Any, host: Host) -> Adaptation | None:
    """How the host changes a plain value, if it does."""
    if flag == "threads.count" and value == "auto":
        return Adaptation(requested=value, got=core_count(host), because=_cores(host))
    if flag == "threads.interop" and value == "auto":
        got = min(INTEROP_THREADS, core_count(host))
        return Adaptation(requested=value, got=got, because="few tasks run side by side")
    if flag == "memory.keep_freed" and value == "auto":
        return _kept(host)
    if flag == "blas.mkl.cbwr" and value.startswith("avx") and host.cpu.vendor != INTEL:
        return Adaptation(
            requested=value,
            got="auto",
            because="MKL knows this branch on Intel's processors only and takes AUTO elsewhere",
        )
    return None


def _kept(host: Host) -> Adaptation:
    """How much freed memory a process keeps where its profile leaves it open."""
    share = (host.memory.limit or host.memory.total) // host.memory.ranks
    part = min(share // PART_OF_MEMORY, MOST_KEPT)
    of = f"an eighth of the {share >> 20} MiB for this process"
    if part < LEAST_KEPT:
        return Adaptation(requested="auto", got=0, because=f"{of} is little: glibc decides")
    limit = ", and no more than mallopt can say" if part == MOST_KEPT else ""
    return Adaptation(requested="auto", got=part, because=f"{of}{limit}")


def core_count(host: Host) -> int:
    """The cores that a process should compute on where its profile leaves the number open."""
    return host.cpu.cores or min(host.cpu.physical, host.cpu.usable)


def _cores(host: Host) -> str:
    count = f"{core_count(host)} of {host.cpu.physical} cores are for this process"
    return f"{count} ({'; '.join(host.cpu.limits)})" if host.cpu.limits else count
