"""What a child process takes over from the one that started it.

A child that `multiprocessing` started gets the plans themselves: the profile of the process and
the scopes that were open, as one base, because a child has no scope to return to. Any other program
gets the request that led to the profile, in BACKENDCFG_INHERIT, and resolves it for itself.
"""

from __future__ import annotations

from backendcfg import __version__, _native, environ
from backendcfg.bridges import seeds
from backendcfg.registry import scopes
from backendcfg.session import installed, process, threads
from backendcfg.transact import log
from backendcfg.transact.compiled import Asked, Compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Unpickling must work in every child: one whose Python has no backendcfg, or another one. So what
# is pickled is not a class of ours but this text, which gives up where there is nothing to call.
_RECEIVE = """
from multiprocessing.process import current_process
current_process()._backendcfg_given = given
try:
    from backendcfg.session.inheritance import receive
except ImportError:
    pass
else:
    receive(given)
"""

SOURCE = "the parent process"


class Inheritance:
    """What is in force where a process is started.

    Attributes:
        plans: the profile of the process and of each scope, outermost first.
        identity: which child it is: the how many-th of its parent, after its parent's own.
    """

    __slots__ = ("identity", "plans")

    def __init__(self, plans: tuple[Compiled, ...], identity: tuple[int, ...]) -> None:
        self.plans = plans
        self.identity = identity

    @classmethod
    def of(cls, child: Any, opened: Sequence[_native.Prepared]) -> Inheritance | None:
        """What a `multiprocessing` process shall take over, if there is anything.

        Args:
            child: the process.
            opened: the scopes that are open, innermost first.
        """
        if environ.disabled():
            return None
        base = installed.in_force()
        plans = base.plans if base is not None else ()
        plans = *plans, *(prepared.payload for prepared in reversed(opened))
        # A fork inside a scope takes the scope along, although the pool may have been made outside.
        return cls(plans, tuple(child._identity)) if plans or _native.chain() else None

    def __reduce__(self) -> tuple[Any, ...]:
        import json

        if not self.plans:
            return str, ()
        given = {
            "version": __version__,
            "identity": self.identity,
            "plans": [plan.to_json() for plan in self.plans],
        }
        return exec, (_RECEIVE, {"given": json.dumps(given)})

    def take_over(self) -> None:
        """In a forked child, whose memory has the parent's profile, scopes and generators."""
        if _native.chain():
            _abandon_scopes()
        base = installed.in_force()
        _settle(self.plans, self.identity, there=base is not None and base.plans == self.plans)


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
    _settle(plans, tuple(data["identity"]), there=there)


def _start_alone() -> None:
    """Start as a program does that nobody handed anything."""
    from backendcfg.session.choice import chosen

    if not by_variable() and (choice := chosen()) is not None:
        process.install_choice(choice)


def in_words(handed: Sequence[Asked]) -> str:
    """What BACKENDCFG_INHERIT holds: the requests, and the BACKENDCFG_PROFILE that they outrank."""
    import json

    requests = [dict(vars(request)) for request in handed]
    return json.dumps({"over": environ.PROFILE.read() or "", "requests": requests})


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
    process.take_over(plans, SOURCE)
    return True


def _settle(plans: tuple[Compiled, ...], identity: tuple[int, ...], *, there: bool) -> None:
    """Make the plans the base of this child, with generators of its own."""
    seeds.become(identity)
    if plans and not (there and all("seed.value" not in plan.asked for plan in plans)):
        process.take_over(plans, SOURCE)
    else:
        threads.begin()  # the thread that forked may be older than the profile


def _abandon_scopes() -> None:
    """Forget the scopes of the parent, which a child never leaves: it ends instead."""
    from contextvars import copy_context

    for claim in _native.claims():
        scopes.leave_switches(None, None, claim)
    for variable in copy_context():
        if variable.name == "backendcfg.scopes":
            variable.set(None)
