"""`backendcfg prove`: whether a program produces the same in every run under a profile."""

from __future__ import annotations

import math
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backendcfg import childprocess, environ
from backendcfg.audit.evidence import files, ranks, recorded
from backendcfg.audit.evidence.compare import smallest
from backendcfg.audit.evidence.outputs import Deviation, Distance, Part, distance
from backendcfg.audit.evidence.runs import Run, Side, run
from backendcfg.audit.trace import reading, streams
from backendcfg.errors import BackendCfgError
from backendcfg.probe.limits import read_limits
from backendcfg.progress import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    AsWanted = Callable[[Collection[str]], tuple[Side, Mapping[str, str | None]]]
    """The side with some flags set otherwise, and what it holds."""

HASH_SEED = "PYTHONHASHSEED"
THREADS = "OMP_NUM_THREADS"
PADDING = "SURROUNDINGS"
"""A variable of growing length, which moves what the program has on its stack."""

# It ends with whoever started it, however that ends; a Ctrl-C in a terminal reaches both.
_BUSY = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


@dataclass(frozen=True)
class Difference:
    """What a run produced otherwise than the first one.

    Attributes:
        run: its number, from 1.
        loaded: whether all processors were kept busy meanwhile.
        also: what it had otherwise because that was asked for: "threads = 1".
        output: how far what it printed is from what the first printed.
        files: the files that it did not write alike.
        records: what it did not record alike.
        ranks: what its ranks did not print alike.
    """

    run: int
    loaded: bool
    output: Distance
    files: tuple[Deviation, ...]
    records: tuple[Deviation, ...] = ()
    also: tuple[str, ...] = ()
    ranks: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class Proof:
    """What runs of a program under one profile showed.

    Attributes:
        profile: its name.
        runs: how many were made.
        numbers: how many numbers were printed and compared.
        files: how many files were written and compared; None where the folder holds too many.
        records: how many values the program recorded and were compared.
        unread: why not all of them were, in words.
        varied: what was not the same in every run, in words.
        held: what was, likewise.
        ranks: how many ranks were started whose output was compared.
        left_out: times in the output that differ, and that say nothing.
        bound: a deviation that comes in this part of all runs, or more often, would have shown in
            95 of 100 proofs.
        differences: of every run that differs from the first.
        also: what every third run had otherwise because that was asked for: `Side.also`.
    """

    profile: str
    runs: int
    numbers: int
    files: int | None
    varied: tuple[str, ...]
    left_out: tuple[Part, ...]
    bound: float
    differences: tuple[Difference, ...]
    records: int = 0
    unread: tuple[str, ...] = ()
    also: dict[str, int] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    ranks: int = 0

    @property
    def equal(self) -> bool:
        """Whether every run produced the same."""
        return not self.differences

    @property
    def convincing(self) -> int:
        """How many equal runs show that what differs here is cured: fewer may be equal by luck.

        So many that the part of all runs that differs here would have shown in 95 of 100 proofs.
        """
        differing = len(self.differences) / (self.runs - 1)
        if differing in (0, 1):
            return self.runs
        return max(self.runs, math.ceil(math.log(0.05) / math.log(1 - differing)))


def prove(
    command: Sequence[str],
    side: Side,
    held: Mapping[str, str | None],
    *,
    runs: int,
    folder: str,
    keep: Callable[[Run, Mapping[str, files.Content]], None] | None = None,
    to_the_end: bool = True,
) -> Proof:
    """Run a program several times under one profile, and compare what it produces.

    Every second run has all processors busy, and every third one what `side.also` says. Addresses
    and times differ by themselves.

    Args:
        command: the program and its arguments.
        side: what it is started under.
        held: the variables that the profile sets, which are not varied.
        runs: how often.
        folder: below which files are looked at.
        keep: called with the first run and what each file holds that it wrote.
        to_the_end: whether runs are made after one that differs.

    Raises:
        BackendCfgError: the program cannot be started, or fails.
    """
    busy = read_limits().usable
    differences: list[Difference] = []
    left_out: list[Part] = []
    unread: list[str] = []
    first_files: Mapping[str, files.Content] = {}
    comparable = True
    with Step("the first run", 0.0) as step:
        for number in range(runs):
            loaded = is_loaded(number)
            step.at(number / runs, f"run {number + 1} of {runs}{', with load' if loaded else ''}")
            before = files.stamps(folder) if comparable else None
            comparable = before is not None
            done = surrounded(command, side, held, number)
            wrote = files.written(folder, before, first_files) if before is not None else {}
            if not number:
                first, first_files = done, wrote
                if keep is not None:
                    keep(done, wrote)
            apart = distance([first.text], [done.text])
            unread += recorded.obstacles(done.records)
            odd_ranks, times = ranks.differing(first.ranks, done.ranks)
            left_out += [*apart.left_out, *times]
            odd = files.differing(first_files, wrote) if comparable else []
            values = recorded.differing(first.records, done.records)
            if apart.state != "equal" or odd_ranks or odd or values:
                differences.append(
                    Difference(
                        number + 1,
                        loaded,
                        apart,
                        tuple(odd),
                        tuple(values),
                        also_in(number, side.also),
                        tuple(odd_ranks),
                    )
                )
                if not to_the_end:
                    runs = number + 1
                    break
    varied = [
        "addresses",
        "the time of day",
        "the length of the environment",
        f"load on {busy} processors",
    ]
    if HASH_SEED not in held:
        varied.append("the seed of hashes")
    varied += [f"in every third run {what}" for what in also_in(THIRD, side.also)]
    return Proof(
        side.name,
        runs,
        distance([first.text], [first.text]).numbers + ranks.numbers(first.ranks),
        len(first_files) if comparable else None,
        tuple(varied),
        tuple(dict.fromkeys(left_out)),
        1 - 0.05 ** (1 / runs),
        tuple(differences),
        recorded.number_of(first.records),
        tuple(dict.fromkeys(unread)),
        dict(side.also),
        tuple(_held(held, side.also)),
        len(first.ranks),
    )


