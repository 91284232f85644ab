"""Which profile is in force for a process that starts here, and why.

The strongest that there is, of

    argument                       a name that was given
    BACKENDCFG_INHERIT             for a verb: what the program that started it applied
    BACKENDCFG_PROFILE
    applied for the project        `backendcfg apply`
    the project's settings file    `profile = "team"` in backendcfg.toml, or in [tool.backendcfg]
    applied for the user           `backendcfg apply --user`, or outside any project
    the user's settings            config.toml
    applied for the environment    `backendcfg apply --environment`
    the system's settings          /etc/backendcfg/config.toml

Who picks `nothing` has no profile, whatever weaker ones pick. What is applied for a folder above
the project's is weaker than what the project's file picks. Every verb, `import backendcfg` and
pytest ask `chosen`; the start-up file first asks `startup.may_have_profile`, which tells without
importing anything whether there may be an answer.
"""

from __future__ import annotations

import os
import sys

from backendcfg import environ, startup
from backendcfg.records import field, record, replace
from backendcfg.transact import generations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from backendcfg.schema.base import Rank
    from backendcfg.transact.compiled import Asked, Compiled
    from backendcfg.transact.generations import Generation

PARENT = "the parent process"
"""Who picked what a parent handed on."""


@record(frozen=True)
class Picked:
    """Who picked which profile.

    Attributes:
        name: the profile, or None for flags set by variables alone.
        rank: how strong the pick is.
        source: who picked it, in words: "generation 3 of the user".
        where: the project, environment or settings file that it is picked for or by, "" for none.
        arguments: flags that were set beside it, as TOML text.
        stored: the compiled plan of the generation, if there is one; it may be stale.
        generation: its number, 0 when there is none.
        by_file: whether a settings file picks it.
        asked: for what a parent handed on, its request, which may be from another folder.
        overrides: the weaker picks, strongest first, where they were asked for.
    """

    name: str | None
    rank: Rank
    source: str
    where: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    stored: Compiled | None = None
    generation: int = 0
    by_file: bool = False
    asked: Asked | None = None
    overrides: tuple[Picked, ...] = ()

    @property
    def request(self) -> str | None:
        """The name to resolve: None where the loader finds it, with its place, in the same file."""
        return None if self.by_file else self.name


def chosen(
    name: str | None = None, arguments: Mapping[str, str] | None = None, *, whole: bool = False
) -> Picked | None:
    """The profile in force for a process that starts here, or None.

    Args:
        name: the profile, where one is named.
        arguments: flags to set over it, as TOML text.
        whole: whether to look for what it overrides.

    Raises:
        StateUnwritableError: the state directory holds what cannot be read.
        RequestError: a settings file is wrong.
    """
    if name is None and environ.disabled():
        return None
    picks = _picks(name)
    first = next(picks, None)
    if first is None:
        return None
    return replace(
        first,
        arguments={**first.arguments, **(arguments or {})},
        stored=None if arguments else first.stored,
        overrides=tuple(one for one in picks if one.name) if whole else (),
    )


def declined() -> Picked | None:
    """Who picks `nothing` here, so that no weaker pick counts; None where nobody does.

    Raises:
        StateUnwritableError, RequestError: as `chosen`.
    """
    first = next(_named(), None)
    return first if first is not None and first.name == environ.NOTHING else None


def inherited() -> list[Asked]:
    """What the process that started this one had in force and hands on by BACKENDCFG_INHERIT.

    Raises:
        InvalidValueError: backendcfg did not write what the variable holds.
    """
    text = environ.INHERIT.read()
    if text is None:
        return []
    import json

    from backendcfg.transact.compiled import Asked

    try:
        data = json.loads(text)
        over, requests = data["over"], [Asked(**request) for request in data["requests"]]
    except (ValueError, TypeError, KeyError) as error:
        from backendcfg.errors import InvalidValueError

        raise InvalidValueError(
            f"{environ.INHERIT.name} does not hold what backendcfg puts there",
            helps=[f"run `unset {environ.INHERIT.name}`"],
        ) from error
    return requests if over == (environ.PROFILE.read() or "") else []


def _picks(name: str | None) -> Iterator[Picked]:
    """Every pick that counts here, strongest first."""
    if name is not None:
        yield Picked(name, "profile-by-argument", "")
    for pick in _named():
        if pick.name == environ.NOTHING:
            break
        yield pick
    ours = {variable.name for variable in environ.VARIABLES}
    if any(
        text and name.startswith(environ.PREFIX) and name not in ours
        for name, text in environ.copy().items()
    ):
        yield Picked(None, "environment", "environment variables")


