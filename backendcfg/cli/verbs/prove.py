"""`backendcfg prove PROFILE -- CMD`: whether a program produces the same in every run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from backendcfg import childprocess
from backendcfg.cli.group import verb
from backendcfg.cli.options import ProfileName, report_option, write_report
from backendcfg.cli.output import block, current, says_no
from backendcfg.cli.sides import SidesVerb, check, note_unless_governed
from backendcfg.errors import UsageError, shown_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from backendcfg.audit.evidence.files import Content
    from backendcfg.audit.evidence.prove import Proof
    from backendcfg.audit.evidence.runs import Run, Side
    from backendcfg.audit.evidence.twice import Twice
    from backendcfg.audit.evidence.why import Search
    from backendcfg.cli.output import Colour
    from backendcfg.transact.compiled import Compiled


def _read_also(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, int]:
    """What every third run has otherwise, from `threads=1`."""
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in ("threads", "processors") or not (number.isdecimal() and int(number)):
            raise UsageError(
                f"`--also {text}` is no number of threads or processors",
                helps=["write `--also threads=1` or `--also processors=1`"],
            )
        found[name] = int(number)
    return found


@verb(
    "prove",
    "Prove",
    cls=SidesVerb,
    interrupted="files that the command wrote are there; nothing else changed",
)
@click.argument("name", metavar="PROFILE", type=ProfileName())
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--runs",
    metavar="N",
    type=click.IntRange(min=2, max=1000),
    default=10,
    show_default=True,
    help="Run the command N times.",
)
@click.option(
    "--files",
    "folder",
    metavar="FOLDER",
    type=click.Path(),
    default=".",
    help="Compare the files that it writes below FOLDER; the working directory unless given.",
)
@click.option(
    "--also",
    metavar="NAME=N",
    multiple=True,
    callback=_read_also,
    help="Give every third run N threads or N processors: `threads=1`, `processors=1`.",
)
@click.option(
    "--twice",
    is_flag=True,
    help="Also run each operation twice, which shows rare races.",
)
@click.option(
    "--why",
    is_flag=True,
    help="Also find the first operation that differs, and the flags of `reproducible` that make"
    " runs the same.",
)
@click.option(
    "-o",
    "--output",
    "lock",
    metavar="FILE",
    type=click.Path(),
    help="Where all runs are the same, write what they ran on to FILE, for `run --locked FILE`.",
)
@click.option(
    "--against",
    metavar="FILE",
    type=click.Path(),
    help="Also compare with the lock in FILE: what is here, and what the runs produce.",
)
@report_option()
def command(
    name: str,
    words: tuple[str, ...],
    runs: int,
    folder: str,
    also: dict[str, int],
    *,
    lock: str | None,
    against: str | None,
    report: str | None,
    twice: bool,
    why: bool,
) -> None:
    """Run a command again and again under a profile, and compare results.

    What it prints is compared number by number, the files that it writes by what they hold, and
    what it gives to `backendcfg.record()` by value. The surroundings differ from run to run as far
    as the profile does not hold them, and every second run finds all processors busy. Exits with 1
    when a run differs from the first, or from the results of a lock. PROFILE may be `nothing`.
    """
    from dataclasses import replace

    from backendcfg.audit.evidence.prove import THIRD, prove
    from backendcfg.audit.evidence.runs import run
    from backendcfg.audit.evidence.sides import held, plan_of, side_of
    from backendcfg.audit.report import words as in_words
    from backendcfg.audit.report.data import About, Proved
    from backendcfg.cli.locking import Locking

    check("prove", name, words)
    plan, folder = plan_of(name), os.path.abspath(folder)
    if also and runs <= THIRD:
        raise UsageError(
            f"`--also` needs {THIRD + 1} runs or more, not {runs}",
            helps=["it is every third run that differs so"],
        )
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError(
            f"{shown_path(folder)} is no folder",
            state="the command was not started",
            helps=["give the folder that it writes to with `--files`"],
        )
    side = replace(side_of(name, plan), also=also)
    locking = Locking(name, plan, write=lock, against=against)

    def keep(first: Run, wrote: Mapping[str, Content]) -> None:
        if not os.path.isdir(folder):
            raise UsageError(
                f"there is no folder {shown_path(folder)} after the first run",
                state="the command ran once; files that it wrote are there",
                helps=["give the folder that it writes to with `--files`"],
            )
        locking.keep(first, wrote)

    found = prove(words, side, held(plan), runs=runs, folder=folder, keep=keep)
    if found.equal and plan is not None:
        with childprocess.scratch() as guard:
            run(words, side_of(name, plan, guard), counts=False)
            note_unless_governed(guard)
    tier = plan.tier if plan is not None else "none"
    results = Proved(About("prove", words), found, tier)
    lines = [*_lines(found, tier)]
    steady = True
    if twice:
        tried = _tried_twice(side, plan, words)
        results = replace(results, twice=tried)
        lines += _twice_in_words(tried)
        steady = not tried.unlike
    if why and not found.equal:
        searched, cure = _reasons(side, plan, words, found, folder)
        results = replace(results, why=searched, cure=cure)
        lines += [
            *_steps(searched),
            *block("cure", [in_words.cure(cure, found)], "bold"),
        ]
    locked, more, same = locking.after(found)
    results = replace(results, against=locking.compared)
    current().answer(results.document() | locked, [*lines, *more])
    write_report(results, report)
    if not (found.equal and steady and same):
        says_no()


def _tried_twice(proven: Side, plan: Compiled | None, words: tuple[str, ...]) -> Twice:
    """What a run under the plan shows whose operations are run twice."""
    from dataclasses import replace

    from backendcfg.audit.evidence.sides import held, side_of, variant_of
    from backendcfg.audit.evidence.twice import twice

    with childprocess.scratch() as scratch:
        # Under `nothing` backendcfg is off and records nothing; an empty profile sets as little.
        same = variant_of(scratch, None, plan, ())
        side = replace(side_of(proven.name, same), also=proven.also)
        return twice(words, side, held(same))


def _twice_in_words(found: Twice) -> Iterator[str]:
    from backendcfg.audit.report import words
    from backendcfg.resolve.words import counted

    colours: list[Colour] = [] if found.bound is None else ["red" if found.unlike else "green"]
    yield from block("twice", [words.repeated(found)], "bold", *colours)
    for one in found.unlike[:MOST_SHOWN]:
        yield from block("", [f"op {one.index}  {one.operation}  {one.place}"])
    if (more := len(found.unlike) - MOST_SHOWN) > 0:
        yield from block("", [f"{counted(more, 'more operation')}, see `--json`"])


def _reasons(
    proven: Side, plan: Compiled | None, words: tuple[str, ...], found: Proof, folder: str
) -> tuple[Search, dict[str, Any] | None]:
    """Why runs differ, and the flags with which they do not, with the values of CURES."""
    from dataclasses import replace

    from backendcfg.audit.evidence import prove
    from backendcfg.audit.evidence.sides import (
        differing,
        effective,
        held,
        plan_of,
        side_of,
        variant_of,
    )
    from backendcfg.audit.evidence.why import search
    from backendcfg.audit.report.words import CURES

    wanted = plan_of(CURES)
    values = effective(wanted)
    # A tier is no setting: it asks for some, which are flags of their own here.
    flags = [
        flag for flag in differing(wanted, plan) if flag in values and flag != "determinism.tier"
    ]
    settable = {flag: values[flag] for flag in flags}
    with childprocess.scratch() as scratch:

        def as_wanted(some: Collection[str]) -> tuple[Side, dict[str, str | None]]:
            set_so = variant_of(scratch, wanted, plan, some)
            title = f"{proven.name} with some of {CURES}" if some else proven.name
            return replace(side_of(title, set_so), also=proven.also), held(set_so)

        runs, odd = found.convincing, found.differences[0].run - 1

        def suffices(some: Collection[str]) -> bool:
            return prove.is_equal(words, as_wanted, some, runs=runs, folder=folder)

        searched = search(words, settable, as_wanted, suffices, odd=odd)
        cure = searched.cure if searched.sufficient else prove.cure(flags, suffices)
    return searched, None if cure is None else {flag: values[flag] for flag in cure}


def _steps(searched: Search) -> Iterator[str]:
    """The operations at which runs parted, one after the other."""
    from backendcfg.audit.report import words

    for number, step in enumerate(searched.steps):
        yield from block("then" if number else "first", [words.operation(step)], "bold")
        if place := words.place(step):
            yield from block("at", [place], "bold")
        if step.settings:
            yield from block("parts at", [", ".join(step.settings)], "bold")
        yield from block("", [*words.about(step)])
    if searched.obstacle:
        label, text = ("then", "") if searched.steps else ("first", "not found: ")
        yield from block(label, [text + searched.obstacle], "bold")


def _lines(found: Proof, tier: str) -> Iterator[str]:
    from backendcfg.audit.report import words
    from backendcfg.resolve.words import counted

    if found.equal:
        yield from block("equal", [words.verdict(found)], "bold", "green")
    else:
        yield from block("differs", [words.verdict(found)], "bold", "red")
        for one in found.differences[:MOST_SHOWN]:
            run = f"run {one.run}{words.surroundings(one)}"
            yield from block("", [f"{run}: {what}" for what in words.produced(one)])
        if (more := len(found.differences) - MOST_SHOWN) > 0:
            yield from block("", [f"{counted(more, 'more run')}, see `--json`"])
    yield from block("varied", [", ".join(found.varied)], "bold")
    yield from block("held", [", ".join(found.held)], "bold")
    if found.left_out:
        yield from block("left out", [words.left_out(found)], "bold")
    if found.files is None:
        yield from block("not read", ["files: the folder holds too many; see `--files`"], "bold")
    if found.unread:
        yield from block("not read", found.unread[:MOST_SHOWN], "bold")
    yield from block("tier", [tier], "bold")
    if found.equal:
        yield from block("bound", [words.bound(found)], "bold")


MOST_SHOWN = 3
