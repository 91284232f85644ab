"""Arguments and options that verbs share, with their completion; and those that bind instances."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backendcfg.cli.output import current
from backendcfg.errors import UnreadableFileError, UsageError, shown_path
from backendcfg.load.text import LARGEST_RESULTS, read_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from backendcfg.audit.report.data import Found
    from backendcfg.launch.launcher import Options

Function = TypeVar("Function", bound=Callable[..., Any])


class ProfileName(click.types.StringParamType):
    """A profile's name, or several joined by `+`; completes after each `+`."""

    name = "profile"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from backendcfg.load.locations import profiles

        before, plus, _ = incomplete.rpartition("+")
        try:
            names = {found.name: found.description for found in profiles()}
        except Exception:  # a shell that completes must not see our errors
            return []
        return [
            CompletionItem(before + plus + name, help=description)
            for name, description in sorted(names.items())
            if (before + plus + name).startswith(incomplete)
        ]


class FlagName(click.types.StringParamType):
    """The full name of a flag."""

    name = "flag"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from backendcfg.schema.profile import flags

        return [
            CompletionItem(name, help=found.flag.summary)
            for name, found in flags().items()
            if name.startswith(incomplete)
        ]


class FlagSetting(FlagName):
    """`flag=value`; completes the flag."""

    name = "flag=value"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        items = super().shell_complete(ctx, param, incomplete)
        for item in items:
            item.value += "="
        return items


def profile_argument(required: bool = False) -> Callable[[Function], Function]:
    """PROFILE, left out to mean the profile that is in force here."""
    metavar = "PROFILE" if required else "[PROFILE]"
    return click.argument("name", metavar=metavar, type=ProfileName(), required=required)


def set_option(function: Function) -> Function:
    """--set flag=value, any number of times."""
    return click.option(
        "--set",
        "settings",
        metavar="FLAG=VALUE",
        type=FlagSetting(),
        multiple=True,
        callback=_each_once,
        help="Set a flag over the profile, as `threads.count=4`. May be repeated.",
    )(function)


def host_option(function: Function) -> Function:
    """--host FILE: another machine than this one."""
    return click.option(
        "--host",
        "host_file",
        metavar="FILE",
        type=click.Path(),
        help="Resolve for the host in this file, as `detect --capture` writes it.",
    )(function)


def whose_options(function: Function) -> Function:
    """--user and --environment: whose active profile is meant, rather than the project's."""
    for declaration, text in (
        ("--environment", "For every user of this Python environment."),
        ("--user", "For the user, even inside a project."),
    ):
        function = click.option(declaration, is_flag=True, help=text)(function)
    return function


def _each_once(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> Mapping[str, str]:
    """The text of each flag's value.

    Raises:
        UsageError: a word has no `=`, or nothing on one side of it; a flag is given twice.
    """
    settings: dict[str, str] = {}
    for word in given:
        flag, _, text = (part.strip() for part in word.partition("="))
        if not flag or not text:
            raise UsageError(
                f"`--set {word}` is not of the form flag=value",
                helps=["write for example `--set threads.count=4`"],
            )
        if flag in settings:
            raise UsageError(
                f"`--set {flag}` is given twice: {settings[flag]} and {text}",
                helps=["give each flag once"],
            )
        settings[flag] = text
    return settings


PRELOADS = ("tcmalloc", "jemalloc", "iomp5")


def launch_options(function: Function) -> Function:
    """Add the options; they reach the verb as keywords."""
    for declarations, settings in reversed(_OPTIONS):
        function = click.option(*declarations, **settings)(function)
    return function


_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--instances", "--ninstances", "instances"),
        {"type": click.IntRange(1), "metavar": "N", "help": "Start the command N times."},
    ),
    (
        ("--cores-per-instance", "--ncores-per-instance", "cores"),
        {"type": click.IntRange(1), "metavar": "K", "help": "Bind each instance to K cores."},
    ),
    (
        ("--node", "--node-id", "node"),
        {"type": click.IntRange(0), "metavar": "NODE", "help": "Use one memory node's cores."},
    ),
    (("--core-list",), {"metavar": "LIST", "help": "Use these cores, as 0-3,8."}),
    (
        ("--rank",),
        {"type": click.IntRange(0), "metavar": "I", "help": "Start only instance I of them."},
    ),
    (
        ("--latency-mode", "mode"),
        {"flag_value": "latency", "help": "Instances of four cores each."},
    ),
    (
        ("--throughput-mode", "mode"),
        {"flag_value": "throughput", "help": "One instance per memory node."},
    ),
    (
        ("--use-logical-core", "logical"),
        {"is_flag": True, "help": "Use every logical processor, not one of each core."},
    ),
    (
        ("--skip-cross-node-cores", "skip_cross_node"),
        {"is_flag": True, "help": "No instance gets cores of two nodes."},
    ),
    (
        ("--preload",),
        {
            "type": click.Choice(PRELOADS),
            "multiple": True,
            "help": "Preload it where it is installed. May be repeated.",
        },
    ),
    (
        ("--log-path",),
        {"type": click.Path(), "metavar": "DIR", "help": "Write each instance's output there."},
    ),
    (
        ("--log-file-prefix", "log_prefix"),
        {"metavar": "NAME", "help": "What log files and lines begin with, instead of `run`."},
    ),
)


