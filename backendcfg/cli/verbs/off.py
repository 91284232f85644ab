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
    from backendcfg.cli.wording import left_in_force, with_left

    before = session.off(user=user, environment=environment)
    name, left = left_in_force()
    if not before:
        was = "no profile was active"
    elif name:
        was = f"generation {before} is no longer active"
    else:
        was = f"no profile is active any more (it was generation {before})"
    lines = with_left(was, left)
    if before:
        scope = " --environment" if environment else " --user" if user else ""
        lines += block("next", [f"backendcfg undo{scope}, to make it active again"], "bold")
    current().answer({"profile": name, "before": before}, lines)
