"""`backendcfg env PROFILE`: the variables of a process that starts under a profile."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import profile_argument, set_option
from backendcfg.cli.output import current
from backendcfg.errors import BackendCfgError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMATS = ("sh", "dotenv", "json")


@verb("env", "Use")
@profile_argument()
@set_option
@click.option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    default="sh",
    show_default=True,
    help="Lines for a shell, lines for an .env file, or a JSON object.",
)
def command(name: str | None, settings: Mapping[str, str], style: str) -> None:
    """Print the variables that `run` sets: `eval "$(backendcfg env fast)"`.

    Without PROFILE it is the one that is in force here.
    """
    from backendcfg import environ
    from backendcfg.cli import child
    from backendcfg.session.starting import changes

    output = current()
    variables: dict[str, str | None] = {}
    if environ.disabled():
        output.note("backendcfg is turned off by BACKENDCFG_DISABLE; there is nothing to set")
    else:
        variables = changes(child.compiled(name, settings))
        variables = {**left_over(variables), **variables}
    output.as_json |= style == "json"
    output.answer(variables, shell(variables) if style == "sh" else dotenv(variables), exact=True)


def left_over(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """What must be unset that `eval "$(backendcfg env ...)"` set for another profile.

    BACKENDCFG_PROFILE names that one. What has another value than it sets is the user's own.

    Args:
        variables: of the profile that takes its place.
    """
    from backendcfg import environ
    from backendcfg.cli import child
    from backendcfg.session.starting import changes

    before: dict[str, str | None] = {}
    if (named := environ.PROFILE.read()) is not None:
        with suppress(BackendCfgError):  # it set nothing, then
            before = changes(child.compiled(named, {}))
    here = environ.foreign(before)
    return {
        each: None
        for each, text in before.items()
        if text is not None and each not in variables and here.get(each) == text
    }


def shell(variables: Mapping[str, str | None]) -> Iterator[str]:
    """Lines that any POSIX shell evaluates to these variables, whatever is in the values."""
    for name, value in sorted(variables.items()):
        yield f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"


def dotenv(variables: Mapping[str, str | None]) -> Iterator[str]:
    """Lines of an .env file; it cannot unset, so that stands in a comment."""
    for name, value in sorted(variables.items()):
        if value is None:
            yield f"# {name} must not be set"
        elif re.fullmatch(r"[\w./:,=@%+-]*", value, re.ASCII):
            yield f"{name}={value}"
        else:
            text = re.sub(r'(["\\$`])', r"\\\1", value).replace("\n", "\\n")
            yield f'{name}="{text}"'