def chosen_launch(given: Mapping[str, Any]) -> Options | None:
    """How to start instances; None when no option asks for any.

    Raises:
        UsageError: the prefix of log files is a path.
        InvalidArgumentError: the list of cores is none.
    """
    if not any(value not in (None, False, ()) for value in given.values()):
        return None
    if "/" in (given["log_prefix"] or ""):
        raise UsageError(
            "`--log-file-prefix` is a name, not a path",
            helps=["give the folder with `--log-path`"],
        )
    from backendcfg.launch.arrangement import Request, listed
    from backendcfg.launch.launcher import Options

    return Options(
        Request(
            instances=given["instances"],
            cores=given["cores"],
            node=given["node"],
            processors=listed(given["core_list"]),
            rank=given["rank"],
            mode=given["mode"] or "",
            logical=given["logical"],
            skip_cross_node=given["skip_cross_node"],
        ),
        preload=tuple(given["preload"]),
        log_path=given["log_path"] or "",
        log_prefix=given["log_prefix"] or "run",
    )


def launch(
    argv: Sequence[str],
    options: Options,
    changes: Callable[[], Mapping[str, str | None]],
    *,
    wait: bool,
) -> int:
    """Start the instances and give their exit status.

    Args:
        argv: the command.
        options: how to start it.
        changes: what an instance's environment has that ours has not; see `launcher.prepare`.
        wait: wait for a single one too, which otherwise takes the place of this process.

    Raises:
        InvalidArgumentError: this machine lacks the cores.
        CommandNotFoundError: there is no such command.
    """
    from backendcfg import environ
    from backendcfg.cli import child
    from backendcfg.launch import launcher

    output = current()
    ready = launcher.prepare(argv, options, changes, environ.copy())
    for note in ready.notes:
        output.note(f"note: {note}")
    if len(ready.shares) == 1 and not options.log_path:
        words = ready.words(ready.shares[0], supervised=wait)
        if wait:
            return child.wait_for(words, ready.environments[0])
        child.become(words, ready.environments[0])
    # Under --json standard output carries one document, and that is ours.
    with redirect_stdout(sys.stderr if output.as_json else sys.stdout):
        ended = launcher.start(ready, options)
    if told := launcher.told(ended, ready):
        output.note(told)
    return ended.status


def report_option() -> Callable[[Function], Function]:
    """Add `--report FILE`, which is refused before anything is run where it cannot be written."""

    def checked(context: click.Context, option: click.Parameter, path: str | None) -> str | None:
        if path is not None:
            from backendcfg.audit.report import page

            page.check()
            refuse_unwritable(path, "report", page.MARK, "--report")
        return path

    return click.option(
        "--report",
        metavar="FILE",
        type=click.Path(),
        callback=checked,
        help="Also write a report to FILE, as a page of HTML.",
    )


def write_report(found: Found, path: str | None) -> None:
    """Write the report of what a verb found, if it was asked for.

    Raises:
        UnreadableFileError: the file cannot be written.
    """
    if path is not None:
        from backendcfg.audit.report import page

        page.write(found, path)
        current().note(f"{shown_path(path)} was written")


def refuse_unwritable(
    path: str, what: str, mark: bytes, option: str, state: str = "the command was not started"
) -> None:
    """Refuse before anything is run a file that its results could not be written to.

    Args:
        path: the file.
        what: it is to hold: "lock".
        mark: a pattern that each such file has; no other file is written over.
        option: that named it.
        state: what to say of the state.

    Raises:
        UsageError: it cannot be written, or holds something else.
    """
    folder = os.path.dirname(os.path.realpath(path))
    obstacle = ""
    if os.path.isdir(path):
        obstacle = "is a folder"
    elif not os.path.isdir(folder):
        obstacle = f"cannot be written: there is no folder {shown_path(folder)}"
    elif not os.access(folder, os.W_OK):
        obstacle = f"cannot be written: this user may not write in {shown_path(folder)}"
    elif os.path.lexists(path) and not _may_replace(path, mark):
        obstacle = f"is there already, and is no {what}"
    if obstacle:
        raise UsageError(
            f"{shown_path(path)} {obstacle}",
            state=state,
            helps=[f"give another file with `{option}`"],
        )


def _may_replace(path: str, mark: bytes) -> bool:
    """Whether a file has the mark, damaged or not, is empty, or is a link to nothing yet."""
    if os.path.islink(path) and not os.path.exists(path):
        return True
    try:
        content, _ = read_bytes(path, LARGEST_RESULTS)
    except UnreadableFileError:
        return False
    return not content or re.search(mark, content, re.MULTILINE) is not None
