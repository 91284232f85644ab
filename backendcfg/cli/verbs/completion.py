"""`backendcfg completion SHELL`: the script that makes a shell complete our words."""

from __future__ import annotations

import click

from backendcfg.cli.group import verb
from backendcfg.cli.output import current

SHELLS = ("bash", "zsh", "fish")


@verb("completion", "Manage")
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that makes a shell complete our words.

    `eval "$(backendcfg completion bash)"` completes verbs, options, profiles and flags.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    group = click.get_current_context().find_root().command
    if kind is None:
        raise AssertionError(f"click completes no {shell}")
    maker = kind(group, {}, "backendcfg", "_BACKENDCFG_COMPLETE")
    script = maker.source_template % maker.source_vars()
    current().answer({"shell": shell, "script": script}, [script], exact=True)
