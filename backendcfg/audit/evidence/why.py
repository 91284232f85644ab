"""Why runs of a program differ: the first operation that they do not compute alike, and a cure.

The program is run twice with its operations recorded, in the surroundings of two runs that
differed. Where the records part, both are run again, to keep what that operation reads and
computes. It is then run by itself, to see whether surroundings part it, and which flags would make
it steady. If runs with these set still differ, the search goes on with them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from backendcfg import childprocess
from backendcfg.audit.evidence.compare import smallest
from backendcfg.audit.evidence.prove import surrounded, traced
from backendcfg.audit.trace import reading, replay, streams
from backendcfg.audit.trace.reading import Followed, followed
from backendcfg.audit.trace.streams import GENERATOR, PROGRAM
from backendcfg.errors import BackendCfgError
from backendcfg.progress import Step as Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from backendcfg.audit.evidence.prove import AsWanted
    from backendcfg.audit.evidence.runs import Side
    from backendcfg.audit.trace.reading import Parting, Read

FOLLOWED = 1000
"""Operations from the first that differs on of which it is told how far apart both runs are."""

MOST_STEPS = 5
"""Operations that are cured one after the other."""

TRIES = 3
"""How often two runs are recorded until they part, and then until they part there again."""

Cause = Literal[
    "itself",
    "surroundings",
    "alignment",
    "settings",
    "generator",
    "order",
    "threads",
    "unwritten",
    "outside",
    "elsewhere",
    "",
]


@dataclass(frozen=True)
class Parted:
    """The first operation that two runs do not compute alike.

    Attributes:
        operation: its name; "" where one of the runs has none there.
        other: the operation of the other run in its place; the same name where it is the same.
        index: its number in its stream, from 0.
        stream: the key of its thread.
        place: where the program calls it: "train.py:16, in its backward"; "" where not known.
        shapes: of what it computes: "float32[10, 256]".
        same_inputs: whether it reads the same in both; None where that is not known.
        other_inputs: what it reads otherwise, in words.
        elements: how many it computes.
        differing: how many of them differ.
        apart: by how much at most, as a part of the larger one; None where one is not finite.
        cause: what parts it: the operation `itself`, from call to call; the `surroundings` of a
            run; the `alignment` of its arguments in memory; `settings` that the program makes; the
            state of a `generator`; the `order`, where both runs compute what it reads in one of
            them; `threads`, where others computed what it reads, which part too or come in another
            order; memory that is `unwritten`; `outside`, where no recorded operation made what it
            reads; `elsewhere`, where runs recorded again part at another operation or at none; ""
            where that is not known.
        settings: those that are not the same in both, in words: "threads 2 -> 1".
        replays: how often it was run by itself.
        obstacle: why it was not, in words; "" where it was, and where its inputs say enough.
        cure: the flags that make it steady, with their values.
        length: how many operations its stream has in the first run.
        followed: how far apart both runs are in it and in those after it; only of the first step.
    """

    operation: str
    other: str
    index: int
    stream: str
    place: str = ""
    shapes: tuple[str, ...] = ()
    same_inputs: bool | None = None
    other_inputs: tuple[str, ...] = ()
    elements: int = 0
    differing: int = 0
    apart: float | None = 0.0
    cause: Cause = ""
    settings: tuple[str, ...] = ()
    replays: int = 0
    obstacle: str = ""
    cure: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    followed: tuple[Followed, ...] = ()


@dataclass(frozen=True)
class Search:
    """What the search found.

    Attributes:
        steps: the operations, each with the flags that make those before it steady.
        obstacle: why nothing more was found, in words; "" where the steps say why it ended.
        recorded: how many operations the first recorded run had.
        sufficient: whether runs that are not recorded are the same with the flags of all steps.
    """

    steps: tuple[Parted, ...] = ()
    obstacle: str = ""
    recorded: int = 0
    sufficient: bool = False

    @property
    def cure(self) -> dict[str, Any]:
        """The flags of all steps, with their values."""
        return {flag: value for step in self.steps for flag, value in step.cure.items()}


@dataclass
class _Runs:
    """Runs of a program in two surroundings, under a profile with some flags set otherwise."""

    command: Sequence[str]
    side: Side
    held: Mapping[str, str | None]
    odd: int
    folder: str
    replays: int = 0
    made: int = 0

    def recorded(self, number: int, wanted: streams.Wanted) -> list[Read]:
        self.made += 1
        folder = os.path.join(self.folder, f"trace-{self.made}")
        os.mkdir(folder, 0o700)
        return traced(self.command, self.side, self.held, number, folder=folder, wanted=wanted)

    def both(self, wanted: streams.Wanted) -> tuple[list[Read], list[Read]]:
        return self.recorded(0, wanted), self.recorded(self.odd, wanted)

    def replayed(self, number: int, python: str, path: str) -> replay.Replayed:
        def run(words: Sequence[str]) -> str:
            return surrounded(words, self.side, self.held, number).text

        return replay.replayed(run, python, path)


def search(
    command: Sequence[str],
    values: Mapping[str, Any],
    as_wanted: AsWanted,
    suffices: Callable[[Collection[str]], bool],
    *,
    odd: int,
) -> Search:
    """Find the first operation that parts two runs, and flags that make it steady; then the next.

    Args:
        command: the program and its arguments, whose runs differ.
        values: those of the flags that may be set otherwise.
        as_wanted: the side with some of them set so, and what it holds.
        suffices: whether runs that are not recorded are the same with some of them set so.
        odd: the number, from 0, of a run that differed from the first.

    Raises:
        BackendCfgError: the program fails.
    """
    steps: list[Parted] = []
    cured: dict[str, Any] = {}
    recorded = 0
    while len(steps) < MOST_STEPS:
        with childprocess.scratch() as folder:
            runs = _Runs(command, *as_wanted(cured), odd, folder)
            with Progress(f"recording operations, step {len(steps) + 1}"):
                found, length = _partings(runs)
                recorded = recorded or length
                if not found:
                    return Search(tuple(steps), _no_parting(length, cured), recorded)
                step, kept = _examined(runs, found, 0 if steps else FOLLOWED)
            if steps and _place(step) == _place(steps[-1]):
                obstacle = f"with {', '.join(steps[-1].cure)} set, the program parts there, too"
                steps[-1] = replace(steps[-1], cure={})
                return Search(tuple(steps), obstacle, recorded)
            left = {flag: value for flag, value in values.items() if flag not in cured}
            step = _cured(runs, step, kept, left, lambda some: as_wanted({*cured, *some}))  # noqa: B023
        steps.append(step)
        if not step.cure:
            return Search(tuple(steps), "", recorded)
        cured |= step.cure
        if suffices(cured):
            return Search(tuple(steps), "", recorded, sufficient=True)
    return Search(tuple(steps), f"after {MOST_STEPS} operations the search ended", recorded)


def _partings(runs: _Runs) -> tuple[list[Parting], int]:
    """Where two runs part, the first time that they do, and how many operations they have."""
    found: list[Parting] = []
    length = 0
    for _ in range(TRIES):
        a, b = runs.both(streams.Wanted())
        length = sum(len(one.records) for one in a)
        found = reading.partings(a, b)
        if found or not length:
            break
    return found, length


def _place(step: Parted) -> tuple[str, int, str]:
    return step.stream, step.index, step.operation


def _no_parting(recorded: int, cured: Collection[str]) -> str:
    if not recorded:
        return "no operation was recorded, as none of NumPy, PyTorch or JAX was run"
    under = f"with {', '.join(cured)} set, " if cured else ""
    return f"{under}while their operations were recorded, both runs computed the same {recorded}"


Kept = tuple[str, tuple[str, str]] | None
"""The program's interpreter and the files of both runs with the arguments of an operation."""


