"""A request for a plan, and everything that it rests on: settings, the profile, variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from backendcfg import environ
from backendcfg.load.assignments import from_arguments, from_environment, from_initial
from backendcfg.load.document import SettingsFile, read_settings
from backendcfg.load.inherit import Family, Found, Pick
from backendcfg.load.locations import Locations, locate
from backendcfg.load.trust import require_trust, store
from backendcfg.schema.base import Rank
from backendcfg.schema.layer import Assignment, Layer, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Request:
    """One request for a plan.

    Attributes:
        name: the profile, `a+b`, or a file (`./x.toml`); None for the strongest of
            BACKENDCFG_PROFILE, the project's, the user's and the system's settings.
        rank: the strength of whoever named it. When `name` is None, "default" asks for the
            arguments alone: no settings file and no variable counts; any other is unused.
        arguments: flags set by argument, each a TOML value still: `{"threads.count": "4"}`.
        cwd: where to look for a project; None for this process's working directory.
        use_environment: whether BACKENDCFG_PROFILE, BACKENDCFG_<FLAG> and the variables that give
            PyTorch's switches their first value count.
        environment: where the last are looked up; None for this process's.
    """

    name: str | None = None
    rank: Rank = "profile-by-argument"
    arguments: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    use_environment: bool = True
    environment: Mapping[str, str] | None = None


NO_PROFILE = "default"
RANKS: tuple[Rank, ...] = get_args(Rank)


@dataclass(frozen=True)
class _Source:
    """A settings file with the rank and the name that its layer gets."""

    rank: Rank
    title: str
    path: Path
    file: SettingsFile | None


def load(request: Request) -> Stack:
    """Every layer of a request, weakest first.

    Raises:
        BackendCfgError: a file, a variable or an argument is wrong; nothing else is raised.
    """
    if request.name is None and request.rank == "default":
        arguments = from_arguments(request.arguments)
        return Stack(name=NO_PROFILE, layers=tuple(_layer("argument", "arguments", arguments)))
    locations = locate(request.cwd)
    sources = _settings(locations)
    variables = from_environment() if request.use_environment else ()
    wishes = environ.current() if request.environment is None else request.environment
    initial = from_initial(environ.wishes(wishes)) if request.use_environment else ()
    arguments = from_arguments(request.arguments)
    rank, pick = _picked(request, sources)

    family = Family(locations)
    lineage = family.lineage(pick) if pick else []
    layers: list[Layer] = []
    for at in RANKS:
        if pick and at == rank:
            layers += [_profile_layer(found, at) for found in lineage]
        for source in sources:
            if source.file and source.rank == at:
                layers += _layer(at, source.title, source.file.assignments, str(source.path))
        if at == "environment":
            layers += _layer(at, "PyTorch's variables", initial)
            layers += _layer(at, "environment", variables)
        elif at == "argument":
            layers += _layer(at, "arguments", arguments)
    return Stack(
        name=pick.name if pick else NO_PROFILE,
        layers=tuple(layers),
        files=_files(locations, sources, lineage),
        missing=_missing(locations, sources, family),
    )


def _settings(locations: Locations) -> list[_Source]:
    """The settings files, weakest first; a project's is checked for what it may not set."""
    sources = [
        _source("system-file", "the system's config.toml", locations.system_file),
        _source("user-file", "the user's config.toml", locations.user_file),
    ]
    if locations.project_file:
        project = _source("project-file", locations.project_file.name, locations.project_file)
        if project.file and not locations.is_own(str(locations.project_file)):
            require_trust(project.file.parsed, project.file.assignments)
        sources.append(project)
    return sources


def _source(rank: Rank, title: str, path: Path) -> _Source:
    return _Source(rank, title, path, read_settings(path) if os.path.lexists(path) else None)


def _picked(request: Request, sources: list[_Source]) -> tuple[Rank, Pick | None]:
    """The one profile that is in force, named by the strongest, and the rank it gets."""
    if request.name is not None:
        by_variable = request.rank == "profile-by-environment"
        return request.rank, Pick(request.name, environ.PROFILE.name if by_variable else "")
    if request.use_environment and (name := environ.PROFILE.read()):
        return "profile-by-environment", Pick(name, variable=environ.PROFILE.name)
    for source in reversed(sources):
        if source.file and source.file.profile:
            span = source.file.parsed.span(("profile",))
            return source.rank, Pick(source.file.profile, span=span)
    return "default", None


def _profile_layer(found: Found, rank: Rank) -> Layer:
    file = found.file
    return Layer(
        rank=rank,
        title=f"profile `{found.name}`",
        profile=found.name,
        path=file.parsed.path,
        shipped=file.parsed.shipped,
        description=file.description,
        assignments=file.assignments,
        dropped=file.dropped,
        requires=file.requires,
        whens=file.whens,
    )


def _layer(
    rank: Rank, title: str, assignments: tuple[Assignment, ...], path: str = ""
) -> list[Layer]:
    """The layer of settings, variables or arguments, if there are any."""
    return [Layer(rank=rank, title=title, path=path, assignments=assignments)] * bool(assignments)


def _files(
    locations: Locations, sources: list[_Source], lineage: list[Found]
) -> dict[str, tuple[int, int]]:
    """Every file that the result rests on, with its modification time and size when read."""
    files = dict(locations.seen)
    for source in sources:
        if source.file:
            files[str(source.path)] = source.file.parsed.file.stamp
    for found in lineage:
        files[found.file.parsed.path] = found.file.parsed.file.stamp
    if any(not locations.is_own(path) for path in files) and store().is_file():
        state = store().stat()
        files[str(store())] = (state.st_mtime_ns, state.st_size)
    return files


def _missing(locations: Locations, sources: list[_Source], family: Family) -> tuple[str, ...]:
    """Every place where a file would have changed the result."""
    absent = [*locations.missing, *family.missing]
    absent += [source.path for source in sources if source.file is None]
    return tuple(dict.fromkeys(map(str, absent)))
