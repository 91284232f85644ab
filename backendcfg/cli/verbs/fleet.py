"""`backendcfg fleet plan|report`: one plan for the hosts of a fleet, and what its ranks did."""

from __future__ import annotations

import datetime as dt
import os
import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from backendcfg import __version__
from backendcfg.cli.group import verb
from backendcfg.cli.options import refuse_unwritable, set_option
from backendcfg.cli.output import block, current, says_no, table
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.fleet.planned import FleetPlan
    from backendcfg.fleet.report import Report
    from backendcfg.schema.host import Host

ACTIONS = ("plan", "report")
TEMPLATE = "ranks.html.jinja"

TITLES = {
    "settings": "Settings that differ",
    "unlike": "What hosts have unlike",
    "missing": "Ranks that saved nothing",
    "obstacles": "What could not be read, or does not fit",
}
"""What the page calls the parts of a report."""

MOST_SHOWN = 20
"""Lines of each part of a report that are shown."""


@verb("fleet", "Manage", interrupted="the file of --output is as it was, or whole")
@click.argument("action", type=click.Choice(ACTIONS))
@click.argument("words", metavar="PROFILE HOSTS... | DIR", nargs=-1, type=click.Path())
@set_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the plan, for `run --fleet`; or the report, as a page of HTML.",
)
@click.option(
    "--ranks",
    metavar="N",
    type=click.IntRange(min=1),
    help="With `plan`: processes on each host, among which its cores are divided.  [default: 1]",
)
def command(
    action: str,
    words: tuple[str, ...],
    settings: Mapping[str, str],
    *,
    output: str | None,
    ranks: int | None,
) -> None:
    """Plan for unlike hosts, or report on the ranks of a job.

    `plan` makes one plan for all hosts, or says why there is none. HOSTS are files that `backendcfg
    detect --capture 'hosts/%h.json'` wrote on each host. Where hosts would come to other settings,
    they are refused, or under `fleet.unlike = "common"` given what all of them can have.

    `report` merges what ranks saved in the folder DIR of `run --save-ranks DIR`: who computed with
    what, what differs, and which ranks are missing. It exits with 1 where not all compute alike.
    """
    if action == "plan":
        if len(words) < 2:
            raise UsageError(
                f"`backendcfg fleet plan` needs {'HOSTS' if words else 'PROFILE and HOSTS'}",
                helps=["write for example `backendcfg fleet plan reproducible hosts/*.json`"],
            )
        _plan(words[0], words[1:], settings, output, ranks or 1)
        return
    for option, given in (("--set", bool(settings)), ("--ranks", ranks is not None)):
        if given:
            raise UsageError(
                f"`backendcfg fleet report` takes no `{option}`",
                helps=["write `backendcfg fleet report DIR`, and `-o FILE` for a page of HTML"],
            )
    if len(words) != 1:
        raise UsageError(
            f"`backendcfg fleet report` {'takes one DIR' if words else 'needs DIR'}",
            helps=["give the folder of `backendcfg run --save-ranks DIR`"],
        )
    _report(words[0], output)


def _plan(
    profile: str,
    hosts: tuple[str, ...],
    settings: Mapping[str, str],
    output: str | None,
    ranks: int,
) -> None:
    from backendcfg import session
    from backendcfg.fleet.consensus import consensus
    from backendcfg.fleet.planned import MARK, refuse_unsafe
    from backendcfg.progress import Step
    from backendcfg.transact import disk

    if output is not None:
        refuse_unwritable(output, "fleet plan", MARK, "--output", "nothing was changed")
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
        disk.replace_named(output, plan.model_dump_json(by_alias=True, indent=2).encode() + b"\n")
        current().note(f"wrote {output}")
    current().answer(plan.model_dump(mode="json", by_alias=True), _lines(plan))


def _report(folder: str, output: str | None) -> None:
    from backendcfg.audit.report import page
    from backendcfg.fleet.report import merge
    from backendcfg.progress import Step

    if output is not None:
        page.check()
        refuse_unwritable(output, "report", page.MARK, "--output", "nothing was read")
    with Step("reading what ranks saved"):
        report = merge(folder)
    if output is not None:
        page.write(_page(report, folder), output, TEMPLATE)
        current().note(f"wrote {output}")
    current().answer(report.document(), _report_lines(report))
    if not report.alike:
        says_no()


def _page(report: Report, folder: str) -> SimpleNamespace:
    """What the page shows."""
    words = ("backendcfg", "fleet", "report", folder)
    about = SimpleNamespace(
        command=words,
        line=shlex.join(words),
        version=__version__,
        day=dt.datetime.now(dt.UTC).date().isoformat(),
    )
    return SimpleNamespace(
        about=about,
        verdict=report.verdict,
        good=report.alike,
        rows=report.rows(),
        parts=_parts(report),
        titles=TITLES,
    )


def _report_lines(report: Report) -> Iterator[str]:
    from backendcfg.resolve.words import some_lines

    yield current().paint(report.verdict, "bold", "green" if report.alike else "red")
    rows = report.rows()
    yield from table(rows[:MOST_SHOWN], ("number", "ranks", "hosts", "profile"))
    if (more := len(rows) - MOST_SHOWN) > 0:
        yield f"and {more} more"
    for label, found in _parts(report).items():
        yield from block(label, some_lines(found, MOST_SHOWN), "bold", label_width=12)


def _parts(report: Report) -> dict[str, list[str]]:
    """The parts of a report below its table, by what they are called."""
    from backendcfg.fleet.report import in_runs

    return {
        "settings": [str(one) for one in report.settings],
        "unlike": [str(one) for one in report.unlike],
        "missing": [in_runs(report.missing)] if report.missing else [],
        "obstacles": list(report.obstacles),
    }


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
