"""From (profile, host) to a plan. Pure: opens nothing, reads no variable, calls no library.

`examine` says everything that can be said of a profile on a host; `resolve` and `why_not` both read
it. It collects what is wrong and raises nothing, so that a refusal and its explanation cannot tell
different stories.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from backendcfg.catalogue import cpu
from backendcfg.catalogue.variables import contradictions
from backendcfg.errors import (
    ConflictingFlagsError,
    MissingLibraryError,
    SeveralErrors,
    Span,
    TierNotKeptError,
    UnsupportedHardwareError,
    shown_path,
)
from backendcfg.records import record
from backendcfg.resolve import facts, libraries, tiers
from backendcfg.resolve.conflicts import CONFLICTS, clashes
from backendcfg.resolve.facts import gpu_notes
from backendcfg.resolve.ground import ENVIRONMENT, Ground, adapt, fold
from backendcfg.resolve.tiers import TIER, unkept
from backendcfg.resolve.words import (
    assignment,
    assignment_span,
    literal,
    quoted,
    set_at,
    value_span,
)
from backendcfg.schema.plan import Plan
from backendcfg.schema.profile import NO_PROFILE
from backendcfg.schema.torch_backends import INITIALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from backendcfg.errors import BackendCfgError
    from backendcfg.resolve.conflicts import Clash
    from backendcfg.resolve.ground import Adapted, Subject
    from backendcfg.resolve.tiers import Kept
    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Check, Choice, Entry
    from backendcfg.schema.profile import Stack


@record(frozen=True)
class Examination:
    """A profile on a host.

    Attributes:
        name: the profile, as it was asked for.
        ground: the host and every flag as it would be applied.
        choices: how each library was chosen.
        requires: what `requires` tables and pinned kernels need.
        conditions: what `[[when]]` tables looked at; one that does not hold is no fault.
        tier: what the tier needs, and what was found.
        clashes: values that cannot both hold.
        refusals: why the profile does not resolve, the most fundamental reason first; empty when
            it does.
    """

    name: str
    ground: Ground
    choices: tuple[Choice, ...]
    requires: tuple[Check, ...]
    conditions: tuple[Check, ...]
    tier: tuple[Kept, ...]
    clashes: tuple[Clash, ...]
    refusals: tuple[BackendCfgError, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every flag, in schema order."""
        return tuple(self.ground.entries.values())

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every requirement and condition that was looked at."""
        return (*self.requires, *self.conditions, *(kept.check for kept in self.tier))


def examine(stack: Stack, host: Host) -> Examination:
    """Look at a profile on a host from every side.

    Args:
        stack: the layers.
        host: the machine.
    """
    folded, whens = fold(stack, host)
    adapted = adapt(folded, host)
    ground = Ground(
        host,
        adapted.entries,
        adapted.required,
        adapted.libraries,
        folded[ENVIRONMENT].parts,
    )
    requires = (*_requires(stack, host), *libraries.pinned(adapted.entries, host.cpu))
    kept = tiers.examine(ground.value(tiers.TIER), ground)
    clashed = tuple(clashes(CONFLICTS, ground))
    found: list[BackendCfgError] = []
    hardware = unsupported_hardware(stack.name, requires, host)
    found += [hardware] if hardware else []
    found += libraries.misnamed(adapted.entries)
    found += [conflicting_flags(clash, stack) for clash in clashed]
    found += _missing(stack, adapted, host)
    entry = ground.entries[tiers.TIER]
    broken = tier_not_kept(stack.name, entry, kept, tiers.kept(ground))
    found += [broken] if broken else []
    return Examination(
        stack.name, ground, adapted.choices, requires, whens, kept, clashed, tuple(found)
    )


def _requires(stack: Stack, host: Host) -> Iterator[Check]:
    for layer in stack.layers:
        for requirement in layer.requires:
            because = f"`requires` in {layer.title}"
            yield from facts.check(requirement.condition, host, because, requirement.place)


def _missing(stack: Stack, adapted: Adapted, host: Host) -> Iterator[BackendCfgError]:
    for choice in adapted.choices:
        if not choice.order:
            entry = adapted.entries[choice.flag]
            library = adapted.required.get(choice.flag, "")
            yield missing_library(stack.name, entry, choice, library, host)


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


def resolve(stack: Stack, host: Host) -> Plan:
    """What a profile means on a host: every flag with its value, its origin and its adaptation.

    The same layers and the same host give the same plan, anywhere.

    Args:
        stack: the layers, weakest first.
        host: the machine, detected here or captured elsewhere.

    Raises:
        UnsupportedHardwareError: a requirement is not met.
        ConflictingFlagsError: two values cannot both hold; SeveralErrors when more than one
            pair does.
        InvalidValueError: a kernel set is named that does not exist.
        MissingLibraryError: a required library is not usable.
        TierNotKeptError: the flags do not keep the tier here.
    """
    found = examine(stack, host)
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


def unsupported_hardware(
    name: str, checks: Iterable[Check], host: Host
) -> UnsupportedHardwareError | None:
    """The error for requirements that the host does not meet, or None when it meets all."""
    unmet = [check for check in checks if not check.met]
    if not unmet:
        return None
    first = unmet[0]
    spans = [span for check in unmet if (span := value_span(check.place, "required here"))]
    about_gpus = any("GPU" in check.need or "CUDA" in check.need for check in unmet)
    return UnsupportedHardwareError(
        f"profile `{name}` needs {first.need}; {first.found}",
        spans=list(dict.fromkeys(spans)),
        notes=[
            *(f"it also needs {check.need}; {check.found}" for check in unmet[1:]),
            *(gpu_notes(host) if about_gpus else []),
        ],
        helps=[_why_not(name)],
    )


def missing_library(
    name: str, entry: Entry, choice: Choice, library: str, host: Host
) -> MissingLibraryError:
    """The error for a required library that is not usable, or for a choice that forbids all."""
    span = value_span(entry.origin.place, "required here" if library else "nothing is left")
    who = f"profile `{name}`" if entry.origin.place.path else set_at(entry.origin)
    return MissingLibraryError(
        f"cannot load {libraries.title(library)}, which {who} requires"
        if library
        else f"no library is left for `{entry.flag}` after what {who} forbids",
        spans=[span] if span else [],
        notes=[
            f"tried {_first_file(one.candidate, host)}: {reason}"
            for one in choice.rejected
            if library in ("", one.candidate)
            for reason in one.reasons
        ],
        helps=[*_cures(library, entry.flag, host), _why_not(name)],
    )


def _first_file(library: str, host: Host) -> str:
    """The file that was tried, or the name when there is none."""
    found = libraries.files(library, host)
    return found[0].path if found else library


def _cures(library: str, flag: str, host: Host) -> Iterator[str]:
    table, _, key = flag.rpartition(".")
    if not library:
        yield f"remove a name from `forbid` in `{key}` under `[{table}]`"
        return
    known = cpu.BY_NAME.get(library)
    if known is not None and known.install and not libraries.files(library, host):
        yield known.install
    yield (
        f"to allow another library, write `{key} = {literal({'prefer': [library]})}` "
        f"under `[{table}]`"
    )


def conflicting_flags(clash: Clash, stack: Stack) -> ConflictingFlagsError:
    """Both sides of a conflict, the weaker one first."""
    sides = sorted((clash.left, clash.right), key=lambda side: _strength(side, stack))
    spans = [
        span
        for side in sides
        if side.asked and (span := assignment_span(side.origin.place, _label(side, sides, stack)))
    ]
    where = f"in {shown_path(spans[-1].path)}, " if spans else ""
    stated = [
        f"`{side.name}` is at its default; nobody set it"
        if not side.asked
        else f"`{assignment(side.name, side.value)}` is set by {set_at(side.origin)}"
        for side in sides
        if not (side.asked and side.origin.place.path)
    ]
    left, right = clash.left, clash.right
    return ConflictingFlagsError(
        f"`{assignment(left.name, left.value)}` and `{assignment(right.name, right.value)}`"
        f"{_by_default(left, right)} cannot both hold",
        spans=list(dict.fromkeys(spans)),
        notes=[*stated, clash.conflict.note],
        helps=[f"{where}{clash.conflict.cure}"],
    )


def _by_default(left: Subject, right: Subject) -> str:
    if left.asked and right.asked:
        return ""
    return " (the default)" if left.asked else " (the first is the default)"


def _strength(side: Subject, stack: Stack) -> tuple[int, str, int]:
    """Where a side stands: by layer, then by line."""
    titles = [layer.title for layer in stack.layers]
    title = side.origin.title
    layer = len(titles) - 1 - titles[::-1].index(title) if title in titles else -1
    return layer, side.origin.place.path or "", side.origin.place.line


def _label(side: Subject, sides: Sequence[Subject], stack: Stack) -> str:
    """`set in `fast`, which extends `base``; said only where it is certain."""
    title = side.origin.title.removeprefix("profile ")
    other = sides[0].origin.title.removeprefix("profile ")
    chain = {f"`{layer.profile}`" for layer in stack.layers if layer.profile}
    top = f"`{stack.name}`"
    if side is sides[-1] and title == top and other != title and other in chain:
        return f"set in {title}, which extends {other}"
    return f"set in {title}"


def tier_not_kept(
    name: str, entry: Entry, found: Iterable[Kept], alternatives: Sequence[str]
) -> TierNotKeptError | None:
    """The error for a tier that is not kept, with each unmet line, or None."""
    unmet = [one for one in found if not one.check.met]
    if not unmet:
        return None
    place = value_span(entry.origin.place, "set here")
    spans = [place] if place else []
    spans += [
        span
        for one in unmet
        if one.origin is not None
        and (span := value_span(one.origin.place, f"must be {one.requirement.wanted}"))
    ]
    kept = [tier for tier in alternatives if tier != entry.value]
    count = "1 requirement is" if len(unmet) == 1 else f"{len(unmet)} requirements are"
    return TierNotKeptError(
        f"profile `{name}` cannot keep its tier `{entry.value}` on this machine: {count} unmet",
        spans=_distinct(spans),
        notes=[_line(one) for one in unmet],
        helps=[
            *dict.fromkeys(one.requirement.cure for one in unmet),
            f"what the flags do keep here: {quoted(kept)}; set one of these as `{TIER}`"
            if kept
            else f"set `{assignment(TIER, 'none')}` to guarantee nothing",
            _why_not(name),
        ],
    )


def _distinct(spans: Iterable[Span]) -> list[Span]:
    """One span per place; the first label wins."""
    return list(
        {(span.path, span.line, span.column): span for span in reversed(list(spans))}.values()
    )[::-1]


def _line(one: Kept) -> str:
    """What must be, what is, where it is set, and what breaks otherwise."""
    place = f" ({one.origin.place})" if one.origin and one.origin.place.path else ""
    if not one.requirement.flag:
        return f"it needs {one.check.need}; {one.check.found}: {one.requirement.why}"
    return f"{one.check.need}, and is {one.check.found}{place}: {one.requirement.why}"


def _why_not(name: str) -> str:
    if name == NO_PROFILE:
        return (
            "run `backendcfg plan --why-not`, with the same settings as `--set`, to list them all"
        )
    return f"run `backendcfg plan {name} --why-not` to list every unmet requirement"
