"""What programs are started under whose runs are compared: a profile, or nothing.

Or a profile between two others: one, but with some flags as the other has them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.audit.evidence.runs import Side
from backendcfg.environ import NOTHING
from backendcfg.errors import UsageError
from backendcfg.resolve.words import literal
from backendcfg.session import planning
from backendcfg.session.starting import changes
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from backendcfg.transact.compiled import Compiled

_UNSET = object()


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


def differing(a: Compiled | None, b: Compiled | None) -> list[str]:
    """The flags that have an effect here and that two plans do not set to the same value.

    Args:
        a: a plan; None for nothing.
        b: another.
    """
    one, other = effective(a), effective(b)
    return sorted(
        flag for flag in {*one, *other} if one.get(flag, _UNSET) != other.get(flag, _UNSET)
    )


def variant(a: Compiled | None, b: Compiled | None, some: Collection[str]) -> str:
    """The TOML of plan b, but with some flags as plan a has them: set otherwise, or not at all."""
    one, other = effective(a), effective(b)
    lines = ["schema = 1"]
    for flag in sorted({*one, *other}):
        value = (one if flag in some else other).get(flag, _UNSET)
        if value is not _UNSET:
            lines.append(f"{flag} = {literal(value)}")
    return "\n".join([*lines, ""])


def effective(plan: Compiled | None) -> dict[str, Any]:
    """What a plan sets and what has an effect here; nothing of no plan."""
    return {} if plan is None else {flag: plan.values[flag] for flag in plan.effective}


def variant_of(
    folder: str, a: Compiled | None, b: Compiled | None, some: Collection[str]
) -> Compiled | None:
    """Plan b, but with some flags as plan a has them, from a profile that is written to a folder.

    Raises:
        BackendCfgError: these flags do not go together here.
    """
    path = os.path.join(folder, f"variant-{len(os.listdir(folder)) + 1}.toml")
    disk.replace(path, variant(a, b, some).encode())
    return plan_of(path)
