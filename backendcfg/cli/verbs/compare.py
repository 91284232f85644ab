"""`backendcfg compare A B -- CMD`: a program under two profiles, measured in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from backendcfg import childprocess
from backendcfg.cli.group import verb
from backendcfg.cli.options import ProfileName, report_option, write_report
from backendcfg.cli.output import block, current, table
from backendcfg.cli.sides import SidesVerb, check, note_unless_governed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from backendcfg.audit.evidence.compare import Comparison, Why
    from backendcfg.audit.evidence.float64 import Float64
    from backendcfg.audit.evidence.pairs import Ratio
    from backendcfg.audit.evidence.runs import Side


@verb(
    "compare",
    "Prove",
    cls=SidesVerb,
    interrupted="files that the command wrote are there; nothing else changed",
)
@click.argument("a", metavar="A", type=ProfileName())
@click.argument("b", metavar="B", type=ProfileName())
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Measure for about N seconds, and for eight runs at least.",
)
@click.option("--why", is_flag=True, help="Also find the flags that make the difference.")
@click.option(
    "--float64",
    is_flag=True,
    help="Also run each operation in float64, once under each: how many of its bits are right.",
)
@report_option()
def command(
    a: str,
    b: str,
    words: tuple[str, ...],
    seconds: float,
    *,
    float64: bool,
    report: str | None,
    why: bool,
) -> None:
    """Run a command under two profiles in turns: time, memory, numbers.

    A or B may be `nothing`: the command as if backendcfg were not installed. The order is A, B, B,
    A, and the ratio of a side to itself says what noise alone does; a difference within that is
    none. What the command prints is compared number by number, and what it gives to
    `backendcfg.record()` by value.
    """
    from dataclasses import replace

    from backendcfg.audit.evidence import compare
    from backendcfg.audit.evidence import float64 as exactness
    from backendcfg.audit.evidence.sides import differing, plan_of, side_of, variant_of
    from backendcfg.audit.report.data import About, Compared
    from backendcfg.errors import UsageError

    check("compare", f"{a} {b}", words)
    if a == b:
        raise UsageError(
            f"both sides are {a}, so there is nothing to compare",
            helps=["name two profiles, or `nothing` for one of them"],
        )
    plans = plan_of(a), plan_of(b)
    with childprocess.scratch() as folder:
        first, second = side_of(a, plans[0], folder), side_of(b, plans[1], folder)
        runs = compare.turns(words, first, second, seconds)
        note_unless_governed(folder)
        found = compare.compared(first, second, runs)
        results, lines = Compared(About("compare", words), found), [*_lines(found)]
        if why:
            flags = differing(*plans)

            def without(some: Collection[str]) -> Side:
                name = f"{b} without {', '.join(sorted(some))}"
                return side_of(name, variant_of(folder, *plans, some))

            reasons = compare.why(words, runs, second, flags, without, seconds=seconds)
            results = replace(results, why=reasons)
            lines += _reasons(reasons, flags, found)
        if float64:
            # Under `nothing` backendcfg records nothing. A profile that is empty sets as little.
            sides = {
                name: side_of(name, variant_of(folder, None, plan, ()))
                for name, plan in zip((a, b), plans, strict=True)
            }
            exact = exactness.float64(words, sides)
            results = replace(results, float64=exact)
            lines += _exactness(exact, found)
    current().answer(results.document(), lines)
    write_report(results, report)


def _lines(found: Comparison) -> Iterator[str]:
    from backendcfg.audit.report import words
    from backendcfg.resolve.words import duration

    runs = f"{found.rounds} rounds of {found.a}, {found.b}, {found.b}, {found.a}"
    yield from block("compared", [runs], "bold")
    yield ""
    rows = [
        _row("time", found.seconds, found.b, ("faster", "slower"), duration),
        _row("processor", found.processor, found.b, ("less", "more"), duration),
        _row("memory", found.memory, found.b, ("less", "more"), _size),
    ]
    yield from table(rows, ("", found.a, found.b, "ratio", "interval", "noise", ""))
    yield ""
    yield from block("output", [words.outputs(found.output, found)], "bold")
    yield from block("records", [*words.records(found.records)], "bold")


def _row(
    what: str, of: Ratio, name: str, words: tuple[str, str], shown: Callable[[float], str]
) -> tuple[str, ...]:
    from backendcfg.audit.report.words import interval, noise

    verdict = {"less": f"{name}: {words[0]}", "more": f"{name}: {words[1]}", "": "within the noise"}
    return (
        what,
        shown(of.a),
        shown(of.b),
        f"{of.ratio:.2f}",
        interval(of),
        noise(of),
        verdict[of.verdict],
    )


def _size(number: float) -> str:
    from backendcfg.resolve.words import size

    return size(round(number))


def _exactness(exact: Float64, of: Comparison) -> Iterator[str]:
    from backendcfg.audit.report import words

    yield ""
    yield from block("float64", [words.exactness(exact)], "bold")
    if rows := words.bits(exact):
        yield from table(rows, ("operation", "calls", of.a, of.b, "least"))
    if exact.failed:
        yield from block("", [f"do not run in float64: {words.not_in_float64(exact)}"])


def _reasons(why: Why, flags: list[str], of: Comparison) -> Iterator[str]:
    from backendcfg.audit.report import words

    yield ""
    if not flags:
        yield "no flag that has an effect here differs between the two"
        return
    told = {flag: one for flag, one in why.worth.items() if one.verdict}
    rows = [
        (flag, f"{one.ratio:.2f}", words.interval(one), words.noise(one))
        for flag, one in sorted(told.items(), key=lambda item: -item[1].ratio)
    ]
    if rows:
        head = ("flag", f"time without it, of that under {of.b}", "interval", "noise")
        yield from table(rows, head)
    if rest := [flag for flag in why.worth if flag not in told]:
        yield from block("the rest", [f"within the noise: {', '.join(sorted(rest))}"], "bold")
    for flag, obstacle in why.untried.items():
        yield from block("not tried", [f"{flag}: {obstacle}"], "bold", "yellow")
    if because := words.numbers_by(why):
        yield from block("output", [because], "bold")
