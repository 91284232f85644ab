"""`backendcfg plan`: every flag with its value, who set it, and how the host changed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import host_option, profile_argument, set_option
from backendcfg.cli.output import block, current, table_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.schema.plan import Entry, Plan


@verb("plan", "Look before")
@profile_argument()
@set_option
@host_option
@click.option("-v", "--verbose", is_flag=True, help="All flags, also those at their default.")
def command(
    name: str | None, settings: Mapping[str, str], host_file: str | None, verbose: bool
) -> None:
    """Resolve a profile for this machine, changing nothing.

    Without PROFILE it is the one that is in force here.
    """
    from backendcfg.cli import sources

    plan = sources.plan(name, settings, host_file)
    current().answer(plan.model_dump(mode="json", by_alias=True), _lines(plan, verbose))


def _lines(plan: Plan, verbose: bool) -> Iterator[str]:
    from backendcfg.cli.wording import counted, grouped_reasons, tier_lines

    yield from block("profile", [f"{plan.name}: {plan.description}".removesuffix(": ")], "bold")
    yield from block("host", [plan.host], "bold")
    yield from block("tier", tier_lines(plan.tier, plan.unkept), "bold")
    shown = [e for e in plan.entries if verbose or e.origin.rank != "default" or e.adaptation]
    yield ""
    yield from _entries(shown)
    yield ""
    for choice in plan.choices:
        asked = plan.entry(choice.flag).origin.rank != "default"
        if verbose or asked or choice.chosen != "default":
            refused = [
                f"{one.candidate} {'; '.join(one.reasons)}" for one in choice.conditional if asked
            ]
            refused += [
                f"not {one.candidate}: {'; '.join(one.reasons)}"
                for one in choice.rejected
                if verbose or asked
            ]
            chosen = f"{choice.flag}: {choice.chosen or 'none'}"
            yield from block("choice", [chosen, *refused], "bold")
    yield from block("checks", _checks(plan), "bold")
    dormant = {entry.flag: entry.idle for entry in plan.entries if entry.idle}
    yield from block("dormant", grouped_reasons(dormant), "bold")
    yield from block("overrides", plan.overrides, "bold", "yellow")
    hidden = len(plan.entries) - len(shown)
    if hidden:
        yield from block(
            "default", [f"{counted(hidden, 'other flag')}, see `backendcfg plan -v`"], "bold"
        )


def _checks(plan: Plan) -> list[str]:
    from backendcfg.cli.wording import counted

    conditions = [check for check in plan.checks if check.because.startswith("`[[when]]`")]
    requirements = len(plan.checks) - len(conditions)
    lines = []
    if requirements:  # a plan with one that is unmet does not come into being
        lines.append(f"{counted(requirements, 'requirement')}, all met")
    if conditions:
        hold = sum(check.met for check in conditions)
        tables = counted(len(conditions), "condition")
        lines.append(f"`[[when]]`: {tables}, {hold} met")
    return lines


def _entries(entries: list[Entry]) -> Iterator[str]:
    from backendcfg.resolve.words import literal, set_at

    rows = [
        (e.flag, literal(e.value), set_at(e.origin) + (", dormant" if e.idle else ""))
        for e in entries
    ]
    for entry, lines in zip(entries, table_rows(rows), strict=True):
        yield from (current().paint(line, "dim") if entry.idle else line for line in lines)
        if change := entry.adaptation:
            yield f"    requested {literal(change.requested)}, because {change.because}"
