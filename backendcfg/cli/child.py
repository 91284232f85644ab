"""Child processes: under which plan they start, how, and what one that reads switches finds.

`run` puts a command in the place of this process or waits for it; under `--guard` it says what the
command did to numeric switches when that has ended. The shell's `verify` must not import PyTorch
into itself, and what it finds must be what any program started from the same shell would find. So
it asks a child.
"""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from backendcfg import childprocess, environ
from backendcfg.cli.output import current
from backendcfg.cli.signals import Listener
from backendcfg.errors import UsageError
from backendcfg.resolve.words import counted
from backendcfg.session import planning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backendcfg.audit.recording import Found, Guarded
    from backendcfg.errors import BackendCfgError
    from backendcfg.transact.compiled import Compiled


def compiled(name: str | None, settings: Mapping[str, str]) -> Compiled:
    """The compiled plan of a name, or of the profile in force; the stored one while it holds.

    Raises:
        UsageError: no profile is named, and none is in force here.
    """
    from backendcfg.cli.wording import no_project, without_profile
    from backendcfg.session.choice import chosen, settings_alone

    picked = chosen(name, settings)
    if picked is not None:
        return planning.compiled_pick(picked)
    if not settings:
        raise UsageError(
            "no profile is named, and none is in force here",
            notes=[*no_project(), *without_profile(settings_alone())],
            helps=[
                "name one: `backendcfg run reproducible -- python train.py`",
                "or make one active: `backendcfg apply reproducible`",
                "run `backendcfg list` to see every profile",
            ],
        )
    return planning.compiled(None, arguments=settings)


def verification(name: str | None, *, measure: bool = False) -> dict[str, Any]:
    """What a process that starts here finds in every switch.

    Args:
        name: the profile to start it under; None for the one in force here.
        measure: whether the precision of every library is measured, too.

    Returns:
        An `audit.verify.Verification` as JSON data, with `ok`; under `unkept` the flags that the
        tier rests on and that this release does not set; under `broken` why a framework that is
        installed cannot be imported, by its name.

    Raises:
        BackendCfgError: what the child raised, or InternalError when it died or hung.
    """
    environment = environ.copy()
    if name is not None:
        environment[environ.PROFILE.name] = name
    return childprocess.testimony(
        __name__,
        environment,
        task="the process that verifies",
        remedy="call `backendcfg.verify()` in the program that you care about",
        measure=measure,
    )


def testify(*, measure: bool) -> dict[str, Any]:
    """In the child: import what is installed, then read every switch back, and measure."""
    from dataclasses import asdict

    from backendcfg import session
    from backendcfg.audit.verify import verify
    from backendcfg.session.shell import import_frameworks

    broken = import_frameworks()
    active = session.active()
    unkept = list(active.compiled.unkept) if active else []
    found = verify(measure=measure)
    return asdict(found) | {"ok": found.ok, "unkept": unkept, "broken": broken}


def become(argv: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Put the command in the place of this process."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - a shell would quote anew
    except OSError as error:
        raise _not_started(argv[0], environment, error) from error


def _not_started(word: str, environment: Mapping[str, str], error: OSError) -> BackendCfgError:
    obstacle = error.errno or errno.EIO
    state = "the command was not started"
    return childprocess.not_started(word, obstacle, state, environment.get("PATH", ""))


def wait_for(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the command and wait for it; its exit status, as a shell gives it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with Listener() as listener:
        try:
            # Under --json standard output carries one document, and that is ours.
            started = subprocess.Popen(
                argv, env=environment, stdout=sys.stderr if current().as_json else None
            )
        except OSError as error:
            raise _not_started(argv[0], environment, error) from error
        status = listener.wait(started)
    return status if status >= 0 else 128 - status


Strictness = Literal["report", "error"]
MOST_COMMANDS = 3
MOST_DRAWS = 12


def guarded(start: Callable[[str], int], strictness: Strictness) -> int:
    """Start a command, wait for it, and say what it did.

    Args:
        start: starts it with a value for BACKENDCFG_GUARD, and gives its exit status.
        strictness: whether the command fails that changed a switch, or told nothing.

    Returns:
        The status to exit with.
    """
    from backendcfg.audit.recording import read

    with childprocess.scratch() as folder:
        status = start(folder)
        found = read(folder)
    output = current()
    if output.as_json:
        output.answer({"status": status, **asdict(found)}, [])
    for line in _lines(found):
        output.note(line)
    failed = bool(found.changes or found.applied) or not found.processes
    return 1 if strictness == "error" and status == 0 and failed else status


def _lines(found: Guarded) -> Iterator[str]:
    if not found.processes and not found.silent:
        yield "guard: no Python with backendcfg ran, so nothing is known of its switches"
        return
    if found.changes:
        yield f"guard: the program changed {counted(len(found.changes), 'switch', 'switches')}"
        for one in found.changes:
            place = one.what["place"] and f", set at {one.what['place']}"
            yield f"  {one.what['text']}{place}{_processes(one)}"
    elif found.processes:
        yield "guard: the program changed no switch"
    yield from _draws("guard: the program drew what no seed governs", found, secret=False)
    yield from _draws("guard: the program drew secrets, which no profile seeds", found, secret=True)
    for name in found.applied:
        yield f"guard: the program applied profile `{name}` itself"
    if found.silent:
        yield (
            f"guard: {counted(len(found.silent), 'process', 'processes')} told nothing at the end,"
            " because of a signal, os._exit or exec"
        )
        for words in found.silent[:MOST_COMMANDS]:
            yield f"  {shlex.join(words)}"
        if len(found.silent) > MOST_COMMANDS:
            yield f"  and {len(found.silent) - MOST_COMMANDS} more"


def _draws(title: str, found: Guarded, *, secret: bool) -> Iterator[str]:
    draws = [one for one in found.draws if one.what["secret"] == secret]
    draws.sort(key=lambda one: " for " in one.what["place"])  # those of libraries last
    if draws:
        yield title
    for one in draws[:MOST_DRAWS]:
        yield f"  {one.what['text']}{_processes(one)}"
    if len(draws) > MOST_DRAWS:
        yield f"  and {len(draws) - MOST_DRAWS} more, see `--json`"


def _processes(one: Found) -> str:
    return f", in {one.processes} processes" if one.processes > 1 else ""
