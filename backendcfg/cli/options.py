"""Arguments and options that several verbs share, declared once, with their completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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


def user_option(function: Function) -> Function:
    """--user: the user's active profile rather than the project's."""
    return click.option(
        "--user",
        is_flag=True,
        help="For the user, even inside a project.",
    )(function)


def environment_option(function: Function) -> Function:
    """--environment: the active profile of this Python environment, for all its users."""
    return click.option(
        "--environment",
        is_flag=True,
        help="For every user of this Python environment.",
    )(function)


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
