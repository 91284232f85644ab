"""All settings or none: journal, write, read back, publish; on any failure undo in reverse.

Every switch is read before any is written, so what cannot be read is refused while nothing has
changed. Each step is noted before it is written, because a write may fail half way. What a switch
reads afterwards counts, not that its write returned. Reading back also decides whether an undo
succeeded.

A value that the library in this process cannot take is not written, and reported as unsupported.
A switch that declares `reversible = False` is marked in its outcome, is written after all others so
that as little as possible can fail behind it, and may be unreadable before it is written, never
after. Callers serialise: the registry holds its lock around `transact`.
"""

from __future__ import annotations

from backendcfg import log
from backendcfg.errors import (
    RollbackIncompleteError,
    TooLateError,
    UnreadableSwitchError,
)
from backendcfg.transact.interrupts import Deferral
from backendcfg.transact.outcome import Failure, Outcome, listed, reason, shown
from backendcfg.transact.switch import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, NoReturn

    from backendcfg.transact.switch import Setting


class ReadBackError(Exception):
    """A switch does not hold what was written."""


class Step:
    """One write, and what became of it.

    Attributes:
        setting: the switch and the value wanted.
        before: what it held; None when it could not be read.
        known: whether `before` is a value that can be put back.
        failed: why the write failed, or "".
        stuck: why the undo failed, or "".
        now: when stuck, what it holds now, in words.
        touched: whether undoing had something to put back.
        written: whether the write returned and was read back.
    """

    __slots__ = ("before", "failed", "known", "now", "setting", "stuck", "touched", "written")

    def __init__(self, setting: Setting, before: Any, known: bool = True) -> None:
        self.setting = setting
        self.before = before
        self.known = known
        self.failed = ""
        self.stuck = ""
        self.now = ""
        self.touched = True
        self.written = False

    def write(self) -> None:
        """Write and read back.

        Raises:
            ReadBackError: the switch holds something else now.
            Exception: whatever the switch raised.
        """
        switch, wanted = self.setting.switch, self.setting.wanted
        switch.write(wanted)
        found = switch.read()
        if found != wanted:
            raise ReadBackError(f"wrote {shown(wanted)}, read back {shown(found)}")
        self.written = True
        log.debug("%s: %s -> %s", switch.name, shown(self.before), shown(wanted))

    def undo(self) -> None:
        """Put `before` back and read it back; the reading decides.

        Raises:
            ReadBackError: the switch still holds something else.
            Exception: the switch can be neither written nor read.
        """
        switch = self.setting.switch
        if not self.known:
            raise ReadBackError("it could not be read before it was written")
        if self.failed:
            self.touched = reading(switch.read) != (self.before, "")
        obstacle: Exception | None = None
        try:
            switch.write(self.before)
        except Exception as error:
            obstacle = error  # a switch that refuses every write may still hold the old value
        found = switch.read()
        if found != self.before:
            raise obstacle or ReadBackError(f"wrote {shown(self.before)}, read back {shown(found)}")
        log.debug("%s: restored to %s", switch.name, shown(self.before))

    def settle(self) -> None:
        """Read a step's switch again after its undo failed: it is stuck only if it differs."""
        try:
            found = self.setting.switch.read()
            self.now = f"is {shown(found)}"
            if self.known and found == self.before:
                self.stuck = ""
        except BaseException as error:  # whatever it is, it must not hide the report
            self.now = f"cannot be read ({reason(error)})"


class Foreseen:
    """What writing some settings would do: every switch was read, and none is written yet.

    Attributes:
        outcomes: what becomes of each setting, in the order given.
        steps: what is to be written, in the order of writing.
    """

    __slots__ = ("outcomes", "steps")

    def __init__(self, outcomes: Sequence[Outcome], steps: Sequence[Step]) -> None:
        self.outcomes = tuple(outcomes)
        self.steps = tuple(steps)


def transact(
    settings: Sequence[Setting],
    publish: Callable[[], None],
    *,
    profile: str = "",
    active: str = "",
    strict: bool = False,
) -> tuple[Outcome, ...]:
    """Write every setting and publish, or leave everything as it was.

    SIGINT and SIGTERM are taken between steps. One that arrives while steps are being undone, or
    after `publish` has begun, is delivered when that is finished.

    Args:
        settings: in the order of writing.
        publish: makes the new state visible by one store; called last. When it raises, nothing is
            published and the steps are undone.
        profile: what is being applied, for messages.
        active: the profile that is in force before the call, for messages.
        strict: refuse settings whose latch has passed, instead of reporting them as pending.

    Returns:
        One outcome per setting, in the order given.

    Raises:
        UnreadableSwitchError: a switch cannot be read; nothing was written.
        TooLateError: `strict`, and a latch has passed; nothing was written.
        RolledBackError: a step failed and everything was undone.
        RollbackIncompleteError: a step failed or was interrupted, and not everything could be
            undone; `state` names each switch that is stuck.
    """
    foreseen = foresee(settings)
    carry_out(foreseen, publish, profile=profile, active=active, strict=strict)
    return foreseen.outcomes