def _held(held: Mapping[str, str | None], also: Mapping[str, int]) -> Iterator[str]:
    """What is the same in every run, in words."""
    yield "the machine and its libraries"
    yield "the working directory"
    if "processors" not in also:
        yield "the processors that may be used"
    if THREADS in held and "threads" not in also:
        yield "the number of threads"
    if HASH_SEED in held:
        yield "the seed of hashes"


def cure(
    flags: Sequence[str], suffices: Callable[[Collection[str]], bool]
) -> tuple[str, ...] | None:
    """The fewest flags that make every run produce the same; None where all of them do not.

    Empty where runs are the same without any: what made them differ is gone, such as a file that
    was not there before the first run.

    Args:
        flags: those that may be set otherwise.
        suffices: whether runs are the same with some of them set so, as `is_equal` says.
    """
    if suffices(()):
        return ()
    return smallest(flags, suffices) if flags and suffices(flags) else None


def is_equal(
    command: Sequence[str],
    as_wanted: AsWanted,
    some: Collection[str],
    *,
    runs: int,
    folder: str,
) -> bool:
    """Whether runs produce the same with some flags set; no, where these do not go together.

    Args:
        command: as for `prove`.
        as_wanted: the side with some flags set otherwise, and what it holds.
        some: of these flags.
        runs: as for `prove`.
        folder: as for `prove`.
    """
    with Step(f"proving with {', '.join(sorted(some)) or 'nothing else'}"):
        try:
            side, held = as_wanted(some)
        except BackendCfgError:
            return False
        return prove(command, side, held, runs=runs, folder=folder, to_the_end=False).equal


def surrounded(
    command: Sequence[str], side: Side, held: Mapping[str, str | None], number: int
) -> Run:
    """Run a command in the surroundings of one run of a proof.

    Args:
        command: the program and its arguments.
        side: as for `prove`.
        held: as for `prove`.
        number: of the run, from 0.
    """
    with ExitStack() as stack:
        if is_loaded(number):
            stack.enter_context(_load(read_limits().usable))
        return run(command, _varied(side, held, number))


def traced(
    command: Sequence[str],
    side: Side,
    held: Mapping[str, str | None],
    number: int,
    *,
    folder: str,
    wanted: streams.Wanted,
) -> list[reading.Read]:
    """Run a command as `surrounded` does, and record its operations.

    Args:
        command: as for `surrounded`.
        side: as for `prove`.
        held: as for `prove`.
        number: of the run, from 0.
        folder: an empty one, which is filled.
        wanted: what is recorded.
    """
    streams.want(folder, wanted)
    variables = {**side.environment, environ.TRACE.name: folder}
    surrounded(command, replace(side, environment=variables), held, number)
    return reading.read(folder)


def is_loaded(number: int) -> bool:
    """Whether all processors are busy in a run; numbers are from 0."""
    return number % 2 == 1


def _varied(side: Side, held: Mapping[str, str | None], number: int) -> Side:
    """The side with other surroundings in each run; a run of the same number has the same ones."""
    variables = {PADDING: "x" * (97 * number), HASH_SEED: str(number)}
    more = {name: text for name, text in variables.items() if name not in held}
    also = side.also if _is_third(number) else {}
    if "threads" in also:
        more[THREADS] = str(also["threads"])
    return replace(
        side, environment={**side.environment, **more}, processors=also.get("processors", 0)
    )


THIRD = 2
"""The number of the first run that has what `side.also` says."""


def _is_third(number: int) -> bool:
    return number % 3 == THIRD


def also_in(number: int, also: Mapping[str, int]) -> tuple[str, ...]:
    """What a run has otherwise because that was asked for, in words; numbers are from 0."""
    return tuple(f"{name} = {n}" for name, n in also.items()) if _is_third(number) else ()


@contextmanager
def _load(processors: int) -> Iterator[None]:
    """Keep so many processors busy meanwhile."""
    words = childprocess.command(["-c", _BUSY], isolated=True)
    started = [subprocess.Popen(words, stdin=subprocess.DEVNULL) for _ in range(processors)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
        for one in started:
            one.wait()
