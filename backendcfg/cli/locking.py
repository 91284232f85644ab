"""Locks of proven runs, which `prove` writes and compares; and the locks and plans of `run`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backendcfg import environ
from backendcfg.cli.options import refuse_unwritable
from backendcfg.cli.output import block, current
from backendcfg.errors import LockDriftError, UnreadableFileError, UsageError, shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backendcfg.audit.evidence.drift import Drift
    from backendcfg.audit.evidence.files import Content
    from backendcfg.audit.evidence.lock import Lock, Present, Results
    from backendcfg.audit.evidence.prove import Proof
    from backendcfg.audit.evidence.runs import Run
    from backendcfg.audit.report.data import Against
    from backendcfg.cli.output import Colour
    from backendcfg.fleet.planned import FleetPlan
    from backendcfg.transact.compiled import Compiled

OnDrift = Literal["error", "warn"]

MOST_SHOWN = 20
"""Differences that are named."""


class Locking:
    """What `prove` does about locks: `keep` is for the first run, `after` for the end."""

    def __init__(
        self, name: str, plan: Compiled | None, *, write: str | None, against: str | None
    ) -> None:
        """Refuse what would be refused after hours of runs, and look at what is here.

        Args:
            name: the profile, as it was asked for.
            plan: its plan; None for nothing.
            write: the file to write.
            against: the file to compare with.

        Raises:
            UsageError: nothing can be locked under no profile; or the file cannot be written, or
                holds something else.
            BackendCfgError: the lock to compare with cannot be read, or what is here.
        """
        self.write = write
        self.first: tuple[Run, Mapping[str, Content]] | None = None
        self.locked: Lock | None = None
        self.against = against
        if plan is None and (write or against):
            raise UsageError(
                "a lock is of runs under a profile, not under `nothing`",
                helps=["name one: `backendcfg prove reproducible --output run.lock -- COMMAND`"],
            )
        if write is not None:
            refuse_unwritable(write, "lock", rb"^lock = \d+\r?$", "--output")
        if against is not None:
            from backendcfg.audit.evidence.lock import read

            self.locked = read(against)
        self.compared: Against | None = None
        self.here = _present(plan, name) if plan is not None and (write or against) else None

    def keep(self, first: Run, written: Mapping[str, Content]) -> None:
        """Keep what the first run produced."""
        if self.here is not None:
            self.first = first, written

    def after(self, found: Proof) -> tuple[dict[str, Any], list[str], bool]:
        """Compare and write.

        Args:
            found: the proof.

        Returns:
            What to print, as data and as lines, and whether results are those locked and the file
            was written. `compared` has how results stand to the lock.
        """
        if self.first is None or self.here is None:
            return {}, [], True
        if not found.equal:
            no = "was not written" if self.write else "was not compared with"
            words = [f"{_path(self.write or self.against)} {no}, because runs differ"]
            data = {"lock": self.write, "against": self.against}
            missing = {key: None for key, path in data.items() if path is not None}
            return missing, [*block("lock", words, "bold")], False
        from backendcfg.audit.evidence.results import results_of

        here = self.here
        results = results_of(found, *self.first)
        document: dict[str, Any] = {}
        lines: list[str] = []
        same = True
        if self.locked is not None:
            lines, same = self._compared(self.locked, here, results)
        if self.write is not None:
            from backendcfg.audit.evidence import lock

            try:
                lock.write(lock.made(here, results), self.write)
            except UnreadableFileError as error:  # what was proven is not lost with the file
                return document | {"lock": None}, [*lines, *block("lock", [error.message])], False
            document["lock"] = self.write
            lines += block("lock", [f"{_path(self.write)} was written"], "bold")
        return document, lines, same

    def _compared(self, locked: Lock, here: Present, results: Results) -> tuple[list[str], bool]:
        from backendcfg.audit.evidence.drift import differing, drifts
        from backendcfg.audit.report import words as in_words
        from backendcfg.audit.report.data import Against

        words = differing(locked.results, results)
        found = drifts(locked, here)
        first = in_words.against(words, _path(self.against))
        colour: Colour = "red" if words else "green"
        lines = [*block("against", [first, *words[:MOST_SHOWN]], "bold", colour)]
        lines += block("drift", _named(found), "bold", "yellow")
        self.compared = Against(tuple(words), tuple(found))
        return lines, not words


def _path(path: str | None) -> str:
    return shown_path(path or "")


def _present(plan: Compiled, name: str) -> Present:
    """What is here for a program under a plan, whatever verb starts it."""
    from backendcfg.audit.evidence.present import present
    from backendcfg.audit.evidence.sides import side_of

    return present(plan, name, side_of(name, plan).environment)


@dataclass(frozen=True)
class Check:
    """The lock that `run` was given.

    Attributes:
        path: the file.
        lock: what is in it.
        on_drift: what to do where something is not as locked.
    """

    path: str
    lock: Lock
    on_drift: OnDrift

    def name_or(self, name: str | None) -> str:
        """The profile that was named, or the lock's.

        Raises:
            UsageError: none was named, and the lock's is a file: whoever wrote the lock does not
                choose which file is read.
        """
        return (
            name if name is not None else _profile_of(self.lock.profile.name, self.path, "--locked")
        )

    def check(self, name: str | None, settings: Mapping[str, str], argv: Sequence[str]) -> None:
        """Compare what is here, for the processors of this thread.

        Args:
            name: the profile; None for the lock's.
            settings: flags that are set over it.
            argv: the command, for the messages.

        Raises:
            LockDriftError: something is not as locked, and that is an error.
        """
        from backendcfg.audit.evidence.drift import Drift, drifts
        from backendcfg.cli import child
        from backendcfg.resolve.words import counted

        named = self.name_or(name)
        if environ.disabled():
            found = [Drift("profile.name", self.lock.profile.name, None, "by BACKENDCFG_DISABLE")]
        else:
            found = drifts(self.lock, _present(child.compiled(named, settings), named))
        if not found:
            return
        path = _path(self.path)
        message = f"{path} does not fit what is here: {counted(len(found), 'difference')}"
        if self.on_drift == "warn":
            current().note(f"locked: {message}")
            for line in _named(found):
                current().note(f"  {line}")
            return
        command = shlex.join(argv)
        names = f"{shlex.quote(named)} --output {shlex.quote(path)}"
        prove = f"backendcfg prove {names} -- {command}"
        raise LockDriftError(
            message,
            notes=_named(found),
            state="the command was not started",
            helps=[
                "add `--drift warn` to start it all the same",
                f"or prove it with what is here: `{prove}`",
            ],
        )


def _named(found: Sequence[Drift]) -> list[str]:
    from backendcfg.resolve.words import some_lines

    return some_lines([str(one) for one in found], MOST_SHOWN)


def lock_for(path: str | None, on_drift: OnDrift | None) -> Check | None:
    """The lock that `run --locked` names; None for none.

    Raises:
        UsageError: `--drift` without a lock.
        BackendCfgError: the lock cannot be read.
    """
    if path is None:
        if on_drift is not None:
            raise UsageError(
                "`--drift` says what to do about a lock, and there is none",
                helps=["name it: `backendcfg run --locked run.lock -- COMMAND`"],
            )
        return None
    from backendcfg.audit.evidence.lock import read

    return Check(path, read(path), on_drift or "error")


def fleet_plan(path: str, name: str | None) -> FleetPlan:
    """The plan of a fleet in a file, under which a command is to start.

    Args:
        path: the file.
        name: the profile that is named; None for the plan's.

    Raises:
        UnreadableFileError, InvalidFleetPlanError: the file is no such plan, or may not set what
            it sets.
        UsageError: another profile is named, or none where the plan's is a file.
        FleetDisagreesError: backendcfg is turned off here.
    """
    from backendcfg.fleet.planned import read, refuse, refuse_unsafe
    from backendcfg.session import planning

    fleet = read(path)
    refuse_unsafe(fleet, path)
    if environ.disabled():
        refuse(
            path,
            ["backendcfg is turned off here, by BACKENDCFG_DISABLE"],
            "run `unset BACKENDCFG_DISABLE`",
        )
    if name is None:
        _profile_of(fleet.profile, path, "--fleet")
    elif planning.anywhere(name) != planning.anywhere(fleet.profile):
        raise UsageError(
            f"{_path(path)} is a plan of profile `{fleet.profile}`, not of `{name}`",
            helps=[f"write `backendcfg run {fleet.profile} --fleet {path} -- COMMAND`"],
        )
    return fleet


def as_planned(fleet: FleetPlan, path: str, name: str | None, settings: Mapping[str, str]) -> None:
    """Refuse this host unless it is as a fleet's plan has it.

    Raises:
        FleetDisagreesError: it names what is otherwise.
    """
    from backendcfg import session
    from backendcfg.cli import child
    from backendcfg.fleet.planned import refuse_unless_as_planned

    plan = child.compiled(name, settings)
    refuse_unless_as_planned(fleet, plan, session.detect(), path, settings)


def _profile_of(name: str, path: str, option: str) -> str:
    """The profile that a file names, unless it is a file: its writer does not choose what is read.

    Raises:
        UsageError: it is a file, which is to be named.
    """
    from backendcfg.load.document import is_name

    if not all(is_name(part) for part in name.split("+")):
        raise UsageError(
            f"{_path(path)} is of a profile in a file, `{name}`, which is to be named",
            helps=[f"write `backendcfg run PROFILE {option} FILE -- COMMAND`"],
        )
    return name
