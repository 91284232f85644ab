"""`backendcfg run PROFILE -- CMD`: become a command that starts under a profile."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import Verb, verb
from backendcfg.cli.options import (
    ProfileName,
    chosen_launch,
    launch,
    launch_options,
    set_option,
)
from backendcfg.cli.output import current
from backendcfg.errors import UnknownProfileError, UsageError, shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.shell_completion import CompletionItem

    from backendcfg.cli.child import Strictness
    from backendcfg.cli.locking import OnDrift

GUARD = "--guard"

_GUARDED = "guarded is what the program does by itself"
_SAVED = "saved is what ranks compute with by themselves"


class RunVerb(Verb):
    """Takes the line apart: `run [OPTIONS] [PROFILE] [OPTIONS] [--] COMMAND...`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember the profile, and whether `--` stood before the command, in `ctx.meta`."""
        given = self._with_values(args)
        rest = super().parse_args(ctx, list(given))
        words = ctx.params["words"]
        separated = _before(given, words) == "--"
        profile = None
        if not separated and len(words) > 1 and words[1].startswith("-") and words[1] != "--":
            # No command starts with a dash: options of ours stand after the profile.
            start = len(given) - len(words)
            profile, given = words[0], self._with_values([*given[:start], *words[1:]])
            ctx.params.clear()  # what was parsed already would win over what is parsed now
            try:
                rest = super().parse_args(ctx, list(given))
            except click.NoSuchOption as error:
                raise _misplaced(error.option_name, words) from error
            separated = _before(given, ctx.params["words"]) == "--"
        ctx.meta.update(profile=profile, separated=separated)
        return rest

    def _with_values(self, args: list[str]) -> list[str]:
        """The same with `--guard=report` for `--guard`: click would take the next word for it."""
        valued = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not (option.is_flag or option.count)
            for name in option.opts
        }
        given, position = list(args), 0
        while position < len(given) and given[position].startswith("-") and given[position] != "--":
            if given[position] == GUARD:
                given[position] = f"{GUARD}=report"
            position += 2 if given[position] in valued else 1
        return given


def _misplaced(option: str, words: tuple[str, ...]) -> UsageError:
    """The error for `run python -c ...`: an option of the command was taken for one of ours."""
    return UsageError(
        f"unknown option `{option}` of `backendcfg run`",
        helps=[
            f"if it belongs to the command, write `backendcfg run -- {shlex.join(words)}`",
            "run `backendcfg run --help` for what it accepts",
        ],
    )


def _before(given: list[str], words: tuple[str, ...]) -> str:
    """The word before the trailing ones, or ""; click's parser drops a `--` there."""
    position = len(given) - len(words) - 1
    return given[position] if position >= 0 else ""


