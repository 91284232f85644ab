"""What the environment of a program has that starts under a profile."""

from __future__ import annotations

import os

import backendcfg
from backendcfg import environ, session
from backendcfg.session import planning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.transact.compiled import Compiled

NOBODY = "default"
"""What a stack is called when nobody picked a profile."""

START = os.path.join(os.path.dirname(backendcfg.__file__), "bridges", "start")
"""The folder whose `sitecustomize` applies the profile when a Python starts."""


def changes(wanted: Compiled) -> dict[str, str | None]:
    """What a child's environment must have, and under None must not have.

    The child finds the profile in BACKENDCFG_PROFILE, so that its own children inherit it. There
    the name is weaker than it was here: a flag that would come out otherwise is pinned by its
    BACKENDCFG_<FLAG>.
    """
    name = None if wanted.name == NOBODY else planning.anywhere(wanted.name)
    variables: dict[str, str | None] = dict(session.run_environment(wanted))
    variables[environ.PROFILE.name] = name
    variables[environ.INHERIT.name] = None
    variables["PYTHONPATH"] = python_path(environ.current().get("PYTHONPATH", ""))
    return variables | _pins(wanted, name)


def _pins(wanted: Compiled, name: str | None) -> dict[str, str | None]:
    from backendcfg.resolve.words import literal

    inherited = planning.compiled(name, rank="profile-by-environment")
    values, there = _as_asked(wanted), _as_asked(inherited)
    differing = [flag for flag, value in values.items() if there.get(flag) != value]
    pins: dict[str, str | None] = {
        environ.flag_variable(flag): literal(values[flag]) for flag in differing
    }
    return pins | dict.fromkeys(_other_spellings(differing))


def _as_asked(compiled: Compiled) -> dict[str, Any]:
    """Its values, where "auto" threads are not the number that they come to: workers share them."""
    auto = {"threads.count": "auto"} if compiled.takes_all_cores else {}
    return {**compiled.values, **auto}


def _other_spellings(flags: list[str]) -> list[str]:
    """Variables set here that spell one of the flags in the legacy way; both would conflict."""
    fixed = {variable.name for variable in environ.VARIABLES}
    mine = [n for n in environ.copy() if n.startswith(environ.PREFIX) and n not in fixed]
    if not mine or not flags:
        return []
    from backendcfg.schema.profile import flags as declared

    return [
        environ.flag_variable(name)
        for name, found in declared().items()
        if environ.flag_variable(name) in mine
        and any(target in flags for values in found.flag.spells.values() for target in values)
    ]


def python_path(present: str) -> str:
    """PYTHONPATH with the folder first whose start-up file applies the profile."""
    others = [entry for entry in present.split(os.pathsep) if entry and entry != START]
    return os.pathsep.join([START, *others])
