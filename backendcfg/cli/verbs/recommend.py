"""`backendcfg recommend`: which profiles fit this machine, the most suitable first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import host_option
from backendcfg.cli.output import block, current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.resolve.recommend import Purpose, Recommendation

PURPOSES = ("training", "inference", "papers", "debugging")
MOST_REASONS = 3


@verb("recommend", "Look")
@click.option(
    "--for",
    "purpose",
    type=click.Choice(PURPOSES),
    help="What the programs do; without it, nothing that reduces precision comes first.",
)
@host_option
def command(purpose: Purpose | None, host_file: str | None) -> None:
    """List the profiles by how well they fit this machine and a purpose.

    For training and inference TF32 may come first; for papers the strongest tier; for debugging
    what makes libraries print what they do.
    """
    from backendcfg.cli import sources
    from backendcfg.load.locations import profiles
    from backendcfg.progress import Step
    from backendcfg.resolve.recommend import recommend

    names = [found.name for found in profiles() if not found.hidden and not found.problem]
    with Step(f"comparing {len(names)} profiles"):
        stacks = [sources.stack(sources.picked(name, {})) for name in names]
        found = recommend(stacks, sources.host(host_file), purpose)
    current().answer([asdict(one) for one in found], _lines(found, purpose))


def _lines(found: tuple[Recommendation, ...], purpose: Purpose | None) -> Iterator[str]:
    if not found:
        yield "there is no profile to recommend; see `backendcfg list`"
    paint = current().paint
    for one in found:
        mark = paint("fits", "green") if one.fits else paint("does not fit", "red")
        yield f"{paint(one.name, 'bold')} {mark}"
        more = len(one.reasons) - MOST_REASONS
        yield from block("", one.reasons[:MOST_REASONS])
        if more > 0:
            yield from block("", [f"and {more} more, see `backendcfg plan {one.name}`"])
    fitting = [one.name for one in found if one.fits]
    if fitting:
        yield from block("next", [f"backendcfg apply {fitting[0]}"], "bold")
    if purpose is None:
        ask = f"what for? `backendcfg recommend --for {' | '.join(PURPOSES)}`"
        yield from block("", [ask])
