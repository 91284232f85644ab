"""`backendcfg tune -- CMD`: what choices are worth to a program, each and together."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg.audit.choices.candidates import choices
from backendcfg.audit.choices.turns import Contender, Program, Rounds
from backendcfg.audit.choices.verdicts import Measured, best, floor, judged, winners
from backendcfg.audit.evidence.sides import plan_of, side_of, variant
from backendcfg.environ import NOTHING
from backendcfg.errors import BackendCfgError, visible
from backendcfg.load.document import is_name
from backendcfg.progress import Step
from backendcfg.resolve.words import assignment, counted, duration, literal
from backendcfg.schema.profile import NO_PROFILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backendcfg.audit.choices.candidates import Choice, Planned
    from backendcfg.transact.compiled import Compiled

TOGETHER = "together"
"""The name of all winners as one choice."""


@dataclass(frozen=True)
class Found:
    """What was measured.

    Attributes:
        base: the plan that choices are held against.
        first: how long the run took that does not count, in seconds.
        rounds: the runs.
        choices: what they say of nothing and of each choice.
        left_out: why others were not measured, by their names.
        of_winners: the runs of all winners together; None where there were none.
        together: what these say.
        untried: why the winners were not measured together, or "".
        best: what to write; None where nothing is faster.
        text: of the profile to write, or "".
    """

    base: Compiled
    first: float
    rounds: Rounds
    choices: list[Measured]
    left_out: dict[str, str]
    of_winners: Rounds | None
    together: Measured | None
    untried: str
    best: Measured | None
    text: str

    @property
    def floor(self) -> float:
        """The largest ratio of two runs of the base in one round."""
        return floor(self.rounds.base)


def tune(
    program: Callable[[Compiled], Program],
    planned: Planned,
    *,
    rounds: int,
    announce: Callable[[str], None],
) -> Found:
    """Measure what there is to choose over a profile, then all that is faster together.

    Args:
        program: what is measured under the profile, and for how long.
        planned: the plan of the profile with flags set over it, which are given as TOML text.
        rounds: at most so many.
        announce: is told what will be done, once it is known how long that takes.

    Raises:
        UsageError: the time is too short.
        BackendCfgError: the program cannot be started, or fails under the profile.
    """
    base = planned({})
    measured = program(base)
    with Step("looking for choices"):
        found, left_out = choices(base, planned)
        contenders = [Contender(NOTHING, side_of(NOTHING, plan_of(NOTHING)))]
        contenders += [_contender(one, base) for one in found]
    measured.warm_up()
    measured.refuse_unless_fits(contenders)
    announce(_announced(len(found), rounds, measured.first))
    made = measured.rounds(contenders, rounds)
    verdicts = judged(contenders, made)
    won = winners(verdicts)
    of_winners, together, untried = None, None, ""
    if won[1:]:
        of_winners, together, untried = _together(won, measured, planned, rounds)
    chosen = best(won, together)
    reasons = {one.name: one.candidate.why for one in found}
    return Found(
        base,
        measured.first,
        made,
        verdicts,
        left_out,
        of_winners,
        together,
        untried,
        chosen,
        "" if chosen is None else profile(base, chosen, measured.command, reasons),
    )


def _contender(choice: Choice, base: Compiled) -> Contender:
    side = side_of(f"{base.name} with {choice.name}", choice.plan)
    return Contender(choice.name, side, {choice.candidate.flag: choice.candidate.value})


def _announced(choices: int, rounds: int, first: float) -> str:
    runs = rounds * (choices + 3)
    return (
        f"{counted(choices, 'choice')}, {counted(rounds, 'round')}: about {runs} runs of "
        f"{duration(first)}, {runs * first:.0f} s"
    )


def _together(
    won: Sequence[Measured], program: Program, planned: Planned, rounds: int
) -> tuple[Rounds | None, Measured | None, str]:
    """The runs of all winners together, what they say, and why there are none."""
    flags: dict[str, Any] = {flag: value for one in won for flag, value in one.flags.items()}
    try:
        plan = planned({flag: literal(value) for flag, value in flags.items()})
    except BackendCfgError as error:
        return None, None, error.message
    side = side_of(f"{program.base.name} with all that is faster", plan)
    contender = Contender(TOGETHER, side, flags)
    if 3 * program.first > program.left:
        return None, None, f"the time of {program.seconds:g} s was up"
    made = program.rounds([contender], rounds, seed=1)
    return made, judged([contender], made)[0], ""


def profile(
    base: Compiled, best: Measured, command: Sequence[str], reasons: Mapping[str, str]
) -> str:
    """The text of a profile: the base, and the flags of the best choice over it.

    What the base has from variables and settings files is not in it; they count beside it, too.

    Args:
        base: the profile that was measured.
        best: what made the program faster.
        command: the program.
        reasons: what is gained by each flag, by its assignment.
    """
    return "\n".join(
        [
            f"# {best.speed:.2f} times the speed of {visible(base.name)}, as measured here with",
            f"#   {visible(shlex.join(command))}",
            *_base(base, best),
            *_flags(best, reasons),
            "",
        ]
    )


def _base(base: Compiled, best: Measured) -> Iterator[str]:
    parents = base.name.split("+")
    if base.name == NO_PROFILE or not all(map(is_name, parents)):
        # Only a profile that has a name can be extended.
        lines = variant(None, base, ()).splitlines()
        yield from (line for line in lines if line.partition(" = ")[0] not in best.flags)
        return
    yield "schema = 1"
    yield f"extends = {literal(parents if parents[1:] else base.name)}"
    for flag, text in base.request.arguments.items():
        if flag not in best.flags:
            yield f"{flag} = {text}"


def _flags(best: Measured, reasons: Mapping[str, str]) -> Iterator[str]:
    for line in (assignment(flag, value) for flag, value in best.flags.items()):
        yield f"# {reasons[line]}"
        yield line
