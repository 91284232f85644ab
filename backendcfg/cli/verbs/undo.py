"""`backendcfg undo`: make active again what was active before."""

from __future__ import annotations

from backendcfg.cli.group import verb
from backendcfg.cli.options import whose_options
from backendcfg.cli.output import current


@verb(
    "undo",
    "Use",
    interrupted="what was active still is, or what was before is; `backendcfg status` tells",
)
@whose_options
def command(user: bool, environment: bool) -> None:
    """Return to the profile that was active before.

    Outside a project, and with `--user`, it is the user's; with `--environment` it is this Python
    environment's.
    """
    from backendcfg import session
    from backendcfg.cli.wording import left_in_force, with_left
    from backendcfg.transact.generations import whose

    generation = session.undo_generation(user=user, environment=environment)
    if generation is None:
        name, left = left_in_force()
        lines = with_left("no profile is active now, as before", left)
        current().answer({"profile": name, "generation": 0}, lines)
        return
    where = whose(generation.path)
    current().answer(
        {"profile": generation.name, "generation": generation.number},
        [f"{generation.name} is active again for {where} (generation {generation.number})"],
    )
