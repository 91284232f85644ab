"""`backendcfg why-not PROFILE`: every requirement, and what the host has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import ProfileName, host_option, set_option
from backendcfg.cli.output import current, says_no

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backendcfg.resolve.explain import WhyNot
    from backendcfg.schema.plan import Check


@verb("why-not", "Look before")
@click.argument("name", metavar="PROFILE", type=ProfileName())
@set_option
@host_option
def command(name: str, settings: Mapping[str, str], host_file: str | None) -> None:
    """List what a profile needs, and whether this machine has it.

    Exits with 1 when the profile cannot be used here.
    """
    from backendcfg.cli import sources
    from backendcfg.resolve.explain import why_not

    answer = why_not(sources.asked(name, settings).stack(), sources.host(host_file))
    current().answer(answer.to_dict(), _lines(answer))
    if not answer.fits:
        says_no()


def _lines(answer: WhyNot) -> Iterator[str]:
    from backendcfg.cli.wording import counted

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
