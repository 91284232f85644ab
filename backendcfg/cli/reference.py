"""Writes docs/commands.md from the commands themselves; with `--check` only compares.

Run it as `python -m backendcfg.cli.reference [--check] [FILE]`.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

import click

from backendcfg import environ, errors
from backendcfg.cli.group import SECTIONS, Verb
from backendcfg.cli.main import group

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE = "docs/commands.md"

_COMMON = {"as_json", "no_color", "traceback", "help"}

_HEAD = """\
# Commands

<!-- Written by `python -m backendcfg.cli.reference` from the commands. Do not edit. -->

Data goes to standard output and everything else to standard error. Colour appears only on
terminals; `NO_COLOR` turns it off, `FORCE_COLOR` on, and `NO_COLOR` wins. Nothing is said by
colour alone. Under `--json` standard output is one document; when a command fails, it is
`{"error": {...}}` with the parts of [the error](errors.md).

Where PROFILE may be left out, it is the profile in force here: the one that `BACKENDCFG_PROFILE`
names, else the active one of the project, else of the user. `a+b` composes profiles, the later
one wins.
"""

_COMPLETION = """\
## Completion

Verbs, options, profile names and flag names complete in bash (4.4 or newer), zsh and fish:

    eval "$(backendcfg completion bash)"                                      # in ~/.bashrc
    eval "$(backendcfg completion zsh)"                                       # in ~/.zshrc
    backendcfg completion fish > ~/.config/fish/completions/backendcfg.fish   # once
"""


def page() -> str:
    """The whole text of docs/commands.md."""
    return "\n".join([_HEAD, *_common(), *_codes(), *_verbs(), *_variables(), _COMPLETION])


def main(words: Sequence[str]) -> int:
    """Write the page, or with `--check` exit with 1 when it differs."""
    files = [word for word in words if word != "--check"]
    path = files[0] if files else PAGE
    text = page()
    if "--check" not in words:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    with open(path, encoding="utf-8") as file:
        if file.read() == text:
            return 0
    sys.stderr.write(f"{path} is out of date; run `python -m backendcfg.cli.reference`\n")
    return 1


def _common() -> Iterator[str]:
    yield "Every command takes:\n"
    for parameter in group.params:
        if isinstance(parameter, click.Option) and parameter.name in _COMMON:
            yield f"- `{'`, `'.join(parameter.opts)}`: {parameter.help}"
    yield "- `-h`, `--help`: Show this message and exit.\n"


def _codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning | errors |"
    yield "|---|---|---|"
    named: dict[int, list[str]] = {}
    for _, cls in inspect.getmembers(errors, inspect.isclass):
        if issubclass(cls, errors.BackendCfgError) and cls.code != "error":
            named.setdefault(cls.exit_code, []).append(cls.code)
    for code, meaning in (
        (0, "done"),
        (
            1,
            (
                "a check says no: `verify`, `validate`, `plan --why-not`, `doctor`,"
                " `diff --exit-code`, `run --guard=error`"
            ),
        ),
        (2, "the request is wrong"),
        (3, "this machine cannot"),
        (4, "tried, failed, and everything was undone"),
        (5, "tried, failed, and something could not be undone"),
        (70, "a bug in backendcfg"),
        (126, "`run`: the command cannot be executed"),
        (127, "`run`: the command was not found"),
        (129, "ended by SIGHUP"),
        (130, "interrupted"),
        (141, "nobody reads the output"),
        (143, "ended by SIGTERM"),
    ):
        codes = ", ".join(f"`{name}`" for name in sorted(named.get(code, [])))
        yield f"| {code} | {meaning} | {codes} |"
    yield "\n`run` otherwise ends with the exit code of its command.\n"


def _verbs() -> Iterator[str]:
    context = click.Context(group, info_name="backendcfg")
    verbs = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    for section in SECTIONS:
        yield f"## {section}\n"
        for name, verb in verbs:
            if isinstance(verb, Verb) and verb.section == section:
                yield from _verb(name, verb, context)


def _variables() -> Iterator[str]:
    yield "## Variables\n"
    yield "Beside `BACKENDCFG_<FLAG>`, which sets a flag (see [every key](profiles.md)):\n"
    yield "| variable | what it does |"
    yield "|---|---|"
    for variable in environ.VARIABLES:
        yield f"| `{variable.name}` | {variable.summary} |"
    yield ""


def _verb(name: str, verb: Verb, parent: click.Context) -> Iterator[str]:
    context = click.Context(verb, info_name=name, parent=parent)
    yield f"### backendcfg {name}\n"
    usage = " ".join(piece for piece in verb.collect_usage_pieces(context))
    yield f"    backendcfg {name} {usage}\n"
    yield inspect.cleandoc(verb.help or "") + "\n"
    rows = [
        (record[0], record[1])
        for parameter in verb.params
        if parameter.name not in _COMMON
        and (record := parameter.get_help_record(context)) is not None
        and record[1]
    ]
    for option, text in rows:
        yield f"- `{option}`: {text}"
    if rows:
        yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
