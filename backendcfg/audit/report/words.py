"""Sentences about proofs and comparisons, as the command line and the report have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.audit.evidence.files import ONLY_FIRST
from backendcfg.audit.trace.reading import rank_of
from backendcfg.audit.verify import FAILS
from backendcfg.resolve.words import assignment, counted, listed, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from backendcfg.audit.evidence.compare import Comparison, Why
    from backendcfg.audit.evidence.float64 import Float64
    from backendcfg.audit.evidence.outputs import Distance
    from backendcfg.audit.evidence.pairs import Ratio
    from backendcfg.audit.evidence.prove import Difference, Proof
    from backendcfg.audit.evidence.recorded import Between
    from backendcfg.audit.evidence.twice import Twice
    from backendcfg.audit.evidence.why import Parted
    from backendcfg.audit.trace.reading import Followed
    from backendcfg.audit.verify import Verification

CURES = "reproducible"
"""The profile among whose flags a cure is sought."""

MOST_TIMES = 3
"""Times in an output that are named."""

MOST_OPERATIONS = 12
"""Operations that are named of those that are less exact, or do not run in float64."""

# Proofs.


def verdict(found: Proof) -> str:
    """Whether runs were the same: "4 runs under fast printed the same text and 1 number"."""
    several = f"{found.runs} runs under {found.profile}"
    if not found.equal:
        return f"{len(found.differences)} of {several} differ from the first"
    of_ranks = f" in {counted(found.ranks, 'rank')}" if found.ranks else ""
    did = [f"printed the same text and {counted(found.numbers, 'number')}{of_ranks}"]
    if found.records:
        did.append(f"recorded the same {counted(found.records, 'value')}")
    if found.files:
        did.append(f"wrote the same {counted(found.files, 'file')}")
    return f"{several} " + ", and ".join([", ".join(did[:-1]), did[-1]] if did[1:] else did)


def surroundings(one: Difference) -> str:
    """What a run had otherwise: " (with load, threads = 1)"; "" for nothing that is named."""
    words = [*(["load"] if one.loaded else []), *one.also]
    return f" (with {', '.join(words)})" if words else ""


MOST_RECORDS = 5
"""Differences of records that are named."""


def produced(one: Difference) -> Iterator[str]:
    """What a run produced otherwise than the first."""
    yield from one.output.words()
    yield from (each.words for each in (*one.ranks, *one.records[:MOST_RECORDS]))
    if (more := len(one.records) - MOST_RECORDS) > 0:
        yield f"{counted(more, 'more difference')} of records"
    yield from (each.words for each in one.files)


def left_out(found: Proof) -> str:
    """The times that are no difference; "" where there are none."""
    if not found.left_out:
        return ""
    shown = [
        f"`{one.text}` in line {one.line}" + ("" if one.rank is None else f" of rank {one.rank}")
        for one in found.left_out[:MOST_TIMES]
    ]
    more = len(found.left_out) - len(shown)
    words = ", ".join(shown) + (f", and {more} more" if more else "")
    return f"as it reads as a time: {words}"


def bound(found: Proof) -> str:
    """What would have shown."""
    part = f"{100 * found.bound:.0f} %"
    return f"a deviation in {part} of runs or more would have shown (95 %)"


def repeated(found: Twice) -> str:
    """Whether operations gave the same when they were run a second time."""
    if found.bound is None:
        return "no operation was recorded"
    several = f"{counted(found.operations, 'operation')} run twice"
    if found.unlike:
        return f"{len(found.unlike)} of {several} gave something else the second time"
    part = f"{100 * found.bound:.2g} %"
    return f"{several} gave the same; a race in {part} of them or more would have shown (95 %)"


def operation(step: Parted) -> str:
    """The operation at which runs part, with what it computes."""
    shapes = " ".join(step.shapes)
    return f"op {step.index}  {step.operation or 'nothing more'}  {shapes}".rstrip()


def place(step: Parted) -> str:
    """Where the program calls the operation at which runs part: "train.py:16, in rank 3"."""
    rank = rank_of(step.stream)
    return ", ".join(filter(None, [step.place, "" if rank is None else f"in rank {rank}"]))


def about(step: Parted) -> Iterator[str]:
    """What is known of the operation at which runs part."""
    if step.other != step.operation:
        yield f"the other run has {step.other or 'no operation'} there"
        return
    if step.same_inputs is not None:
        reads = (
            "same inputs" if step.same_inputs else f"other inputs ({', '.join(step.other_inputs)})"
        )
        apart = "" if step.apart is None else f", relative {step.apart:.1e} at most"
        # How far results are apart is known of those that were kept.
        by = f": {step.differing} of {step.elements} elements{apart}" if step.elements else ""
        yield f"{reads}, other output{by}"
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
        yield growth(step.followed)


CAUSES = {
    "itself": "run by itself, it computes something else from call to call",
    "surroundings": "run by itself, it computes something else in the surroundings of each run",
    "alignment": "run by itself, it computes something else where its inputs are aligned otherwise",
    "settings": "run by itself, it computes the same: what parts it is what the program sets",
    "generator": "it draws from a generator that has another state in each run",
    "order": "both runs compute what it reads, in another order: that of threads, a set or files",
    "threads": "other threads or tasks computed what it reads, in another order or otherwise",
    "outside": "no operation that was recorded made what it reads: it comes from outside",
    "unwritten": "it reads memory that nothing has written to",
    "elsewhere": "recorded again, runs part elsewhere or not at all: the difference comes and goes",
    "": "",
}


def growth(followed: Sequence[Followed]) -> str:
    """How far apart runs are in the operations after the first that differs."""
    if (odd := next((one for one in followed if one.apart is None), None)) is not None:
        return f"from op {odd.index} ({odd.operation}) on, numbers are not finite"
    most = max(followed, key=lambda one: one.apart or 0.0)
    return (
        f"in the {counted(len(followed), 'operation')} from there, runs are apart by"
        f" {most.apart:.1e} at most, in op {most.index} ({most.operation})"
    )


def cure(flags: Mapping[str, Any] | None, of: Proof) -> str:
    """The flags with which runs are the same; None where there are no such."""
    if flags is None:
        return f"none: with every flag of {CURES}, runs differ, too"
    if not flags:
        found = [one.name for one in of.differences[0].files if one.words.endswith(ONLY_FIRST)]
        wrote = f"; only the first run did not find {quoted(found)}" if found else ""
        return f"none: in {of.convincing} more runs nothing differed{wrote}"
    set_so = ", ".join(f"{flag} = {literal(value)}" for flag, value in flags.items())
    return f"{set_so}: with that, {of.convincing} runs were the same"


def against(results: Sequence[str], lock: str = "the lock") -> str:
    """Whether results are those of a lock; `results` says what is otherwise."""
    return f"results are {'not ' if results else ''}those of {lock}"


# Switches.


def switches(found: Verification) -> str:
    """Whether switches are as wanted: "34 switches read, none differs"."""
    if not found.profile:
        return measured([one.state for one in found.measured])
    readings = [one for one in found.readings if one.state != "dormant"]
    wrong = sum(one.state in FAILS for one in readings)
    every = counted(len(readings), "switch", "switches")
    if wrong:
        return f"{every} read under {found.profile}, {wrong} not as it wants"
    return f"{every} read under {found.profile}, none differs"


def measured(states: Sequence[str]) -> str:
    """Whether libraries compute with the bits that they are granted.

    Args:
        states: of the operations that were measured.
    """
    every = len(states)
    if wrong := states.count("differs"):
        return f"{counted(wrong, 'operation')} of {every} with fewer bits than granted"
    return f"{counted(every, 'operation')} measured, none with fewer bits than granted"


# Comparisons.


def faster(found: Comparison) -> str:
    """Which side takes less time: "fast is 1.15 times as fast as nothing (1.11 to 1.32)"."""
    of = found.seconds
    if not of.verdict:
        return f"{found.b} and {found.a} take the same time within the noise of {noise(of)}"
    if of.verdict == "less":
        return f"{found.b} is {of.ratio:.2f} times as fast as {found.a} ({interval(of)})"
    low, high = 1 / of.high, 1 / of.low
    return (
        f"{found.b} takes {1 / of.ratio:.2f} times as long as {found.a} ({low:.2f} to {high:.2f})"
    )


def interval(of: Ratio) -> str:
    """Where a ratio lies."""
    return f"{of.low:.2f} to {of.high:.2f}"


def noise(of: Ratio) -> str:
    """How far a ratio is from 1 by noise alone: "4.0 %"."""
    return f"{100 * of.noise:.1f} %"


def outputs(found: Distance, of: Comparison) -> str:
    """How far apart two sides are in what they print."""
    left = ""
    if found.left_out:
        left = (
            f"; left out, as it differs from run to run: {counted(len(found.left_out), 'number')}"
        )
    if found.state == "unsteady":
        changing = listed((of.a, of.b)[side] for side in found.changing)
        steady = next((n for i, n in enumerate((of.a, of.b)) if i not in found.changing), "")
        same = f"; under {steady} it is the same each time" if steady else ""
        return (
            f"not compared: it differs from run to run under {changing}, first in line"
            f" {found.line}{same}"
        )
    if found.state == "text differs":
        return f"another text under {of.b}, first in line {found.line}"
    if found.state == "equal":
        return f"the same: {counted(found.numbers, 'number')} and the text between{left}"
    apart = "one of them not finite"
    if found.apart is not None:
        apart = f"apart by {found.apart:.1e} of the larger one at most"
    return (
        f"numbers differ: {found.differing} of {found.numbers}, {apart}, first in line"
        f" {found.line}{left}"
    )


def records(found: Between) -> Iterator[str]:
    """How far apart two sides are in what they record; nothing where neither records."""
    if not (found.records or found.differing or found.left_out):
        return
    left = ""
    if found.left_out:
        left = f"; left out, as it differs from run to run: {quoted(found.left_out)}"
    if not found.differing:
        yield f"the same: {counted(found.records, 'value')}{left}"
        return
    yield from found.differing[:MOST_RECORDS]
    if (more := len(found.differing) - MOST_RECORDS) > 0:
        yield f"{counted(more, 'more record')}, see `--json`{left}"
    elif left:
        yield left.removeprefix("; ")


def exactness(found: Float64) -> str:
    """Whether operations are as exact under both sides."""
    every = len(found.compared)
    if not every:
        return "no operation below float64 was recorded under both"
    kinds = f"{counted(every, 'operation')} below float64"
    if not found.telling:
        return f"{kinds}, equally exact under both"
    return f"{kinds}, {len(found.telling)} less exact under one of the two"


def bits(found: Float64) -> list[tuple[str, str, str, str, str]]:
    """Of operations that are less exact under one side: their bits that are right."""
    rows = []
    for name in found.telling[:MOST_OPERATIONS]:
        one, other = found.a[name], found.b[name]
        worse = min(one, other, key=lambda each: each.median)
        least = f"{counted(worse.least, 'bit')}, {worse.place}"
        calls = f"{worse.calls}"
        rows.append((name, calls, f"{one.median} bits", f"{other.median} bits", least))
    return rows


def not_in_float64(found: Float64) -> str:
    """The operations that do not run in float64; "" for none."""
    more = len(found.failed) - MOST_OPERATIONS
    names = quoted(found.failed[:MOST_OPERATIONS])
    return names + (f" and {more} more" if more > 0 else "")


def numbers_by(why: Why) -> str:
    """The flags by which outputs differ; "" where they do not."""
    if why.because or not why.numbers:
        return why.because
    return f"differs by {', '.join(why.numbers)}"
