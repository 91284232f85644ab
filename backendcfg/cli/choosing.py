"""What `tune` does with a program: what it is measured under, the table, and the profile."""

from __future__ import annotations

import os
import shlex
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from backendcfg.audit.choices.program import TOGETHER, tune
from backendcfg.audit.choices.turns import Program
from backendcfg.audit.choices.verdicts import LEAST_ROUNDS
from backendcfg.audit.evidence.sides import side_of
from backendcfg.cli import child
from backendcfg.cli.options import refuse_unwritable
from backendcfg.cli.output import block, current, table
from backendcfg.environ import NOTHING
from backendcfg.errors import UsageError, shown_path
from backendcfg.resolve.words import counted, duration
from backendcfg.session.choice import chosen
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from backendcfg.audit.choices.program import Found
    from backendcfg.audit.choices.turns import Rounds
    from backendcfg.audit.choices.verdicts import Measured
    from backendcfg.audit.evidence.outputs import Distance
    from backendcfg.audit.evidence.runs import Run
    from backendcfg.transact.compiled import Compiled

USUAL = "fast"
"""The profile where none is named and none is in force."""

RESTLESS = 1.1
"""Noise above which little can be told."""

STATE = "nothing was stored or changed; files that the command wrote are there"


def measure(
    name: str | None, command: Sequence[str], *, rounds: int, seconds: float, path: str | None
) -> None:
    """Measure a program under choices of flags, say what they are worth, and write the best ones.

    Args:
        name: the profile that choices are set over; None for the one in force here.
        command: the program and its arguments.
        rounds: at most so many.
        seconds: after which no round begins.
        path: the file to write the profile to.

    Raises:
        UsageError: the file is there already, or the time is too short for one round.
        BackendCfgError: the program cannot be started, or fails under the profile.
    """
    if path is not None:
        _refuse(path, rounds)
    base, source = _base(name)

    def planned(settings: Mapping[str, str]) -> Compiled:
        return child.compiled(base, settings)

    def program(plan: Compiled) -> Program:
        return Program(command, side_of(plan.name, plan), seconds)

    found = tune(program, planned, rounds=rounds, announce=current().note)
    if (made := len(found.rounds.base)) < rounds:
        current().note(f"the time of {seconds:g} s was up after {made} of {rounds} rounds")
    document = {"path": path if found.text else None, **_document(found, command, source)}
    current().answer(document, _lines(found, command, source))
    if path is not None:
        if found.text:
            disk.replace_named(path, found.text.encode())
        shown = shown_path(path)
        current().note(f"{shown} was written" if found.text else f"{shown} was not written")


def _refuse(path: str, rounds: int) -> None:
    """Refuse before anything is run a file that is there, or that will not or cannot be written."""
    if rounds < LEAST_ROUNDS:
        raise UsageError(
            f"`--output` needs {LEAST_ROUNDS} rounds or more, not {rounds}: fewer tell too little",
            state="the command was not started",
            helps=["leave `--rounds` out, or give more"],
        )
    if os.path.lexists(path):
        raise UsageError(
            f"{shown_path(path)} is there already",
            state="the command was not started",
            helps=["give another file with `--output`"],
        )
    refuse_unwritable(path, "profile", b"", "--output")


def _base(name: str | None) -> tuple[str | None, str]:
    """The profile that is named, in force or usual, and why it is that one."""
    if name is not None:
        return name, "as named"
    if (picked := chosen()) is not None:
        return None, f"in force here by {picked.source}"
    return USUAL, "as no profile is named, and none is in force here"


def _document(found: Found, command: Sequence[str], source: str) -> dict[str, Any]:
    return {
        "command": list(command),
        "base": {"profile": found.base.name, "source": source},
        "first": found.first,
        "noise": found.floor,
        "rounds": len(found.rounds.base),
        "runs": _runs(found.rounds),
        "choices": [_of(one, found.rounds) for one in found.choices],
        "left_out": found.left_out,
        "together": (
            None
            if found.together is None or found.of_winners is None
            else {**_of(found.together, found.of_winners), "base": _runs(found.of_winners)}
        ),
        "untried": found.untried,
        "flags": dict(found.best.flags) if found.best is not None else {},
        "toml": found.text,
    }


def _runs(rounds: Rounds) -> list[list[dict[str, Any]]]:
    """The runs of the base: the first and the last of each round."""
    return [[_run(one) for one in pair] for pair in rounds.base]


