"""`backendcfg off`: no profile is active any more."""

from __future__ import annotations

from backendcfg.cli.group import verb
from backendcfg.cli.options import user_option
from backendcfg.cli.output import block, current


@verb(
    "off",
    "Use",
    interrupted="what was active still is, or nothing is; `backendcfg status` tells",
)
@user_option
def command(user: bool) -> None:
    """Make no profile active; `undo` returns to the one that was.

    Outside a project, and with `--user`, it is the user's. Processes that run keep what they have.
    """
    from backendcfg import session

    before = session.off(user=user)
    if before:
        lines = [f"no profile is active any more (it was generation {before})"]
        lines += block("next", ["backendcfg undo, to make it active again"], "bold")
    else:
        lines = ["no profile was active"]
    current().answer({"profile": None, "before": before}, lines)
