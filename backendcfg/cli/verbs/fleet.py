"""`backendcfg fleet plan`: one plan for the hosts of a fleet."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import set_option
from backendcfg.cli.output import block, current
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.fleet.planned import FleetPlan
    from backendcfg.schema.host import Host

ACTIONS = ("plan",)


@verb("fleet", "Manage", interrupted="the file of --output is as it was, or whole")
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("profile")
@click.argument("hosts", nargs=-1, required=True, type=click.Path())
@set_option
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Write the plan, for `run --fleet`."
)
@click.option(
    "--ranks",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes on each host, among which its cores are divided.",
)
def command(
    action: str,
    profile: str,
    hosts: tuple[str, ...],
    settings: Mapping[str, str],
    *,
    output: str | None,
    ranks: int,
) -> None:
    """Make one plan for unlike hosts, or say why there is none.

    HOSTS are files that `backendcfg detect --capture 'hosts/%h.json'` wrote on each host. Where
    hosts would come to other settings, they are refused, or under `fleet.unlike = "common"` given
    what all of them can have.
    """
    from backendcfg import session
    from backendcfg.cli.sources import write_text
    from backendcfg.fleet.consensus import consensus
    from backendcfg.fleet.planned import refuse_unsafe
    from backendcfg.progress import Step

    with Step(f"planning for {len(hosts)} hosts"):
        plan = consensus(
            profile,
            lambda arguments: session.stack(profile, arguments=arguments),
            settings,
            _named(hosts),
            ranks,
        )
    if output is not None:
        refuse_unsafe(plan, output)
        write_text(output, plan.model_dump_json(by_alias=True, indent=2) + "\n")
        current().note(f"wrote {output}")
    current().answer(plan.model_dump(mode="json", by_alias=True), _lines(plan))


def _named(paths: tuple[str, ...]) -> Iterator[tuple[str, Host]]:
    """Each host with the name of its file."""
    from backendcfg.cli.sources import read_host

    seen: dict[str, str] = {}
    for path in paths:
        name = os.path.splitext(os.path.basename(path))[0]
        if name in seen:
            raise UsageError(
                f"{seen[name]} and {path} have the same name, so hosts could not be told apart",
                helps=["give each host's file its own name"],
            )
        seen[name] = path
        yield name, read_host(path)


def _lines(plan: FleetPlan) -> Iterator[str]:
    from backendcfg.fleet.planned import pins_in_words
    from backendcfg.resolve.words import counted

    each = f", {counted(plan.ranks, 'process', 'processes')} on each" if plan.ranks > 1 else ""
    yield from block("fleet", [f"{counted(plan.hosts, 'host')}{each}"], "bold", label_width=12)
    yield from block("profile", [plan.profile], "bold", label_width=12)
    packages = sum(name.startswith("package ") for name in plan.builds)
    equal = f"{counted(packages, 'package')}, {counted(len(plan.values), 'flag')}"
    yield from block("equal", [equal], "bold", label_width=12)
    made = pins_in_words(pin for pin in plan.pins if pin.values)
    yield from block("made equal", made or ["nothing had to be"], "bold", label_width=12)
    unlike = [str(one) for one in plan.unlike]
    yield from block("unlike", unlike or ["nothing"], "bold", label_width=12)
    yield from block("tier", [_tier(plan)], "bold", label_width=12)


def _tier(plan: FleetPlan) -> str:
    if plan.tier == "none":
        return "none: results may differ from run to run"
    if plan.tier == "cross-machine" or not plan.unlike:
        return f"{plan.tier}, on every host alike"
    return f"{plan.tier}, on each host; what is unlike may give other bits on another host"
