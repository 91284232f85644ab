"""What `compare` and `prove` do about what their commands are started under."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import termios
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING

from backendcfg.cli.group import Verb
from backendcfg.cli.output import current
from backendcfg.errors import UsageError

if TYPE_CHECKING:
    import click


class SidesVerb(Verb):
    """A verb with profiles before `--` and a command after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take no word of the command for a profile that is not there.

        Raises:
            UsageError: there are fewer profiles before `--` than the verb needs.
        """
        if "--" in args:
            before = args.index("--")
            given, _, _ = self.make_parser(ctx).parse_args(args[:before])
            needed = [one for one in self.params if one.param_type_name == "argument"][:-1]
            if not all(isinstance(given.get(one.name or ""), str) for one in needed):
                start = f"backendcfg {self.name}"
                names = " ".join(one.make_metavar(ctx) for one in needed)
                raise UsageError(
                    f"`{start}` needs {names} before `--`",
                    helps=[f"write `{start} {names} -- {shlex.join(args[before + 1 :])}`"],
                )
        return super().parse_args(ctx, args)


def note_unless_governed(guard: str) -> None:
    """Say when no run that told in a folder was a Python that a profile reaches."""
    from backendcfg.audit.recording import read

    guarded = read(guard)
    if not (guarded.processes or guarded.silent):
        current().note(
            "no Python with backendcfg ran, so a profile set no more than the variables that a"
            " process starts with"
        )


def check(verb: str, sides: str, words: tuple[str, ...]) -> None:
    """Refuse what cannot be run, and say what does not reach it.

    Args:
        verb: for the messages.
        sides: its profiles, for the messages.
        words: the command.

    Raises:
        UsageError: there is no command, or backendcfg is turned off.
    """
    from backendcfg.audit.evidence.sides import refuse_disabled

    if not words:
        raise UsageError(
            f"`backendcfg {verb}` needs a command",
            helps=[f"write `backendcfg {verb} {sides} -- python train.py`"],
        )
    refuse_disabled()
    if _has_input():
        current().note(
            f"the command finds standard input empty: what `backendcfg {verb}` gets there does not"
            " reach it"
        )


def _has_input() -> bool:
    """Whether there is something to read on standard input by now, but for what somebody types."""
    waiting = array("i", [0])
    with suppress(OSError):
        found = os.fstat(0)
        if stat.S_ISREG(found.st_mode):
            return found.st_size > os.lseek(0, 0, os.SEEK_CUR)
        if not os.isatty(0):
            fcntl.ioctl(0, termios.FIONREAD, waiting)
    return waiting[0] > 0
