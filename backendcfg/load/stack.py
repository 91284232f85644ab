"""A request for a plan, and everything that it rests on: settings, the profile, variables.

The profile is found by its name and put in order with everything that it extends.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from backendcfg import environ, startup
from backendcfg.errors import (
    BackendCfgError,
    InheritanceCycleError,
    InvalidValueError,
    InvalidVariableError,
    Span,
    UnknownProfileError,
    shown_path,
)
from backendcfg.load.assignments import from_arguments, from_environment, from_initial
from backendcfg.load.complaints import MOST, nearest, raise_all
from backendcfg.load.document import (
    A_NAME,
    ProfileFile,
    SettingsFile,
    is_name,
    read_profile,
    read_settings,
)
from backendcfg.load.locations import PROJECT, Locations, locate, profile_files
from backendcfg.load.trust import require_ours, require_trust, store
from backendcfg.records import field, record
from backendcfg.schema import describe
from backendcfg.schema.base import Rank
from backendcfg.schema.profile import NO_PROFILE, Assignment, Layer, Stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from backendcfg.load.parsed import Parsed


DEEPEST = 64
"""Profiles in one line of inheritance."""

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@record(frozen=True)
class Pick:
    """A name with whoever wrote it, for the messages about it.

    Attributes:
        name: as written: "fast", "base+tf32-off", "./x.toml".
        variable: the variable that holds it, or "".
        span: the line that holds it, if a file does.
    """

    name: str
    variable: str = ""
    span: Span | None = None

    def parts(self) -> list[str]:
        """The names that are composed; a file's path is never taken apart."""
        return [self.name] if is_path(self.name) else self.name.split("+")


@record(frozen=True)
class Found:
    """A profile with its name."""

    name: str
    file: ProfileFile


