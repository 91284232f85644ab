"""Starting the command of `run` and `capture`: in the place of this process, or waiting for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

from backendcfg.cli.output import current
from backendcfg.errors import CommandNotExecutableError, CommandNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def become(argv: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Put the command in the place of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - a shell would quote anew
    except OSError as error:
        _refuse(argv, environment, error)


def wait_for(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the command and wait for it; its exit status, as a shell gives it."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        # Under --json standard output carries one document, and that is ours.
        started = subprocess.Popen(
            argv, env=environment, stdout=sys.stderr if current().as_json else None
        )
    except OSError as error:
        _refuse(argv, environment, error)
    # Ctrl-C reaches the whole group: the command decides what it means.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants it so
            before[number] = signal.signal(number, lambda found, _: started.send_signal(found))
    try:
        status = started.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _refuse(argv: Sequence[str], environment: Mapping[str, str], error: OSError) -> NoReturn:
    """Say why a command cannot be started, with the exit code that shells give then."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise CommandNotFoundError(
            f"command `{argv[0]}` was not found",
            notes=[] if os.sep in argv[0] else [f"PATH is {environment.get('PATH', '')}"],
            state="the command was not started",
            helps=["check its spelling, or give its whole path"],
        ) from error
    raise CommandNotExecutableError(
        f"command `{argv[0]}` cannot be executed: {error.strerror}",
        state="the command was not started",
        helps=["for a script, name its interpreter: `backendcfg run -- python script.py`"],
    ) from error
