"""Profiles for the workers of Ray and Dask: what one is started with, and what it does then."""

from __future__ import annotations

import os
import shlex
import socket
from typing import TYPE_CHECKING, Any

from backendcfg import _native, environ, plain_json
from backendcfg.audit.token import numerics_token
from backendcfg.errors import FleetWorkerError, TooLateError, UsageError
from backendcfg.fleet.agreement import MOST_NAMED
from backendcfg.records import replace
from backendcfg.resolve.words import some
from backendcfg.session import children, installed, planning, process
from backendcfg.session.choice import chosen
from backendcfg.transact.compiled import Asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.transact.compiled import Compiled


def requested(
    name: str | None, settings: Mapping[str, Any] | None, threads: int | None
) -> tuple[Asked, ...]:
    """The profile that workers are to have: the one that is named, else that of this process.

    Args:
        name: the profile; None for the one in force in this process, else the one in force here.
        settings: flags to set over it.
        threads: of each worker; None for one where the profile leaves the number to the machine,
            as the engine starts a worker for each processor.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: this machine cannot serve it.
        UsageError: none is named, and none is in force.
    """
    planning.refuse_no_name(name)
    arguments = planning.as_arguments(settings)
    here = installed.plans(_native.chain())
    if name is None and here:
        *beneath, last = (plan.request for plan in here)
        last = replace(last, arguments={**last.arguments, **arguments})
        return (*beneath, _with_threads(last, threads))
    picked = chosen(name, arguments)
    if picked is None:
        raise UsageError(
            "no profile is named, and none is in force here",
            helps=['name one, as "reproducible"', "run `backendcfg list` to see every profile"],
        )
    asked = Asked(planning.anywhere(picked.request), picked.rank, picked.arguments, os.getcwd())
    return (_with_threads(asked, threads),)


def _with_threads(asked: Asked, threads: int | None) -> Asked:
    if threads is None and not leaves_threads_open(asked):
        return asked
    return replace(asked, arguments={**asked.arguments, "threads.count": str(threads or 1)})


def leaves_threads_open(asked: Asked) -> bool:
    """Whether a profile leaves the number of threads to the machine: `threads.count = "auto"`."""
    plan, _ = planning.resolved(
        asked.name,
        arguments=asked.arguments,
        rank=asked.rank,  # type: ignore[arg-type]
        directory=asked.directory,
    )
    return any(one.flag == "threads.count" and one.adaptation for one in plan.entries)


def plans_of(requests: Sequence[Asked]) -> tuple[Compiled, ...]:
    """What requests mean on this host; in the working directory where theirs is not here."""
    return tuple(
        planning.compiled_request(
            asked if os.path.isdir(asked.directory) else replace(asked, directory="")
        )
        for asked in requests
    )


def before_start(plans: Sequence[Compiled]) -> dict[str, str]:
    """The variables that an interpreter must be started with."""
    from backendcfg.bridges.environment import settings

    last = plans[-1]
    return {
        one.switch.name: one.wanted
        for one in settings(last.values, last.effective, last.name)
        if one.switch.latch == "before-process" and one.wanted is not None
    }


def in_words(requests: Sequence[Asked]) -> str:
    """Requests as the text of a variable."""
    return plain_json.dumps([dict(vars(asked)) for asked in requests])


def from_words(text: str) -> tuple[Asked, ...]:
    """The inverse of `in_words`."""
    return tuple(Asked(**one) for one in plain_json.loads(text))


def begin(requests: Sequence[Asked], engine: str, name: str) -> None:
    """Compute under the profile from now on in this worker.

    Its generators start where no other worker's do. A rank knows its number and can draw otherwise
    than the others by it; a task does not know which worker computes it.

    Args:
        requests: what to apply.
        engine: who starts workers, in words.
        name: what the engine calls this one; where its generators start follows from it.

    Raises:
        RequestError: the profile is not there, or wrong on this host.
        MachineError: this host cannot serve it.
        TooLateError: something that its tier rests on can no longer be set in this worker.
        RolledBackError: a switch could not be set.
    """
    if environ.disabled():
        return
    children.connect(process.take_over)
    plans, applied = plans_of(requests), installed.in_force()
    there = applied is not None and applied.plans == plans
    children.settle(plans, ("worker", name), there=there, source=engine)
    report = installed.report()
    late = [
        one
        for one in (report.outcomes if report is not None else ())
        if one.state == "pending" and plans[-1].tier_rests_on(one.flag)
    ]
    if late and plans[-1].tier != "none":
        raise TooLateError(
            f"profile `{plans[-1].name}` cannot be in force in this worker",
            notes=[f"{one.switch} can no longer be set, {one.because}" for one in late],
            state="the worker computes nothing",
        )


def refuse_other_settings(requests: Sequence[Asked], worker: str) -> None:
    """Refuse a worker that nothing can start anew, unless it is under the profile already.

    Raises:
        FleetWorkerError: it has other settings.
    """
    plan, asked = plans_of(requests)[-1], requests[-1]
    applied = installed.in_force()
    have = applied.plans[-1].values if applied is not None else {}
    others = [flag for flag in plan.effective if have.get(flag) != plan.values[flag]]
    if others:
        options = [f"--set={flag}={text}" for flag, text in asked.arguments.items()]
        line = shlex.join(["backendcfg", "run", str(asked.name), *options, "--"])
        own = worker.startswith("inproc:")
        raise FleetWorkerError(
            f"worker {worker} is not under profile `{asked.name}`, and"
            + (" is this program itself" if own else " has no nanny that could start it anew"),
            notes=[f"it does not have the profile's {some(others, MOST_NAMED)}"],
            state="the worker is as it was",
            helps=[
                f"start the program by `{line} python ...`"
                if own
                else f"give it a nanny, or start it by `{line} dask worker ...`"
            ],
        )


def told() -> tuple[str, dict[str, dict[str, Any]]]:
    """The host of this worker, and the parts of its token."""
    return socket.gethostname(), numerics_token().parts
