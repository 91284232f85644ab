"""What `compare` and `prove` do about what their commands are started under."""

from __future__ import annotations

from backendcfg.audit.evidence.sides import refuse_disabled
from backendcfg.audit.recording import read
from backendcfg.cli.output import current
from backendcfg.errors import UsageError


def note_unless_governed(guard: str) -> None:
    """Say when no run that told in a folder was a Python that a profile reaches."""
    guarded = read(guard)
    if not (guarded.processes or guarded.silent):
        current().note(
            "no Python with backendcfg ran, so a profile set no more than the variables that a"
            " process starts with"
        )


def check(verb: str, sides: str, words: tuple[str, ...]) -> None:
    """Refuse what cannot be run.

    Args:
        verb: for the messages.
        sides: its profiles, for the messages.
        words: the command.

    Raises:
        UsageError: there is no command, or backendcfg is turned off.
    """
    if not words:
        raise UsageError(
            f"`backendcfg {verb}` needs a command",
            helps=[f"write `backendcfg {verb} {sides} -- python train.py`"],
        )
    refuse_disabled()