def _examined(runs: _Runs, found: list[Parting], follow: int) -> tuple[Parted, Kept]:
    """The operation at which two runs part, with what it read and computed in each."""
    for _ in range(TRIES):
        at = {one.stream: one.index for one in found}
        windows = {key: (i, i) for key, i in at.items()}
        wanted = streams.Wanted(windows=windows, keep=at, follow=follow)
        a, b = runs.both(wanted)
        again = reading.partings(a, b)
        if steady := [one for one in again if at.get(one.stream) == one.index]:
            mine, its = ({one.key: one for one in run} for run in (a, b))
            detailed = [_detailed(one, mine, its) for one in steady if one.stream in mine]
            if detailed:
                step, kept = min(detailed, key=lambda each: _distance_from_cause(each[0]))
                return _measured(runs, step, kept), kept
        found = again or found
    first = found[0]
    mine, its = ({one.key: one for one in run} for run in (a, b))
    if first.stream not in mine:
        step = Parted(first.name, first.other, first.index, first.stream)
    else:
        step, _ = _detailed(first, mine, its)
    return step if step.cause == "unwritten" else replace(step, cause="elsewhere"), None


def _distance_from_cause(step: Parted) -> int:
    """The order in which streams are named as the cause: 0 first; 3 only read what others made."""
    if step.same_inputs or step.cause in ("generator", "unwritten", "order"):
        return 0 if step.same_inputs else 1
    return 3 if step.cause == "threads" else 2


def _detailed(
    parting: Parting, a: Mapping[str, Read], b: Mapping[str, Read]
) -> tuple[Parted, Kept]:
    mine = a[parting.stream]
    its = b.get(parting.stream, mine)
    one, other = (run.details.get(parting.index, {}) for run in (mine, its))
    step = Parted(
        parting.name,
        parting.other,
        parting.index,
        parting.stream,
        place=one.get("place", "") or other.get("place", ""),
        shapes=tuple(one.get("outputs", ())),
        length=len(mine.records),
        followed=tuple(followed(mine, its)),
    )
    if parting.name != parting.other or not one or not other:
        return step, None
    inputs = list(zip(one["inputs"], other["inputs"], strict=False))
    otherwise = tuple(_words(i, x) for i, (x, y) in enumerate(inputs) if x != y)
    known = otherwise or not any(each.get("unread") for each in one["inputs"])
    step = replace(
        step,
        same_inputs=not otherwise if known else None,
        other_inputs=tuple(dict.fromkeys(otherwise)),
        settings=tuple(_settings_apart(one, other)),
        cause=_cause_of_inputs(inputs, a, b, parting.stream),
    )
    kept = [run.get("kept", {"path": "", "obstacle": ""}) for run in (one, other)]
    if all(each["path"] for each in kept):
        return step, (mine.about["python"], (kept[0]["path"], kept[1]["path"]))
    return replace(step, obstacle=kept[0]["obstacle"] or kept[1]["obstacle"]), None