def carry_out(
    foreseen: Foreseen,
    publish: Callable[[], None],
    *,
    profile: str = "",
    active: str = "",
    strict: bool = False,
) -> None:
    """Write what was foreseen and publish, or leave everything as it was; see `transact`."""
    if strict:
        _refuse_pending(foreseen.outcomes)
    done: list[Step] = []
    with Deferral(graver=RollbackIncompleteError) as interrupts:
        try:
            for step in foreseen.steps:
                interrupts.deliver()
                done.append(step)
                step.write()
            interrupts.deliver()
            publish()
        except BaseException as cause:
            roll_back(foreseen.steps, done, cause, profile=profile, active=active)
    written, count = len(done), len(foreseen.outcomes)
    log.info("applied %s: %d of %d written", profile or "settings", written, count)


def roll_back(
    planned: Sequence[Step],
    done: Sequence[Step],
    cause: BaseException,
    *,
    profile: str = "",
    active: str = "",
    deed: str = "applying",
) -> NoReturn:
    """Undo the steps that were begun and raise what there is to say.

    Args:
        planned: every step that was to be written.
        done: those that were begun, in order.
        cause: what stopped the writing.
        profile: the profile, for messages.
        active: the profile that stays in force, for messages.
        deed: what was being done with the profile.

    Raises:
        RolledBackError: everything is as before; the cause was an ordinary error.
        BaseException: the cause itself, when it was an interrupt and everything is as before; or an
            interrupt that arrived during the undo.
        RollbackIncompleteError: something is stuck.
    """
    if done and not done[-1].written:
        done[-1].failed = reason(cause)
    late = undo(done)
    failure = Failure(planned, done, cause, profile=profile, active=active, deed=deed)
    if any(step.stuck for step in done):
        raise failure.incomplete() from cause
    if not isinstance(cause, Exception):
        log.info("%s %s was interrupted and undone", deed, profile or "settings")
        raise cause
    error = failure.rolled_back()
    error.__cause__ = cause
    log.info("%s", error)
    if late is not None:
        raise late from error
    raise error


def undo(done: Sequence[Step]) -> BaseException | None:
    """Undo in reverse, past every failure, which `Step.stuck` then tells.

    Returns:
        An interrupt that a switch raised on the way, for the caller to raise afterwards.
    """
    waiting = list(done)
    late: BaseException | None = None
    again = False
    while waiting:
        try:
            while waiting:
                waiting[-1].undo()
                waiting.pop()
                again = False
        except Exception as error:
            waiting.pop().stuck = reason(error)
            again = False
        except BaseException as error:  # an interrupt: do the same step once more
            late = error
            if again:
                waiting.pop().stuck = reason(error)
            again = not again
    for step in done:
        if step.stuck:
            step.settle()
    return late


def foresee(settings: Iterable[Setting]) -> Foreseen:
    """Read every switch once; what `transact` would do with these settings. Nothing is written.

    Raises:
        UnreadableSwitchError: a switch cannot be read, so it could not be put back.
    """
    outcomes: list[Outcome] = []
    plain: list[Step] = []
    irreversible: list[Step] = []
    for setting in settings:
        switch = setting.switch
        idle, obstacle = reading(told, switch, "dormant")
        cannot = because = ""
        if not idle and not obstacle:
            cannot, obstacle = reading(told, switch, "unsupported")
        if not idle and not cannot and not obstacle:
            because, obstacle = reading(switch.too_late)
        if obstacle:
            _refuse_unreadable(setting, obstacle)
        before, obstacle = reading(switch.read)
        if not obstacle and before == setting.wanted:
            # Also when it is too late: the process was started with it.
            outcomes.append(_outcome(setting, before, "unchanged"))
        elif idle:
            outcomes.append(_outcome(setting, before, "dormant", idle))
        elif cannot:
            outcomes.append(_outcome(setting, before, "unsupported", cannot))
        elif because:
            outcomes.append(
                _outcome(setting, before, "pending", str(because), remedy=setting.remedy)
            )
        elif switch.reversible:
            if obstacle:
                _refuse_unreadable(setting, obstacle)
            outcomes.append(_outcome(setting, before, "set"))
            plain.append(Step(setting, before))
        else:
            cannot = "the value it had cannot be written back"
            outcomes.append(_outcome(setting, before, "irreversible", cannot))
            irreversible.append(Step(setting, before, known=not obstacle))
    return Foreseen(outcomes, plain + irreversible)


def _outcome(
    setting: Setting, before: Any, state: Any, because: str = "", remedy: str = ""
) -> Outcome:
    return Outcome(
        setting.switch.name, setting.flag, setting.wanted, before, state, because, remedy
    )


def _refuse_unreadable(setting: Setting, obstacle: str) -> NoReturn:
    raise UnreadableSwitchError(
        f"cannot read `{setting.switch.name}`, which `{setting.flag}` sets: {obstacle}",
        notes=["what cannot be read could not be put back, so nothing is written"],
        helps=[f"remove `{setting.flag}` from the profile, or repair the library behind it"],
    )


def _refuse_pending(outcomes: Iterable[Outcome]) -> None:
    late = [outcome for outcome in outcomes if outcome.state == "pending"]
    if late:
        raise TooLateError(
            f"{listed([outcome.switch for outcome in late])} can no longer be set in this process",
            notes=[f"`{outcome.switch}`: {outcome.because}" for outcome in late],
            helps=[f"run `{remedy}`" for remedy in dict.fromkeys(o.remedy for o in late) if remedy],
        )


def reading(read: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """What `read` returns and "", or None and why it cannot."""
    try:
        return read(*arguments), ""
    except Exception as error:
        return None, reason(error)
