"""A failed apply, worded: what was undone, what is stuck, what to do."""

from __future__ import annotations

from backendcfg.errors import BackendCfgError, RollbackIncompleteError, RolledBackError
from backendcfg.transact.outcome import all_steps, listed, reason, shown, steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.transact.journal import Step


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
