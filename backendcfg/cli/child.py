"""Processes that start under a profile: their environment, and one that reads every switch.

The shell's `verify` must not import PyTorch into itself, and what it finds must be what any program
started from the same shell would find. So it asks a child.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import backendcfg
from backendcfg import childprocess, environ, session
from backendcfg.errors import UsageError
from backendcfg.session import planning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.transact.compiled import Compiled

NOBODY = "default"
"""What a stack is called when nobody picked a profile."""

START = os.path.join(os.path.dirname(backendcfg.__file__), "bridges", "start")
"""The folder whose `sitecustomize` applies the profile when a Python starts."""


def compiled(name: str | None, settings: Mapping[str, str]) -> Compiled:
    """The compiled plan of a name, or of the profile in force; the stored one while it holds.

    Raises:
        UsageError: no profile is named, and none is in force here.
    """
    from backendcfg.session.choice import chosen

    picked = chosen(name, settings)
    if picked is not None:
        return planning.compiled_pick(picked)
    if not settings:
        raise UsageError(
            "no profile is named, and none is in force here",
            helps=[
                "name one: `backendcfg run reproducible -- python train.py`",
                "or make one active: `backendcfg apply reproducible`",
                "run `backendcfg list` to see every profile",
            ],
        )
    return planning.compiled(None, arguments=settings)


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
    from backendcfg.session.planning import compiled as compile_by_name

    inherited = compile_by_name(name, rank="profile-by-environment")
    differing = [
        flag for flag, value in wanted.values.items() if inherited.values.get(flag) != value
    ]
    pins: dict[str, str | None] = {
        environ.flag_variable(flag): literal(wanted.values[flag]) for flag in differing
    }
    return pins | dict.fromkeys(_other_spellings(differing))


def _other_spellings(flags: list[str]) -> list[str]:
    """Variables set here that spell one of the flags in the legacy way; both would conflict."""
    fixed = {variable.name for variable in environ.VARIABLES}
    mine = [n for n in environ.current() if n.startswith(environ.PREFIX) and n not in fixed]
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


PROGRAM = """
import json
try:
    import backendcfg
    from backendcfg.cli.child import testify
    answer = {"verification": testify()}
except Exception as error:
    if not hasattr(error, "to_dict"):
        raise
    answer = {"error": error.to_dict()}
print()
print(json.dumps(answer))
"""


def verification(name: str | None) -> dict[str, Any]:
    """What a process that starts here finds in every switch.

    Args:
        name: the profile to start it under; None for the one in force here.

    Returns:
        An `audit.verify.Verification` as JSON data; under `unkept` the flags that the tier rests
        on and that this release does not set; under `broken` why a framework that is installed
        cannot be imported, by its name.

    Raises:
        BackendCfgError: what the child raised, or InternalError when it died or hung.
    """
    environment = dict(environ.current())
    if name is not None:
        environment[environ.PROFILE.name] = name
    answer = childprocess.ask(
        ["-c", PROGRAM],
        environment,
        task="the process that verifies",
        remedy="call `backendcfg.verify()` in the program that you care about",
    )
    found: dict[str, Any] = answer["verification"]
    return found


def testify() -> dict[str, Any]:
    """In the child: import what is installed, then read every switch back."""
    from dataclasses import asdict

    from backendcfg import session
    from backendcfg.audit.verify import verify
    from backendcfg.session.shell import import_frameworks

    broken = import_frameworks()
    active = session.active()
    unkept = list(active.compiled.unkept) if active else []
    return asdict(verify()) | {"unkept": unkept, "broken": broken}