def _named() -> Iterator[Picked]:
    """Every pick of a name that nobody gave as an argument, strongest first."""
    # In a program the variable may be its own, for what it starts.
    if startup.is_command_line(sys.orig_argv) and (requests := inherited()):
        last = requests[-1]  # of the innermost scope, which is in force
        rank: Any = last.rank
        yield Picked(last.name, rank, PARENT, arguments=last.arguments, asked=last)
    if variable := environ.PROFILE.read():
        yield Picked(variable, "profile-by-environment", environ.PROFILE.name)
    here = startup.working_directory()
    root, file = startup.project(here)
    applied = generations.active(here)
    if applied is not None and startup.is_within(applied.path, root):
        yield _applied(applied)
        applied = None
    if file:
        yield from _by_file(file, "project-file")
    if applied is not None:
        yield _applied(applied)
    if startup.state_directory() and (user := generations.current(None)) is not None:
        yield _applied(user)
    yield from _by_file(os.path.join(startup.user_directory(), "config.toml"), "user-file")
    if (environment := generations.current(generations.ENVIRONMENT)) is not None:
        yield _applied(environment)
    yield from _by_file(os.path.join(startup.system_directory(), "config.toml"), "system-file")


def _applied(generation: Generation) -> Picked:
    shared = generation.path in ("", generations.ENVIRONMENT)
    whose = generations.whose(generation.path)
    return Picked(
        generation.name,
        # Flags in the user's settings win over what is applied for the user or the environment.
        "user-file" if shared else "project-file",
        f"generation {generation.number} of {whose}",
        whose,
        generation.arguments,
        generation.compiled,
        generation.number,
    )


def _by_file(path: str, rank: Rank) -> Iterator[Picked]:
    """What a settings file picks, if it is there and picks something."""
    if not startup.picks(path):
        return
    import tomllib

    from backendcfg.load.text import has_long_key, has_too_many_keys

    try:
        content = startup.read(path)
        if content is None:
            raise ValueError
        text = content.decode()
        if has_long_key(text) or has_too_many_keys(text):
            raise ValueError
        settings: Any = tomllib.loads(text)
    except (ValueError, RecursionError):
        from backendcfg.load.document import read_settings

        read_settings(path)  # says what is wrong with it
        return
    for table in ("tool", "backendcfg") if os.path.basename(path) == startup.MARKERS[1] else ():
        settings = settings.get(table) if isinstance(settings, dict) else None
    picked = settings.get("profile") if isinstance(settings, dict) else None
    if isinstance(picked, str) and picked:
        yield Picked(picked, rank, path, path, by_file=True)
    elif isinstance(settings, dict) and any(str(key).startswith("prof") for key in settings):
        from backendcfg.load.document import read_settings

        read_settings(path)  # says that the key is another


def settings_alone() -> tuple[str, ...]:
    """The settings files with flags, where no profile is in force: no process starts with these.

    Raises:
        BackendCfgError: one cannot be read, or is wrong.
    """
    from backendcfg.load.document import read_settings

    project = startup.project(startup.working_directory())[1]
    others = (startup.user_directory(), startup.system_directory())
    paths = (project, *(os.path.join(folder, "config.toml") for folder in others))
    return tuple(
        path for path in paths if path and os.path.lexists(path) and read_settings(path).assignments
    )


def rests_on_these_files(stamp: Mapping[str, Any], here: str = "") -> bool:
    """Whether a plan was made with the settings files that count in a folder (this one).

    The user's profile is in force in every folder, and each project adds its own settings to it.
    A project's file that nobody changed stops counting when its folder gets another owner or mode.
    """
    _, file = startup.project(here or startup.working_directory())
    files = [environ.as_path(text) for text in stamp.get("files", ())]
    markers = set(filter(_made_a_project, files))
    if markers != ({file} if file else set()):
        return False
    own = os.path.join(startup.user_directory(), "config.toml")
    return own in files or not os.path.lexists(own)


def _made_a_project(path: str) -> bool:
    """Whether a file was that of a project when a plan was made with it."""
    folder, name = os.path.split(path)
    if name == startup.MARKERS[0]:
        return os.path.basename(folder) != "profiles"  # else it is a profile of that name
    return name in startup.MARKERS and startup.marker(folder) == path
