"""`backendcfg apply PROFILE`: make a profile the active one, and say what that means here."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from backendcfg.catalogue.frameworks import CUPY, JAX, NUMPY, SCIPY, TENSORFLOW, TORCH
from backendcfg.cli.group import verb
from backendcfg.cli.options import profile_argument, set_option, whose_options
from backendcfg.cli.output import LABEL_WIDTH, block, current, limited, listing, one_line
from backendcfg.errors import BackendCfgError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.schema.plan import Entry
    from backendcfg.session.shell import Activation
    from backendcfg.transact.outcome import Report

FIRST = {each.name: rank for rank, each in enumerate((NUMPY, TORCH, SCIPY, JAX, TENSORFLOW, CUPY))}
"""Packages that a line about a host names first."""


@verb(
    "apply",
    "Use",
    interrupted="the profile that was active still is, or the new one is; "
    "`backendcfg status` tells",
)
@profile_argument()
@set_option
@whose_options
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse when something would be pending in a plain `python` started here.",
)
@click.option(
    "--check",
    is_flag=True,
    help="First apply it in a child process that imports the installed frameworks.",
)
def command(
    name: str | None, settings: Mapping[str, str], strict: bool, check: bool, **place: bool
) -> None:
    """Make a profile the active one for this project.

    Outside a project, and with `--user`, it is the user's; with `--environment` every user of this
    Python environment has it, as in an image for containers. Neither takes profiles or settings
    from a project. Without PROFILE it is the active one anew, else the one that the settings files
    pick. `undo` returns to what was before.
    """
    from backendcfg import environ, session
    from backendcfg.session.choice import chosen, declined
    from backendcfg.transact.generations import whose

    if environ.disabled():
        current().note("BACKENDCFG_DISABLE turns backendcfg off; the profile acts once it is unset")
    if name is None:
        name, settings = again(settings, **place)
    activation = session.activate(name, arguments=settings, strict=strict, check=check, **place)
    about = f" {activation.plan.name}"
    with suppress(BackendCfgError):  # what cannot be read says so where it is to be in force
        here, mine = chosen() or declined(), (whose(activation.path), activation.generation)
        if here is not None and (here.where, here.generation) == mine:
            about = ""  # flags in settings files would lose to a profile that is named
        elif here is not None and here.name:
            current().note(f"here {here.source} comes first: `{here.name}`")
    current().answer(_document(activation), _lines(activation, about))


def again(
    settings: Mapping[str, str], *, user: bool, environment: bool
) -> tuple[str | None, Mapping[str, str]]:
    """What `apply` without a name is about.

    Raises:
        UsageError: nothing is active, and no settings file picks a profile.
    """
    from backendcfg import session
    from backendcfg.cli.wording import no_project
    from backendcfg.session.choice import chosen

    generation = session.current(user=user, environment=environment)
    if generation is not None:
        return generation.name, {**generation.arguments, **settings}
    picked = chosen(arguments=settings)
    if picked is None or picked.name is None:
        raise UsageError(
            "no profile is named, and no settings file picks one",
            notes=no_project(),
            helps=["run `backendcfg apply reproducible`, or see `backendcfg list`"],
        )
    return None, picked.arguments


def governed(activation: Activation) -> str:
    """What has the profile from now on, in one sentence."""
    from backendcfg.session import autoload
    from backendcfg.transact.generations import ENVIRONMENT

    environments = "in each environment with backendcfg"
    if activation.path == ENVIRONMENT:
        where, environments = " where nothing else is picked", "in this environment"
    else:
        where = " in this project" if activation.path else " where no project picks another"
    if why := autoload.silent():
        return f"what `backendcfg run` starts{where}, or imports backendcfg; plain `python` {why}"
    return f"every `python` that starts{where}, {environments}"


def _document(activation: Activation) -> dict[str, Any]:
    return {
        "profile": activation.plan.name,
        "generation": activation.generation,
        "project": activation.path if os.path.isabs(activation.path) else None,
        "plan": activation.plan.model_dump(mode="json", by_alias=True),
        "environment": dict(activation.variables),
        "unanswered": list(activation.unanswered),
        "rehearsal": activation.rehearsal.to_dict() if activation.rehearsal else None,
    }


def _lines(activation: Activation, about: str) -> Iterator[str]:
    """What a person reads: never more than a screen of 24 lines, however much there is to say.

    Args:
        activation: what was done.
        about: what verbs need behind their name to be about it, with a space; "" for nothing.
    """
    from backendcfg.cli.wording import adaptation, grouped_reasons, no_project, tier_lines
    from backendcfg.resolve.words import assignment
    from backendcfg.session import autoload
    from backendcfg.transact.generations import option, whose

    plan, paint = activation.plan, current().paint
    see = f"backendcfg plan{about}"
    where = whose(activation.path)
    title = paint(plan.name, "bold", "green")
    yield f"{title} is active for {where} (generation {activation.generation})"
    yield from block("governs", [governed(activation)], "bold")
    yield from block("no project", no_project(), "bold", "yellow")
    yield from block("host", [host_line(plan.host)], "bold")
    yield from limited("tier", tier_lines(plan.tier, plan.unkept), "bold", most=3, see=see)
    seed = plan.entry("seed.value")
    if in_effect(seed) and seed.value != "off":
        yield from block("draws", ["the same random numbers in every process that starts"], "bold")
    at_work = [assignment(e.flag, e.value) for e in plan.entries if in_effect(e)]
    yield from listing("set", at_work, "bold", most=3, see=see)
    adapted = [adaptation(e) for e in plan.entries if e.adaptation and in_effect(e)]
    yield from limited("adapted", adapted, "bold", most=3, see=see)
    at_start = present(activation.variables)
    yield from listing("at start", at_start, "bold", most=2, see=f"backendcfg env{about}")
    if at_start and autoload.silent():
        yield " " * LABEL_WIDTH + "only in processes that `backendcfg run` starts"
    dormant = {e.flag: e.idle for e in plan.entries if e.idle and e.origin.rank != "default"}
    yield from limited("dormant", grouped_reasons(dormant), "bold", most=3, see=see)
    if activation.rehearsal is not None:
        yield from _rehearsal(activation.rehearsal, about)
    yield from limited("overrides", plan.overrides, "bold", "yellow", most=2, see=see)
    if activation.unanswered:
        told = ["every process asks again, until all of these answer:", *activation.unanswered]
        yield from limited("failed", told, "bold", "yellow", most=4, see="backendcfg doctor")
    undo = f"backendcfg undo{option(where)}"
    yield from block("next", ["python train.py", undo], "bold")


def host_line(summary: str) -> str:
    """The host in one line: its hardware, and of its packages those that compute most."""
    hardware, semicolon, packages = summary.partition("; ")
    ranked = sorted(packages.split(", "), key=lambda item: FIRST.get(item.partition(" ")[0], 9))
    return one_line(hardware + semicolon + ", ".join(ranked))


def in_effect(entry: Entry) -> bool:
    """Whether somebody set this flag and something here reads it."""
    return entry.origin.rank != "default" and not entry.idle


def present(variables: Mapping[str, str | None]) -> list[str]:
    """What a process must have from its start; of what must be unset, only what is set here."""
    from backendcfg import environ

    here = environ.foreign(variables)
    words = [f"{name}={value}" for name, value in sorted(variables.items()) if value is not None]
    return words + [f"{name} unset" for name in here if variables[name] is None]


def _rehearsal(report: Report, about: str) -> Iterator[str]:
    """What the child process of `--check` found."""
    from backendcfg.resolve.words import counted

    by_state: dict[str, int] = {}
    for outcome in report.outcomes:
        by_state[outcome.state] = by_state.get(outcome.state, 0) + 1
    tally = ", ".join(f"{number} {state}" for state, number in sorted(by_state.items()))
    switches = counted(len(report.outcomes), "switch", "switches")
    yield from block("checked", [f"{switches} in a child process: {tally or 'none'}"], "bold")
    pending = [f"{one.switch}: {one.because}" for one in report.outcomes if one.state == "pending"]
    see = f"backendcfg verify{about}"
    yield from limited("pending", pending, "bold", "yellow", most=2, see=see)
