"""Read `[requires]` and `[[when]]`: conditions on the host, with their places."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from backendcfg.load.assignments import assignments, invalid, is_refused
from backendcfg.load.complaints import nearest
from backendcfg.schema import describe
from backendcfg.schema.layer import Conditional, Requirement
from backendcfg.schema.profile import Condition, CpuCondition, GpuCondition, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.errors import BackendCfgError
    from backendcfg.load.parsed import Parsed, Path


def requirements(parsed: Parsed, profile: Profile) -> tuple[Requirement, ...]:
    """`[requires]`, cut into what can be met or missed by itself, each with its place.

    The lines about a GPU stay together, because one device must meet them all.
    """
    needs = profile.requires
    found: list[Requirement] = []

    def add(condition: Condition, *path: str | int) -> None:
        place = parsed.place(("requires", *path))
        found.append(Requirement(condition=condition, place=place))

    if needs.gpu is not None and needs.gpu != GpuCondition():
        lines = ("compute_capability", "architecture", "vendor")
        add(
            Condition(gpu=needs.gpu),
            "gpu",
            next(line for line in lines if getattr(needs.gpu, line)),
        )
    if needs.cpu is not None:
        for line, value in needs.cpu.model_dump(exclude_defaults=True).items():
            if line == "features":
                for index, feature in enumerate(value):
                    add(Condition(cpu=CpuCondition(features=(feature,))), "cpu", line, index)
            else:
                add(Condition(cpu=CpuCondition(**{line: value})), "cpu", line)
    if needs.os is not None:
        add(Condition(os=needs.os), "os")
    for name, versions in needs.libraries.items():
        add(Condition(libraries={name: versions}), "libraries", name)
    return tuple(found)


def conditionals(
    parsed: Parsed, refused: frozenset[Path] = frozenset()
) -> tuple[tuple[Conditional, ...], list[BackendCfgError]]:
    """Every `[[when]]` table, and the conflicts inside each."""
    found: list[Conditional] = []
    errors: list[BackendCfgError] = []
    tables = () if ("when",) in refused else parsed.data.get("when", ())
    for index, table in enumerate(tables):
        values: tuple[Any, ...] = ()
        here: Path = ("when", index)
        if here in refused:
            continue
        if "flags" in table:
            values, wrong = assignments(parsed, (*here, "flags"), refused)
            errors += wrong
        if not is_refused(here, refused):
            lines = {name: value for name, value in table.items() if name != "flags"}
            condition = Condition.model_validate_json(json.dumps(lines))
            place = parsed.place(here)
            found.append(Conditional(condition=condition, assignments=values, place=place))
    return tuple(found), errors


def unknown_names(
    parsed: Parsed, refused: frozenset[Path] = frozenset()
) -> Iterator[BackendCfgError]:
    """Version ranges that are none, and microarchitectures that nobody knows.

    Such a condition would never hold, and nobody would notice.
    """
    for path, value in _leaves(parsed.data):
        if is_refused(path, refused) or path[0] not in ("requires", "when"):
            continue
        if path[-1] == "compute_capability" or path[-2] == "libraries":
            if not _is_range(value):
                yield invalid(
                    parsed,
                    path,
                    f"{describe.toml(value)} is not a version range",
                    "not a version range",
                    'write ranges like ">=8.0" or ">=2.5,<3"',
                )
        elif path[-1] == "microarchitecture" and value not in microarchitectures():
            near = nearest(value, microarchitectures())
            yield invalid(
                parsed,
                path,
                f"no CPU microarchitecture is called {describe.toml(value)}",
                f"did you mean {describe.toml(near)}?" if near else "not a name that archspec has",
                f"write `microarchitecture = {describe.toml(near)}`"
                if near
                else "run `backendcfg detect` to see this machine's",
            )


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for part, below in inner:
        if isinstance(below, dict | list):
            yield from _leaves(below, (*path, part))
        else:
            yield (*path, part), below


def _is_range(text: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return True


@cache
def microarchitectures() -> frozenset[str]:
    """Every name that archspec knows."""
    import archspec.cpu

    return frozenset(archspec.cpu.TARGETS)
