"""`backendcfg init [NAME]`: the files that make a folder a project, with comments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import ProfileName
from backendcfg.cli.output import block, current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@verb("init", "Write", interrupted="the files that it names are there, or some of them")
@click.argument("name", metavar="[NAME]", default="team")
@click.option(
    "--extends",
    metavar="PROFILE",
    type=ProfileName(),
    help="The profile that the new one begins with; NAME where there is one, else reproducible.",
)
def command(name: str, extends: str | None) -> None:
    """Make this folder a project, with a profile of its own.

    Writes backendcfg.toml, which picks the profile NAME (`team` unless given), profiles/NAME.toml,
    and in .backendcfg/ the schemas that editors check both by. Writes over nothing.
    """
    from backendcfg.session.project import begin

    written = begin(os.curdir, name, extends)
    files = [os.path.normpath(path) for path in written]
    in_ci = "backendcfg validate && backendcfg run -- pytest"
    current().answer({"profile": name, "written": files, "ci": in_ci}, _lines(files, in_ci))


def _lines(files: Sequence[str], in_ci: str) -> Iterator[str]:
    for path in files:
        yield f"wrote {path}"
    yield from block("in CI", [in_ci], "bold")
    yield from block("next", ["backendcfg plan", "backendcfg run -- python train.py"], "bold")
