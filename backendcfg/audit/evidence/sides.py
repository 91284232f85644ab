"""What programs are started under whose runs are compared: a profile, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.audit.evidence.runs import Side
from backendcfg.errors import UsageError
from backendcfg.session import planning
from backendcfg.session.starting import changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.transact.compiled import Compiled

NOTHING = "nothing"
"""In the place of a profile: as if backendcfg were not installed."""


def plan_of(name: str) -> Compiled | None:
    """The plan of a profile; None for nothing."""
    return None if name == NOTHING else planning.compiled(name)


def side_of(
    name: str,
    plan: Compiled | None,
    guard: str = "",
    environment: Mapping[str, str] | None = None,
) -> Side:
    """The environment of a command under a plan.

    Args:
        name: of the profile.
        plan: its plan; None for nothing.
        guard: the folder in which a run that does not count says what it did; "" for none.
        environment: what it has beside what the plan sets; None for all that this process has.
    """
    before = environ.copy() if environment is None else environment
    variables = environ.changed(before, held(plan))
    first = {environ.GUARD.name: guard} if guard and plan is not None else {}
    return Side(name, variables, first)


def held(plan: Compiled | None) -> dict[str, str | None]:
    """The variables that a command must have, and under None must not have."""
    return {environ.DISABLE.name: "1"} if plan is None else changes(plan)


def refuse_disabled() -> None:
    """Refuse to prove or compare where no profile would act.

    Raises:
        UsageError: backendcfg is turned off.
    """
    if environ.disabled():
        raise UsageError(
            "backendcfg is turned off by BACKENDCFG_DISABLE, so no profile would act",
            helps=["run `unset BACKENDCFG_DISABLE`"],
        )