def _settings_apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    its = other.get("settings", {})
    for name, value in one.get("settings", {}).items():
        if name in its and its[name] != value:
            yield f"{name} {value} -> {its[name]}"


def _cause_of_inputs(
    inputs: Sequence[tuple[dict[str, Any], dict[str, Any]]],
    a: Mapping[str, Read],
    b: Mapping[str, Read],
    stream: str,
) -> Cause:
    """Why an operation reads something else in the other run; "" where it reads the same."""
    unlike = [(x, y) for x, y in inputs if x != y]
    if any(x.get("unwritten") for x, _ in unlike or inputs):
        return "unwritten"
    if not unlike:
        return ""
    if all(x["what"] == GENERATOR for x, _ in unlike):
        return "generator"
    if all(_is_computed(x, b) and _is_computed(y, a) for x, y in unlike):
        return "order"
    # Nothing before it in its own stream differs.
    theirs, its = ({key: one for key, one in run.items() if key != stream} for run in (a, b))
    if all(_is_computed(x, theirs) and _is_computed(y, its) for x, y in unlike):
        return "threads"
    return "outside"


def _is_computed(given: dict[str, Any], run: Mapping[str, Read]) -> bool:
    """Whether an operation of a run computed this tensor."""
    return any(bool((one.records["digest"] == given["digest"]).any()) for one in run.values())


def _words(number: int, given: dict[str, Any]) -> str:
    if given["what"] == GENERATOR:
        return "the state of the generator"
    if given["what"] == PROGRAM:
        return PROGRAM
    return f"input {number + 1}: {given['what']}"


def _measured(runs: _Runs, step: Parted, kept: Kept) -> Parted:
    """With how far the results of both runs are apart."""
    if kept is None:
        return step
    python, files = kept

    def run(words: Sequence[str]) -> str:
        return surrounded(words, runs.side, runs.held, 0).text

    try:
        found = replay.apart(run, python, *files)
    except BackendCfgError as error:
        return replace(step, obstacle=" ".join(error.notes[-1:]) or error.message)
    return replace(step, elements=found.elements, differing=found.differing, apart=found.apart)


def _cured(
    runs: _Runs,
    step: Parted,
    kept: Kept,
    values: Mapping[str, Any],
    as_wanted: AsWanted,
) -> Parted:
    """With what parts the operation when it is run by itself, and the flags that make it steady."""
    if kept is None or step.cause in ("order", "threads", "unwritten", "outside"):
        return step
    python, (path, _) = kept

    def outcomes(some: Collection[str]) -> Iterator[replay.Replayed]:
        side, held = as_wanted(some) if some else (runs.side, runs.held)
        wanted = replace(runs, side=side, held=held)
        for number in (0, runs.odd):
            runs.replays += 1
            yield wanted.replayed(number, python, path)

    def is_steady(some: Collection[str]) -> bool:
        with Progress(f"running {step.operation} by itself with {', '.join(sorted(some))}"):
            digests: set[int] = set()
            try:
                for one in outcomes(some):
                    digests |= one.digests
                    if len(digests) > 1:
                        return False
            except BackendCfgError:
                return False  # flags that do not go together
            return True

    try:
        with Progress(f"running {step.operation} by itself"):
            first = list(outcomes(()))
    except BackendCfgError as error:
        # Such as that of an operator that the program registers itself.
        return replace(step, obstacle=" ".join(error.notes[-1:]) or error.message)
    step = replace(step, cause=_cause(step, first))
    if step.cause not in ("", "settings"):
        cure = _steadying(step, list(values), is_steady)
        step = replace(step, cure={flag: values[flag] for flag in cure})
    return replace(step, replays=runs.replays)


def _steadying(
    step: Parted, flags: Sequence[str], is_steady: Callable[[Collection[str]], bool]
) -> tuple[str, ...]:
    """The fewest flags that make an operation steady; empty where all of them do not."""
    # Most often it is the seed, which needs no search.
    seeds = [flag for flag in flags if flag.startswith("seed.")]
    if step.cause == "generator" and seeds and is_steady(seeds):
        return smallest(seeds, is_steady)
    return smallest(flags, is_steady) if flags and is_steady(flags) else ()


def _cause(step: Parted, found: Sequence[replay.Replayed]) -> Cause:
    if step.cause:
        return step.cause
    if len(frozenset.union(*(one.digests for one in found))) == 1:
        return "settings" if step.settings else ""
    if all(len(one.digests) == 1 for one in found):
        return "surroundings"
    return "alignment" if all(one.parts_by_place for one in found) else "itself"
