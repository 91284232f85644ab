"""What `compare` and `prove` do about what their commands are started under."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backendcfg.audit.evidence.sides import plan_of, refuse_disabled
from backendcfg.audit.evidence.variants import variant
from backendcfg.audit.recording import read
from backendcfg.cli.output import current
from backendcfg.errors import UsageError
from backendcfg.transact import disk

if TYPE_CHECKING:
    from collections.abc import Collection

    from backendcfg.transact.compiled import Compiled


def variant_of(
    folder: str, a: Compiled | None, b: Compiled | None, some: Collection[str]
) -> Compiled | None:
    """Plan b, but with some flags as plan a has them, from a profile that is written to a folder.

    Raises:
        BackendCfgError: these flags do not go together here.
    """
    path = os.path.join(folder, f"variant-{len(os.listdir(folder)) + 1}.toml")
    disk.replace(path, variant(a, b, some).encode())
    return plan_of(path)


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
