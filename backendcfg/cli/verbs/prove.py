"""`backendcfg prove PROFILE -- CMD`: whether a program produces the same in every run."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import click

from backendcfg.cli.group import verb
from backendcfg.cli.options import ProfileName
from backendcfg.cli.output import block, current, says_no
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from backendcfg.audit.evidence.prove import Difference, Proof
    from backendcfg.audit.evidence.runs import Side
    from backendcfg.audit.evidence.twice import Twice
    from backendcfg.audit.evidence.why import Parted, Search
    from backendcfg.audit.trace.reading import Followed
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


@verb("prove", "Prove", interrupted="files that the command wrote are there; nothing else changed")
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
    help="Also run each operation of PyTorch twice, which shows rare races.",
)
@click.option(
    "--why",
    is_flag=True,
    help="Also find the first operation of PyTorch that differs, and the flags of `reproducible`"
    " that make runs the same.",
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
def command(
    name: str,
    words: tuple[str, ...],
    runs: int,
    folder: str,
    also: dict[str, int],
    *,
    lock: str | None,
    against: str | None,
    twice: bool,
    why: bool,
) -> None:
    """Run a command again and again under a profile, and compare results.

    What it prints is compared number by number, the files that it writes by what they hold, and
    what it gives to `backendcfg.record()` by value. The surroundings differ from run to run as far
    as the profile does not hold them, and every second run finds all processors busy. Exits with 1
    when a run differs from the first, or from the results of a lock. PROFILE may be `nothing`.
    """
    from dataclasses import asdict, replace

    from backendcfg.audit.evidence.prove import THIRD, prove
    from backendcfg.audit.evidence.runs import run
    from backendcfg.cli.locking import Locking
    from backendcfg.cli.sides import check, held, note_unless_governed, plan_of, side_of

    check("prove", name, words)
    plan, folder = plan_of(name), os.path.abspath(folder)
    if also and runs <= THIRD:
        raise UsageError(
            f"`--also` needs {THIRD + 1} runs or more, not {runs}",
            helps=["it is every third run that differs so"],
        )
    side = replace(side_of(name, plan), also=also)
    locking = Locking(name, plan, write=lock, against=against)
    found = prove(words, side, held(plan), runs=runs, folder=folder, keep=locking.keep)
    if found.equal and plan is not None:
        with tempfile.TemporaryDirectory(prefix="backendcfg-") as guard:
            run(words, side_of(name, plan, guard), counts=False)
            note_unless_governed(guard)
    tier = plan.tier if plan is not None else "none"
    document = {**asdict(found), "equal": found.equal, "tier": tier}
    lines = [*_lines(found, tier)]
    steady = True
    if twice:
        tried = _tried_twice(side, plan, words)
        document["twice"] = asdict(tried)
        lines += _twice_in_words(tried)
        steady = not tried.unlike
    if why and not found.equal:
        reasons, more = _reasons(side, plan, words, found, folder)
        document |= reasons
        lines += more
    locked, more, same = locking.after(found)
    current().answer(document | locked, [*lines, *more])
    if not (found.equal and steady and same):
        says_no()


def _tried_twice(proven: Side, plan: Compiled | None, words: tuple[str, ...]) -> Twice:
    """What a run under the plan shows whose operations are run twice."""
    from dataclasses import replace

    from backendcfg.audit.evidence.twice import twice
    from backendcfg.cli.sides import held, side_of, variant_of

    with tempfile.TemporaryDirectory(prefix="backendcfg-") as scratch:
        # Under `nothing` backendcfg is off and records nothing; an empty profile sets as little.
        same = variant_of(scratch, None, plan, ())
        side = replace(side_of(proven.name, same), also=proven.also)
        return twice(words, side, held(same))


def _twice_in_words(found: Twice) -> Iterator[str]:
    from backendcfg.resolve.words import counted

    if found.bound is None:
        yield from block("twice", ["no operation of PyTorch was recorded"], "bold")
        return
    several = f"{counted(found.operations, 'operation')} run twice"
    if not found.unlike:
        part = f"{100 * found.bound:.2g} %"
        text = f"{several} gave the same; a race in {part} of them or more would have shown (95 %)"
        yield from block("twice", [text], "bold", "green")
        return
    odd = f"{len(found.unlike)} of {several} gave something else the second time"
    yield from block("twice", [odd], "bold", "red")
    for one in found.unlike[:MOST_SHOWN]:
        yield from block("", [f"op {one.index}  {one.operation}  {one.place}"])
    if (more := len(found.unlike) - MOST_SHOWN) > 0:
        yield from block("", [f"{counted(more, 'more operation')}, see `--json`"])


CURES = "reproducible"
"""The profile among whose flags a cure is sought."""


def _reasons(
    proven: Side, plan: Compiled | None, words: tuple[str, ...], found: Proof, folder: str
) -> tuple[dict[str, Any], list[str]]:
    """Why runs differ, as data and in words; cures have the values of CURES."""
    from dataclasses import asdict, replace

    from backendcfg.audit.evidence import prove
    from backendcfg.audit.evidence.variants import differing, effective
    from backendcfg.audit.evidence.why import search
    from backendcfg.cli.sides import held, plan_of, side_of, variant_of

    wanted = plan_of(CURES)
    values = effective(wanted)
    # A tier is no setting: it asks for some, which are flags of their own here.
    flags = [
        flag for flag in differing(wanted, plan) if flag in values and flag != "determinism.tier"
    ]
    settable = {flag: values[flag] for flag in flags}
    with tempfile.TemporaryDirectory(prefix="backendcfg-") as scratch:

        def as_wanted(some: Collection[str]) -> tuple[Side, dict[str, str | None]]:
            set_so = variant_of(scratch, wanted, plan, some)
            title = f"{proven.name} with some of {CURES}" if some else proven.name
            return replace(side_of(title, set_so), also=proven.also), held(set_so)

        searched = search(words, settable, as_wanted, odd=found.differences[0].run - 1)
        side, holds = as_wanted(searched.cure)
        cure: Collection[str] | None = searched.cure
        if not cure or not prove.prove(words, side, holds, runs=found.runs, folder=folder).equal:
            cure = prove.cure(words, flags, as_wanted, runs=found.runs, folder=folder)
    cured = None if cure is None else {flag: values[flag] for flag in cure}
    lines = [*_steps(searched), *_cure_in_words(cured, found.runs)]
    return {"why": asdict(searched), "cure": cured}, lines


def _steps(searched: Search) -> Iterator[str]:
    """The operations at which runs parted, one after the other."""
    for number, step in enumerate(searched.steps):
        shapes = " ".join(step.shapes)
        first = f"op {step.index}  {step.operation or 'nothing more'}  {shapes}".rstrip()
        yield from block("then" if number else "first", [first], "bold")
        if step.place:
            yield from block("at", [step.place], "bold")
        if step.settings:
            yield from block("parts at", [", ".join(step.settings)], "bold")
        yield from block("", [*_of_step(step)])
    if searched.obstacle:
        label, text = ("then", "") if searched.steps else ("first", "not found: ")
        yield from block(label, [text + searched.obstacle], "bold")


def _of_step(step: Parted) -> Iterator[str]:
    from backendcfg.resolve.words import assignment, counted

    if step.other != step.operation:
        yield f"the other run has {step.other or 'no operation'} there"
        return
    if step.same_inputs is not None:
        reads = (
            "same inputs" if step.same_inputs else f"other inputs ({', '.join(step.other_inputs)})"
        )
        apart = "" if step.apart is None else f", relative {step.apart:.1e} at most"
        yield f"{reads}, other output: {step.differing} of {step.elements} elements{apart}"
    processes = counted(step.replays, "process", "processes")
    if cause := CAUSES[step.cause]:
        yield cause
    elif step.obstacle:
        yield f"it cannot be run by itself: {step.obstacle}"
    elif step.replays:
        yield f"run by itself, it computes the same in {processes}"
    if step.cure:
        flags = ", ".join(assignment(flag, value) for flag, value in step.cure.items())
        yield f"steady with {flags} (run by itself in {processes})"
    if len(step.followed) > 1:
        yield _growth(step.followed)


def _growth(followed: Sequence[Followed]) -> str:
    """How far apart runs are in the operations after the first that differs."""
    from backendcfg.resolve.words import counted

    if (odd := next((one for one in followed if one.apart is None), None)) is not None:
        return f"from op {odd.index} ({odd.operation}) on, numbers are not finite"
    most = max(followed, key=lambda one: one.apart or 0.0)
    return (
        f"in the {counted(len(followed), 'operation')} from there, runs are apart by"
        f" {most.apart:.1e} at most, in op {most.index} ({most.operation})"
    )


CAUSES = {
    "itself": "run by itself, it computes something else from call to call",
    "surroundings": "run by itself, it computes something else in the surroundings of each run",
    "alignment": "run by itself, it computes something else where its inputs are aligned otherwise",
    "settings": "run by itself, it computes the same: what parts it is what the program sets",
    "generator": "it draws from a generator that has another state in each run",
    "order": "both runs compute what it reads, in another order: that of threads, a set or files",
    "outside": "no operation that was recorded made what it reads: it comes from outside",
    "unwritten": "it reads memory that nothing has written to",
    "elsewhere": "recorded again, runs part elsewhere or not at all: the difference comes and goes",
    "": "",
}


def _cure_in_words(cure: dict[str, Any] | None, runs: int) -> Iterator[str]:
    from backendcfg.resolve.words import literal

    if cure is None:
        text = f"none: with every flag of {CURES}, runs differ, too"
    else:
        flags = ", ".join(f"{flag} = {literal(value)}" for flag, value in cure.items())
        text = f"{flags}: with that, {runs} runs were the same"
    yield from block("cure", [text], "bold")


def _lines(found: Proof, tier: str) -> Iterator[str]:
    from backendcfg.resolve.words import counted

    several = f"{found.runs} runs under {found.profile}"
    if found.equal:
        yield from block("equal", [f"{several} {_same(found)}"], "bold", "green")
    else:
        odd = f"{len(found.differences)} of {several} differ from the first"
        yield from block("differs", [odd], "bold", "red")
        for one in found.differences[:MOST_SHOWN]:
            yield from block(
                "", [f"run {one.run}{_surroundings(one)}: {what}" for what in _what(one)]
            )
        if (more := len(found.differences) - MOST_SHOWN) > 0:
            yield from block("", [f"{counted(more, 'more run')}, see `--json`"])
    yield from block("varied", [", ".join(found.varied)], "bold")
    if found.left_out:
        shown = [f"`{one.text}` in line {one.line}" for one in found.left_out[:MOST_SHOWN]]
        more = len(found.left_out) - len(shown)
        words = ", ".join(shown) + (f", and {more} more" if more else "")
        yield from block("left out", [f"as it reads as a time: {words}"], "bold")
    if found.files is None:
        yield from block("not read", ["files: the folder holds too many; see `--files`"], "bold")
    if found.unread:
        yield from block("not read", found.unread[:MOST_SHOWN], "bold")
    yield from block("tier", [tier], "bold")
    if found.equal:
        part = f"{100 * found.bound:.0f} %"
        text = f"a deviation in {part} of runs or more would have shown (95 %)"
        yield from block("bound", [text], "bold")


MOST_SHOWN = 3


def _same(found: Proof) -> str:
    """What was the same in every run."""
    from backendcfg.resolve.words import counted

    did = [f"printed the same text and {counted(found.numbers, 'number')}"]
    if found.records:
        did.append(f"recorded the same {counted(found.records, 'value')}")
    if found.files:
        did.append(f"wrote the same {counted(found.files, 'file')}")
    return ", and ".join([", ".join(did[:-1]), did[-1]] if did[1:] else did)


def _surroundings(one: Difference) -> str:
    words = [*(["load"] if one.loaded else []), *one.also]
    return f" (with {', '.join(words)})" if words else ""


def _what(one: Difference) -> Iterator[str]:
    """What a run produced otherwise."""
    found = one.output
    if found.state == "text differs":
        yield f"another text from line {found.line} on"
    elif found.state == "numbers differ":
        first, other = found.first
        apart = "" if found.apart is None else f", apart by {found.apart:.1e} at most"
        yield f"line {found.line} has {other}, not {first}"
        yield f"{found.differing} of {found.numbers} numbers differ{apart}"
    yield from (each.words for each in (*one.records, *one.files))
