"""`backendcfg off`: no profile is active any more."""

from __future__ import annotations

from backendcfg.cli.group import verb
from backendcfg.cli.options import whose_options
from backendcfg.cli.output import block, current


@verb(
    "off",
    "Use",
    interrupted="what was active still is, or nothing is; `backendcfg status` tells",
)
@whose_options
def command(user: bool, environment: bool) -> None:
    """Make no profile active; `undo` returns to the one that was.

    Outside a project, and with `--user`, it is the user's; with `--environment` it is this Python
    environment's. Processes that run keep what they have.
    """
    from backendcfg import session
    from backendcfg.session.choice import chosen

    before = session.off(user=user, environment=environment)
    left = chosen()
    if left is not None and left.name:
        was = f"generation {before} is no longer active" if before else "no profile was active"
        lines = [f"{was}; {left.name} is in force here, by {left.source}"]
    elif before:
        lines = [f"no profile is active any more (it was generation {before})"]
    else:
        lines = ["no profile was active"]
    if before:
        scope = " --environment" if environment else " --user" if user else ""
        lines += block("next", [f"backendcfg undo{scope}, to make it active again"], "bold")
    name = left.name if left is not None else None
    current().answer({"profile": name, "before": before}, lines)
