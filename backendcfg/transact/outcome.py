"""What became of each switch, and of an apply as a whole, as data and in words, a failure too."""

from __future__ import annotations

from backendcfg.errors import (
    BackendCfgError,
    PendingWarning,
    RollbackIncompleteError,
    RolledBackError,
)
from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Literal

    from backendcfg.transact.compiled import Compiled
    from backendcfg.transact.journal import Step

    State = Literal[
        "set", "unchanged", "pending", "dormant", "unsupported", "irreversible", "undone"
    ]


@record(frozen=True)
class Outcome:
    """What became of one switch.

    Attributes:
        switch: its name: "openblas[numpy].threads", "OMP_NUM_THREADS", "torch.num_threads".
        flag: the flag that drives it.
        wanted: the value wanted.
        before: the value found, or None.
        state: what happened; unsupported, this build of the library cannot take the value; undone,
            its library was imported later and could not be given all that the profile wants.
        because: why, for anything but set and unchanged.
        remedy: for pending, the command that starts a process where it holds.
    """

    switch: str
    flag: str
    wanted: Any
    before: Any = None
    state: State = "set"
    because: str = ""
    remedy: str = ""


@record(frozen=True)
class Report:
    """What an apply did.

    Attributes:
        profile: the name that was applied.
        tier: its determinism tier.
        in_force: false while something that the tier rests on is pending.
        outcomes: one per switch, in the order of application.
        dormant: flags that nothing on this host reads, with the reason.
        overrides: variables of other software that contradict the profile, in words.
    """

    profile: str
    tier: str = "none"
    in_force: bool = True
    outcomes: tuple[Outcome, ...] = ()
    dormant: dict[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for one in self.outcomes:
            counts[one.state] = counts.get(one.state, 0) + 1
        if self.dormant:
            counts["dormant"] = counts.get("dormant", 0) + len(self.dormant)
        done = ", ".join(f"{number} {state}" for state, number in counts.items())
        tier = f"{self.tier}, {'' if self.in_force else 'not '}in force"
        lines = [f"{self.profile} ({tier if self.tier != 'none' else 'no tier'}): {done}"]
        left = ("pending", "unsupported", "irreversible", "undone")
        late = [one for one in self.outcomes if one.state in left]
        for one in late:
            remedy = f"; run `{one.remedy}`" if one.remedy else ""
            lines.append(f"  {one.state} {one.switch}: {one.because}{remedy}")
        return "\n".join(lines + [f"  override {text}" for text in self.overrides])

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        from dataclasses import asdict

        return asdict(self)


def what_comes_too_late(plan: Compiled, outcomes: Iterable[Outcome]) -> dict[str, str]:
    """What a profile's tier rests on and can no longer be set: a sentence for each reason."""
    if plan.tier == "none":
        return {}
    late: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.state == "pending" and plan.tier_rests_on(outcome.flag):
            late.setdefault(outcome.because, []).append(outcome)
    return {
        because: f"the tier `{plan.tier}` of profile `{plan.name}` is not in force in this process:"
        f" {listed([one.switch for one in those])} can no longer be set, {because}"
        + (f"; start it with `{those[0].remedy}`" if those[0].remedy else "")
        for because, those in late.items()
    }


_warned: set[str] = set()


def warn_of_pending(plan: Compiled, outcomes: Iterable[Outcome], *, depth: int) -> None:
    """Warn, once for each reason in a process, of what comes too late for a profile's tier.

    Args:
        plan: the profile.
        outcomes: what became of its switches.
        depth: how many functions lie between this one and the program's line.
    """
    for because, sentence in what_comes_too_late(plan, outcomes).items():
        if because not in _warned:
            import warnings

            # Under `-W error` this raises, and does so again for the next scope.
            warnings.warn(sentence, PendingWarning, stacklevel=depth + 2)
            _warned.add(because)


_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def shown(value: Any) -> str:
    """A value as TOML would spell it, strings bare: 8, true, default, unset."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value:
        return value
    try:
        return repr(value)
    except Exception:  # a message about a failure must not fail
        return f"a {type(value).__name__}"


def reason(error: BaseException) -> str:
    """What an error says, or what it is called when it says nothing."""
    return str(error) or type(error).__name__


def steps(first: int, last: int) -> str:
    """A range of steps: "step 1", "steps 1 and 2", "steps 1 to 4"."""
    if last == first:
        return f"step {first}"
    return f"steps {first} {'and' if last == first + 1 else 'to'} {last}"


def all_steps(count: int) -> str:
    """A number of steps: "the one step", "both steps", "all five steps", "all 40 steps"."""
    if count <= 2:
        return "both steps" if count == 2 else "the one step"
    return f"all {_WORDS[count] if count < len(_WORDS) else count} steps"


def listed(names: Sequence[str]) -> str:
    """Names in backticks: "`a`", "`a` and `b`", "`a`, `b` and `c`"."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


class Failure:
    """What is known when an apply has failed, worded."""

    def __init__(
        self,
        planned: Sequence[Step],
        done: Sequence[Step],
        cause: BaseException,
        *,
        profile: str,
        active: str,
        deed: str,
    ) -> None:
        self.planned = planned
        self.done = done
        self.cause = cause
        self.active = active
        self.profile = profile
        self.in_step = bool(done) and not done[-1].written
        self.written = len(done) - self.in_step
        what = f"{deed} profile `{profile}`" if profile else f"{deed} the settings"
        if self.in_step:
            self.what = f"{what} failed at step {len(done)} of {len(planned)}"
        elif self.written == len(planned):
            self.what = f"{what} failed when publishing"
        else:
            self.what = f"{what} was stopped before step {len(done) + 1} of {len(planned)}"

    def rolled_back(self) -> RolledBackError:
        if self.written:
            were = "was" if self.written == 1 else "were"
            undone = f"{steps(1, self.written)} {were} undone"
        else:
            undone = "nothing had been written before it"
        after = f"profile `{self.active}` is active; " if self.active else ""
        return RolledBackError(
            f"{self.what}; {undone}",
            notes=self.notes(),
            state=f"as before the call; {after}every restored value was read back and matched",
            helps=self.helps(),
        )

    def incomplete(self) -> RollbackIncompleteError:
        stuck = [step for step in self.done if step.stuck]
        places = [
            f"`{step.setting.switch.name}` {step.now}"
            f" and should be {shown(step.before) if step.known else 'what it was'} ({step.stuck})"
            for step in stuck
        ]
        names = listed([step.setting.switch.name for step in stuck])
        return RollbackIncompleteError(
            f"{self.what}, and {names} could not be restored",
            notes=self.notes(),
            state=f"{'; '.join(places)}; everything else is as before the call",
            helps=[*self.helps(), "restart the process to be rid of what is stuck"],
        )

    def notes(self) -> list[str]:
        notes = [self._note(number, step) for number, step in enumerate(self.done, start=1)]
        left = len(self.planned) - len(self.done)
        if left:
            were = "was" if left == 1 else "were"
            notes.append(f"{steps(len(self.done) + 1, len(self.planned))} {were} not attempted")
        if not self.in_step:
            notes.append(f"the cause: {reason(self.cause)}")
        return notes

    def _note(self, number: int, step: Step) -> str:
        setting = step.setting
        before = shown(step.before) if step.known else "unreadable"
        fate = f"failed: {step.failed}" if step.failed else "written"
        if step.stuck:
            fate += f", and not restored: {step.stuck}"
        elif not step.failed:
            fate += f", then restored to {before}"
        elif step.touched:
            fate += f"; restored to {before}"
        return f"step {number} `{setting.switch.name}` {before} -> {shown(setting.wanted)}: {fate}"

    def helps(self) -> list[str]:
        helps = list(self.cause.helps) if isinstance(self.cause, BackendCfgError) else []
        if self.profile:
            helps.append(
                f"run `backendcfg plan {self.profile}` to see {all_steps(len(self.planned))}"
                " without applying them"
            )
        return helps