@record(frozen=True)
class Family:
    """Reads profiles of one request; remembers what was read and what was not there.

    Attributes:
        locations: where profiles are looked for.
        read: the files that were read, by path.
        missing: files that would have been read, had they been there.
        faults: what is wrong with those that were read.
    """

    locations: Locations
    read: dict[str, ProfileFile] = field(default_factory=dict)
    missing: list[Path] = field(default_factory=list)
    faults: list[BackendCfgError] = field(default_factory=list)

    def lineage(self, pick: Pick) -> list[Found]:
        """The profiles of a pick, weakest first.

        Each `extends` is written out in full, in order; of a profile that is then there more
        than once, the last stands. So a later parent wins with all that it extends.

        Raises:
            UnknownProfileError: a name that no file has.
            InheritanceCycleError: a profile that extends itself.
            UntrustedProjectError: a project's profile sets what only a trusted one may.
            BackendCfgError: what is wrong with one of the files.
            SeveralErrors: more than one of these.
        """
        strongest_first: list[Found] = []
        done: set[str] = set()
        for name in reversed(pick.parts()):
            with self._noting_faults():
                self._visit(self._first(name, pick), [], done, strongest_first)
        # A file that cannot be read and is extended twice is a fault twice.
        faults = list({error.render(): error for error in reversed(self.faults)}.values())
        paths = {span.path for error in faults for span in error.spans[:1]}
        one_file = len(paths) == 1 and all(error.spans for error in faults)
        raise_all(shown_path(paths.pop()) if one_file else f"profile `{pick.name}`", faults)
        return strongest_first[::-1]

    def tier(self, name: str) -> str:
        """The determinism tier that a profile asks for by itself; raises what `lineage` does."""
        tier = "none"
        for found in self.lineage(Pick(name)):
            for one in found.file.assignments:
                if one.flag == "determinism.tier":
                    tier = one.value
        return tier

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        """Go on behind what is wrong with one profile, to find what is wrong with others."""
        try:
            yield
        except BackendCfgError as error:
            self.faults.append(error)

    def _visit(
        self,
        found: Found,
        line: list[tuple[Found, Span]],
        done: set[str],
        strongest_first: list[Found],
    ) -> None:
        path = found.file.parsed.path
        above = [child.file.parsed.path for child, _ in line]
        if path in above:
            raise _cycle(line[above.index(path) :])
        if path in done:
            return
        if len(line) >= DEEPEST:
            raise InvalidValueError(
                f"profile `{line[0][0].name}` extends more than {DEEPEST} others in one line",
                spans=[line[-1][1]],
            )
        done.add(path)
        strongest_first.append(found)
        for name, where in reversed(found.file.extends):
            if len(self.faults) > MOST:
                return
            edge = found.file.parsed.span(where, f"{found.name} extends {name}")
            with self._noting_faults():
                parent = self._parent(found, name, edge)
                self._visit(parent, [*line, (found, edge)], done, strongest_first)

    def _first(self, name: str, pick: Pick) -> Found:
        """A profile that somebody named."""
        if is_path(name):
            base = os.path.dirname(pick.span.path) if pick.span else ""  # the file that names it
            path = os.path.join(self.locations.cwd, base, os.path.expanduser(name))
            return Found(Path(path).stem, self._file(path))
        if not is_name(name):
            raise _not_a_name(name, pick)
        found = self._search(name, self.locations.search())
        if found is None:
            raise self._unknown(name, pick)
        return found

    def _parent(self, child: Found, name: str, edge: Span) -> Found:
        """A profile that another extends; its own name means the next one of that name."""
        search = self.locations.search()
        if name == child.name:
            here = Path(child.file.parsed.path).parent
            search = search[search.index(here) + 1 :] if here in search else search
            if here not in search:
                search = tuple(d for d in search if d / f"{name}.toml" != here / f"{name}.toml")
        found = self._search(name, search)
        if found is not None:
            return found
        if name == child.name:
            raise _cycle([(child, edge)])
        raise self._unknown(name, Pick(name, span=edge), child=child.name)

    def _search(self, name: str, search: tuple[Path, ...]) -> Found | None:
        for directory in search:
            path = directory / f"{name}.toml"
            if os.path.lexists(path):
                return Found(name, self._file(str(path)))
            self.missing.append(path)
        return None

    def _file(self, path: str) -> ProfileFile:
        path = os.path.abspath(path)
        if path not in self.read:
            shipped = Path(path).is_relative_to(self.locations.shipped_dir)
            file = read_profile(path, shipped=shipped, faults=self.faults)
            every = [*file.assignments, *(a for when in file.whens for a in when.assignments)]
            _guard(self.locations, file.parsed, every)
            self.read[path] = file
        return self.read[path]

    def names(self) -> list[str]:
        """Every profile that could be named."""
        return sorted(
            {
                path.stem
                for place in self.locations.search()
                for path in profile_files(place)
                if is_name(path.stem)
            }
        )

    def _unknown(self, name: str, pick: Pick, child: str = "") -> UnknownProfileError:
        names = self.names()
        near = nearest(name, names)
        paths = [shown_path(str(place)) for place in self.locations.search()[:-1]]
        searched = [path if os.sep in path else f"./{path}" for path in paths]
        where = ", ".join([*searched, "and the profiles installed with backendcfg"])
        listed = describe.listed([f"`{n}`" for n in names], page="`backendcfg list`")
        helps = [f"did you mean `{near}`?"] if near else ["run `backendcfg list` to see them all"]
        if pick.variable:
            message = (
                f"environment variable {pick.variable} names profile `{name}`, which does not exist"
            )
            fixed = "+".join(near if part == name else part for part in pick.parts())
            helps.append(
                f"run `export {pick.variable}={fixed}`, or unset the variable"
                if near
                else f"run `unset {pick.variable}`"
            )
        elif child:
            message = f"profile `{child}` extends `{name}`, which does not exist"
        elif pick.span:
            message = f"{shown_path(pick.span.path)} picks profile `{name}`, which does not exist"
        else:
            message = f"profile `{name}` does not exist"
        notes = []
        if is_name(name) and (self.locations.cwd / f"{name}.toml").is_file():
            helps.insert(0, f"write `./{name}.toml` for the file that is here")
        if folder := self._beside(name):
            why, cure = self._not_searched(folder, name)
            path = shown_path(str(folder / "profiles" / f"{name}.toml"))
            notes.append(f"{path} is there, and is not searched: {why}")
            helps.insert(0, cure)
        return UnknownProfileError(
            message,
            spans=[_relabelled(pick.span, "no profile has this name")] if pick.span else [],
            notes=[
                *notes,
                f"searched, in order: {where}",
                f"profiles found: {listed or 'none'}",
            ],
            state="no profile was applied; a wrong name never falls back to a default",
            helps=helps,
        )

    def _not_searched(self, folder: Path, name: str) -> tuple[str, str]:
        """Why a folder with profiles is not this project's, and what to do."""
        if (root := self.locations.project_root) is not None:
            return f"the project here is {shown_path(str(root))}", "give the file's path"
        path, theirs = startup.project_of_another(str(folder))
        if os.path.dirname(path) == str(folder):
            why = f"{shown_path(theirs)} is another user's"
            return why, "run as that user, or give the file's path"
        there = "" if folder == self.locations.cwd else f" in {folder}"
        cure = f"run `backendcfg init {name}`{there}, which writes it"
        return f"{shown_path(str(folder / PROJECT))} is missing", cure

    def _beside(self, name: str) -> Path | None:
        """A folder that has such a profile and is no project."""
        searched = self.locations.search()
        for folder in (self.locations.cwd, *self.locations.cwd.parents):
            place = folder / "profiles"
            if place not in searched and is_name(name) and (place / f"{name}.toml").is_file():
                return folder
        return None