def _of(one: Measured, rounds: Rounds) -> dict[str, Any]:
    return {
        "choice": one.name,
        "flags": dict(one.flags),
        "verdict": one.verdict,
        "because": one.because,
        "speed": one.speed,
        "interval": [one.low, one.high] if one.rounds >= LEAST_ROUNDS else None,
        "processor": one.processor,
        "memory": one.memory,
        "prints": _prints(one),
        "prints_the_same": one.prints_the_same,
        "runs": [_run(each) for each in rounds.runs[one.name]],
    }


def _run(one: Run) -> dict[str, Any]:
    return {
        "seconds": one.seconds,
        "processor": one.processor,
        "memory": one.memory,
        "printed": sha256(one.whole_text.encode()).hexdigest(),
    }


def _lines(found: Found, command: Sequence[str], source: str) -> Iterator[str]:
    rounds, runs = len(found.rounds.base), len(found.choices) + 2
    yield from block("measured", [shlex.join(command)], "bold")
    several = f"{counted(rounds, 'round')} of {runs} runs, the first of which took"
    yield from block("", [f"{several} {duration(found.rounds.base[0][0].seconds)}"])
    yield from block("base", [f"{found.base.name}, {source}"], "bold")
    noise = f"a factor of {found.floor:.2f}, as between two runs of {found.base.name} in one round"
    yield from block("noise", [noise], "bold")
    yield ""
    every = [*sorted(found.choices, key=lambda one: -one.speed)]
    every += [found.together] if found.together is not None else []
    head = ("choice", "speed", "interval", "processor", "memory", "prints", "")
    yield from table([_row(one) for one in every], head)
    yield ""
    yield from _remarks(found, every)
    yield from _end(found)


def _row(one: Measured) -> tuple[str, ...]:
    name = one.name if one.name != NOTHING else f"{NOTHING}: no profile"
    if one.because:
        return (name, "-", "-", "-", "-", "-", one.verdict)
    return (
        name,
        f"{one.speed:.2f}",
        f"{one.low:.2f} to {one.high:.2f}" if one.rounds >= LEAST_ROUNDS else "-",
        f"{one.processor:.2f}",
        f"{one.memory:.2f}",
        _prints(one),
        one.verdict,
    )


def _prints(one: Measured) -> str:
    """What a choice prints and records, as against the base."""
    if one.output is None:
        return ""
    if one.output.state != "equal":
        return _otherwise(one.output)
    return "the same" if not one.records else "the same, records something else"


def _otherwise(output: Distance) -> str:
    if output.state == "numbers differ":
        return "other numbers" if output.apart is None else f"numbers apart by {output.apart:.0e}"
    if output.state == "text differs":
        return "something else"
    return "unknown" if 0 in output.changing else "something else"


def _remarks(found: Found, every: Sequence[Measured]) -> Iterator[str]:
    for one in every:
        if one.because:
            yield from block(one.verdict, [f"{one.name}: {one.because}"], "bold", "red")
    otherwise = [
        one for one in every if one.flags and one.verdict == "faster" and not one.prints_the_same
    ]
    for one in otherwise:
        text = f"{one.name} is faster and prints something else: not in the profile"
        yield from block("differs", [text], "bold", "yellow")
    outputs = [one.output for one in every if one.output is not None]
    if any(0 in one.changing for one in outputs):
        text = "what the program prints changes from run to run, so nobody knows what choices do"
        yield from block("unknown", [text], "bold", "yellow")
    elif number := max(
        (sum(part.kind == "number" for part in one.left_out) for one in outputs), default=0
    ):
        text = f"{counted(number, 'number')} that it prints: no run has the same as another"
        yield from block("unknown", [text], "bold", "yellow")
    if found.floor > RESTLESS:
        text = "measure again when no other program computes"
        yield from block("restless", [text], "bold", "yellow")
    if found.untried:
        yield from block(TOGETHER, [f"not measured: {found.untried}"], "bold")
    reasons: dict[str, list[str]] = {}
    for name, because in found.left_out.items():
        reasons.setdefault(because, []).append(name)
    grouped = [f"{', '.join(names)}: {because}" for because, names in reasons.items()]
    yield from block("left out", grouped, "bold")


def _end(found: Found) -> Iterator[str]:
    name = found.base.name
    without = next(one for one in found.choices if one.name == NOTHING)
    if without.verdict == "faster":
        text = f"without a profile the program is {without.speed:.2f} times as fast as under {name}"
        yield from block(NOTHING, [text], "bold", "yellow")
    if found.best is None:
        few = len(found.rounds.base) < LEAST_ROUNDS
        why = f"not known, from fewer than {LEAST_ROUNDS} rounds" if few else "no choice is faster"
        yield from block("best", [f"{name} as it is: {why}"], "bold")
        return
    yield from block("best", [f"{found.best.name}, as a profile:"], "bold", "green")
    yield from (f"          {line}" for line in found.text.splitlines())