class Words(ProfileName):
    """The first word may be a profile; the others are the command's."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if ctx.params.get("words"):
            return [CompletionItem(incomplete, type="file")]
        return super().shell_complete(ctx, param, incomplete)


@verb(
    "run",
    "Use",
    cls=RunVerb,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@set_option
@launch_options
@click.option(
    GUARD,
    type=click.Choice(["report", "error"]),
    metavar="[=error]",
    help="Say at the end which switches the program changed, where, and what it drew without a"
    " seed; =error exits with 1 when it changed a switch.",
)
@click.option(
    "--locked",
    metavar="FILE",
    type=click.Path(),
    help="Start it only where all is as in this lock of a proven run; PROFILE is the lock's.",
)
@click.option(
    "--drift",
    type=click.Choice(["error", "warn"]),
    help="What to do where something is not as locked: refuse, or say so and start it.",
)
@click.option(
    "--fleet",
    metavar="FILE",
    type=click.Path(),
    help="Start it as this plan of `fleet plan` has it, or refuse; PROFILE is the plan's.",
)
@click.option(
    "--save-ranks",
    metavar="DIR",
    type=click.Path(),
    help="Each rank saves in DIR, when it ends, what it computed with; see `fleet report`.",
)
@click.argument("words", metavar="[PROFILE] [--] COMMAND...", nargs=-1, type=Words())
@click.pass_context
def command(
    ctx: click.Context,
    /,
    settings: Mapping[str, str],
    words: tuple[str, ...],
    *,
    guard: Strictness | None,
    locked: str | None,
    drift: OnDrift | None,
    fleet: str | None,
    save_ranks: str | None,
    **launching: Any,
) -> None:
    """Start a command under a profile, once or on cores of its own.

    Sets what must be set before a process starts; Python in it applies the rest as soon as it
    starts, whether or not it imports backendcfg. Without PROFILE it is the one in force here.
    """
    from backendcfg import environ
    from backendcfg.cli import child
    from backendcfg.cli.locking import as_planned, fleet_plan, lock_for
    from backendcfg.probe.launchers import half_named

    if locked is not None and fleet is not None:
        raise UsageError(
            "`--locked` and `--fleet` each say what is to be here",
            helps=["give one of them"],
        )
    options = chosen_launch(launching)
    name, argv = split(words, ctx.meta["profile"], separated=ctx.meta["separated"])
    lock = lock_for(locked, drift)
    if lock is not None:
        name = lock.name_or(name)
    planned = fleet_plan(fleet, name) if fleet is not None else None
    if planned is not None:
        name = name or planned.profile
        settings = {**planned.settings, **settings}
    if environ.disabled():
        if lock is not None:
            lock.check(name, settings, argv)
        if guard == "error":
            raise UsageError(
                "backendcfg is turned off by BACKENDCFG_DISABLE, so nothing can be guarded",
                helps=["run `unset BACKENDCFG_DISABLE`"],
            )
        note = "backendcfg is turned off by BACKENDCFG_DISABLE; running the command alone"
        if guard:
            note += "; nothing is guarded"
        if save_ranks is not None:
            note += "; no rank is saved"
        current().note(note)
        guard = save_ranks = None
    if save_ranks is not None:
        _check_folder(save_ranks)
        if half := half_named(environ.copy()):
            current().note(f"{half}: what starts with these alone saves nothing")

    def start(folder: str = "") -> int:
        def changes() -> Mapping[str, str | None]:
            alone = _GUARDED if folder else _SAVED if save_ranks is not None else ""
            found = {} if environ.disabled() else _changes(ctx, name, settings, words, alone)
            if planned is not None and fleet is not None:
                as_planned(planned, fleet, name, settings)
            if lock is not None and not environ.disabled():
                lock.check(name, settings, argv)
            if save_ranks is not None:
                found = {**found, environ.RANKS.name: _made(save_ranks)}
            return {**found, environ.GUARD.name: folder} if folder else found

        if options is not None:
            return launch(argv, options, changes, wait=bool(folder))
        environment = environ.changed(environ.copy(), changes())
        if not folder:
            child.become(argv, environment)
        return child.wait_for(argv, environment)

    raise click.exceptions.Exit(child.guarded(start, guard) if guard else start())


def _changes(
    ctx: click.Context,
    name: str | None,
    settings: Mapping[str, str],
    words: tuple[str, ...],
    alone: str,
) -> Mapping[str, str | None]:
    """What the command's environment has that ours has not, for the processors of this thread.

    Args:
        ctx: of the verb.
        name: the profile; None for the one in force here.
        settings: flags that are set over it.
        words: what the user wrote.
        alone: what to say where the command starts under no profile; "" where that is an error.
    """
    from backendcfg import environ
    from backendcfg.cli import child
    from backendcfg.session.choice import chosen
    from backendcfg.session.starting import changes, python_path

    if alone and name is None and not settings and chosen() is None:
        current().note(f"no profile is in force; {alone}")
        return {"PYTHONPATH": python_path(environ.current().get("PYTHONPATH", ""))}
    try:
        wanted = child.compiled(name, settings)
    except UnknownProfileError as error:
        if not ctx.meta["separated"] and ctx.meta["profile"] is None and "--" not in words:
            raise _maybe_no_profile(error, words) from error
        raise
    return changes(wanted) | {environ.STARTED_BY.name: f"run {wanted.name}"}


def _check_folder(name: str) -> None:
    """Refuse a name that is more likely a slip than a folder, such as that of an unset variable.

    Raises:
        UsageError: it is one.
    """
    if not name or name.startswith("-"):
        raise UsageError(
            f"`--save-ranks {shown_path(name)}` names no folder",
            helps=["give one that all ranks share: `--save-ranks ranks`"],
        )


def _made(folder: str) -> str:
    """The absolute path of a folder that the ranks of this run save in."""
    from backendcfg.fleet.saving import begin

    return begin(folder, "the command was not started")


def split(
    words: tuple[str, ...], profile: str | None, *, separated: bool
) -> tuple[str | None, list[str]]:
    """The profile, or None, and the command.

    Args:
        words: what is left of the line after the options.
        profile: the profile, if it was found already.
        separated: whether `--` stood before `words`.

    Raises:
        UsageError: there is no command.
    """
    if separated or profile is not None:
        name, argv = profile, list(words)
    elif words[1:2] == ("--",):
        name, argv = words[0], list(words[2:])
    else:
        name, argv = (words[0] if words else None), list(words[1:])
    if not argv:
        raise UsageError(
            "`backendcfg run` needs a command",
            helps=[
                f"write `backendcfg run {name or 'reproducible'} -- python train.py`",
                "or `backendcfg run -- python train.py` for the profile in force here",
            ],
        )
    return name, argv


def _maybe_no_profile(error: UnknownProfileError, words: tuple[str, ...]) -> UnknownProfileError:
    """The same error with the other reading of `run python train.py`."""
    return UnknownProfileError(
        error.message,
        spans=error.spans,
        notes=error.notes,
        state=error.state,
        helps=[
            *error.helps,
            f"for the profile in force here, write `backendcfg run -- {shlex.join(words)}`",
        ],
    )
