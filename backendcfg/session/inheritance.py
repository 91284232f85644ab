"""A child process takes over what was in force in the one that started it.

A child that `multiprocessing` started gets the plans themselves: the profile of the process and
the scopes that were open, as one base, because a child has no scope to return to. Any other program
gets the request that led to the profile, in BACKENDCFG_INHERIT, and resolves it for itself.
"""

from __future__ import annotations

from backendcfg import __version__, environ
from backendcfg.session import children, installed, process
from backendcfg.transact import log
from backendcfg.transact.compiled import Asked, Compiled

TYPE_CHECKING = False


def receive(given: str) -> None:
    """In a child that unpickles its `Process` object: take over what came with it.

    Raises:
        RolledBackError: a switch could not be set; the child then ends with this error.
    """
    import json

    if environ.disabled():
        return
    data = json.loads(given)
    if data["version"] != __version__:
        log.error(
            "this process has backendcfg %s and cannot take over from its parent, which has %s",
            __version__,
            data["version"],
        )
        _start_alone()
        return
    base = installed.in_force()
    there = base is not None and [plan.to_json() for plan in base.plans] == data["plans"]
    plans = tuple(Compiled.from_dict(json.loads(text)) for text in data["plans"])
    children.settle(plans, tuple(data["identity"]), there=there)


def _start_alone() -> None:
    """Start as a program does that nobody handed anything."""
    from backendcfg.session.choice import chosen

    if not by_variable() and (choice := chosen()) is not None:
        process.install_choice(choice)


def by_variable() -> bool:
    """Take over what BACKENDCFG_INHERIT names, unless BACKENDCFG_PROFILE was set since.

    Returns:
        Whether it did.

    Raises:
        InvalidValueError: backendcfg did not write what the variable holds.
        BackendCfgError: the profile cannot be resolved or applied here.
    """
    import json

    text = environ.INHERIT.read()
    if text is None:
        return False
    try:
        data = json.loads(text)
        over, requests = data["over"], [Asked(**request) for request in data["requests"]]
    except (ValueError, TypeError, KeyError) as error:
        from backendcfg.errors import InvalidValueError

        raise InvalidValueError(
            f"{environ.INHERIT.name} does not hold what backendcfg puts there",
            helps=[f"run `unset {environ.INHERIT.name}`"],
        ) from error
    if over != (environ.PROFILE.read() or "") or not requests:
        return False
    from backendcfg.session.planning import compiled

    plans = [
        compiled(
            request.name,
            arguments=request.arguments,
            rank=request.rank,  # type: ignore[arg-type]
            directory=request.directory,
        )
        for request in requests
    ]
    process.take_over(plans, children.SOURCE)
    return True
