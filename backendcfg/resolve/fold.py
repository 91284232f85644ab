"""Folding layers, weakest first, into one value per flag that remembers what it won over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.resolve import conditions
from backendcfg.schema.plan import Check, Hidden, Origin
from backendcfg.schema.profile import defaults, flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Assignment, Dropped, Layer, Stack

DEFAULT = Origin(rank="default", title="default")


@dataclass(frozen=True)
class Written:
    """One value that one layer gives a flag."""

    value: Any
    origin: Origin
    profile: str


@dataclass(frozen=True)
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
            checks = conditions.check(when.condition, host, because, when.place)
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
    names = {dropped.flag}
    if (spelling := flags().get(dropped.flag)) is not None:
        names.update(flag for spelled in spelling.flag.spells.values() for flag in spelled)
    for flag, found in written.items():
        if any(flag == name or flag.startswith(f"{name}.") for name in names):
            found[:] = [one for one in found if not one.profile]
    table, _, variable = dropped.flag.partition(".")
    if table == "environment" and variable:
        written[table][:] = [_without(one, variable) for one in written[table]]


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
