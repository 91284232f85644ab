"""What the commands of `compare` and `prove` are started under: a profile, or nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backendcfg import environ
from backendcfg.audit.evidence.runs import Side
from backendcfg.audit.evidence.variants import variant
from backendcfg.audit.recording import read
from backendcfg.cli import child
from backendcfg.cli.output import current
from backendcfg.errors import UsageError
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Collection

    from backendcfg.transact.compiled import Compiled

NOTHING = "nothing"
"""In the place of a profile: as if backendcfg were not installed."""


def plan_of(name: str) -> Compiled | None:
    """The plan of a profile; None for nothing."""
    return None if name == NOTHING else child.compiled(name, {})


def side_of(name: str, plan: Compiled | None, guard: str = "") -> Side:
    """The environment of a command under a plan.

    Args:
        name: of the profile.
        plan: its plan; None for nothing.
        guard: the folder in which a run that does not count says what it did; "" for none.
    """
    environment = dict(environ.current())
    for variable, value in held(plan).items():
        environment.pop(variable, None)
        if value is not None:
            environment[variable] = value
    first = {environ.GUARD.name: guard} if guard and plan is not None else {}
    return Side(name, environment, first)


def held(plan: Compiled | None) -> dict[str, str | None]:
    """The variables that a command must have, and under None must not have."""
    return {environ.DISABLE.name: "1"} if plan is None else child.changes(plan)


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


def note_unless_governed(guard: str) -> None:
    """Say when no run that told in a folder was a Python that a profile reaches."""
    guarded = read(guard)
    if not (guarded.processes or guarded.silent):
        current().note(
            "no Python with backendcfg ran, so a profile set no more than the variables that a"
            " process starts with"
        )


def check(verb: str, sides: str, words: tuple[str, ...]) -> None:
    """Refuse what cannot be run.

    Args:
        verb: for the messages.
        sides: its profiles, for the messages.
        words: the command.

    Raises:
        UsageError: there is no command, or backendcfg is turned off.
    """
    if not words:
        raise UsageError(
            f"`backendcfg {verb}` needs a command",
            helps=[f"write `backendcfg {verb} {sides} -- python train.py`"],
        )
    if environ.disabled():
        raise UsageError(
            "backendcfg is turned off by BACKENDCFG_DISABLE, so no profile would act",
            helps=["run `unset BACKENDCFG_DISABLE`"],
        )
