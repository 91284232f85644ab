"""A fresh process that has the profile in force, imports the frameworks, and reads every switch.

The shell's `verify` must not import PyTorch into itself, and what it finds must be what any
program started from the same shell would find. So it asks a child.
"""

from __future__ import annotations

from typing import Any

from backendcfg import childprocess, environ

PROGRAM = """
import json
try:
    import backendcfg
    from backendcfg.cli.witness import testify
    answer = {"verification": testify()}
except Exception as error:
    if not hasattr(error, "to_dict"):
        raise
    answer = {"error": error.to_dict()}
print()
print(json.dumps(answer))
"""


def ask(name: str | None) -> dict[str, Any]:
    """What a process that starts here finds in every switch.

    Args:
        name: the profile to start it under; None for the one in force here.

    Returns:
        An `audit.verify.Verification` as JSON data, and under `unkept` the flags that the
        tier rests on and that this release does not set.

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
    verification: dict[str, Any] = answer["verification"]
    return verification


def testify() -> dict[str, Any]:
    """In the child: import what is installed, then read every switch back."""
    import importlib
    from dataclasses import asdict
    from importlib.util import find_spec

    from backendcfg import session
    from backendcfg.audit.verify import verify
    from backendcfg.session.shell import FRAMEWORKS

    for framework in FRAMEWORKS:
        if find_spec(framework.partition(".")[0]) is not None:
            importlib.import_module(framework)
    active = session.active()
    return asdict(verify()) | {"unkept": list(active.compiled.unkept) if active else []}
