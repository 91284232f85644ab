"""`backendcfg plan`: what a profile means here, what it needs, and its text in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import host_option, profile_argument, set_option
from backendcfg.cli.output import block, current, says_no, table_rows
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.resolve.explain import WhyNot
    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Check, Entry, Plan
    from backendcfg.schema.profile import Stack


@verb("plan", "Look")
@profile_argument()
@set_option
@host_option
@click.option("-v", "--verbose", is_flag=True, help="All flags, also those at their default.")
@click.option(
    "--why-not",
    is_flag=True,
    help="Print what it needs, and whether this machine has it; exit with 1 when it has not.",
)
@click.option("--toml", is_flag=True, help="Print its text with everything that it extends.")
def command(
    name: str | None,
    settings: Mapping[str, str],
    host_file: str | None,
    *,
    verbose: bool,
    why_not: bool,
    toml: bool,
) -> None:
    """Resolve a profile for this machine, changing nothing.

    Without PROFILE it is the one that is in force here. `--toml` prints TOML that means the same
    by itself, with a comment that says where each value is written.
    """
    from backendcfg.cli import sources

    if toml and (why_not or verbose or settings or host_file is not None):
        raise UsageError(
            "`backendcfg plan --toml` takes nothing but a profile",
            helps=["it prints what is written, for every machine"],
        )
    pick = sources.picked(name, settings)
    if toml:
        _toml(pick.name)
    elif why_not:
        _why_not(sources.stack(pick), sources.host(host_file))
    else:
        plan = sources.plan(name, settings, host_file)
        current().answer(plan.model_dump(mode="json", by_alias=True), _lines(plan, verbose))


def _toml(name: str | None) -> None:
    from backendcfg.cli.wording import no_project
    from backendcfg.load.stack import Request, load
    from backendcfg.resolve.explain import toml

    if name is None:
        raise UsageError(
            "no profile is named, and none is in force here",
            notes=no_project(),
            helps=["name one: `backendcfg plan reproducible --toml`"],
        )
    stack = load(Request(name=name, use_environment=False))
    document = {
        "name": stack.name,
        "layers": [layer.model_dump(mode="json") for layer in stack.layers if layer.profile],
    }
    current().answer(document, toml(stack), exact=True)


def _why_not(stack: Stack, host: Host) -> None:
    from backendcfg.resolve.explain import why_not

    answer = why_not(stack, host)
    current().answer(answer.to_dict(), _needs(answer))
    if not answer.fits:
        says_no()


def _lines(plan: Plan, verbose: bool) -> Iterator[str]:
    from backendcfg.cli.wording import grouped_reasons, tier_lines
    from backendcfg.resolve.words import counted

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
    from backendcfg.resolve.words import counted

    conditions = [check for check in plan.checks if check.because.startswith("`[[when]]`")]
    requirements = len(plan.checks) - len(conditions)
    lines = []
    if requirements:  # a plan with one that is unmet does not come into being
        lines.append(f"{counted(requirements, 'requirement')}, all met")
    if conditions:
        met = sum(check.met for check in conditions)
        tables = counted(len(conditions), "condition")
        lines.append(f"`[[when]]`: {tables}, {met} met")
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


def _needs(answer: WhyNot) -> Iterator[str]:
    from backendcfg.resolve.words import counted

    paint = current().paint
    for check in sorted(answer.checks, key=lambda check: check.met):
        mark = paint("yes", "green") if check.met else paint("no ", "red")
        yield from _check(mark, check)
    for check in answer.conditions:
        yield from _check(paint("on ", "green") if check.met else paint("off", "dim"), check)
    for choice in answer.choices:
        if not choice.rejected or choice.chosen == "default":
            continue
        refused = choice.chosen in {rejected.candidate for rejected in choice.rejected}
        outcome = "is required and cannot be used" if refused else "is used"
        yield f"{choice.flag}: {choice.chosen or 'none'} {outcome}"
        for each in choice.conditional:
            yield f"     {each.candidate} {'; '.join(each.reasons)}"
        for rejected in choice.rejected:
            yield f"     not {rejected.candidate}: {'; '.join(rejected.reasons)}"
    if answer.fits:
        yield f"{answer.name} can be used here"
        return
    yield ""
    yield f"{answer.name} cannot be used here, for {counted(len(answer.refusals), 'reason')}:"
    for error in answer.refusals:
        yield f"  {error.code}: {error.message}"
        yield from (f"    note: {note}" for note in error.notes)
        yield from (f"    help: {text}" for text in error.helps if "why-not" not in text)


def _check(mark: str, check: Check) -> Iterator[str]:
    place = f" ({check.place})" if str(check.place) else ""
    yield f"{mark}  {check.need}; found {check.found}"
    yield f"     asked by {check.because}{place}"
