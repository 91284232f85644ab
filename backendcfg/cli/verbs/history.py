"""`backendcfg history`: the profiles that were made active, newest first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backendcfg.cli.group import verb
from backendcfg.cli.options import whose_options
from backendcfg.cli.output import current, table
from backendcfg.errors import StateUnwritableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.transact.generations import Generation


@verb("history", "Look")
@whose_options
def command(user: bool, environment: bool) -> None:
    """List the generations of this project, newest first.

    Outside a project, and with `--user`, they are the user's; with `--environment` they are this
    Python environment's.
    """
    from backendcfg import session

    generations = session.history(user=user, environment=environment)
    document = [
        {"damaged": generation.to_dict()}
        if isinstance(generation, StateUnwritableError)
        else {
            "generation": generation.number,
            "parent": generation.parent,
            "profile": generation.name,
            "tier": generation.plan.get("tier"),
            "settings": generation.arguments,
            "created": generation.created,
            "active": generation.active,
            "project": generation.path if os.path.isabs(generation.path) else None,
        }
        for generation in generations
    ]
    current().answer(document, _lines(generations))


def _lines(generations: Sequence[Generation | StateUnwritableError]) -> Iterator[str]:
    from backendcfg.cli.wording import when

    if not generations:
        yield "no profile was made active here yet"
    rows = [
        ("!", "", "", "damaged", generation.message)
        if isinstance(generation, StateUnwritableError)
        else (
            "*" if generation.active else "",
            str(generation.number),
            when(generation.created),
            generation.name,
            " ".join(f"--set {flag}={text}" for flag, text in generation.arguments.items()),
        )
        for generation in generations
    ]
    yield from table(rows)
