"""The errors of a profile that does not resolve, composed from what the rules found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.catalogue import cpu
from backendcfg.errors import (
    ConflictingFlagsError,
    MissingLibraryError,
    Span,
    TierNotKeptError,
    UnsupportedHardwareError,
    shown_path,
)
from backendcfg.resolve import libraries
from backendcfg.resolve.conditions import gpu_notes
from backendcfg.resolve.tiers import TIER
from backendcfg.resolve.words import (
    assignment,
    assignment_span,
    literal,
    quoted,
    set_at,
    value_span,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from backendcfg.resolve.conflicts import Clash
    from backendcfg.resolve.ground import Subject
    from backendcfg.resolve.tiers import Kept
    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack
    from backendcfg.schema.plan import Check, Choice, Entry

_MOST_NAMES = 8


def unsupported_hardware(
    name: str, checks: Iterable[Check], host: Host, fitting: Sequence[str]
) -> UnsupportedHardwareError | None:
    """The error for requirements that the host does not meet, or None when it meets all."""
    unmet = [check for check in checks if not check.met]
    if not unmet:
        return None
    first = unmet[0]
    spans = [span for check in unmet if (span := value_span(check.place, "required here"))]
    about_gpus = any("GPU" in check.need or "CUDA" in check.need for check in unmet)
    helps = []
    if fitting:
        more = len(fitting) - _MOST_NAMES
        names = quoted(fitting[:_MOST_NAMES])
        tail = f", and {more} more, see `backendcfg list`" if more > 0 else ""
        helps.append(f"profiles that fit this machine: {names}{tail}")
    return UnsupportedHardwareError(
        f"profile `{name}` needs {first.need}; {first.found}",
        spans=list(dict.fromkeys(spans)),
        notes=[
            *(f"it also needs {check.need}; {check.found}" for check in unmet[1:]),
            *(gpu_notes(host) if about_gpus else []),
        ],
        helps=[*helps, _why_not(name)],
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
    return f"run `backendcfg plan {name} --why-not` to list every unmet requirement"
