"""What the shell's verbs do: make a profile active, go back, and remove what we keep."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg import childprocess, environ, startup
from backendcfg.catalogue.frameworks import NUMPY, ON_DEVICES, SCIPY
from backendcfg.errors import (
    StateUnwritableError,
    TooLateError,
    UnknownProfileError,
    UsageError,
    shown_path,
)
from backendcfg.transact import disk, generations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from backendcfg.schema.base import Rank
    from backendcfg.schema.plan import Plan
    from backendcfg.transact.compiled import Compiled
    from backendcfg.transact.generations import Generation
    from backendcfg.transact.outcome import Report


FRAMEWORKS = (NUMPY.name, f"{SCIPY.name}.linalg", *ON_DEVICES)
"""What a rehearsal imports, where it is installed."""

_REHEARSAL = "from backendcfg.session.shell import rehearsed; rehearsed()"


@dataclass(frozen=True)
class Activation:
    """A profile that was made active.

    Attributes:
        generation: its number.
        path: the project it is active for, "" for the user, `ENVIRONMENT` for the environment.
        plan: what it means here.
        variables: what a process must have in its environment from the start for all of it to
            hold; None for a variable that must be unset. `backendcfg run` sees to it.
        rehearsal: what a child process reported that really applied it, if one was asked for.
        unanswered: probes that failed and may not fail again, in words; every process that starts
            makes the plan anew until all answer.
    """

    generation: int
    path: str
    plan: Plan
    variables: dict[str, str | None]
    rehearsal: Report | None = None
    unanswered: tuple[str, ...] = ()


def activate(
    name: str | None,
    *,
    user: bool = False,
    environment: bool = False,
    arguments: Mapping[str, str] | None = None,
    strict: bool = False,
    check: bool = False,
) -> Activation:
    """Make a profile the active one of this project, of the user, or of this Python environment.

    Processes that start from now on have it; those that run keep what they have.

    Args:
        name: the profile; None takes whoever picks one.
        user: for the user, even inside a project.
        environment: for every user of this Python environment.
        arguments: flags to set beside it, as TOML text.
        strict: refuse when something would not hold in a plain `python` started here.
        check: apply it for real in a child process that imports the installed frameworks.

    Raises:
        RequestError: the profile is wrong.
        MachineError: this machine cannot serve it, or `strict`.
        RolledBackError: the rehearsal failed.
    """
    from backendcfg.session.choice import chosen
    from backendcfg.session.planning import anywhere, resolved

    generations.take_over_old_state()
    root = _project()
    path = _named(user=user, environment=environment) or (None if user else root)
    if name is None and (picked := chosen()) is not None:
        # By its name, so that the plan is what a process gets that must resolve it again.
        name = picked.name
    rank: Rank = "project-file" if path and path != generations.ENVIRONMENT else "user-file"
    # What is active outside of this project must mean the same there.
    outside = os.sep if root and path != root else ""
    try:
        plan, compiled = resolved(anywhere(name), arguments=arguments, rank=rank, directory=outside)
    except UnknownProfileError as error:
        own = os.path.join(root or "", "profiles", f"{name}.toml")
        if outside and os.path.isfile(own):
            error.notes += ("a project's profiles are known by their names in the project only",)
            error.helps = (f"give its file: `{shown_path(own)}`",)
        raise
    rehearsal = rehearse(compiled) if check or strict else None
    if strict and rehearsal is not None:
        _refuse_pending(plan.name, rehearsal)
    number = generations.commit(
        path,
        plan.name,
        dict(arguments or {}),
        plan.model_dump(mode="json", by_alias=True),
        compiled,
        rank=rank,
    )
    failed = tuple(compiled.stamp["unanswered"])
    return Activation(number, path or "", plan, run_environment(compiled), rehearsal, failed)


def run_environment(compiled: Compiled) -> dict[str, str | None]:
    """The variables that a child needs from its start; None for one that must be unset."""
    from backendcfg.bridges.environment import variables

    return variables(compiled.values, compiled.effective, compiled.libraries)


def environment_of_run(compiled: Compiled) -> dict[str, str]:
    """The environment of a process that `backendcfg run` starts under a profile from here."""
    return environ.changed(environ.copy(), run_environment(compiled))


def rehearse(compiled: Compiled) -> Report:
    """Apply a plan for real in a child process that imports the installed frameworks.

    Raises:
        BackendCfgError: the child could not apply it; the record is the child's.
        InternalError: the child died or hung.
    """
    from backendcfg.bridges.environment import before_interpreter
    from backendcfg.session import autoload
    from backendcfg.transact.outcome import Outcome, Report

    environment = {
        name: value for name, value in environ.copy().items() if not name.startswith(environ.PREFIX)
    }
    # Nothing but the plan on standard input may act in the child, which starts with what a plain
    # `python` is started anew for.
    environment[environ.DISABLE.name] = "1"
    if not autoload.silent():
        wanted = before_interpreter(compiled.values, compiled.effective)
        environment = environ.changed(environment, wanted)
    answer = childprocess.ask(
        ["-c", _REHEARSAL],
        environment,
        task=f"the rehearsal of profile `{compiled.name}`",
        remedy="leave out --check to apply without a rehearsal",
        given=compiled.to_json(),
    )
    report = answer["report"]
    return Report(
        **{
            **report,
            "outcomes": tuple(Outcome(**outcome) for outcome in report["outcomes"]),
            "overrides": tuple(report["overrides"]),
        }
    )


def rehearsed() -> None:
    """In the child: apply the plan on standard input, import the frameworks, print a report.

    What is printed is one JSON object, the report or an error.
    """
    import json
    import sys

    from backendcfg.errors import BackendCfgError
    from backendcfg.session import installed
    from backendcfg.session.process import install
    from backendcfg.transact.compiled import Compiled

    compiled = Compiled.from_dict(json.load(sys.stdin))
    try:
        install(compiled, "rehearsal")
        import_frameworks()  # one that cannot be imported has no switches to rehearse
        if (report := installed.report()) is not None:
            sys.stdout.write("\n" + json.dumps({"report": report.to_dict()}) + "\n")
    except BackendCfgError as error:
        sys.stdout.write("\n" + json.dumps({"error": error.to_dict()}) + "\n")


def import_frameworks() -> dict[str, str]:
    """Import every framework that is installed; why one that is cannot be imported, by its name.

    Raises:
        BackendCfgError: a strict profile cannot be given to one.
    """
    import importlib
    from importlib.util import find_spec

    from backendcfg.errors import BackendCfgError
    from backendcfg.transact.outcome import reason

    broken = {}
    for framework in FRAMEWORKS:
        package = framework.partition(".")[0]
        try:
            if find_spec(package) is not None:
                importlib.import_module(framework)
        except BackendCfgError:
            raise
        except Exception as error:
            broken[package] = f"{type(error).__name__}: {reason(error)}"
    return broken


def undo_generation(*, user: bool = False, environment: bool = False) -> Generation | None:
    """Return to the profile that was active before; None when none was.

    Raises:
        NothingToUndoError: there is nothing to go back to.
        StateUnwritableError: the state cannot be written; what was active still is.
    """
    return generations.undo(_scope(user=user, environment=environment))


def off(*, user: bool = False, environment: bool = False) -> int:
    """Make no profile active; the number of the generation that was, 0 for none.

    Raises:
        StateUnwritableError: the state cannot be written.
    """
    try:
        scope = _scope(user=user, environment=environment)
    except StateUnwritableError:  # an index that is damaged, which `generations.off` repairs
        scope = _project()
    return generations.off(scope)


def history(
    *, user: bool = False, environment: bool = False
) -> tuple[Generation | StateUnwritableError, ...]:
    """The generations that are kept, newest first; a damaged one is its error."""
    return generations.history(_scope(user=user, environment=environment))


def current(*, user: bool = False, environment: bool = False) -> Generation | None:
    """The active generation that `apply` here would replace, if there is one."""
    return generations.current(_scope(user=user, environment=environment))


def trust(path: str) -> tuple[str, ...]:
    """Trust the files of a project, or one file, as they are; returns them.

    Plain `python` then obeys the settings file, if that is among them.

    Raises:
        UnreadableFileError: one of them cannot be read, or there is none.
        StateUnwritableError: the record or the state cannot be written.
    """
    from backendcfg.load import trust

    files = [str(file) for file in trust.trust(path)]
    generations.take_over_old_state()
    generations.trust(_folders(files))
    return tuple(files)


def distrust(path: str) -> tuple[str, ...]:
    """Trust the files of a folder, or one file, no longer; returns those that were trusted.

    Raises:
        StateUnwritableError: the record or the state cannot be written.
    """
    from backendcfg.load import trust

    files = trust.revoke(path)
    generations.take_over_old_state()
    generations.distrust(_folders([*files, path]), os.path.realpath(path))
    return files


def _folders(files: Iterable[str]) -> set[str]:
    """Where settings files of projects lie, those of some files that are such."""
    return {
        os.path.realpath(os.path.dirname(file) or os.curdir)
        for file in files
        if os.path.basename(file) in startup.MARKERS
    }


def _named(*, user: bool, environment: bool) -> str | None:
    """The scope that an option names; None without one, and for the user's.

    Raises:
        UsageError: two are named.
    """
    if user and environment:
        raise UsageError("`--user` and `--environment` name two places", helps=["give one of them"])
    return generations.ENVIRONMENT if environment else None


def _project() -> str | None:
    return startup.project(startup.working_directory())[0] or None


def _scope(*, user: bool, environment: bool) -> str | None:
    """Whose generations the verbs without a profile are about: this project's, or the user's.

    In no project, those of a folder that lost the file which made it one, where one is active.
    """
    generations.take_over_old_state()
    if user or environment:
        return _named(user=user, environment=environment)
    if root := _project():
        return root
    here = generations.active(startup.working_directory())
    return here.path if here is not None else None


def _refuse_pending(name: str, report: Report) -> None:
    pending = [outcome for outcome in report.outcomes if outcome.state == "pending"]
    if not pending:
        return
    raise TooLateError(
        f"profile `{name}` would not hold in full in a `python` started from this shell",
        notes=[f"`{outcome.switch}`: {outcome.because}" for outcome in pending],
        helps=[
            f"start programs with `backendcfg run {name} -- python ...`",
            "or leave out --strict: what is pending is then reported, not refused",
        ],
    )


CACHED = ("plans", "calibration", "kernels", "libraries.json", "xla_flags.json")
"""What lies in the cache directory; a test compares it with who writes there."""


@dataclass(frozen=True)
class Kept:
    """A file or directory that backendcfg wrote.

    Attributes:
        kind: "state", "cache", "code", "trust" or "start-up".
        path: where it is.
        files: how many files that is.
        bytes: how large they are together.
    """

    kind: str
    path: str
    files: int
    bytes: int


def kept() -> tuple[Kept, ...]:
    """What is there of the state, the caches, the record of trust and the start-up files."""
    from backendcfg.bridges.torch.compiled import folders
    from backendcfg.load.trust import store
    from backendcfg.session import autoload

    places = [("state", path) for path in _states()]
    cache = environ.cache_directory()
    places += [("cache", os.path.join(cache, name)) for name in CACHED]
    places += [("code", path) for path in folders()]
    places += [("trust", str(path)) for path in (store(), store().with_suffix(".lock"))]
    places += [("start-up", path) for path in (*autoload.off_files(), *autoload.old_files())]
    return tuple(Kept(kind, path, *_size(path)) for kind, path in places if os.path.lexists(path))


def remove(found: Sequence[Kept]) -> None:
    """Remove all of it, and the directories that are empty then.

    Raises:
        StateUnwritableError: something cannot be removed; `state` says what was.
    """
    disk.remove((each.path for each in found), trees=True)
    ours = {os.path.dirname(each.path) for each in found if each.kind != "start-up"}
    for folder in sorted(ours | {_state_base(), environ.cache_directory()}, reverse=True):
        with suppress(OSError):  # somebody else's files are in it, or it is not there
            os.rmdir(folder)


def _state_base() -> str:
    """The directory that has the user's state; "" where there is no home directory."""
    return os.path.dirname(startup.state_directory())


def _states() -> Iterator[str]:
    """What is active for the user, by 0.1.0 too, which kept it by host, and for the environment."""
    base, environment = _state_base(), startup.environment_directory()
    for old in (os.path.join(base, name, "v1") for name in _names(base)):
        if os.path.lexists(os.path.join(old, "active")):  # or it is another program's
            yield old
    yield startup.state_directory()
    if os.access(environment, os.W_OK):
        names = (name for name in _names(environment) if name != startup.OFF)
        yield from (os.path.join(environment, name) for name in names)


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _size(path: str) -> tuple[int, int]:
    if os.path.islink(path) or not os.path.isdir(path):
        return 1, os.lstat(path).st_size
    sizes = []
    for where, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # somebody is at work there
                sizes.append(os.lstat(os.path.join(where, name)).st_size)
    return len(sizes), sum(sizes)