def is_path(name: str) -> bool:
    """Whether a name given as an argument is a file's path."""
    return "/" in name or name.endswith(".toml")


def _relabelled(span: Span, label: str) -> Span:
    return Span(span.path, span.line, span.column, span.length, span.source, label)


def _not_a_name(name: str, pick: Pick) -> BackendCfgError:
    complaint = InvalidVariableError if pick.variable else InvalidValueError
    message = f"{describe.toml(name)} is not the name of a profile"
    if pick.variable:
        named = f"environment variable {pick.variable} names profile {describe.toml(name)}"
        message = f"{named}, which is not the name of a profile"
    helps = [A_NAME, "`a+b` composes two profiles, and a path has a `/`"]
    if name == environ.NOTHING:
        helps = ["to start a program without a profile, set BACKENDCFG_PROFILE=nothing for it"]
    return complaint(
        message,
        state="no profile was applied; a wrong name never falls back to a default",
        helps=helps,
    )


def _cycle(edges: list[tuple[Found, Span]]) -> InheritanceCycleError:
    """A cycle with every edge; the last one closes it."""
    names = [found.name for found, _ in edges]
    chain = " -> ".join([*names, names[0]])
    spans = [edge for _, edge in edges]
    spans[-1] = _relabelled(spans[-1], f"{names[-1]} extends {names[0]}, which closes the cycle")
    if len(edges) == 1:
        helps = [f"remove the `extends` line; no other profile `{names[0]}` is further along"]
        spans[-1] = _relabelled(spans[-1], f"{names[0]} extends itself")
    else:
        count = NUMBERS[len(edges)] if len(edges) < len(NUMBERS) else str(len(edges))
        helps = [f"remove one of the {count} `extends` lines; `{names[-1]}` is usually the root"]
    return InheritanceCycleError(
        f"profile `{names[0]}` extends itself: {chain}", spans=spans, helps=helps
    )


@record(frozen=True)
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


RANKS: tuple[Rank, ...] = get_args(Rank)


@record(frozen=True)
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
    wishes = environ.copy() if request.environment is None else request.environment
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
        sources.append(_source("project-file", locations.project_file.name, locations.project_file))
    for source in sources:
        if source.file:
            _guard(locations, source.file.parsed, source.file.assignments)
    return sources


def _source(rank: Rank, title: str, path: Path) -> _Source:
    return _Source(rank, title, path, read_settings(path) if _counts(path) else None)


def _counts(path: Path) -> bool:
    """Whether a settings file is there, or may be in a folder of the system's that is closed."""
    return os.path.lexists(path) or startup.picks(str(path))


def _guard(locations: Locations, parsed: Parsed, assignments: Iterable[Assignment]) -> None:
    """Refuse a project's file that sets what needs trust, and settings that others may write."""
    if not locations.is_own(parsed.path):
        require_trust(parsed, assignments)
    elif not parsed.shipped:
        require_ours(parsed.path)


def _picked(request: Request, sources: list[_Source]) -> tuple[Rank, Pick | None]:
    """The one profile that is in force, named by the strongest, and the rank it gets."""
    if request.name is not None:
        by_variable = request.rank == "profile-by-environment"
        return request.rank, Pick(request.name, environ.PROFILE.name if by_variable else "")
    if request.use_environment and (name := environ.PROFILE.read()):
        if name == environ.NOTHING:
            return "default", None
        return "profile-by-environment", Pick(name, variable=environ.PROFILE.name)
    for source in reversed(sources):
        if source.file and source.file.profile:
            if source.file.profile == environ.NOTHING:
                return "default", None
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
    if any(not locations.is_own(path) for path in files):
        # Where the record of trust cannot be read and a flag needs it, `is_trusted` says so.
        with suppress(OSError):
            state = os.stat(store())
            files[str(store())] = (state.st_mtime_ns, state.st_size)
    return files


def _missing(locations: Locations, sources: list[_Source], family: Family) -> tuple[str, ...]:
    """Every place where a file would have changed the result."""
    absent = [*locations.missing, *family.missing]
    absent += [source.path for source in sources if source.file is None]
    return tuple(dict.fromkeys(map(str, absent)))
