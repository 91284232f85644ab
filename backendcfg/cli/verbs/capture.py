"""`backendcfg capture -- CMD`: run a command and write the switches that it set as a profile."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from backendcfg import childprocess
from backendcfg.cli.group import verb
from backendcfg.cli.output import current
from backendcfg.errors import InvalidArgumentError, StateUnwritableError, UsageError

if TYPE_CHECKING:
    from backendcfg.audit.capture import ProcessState

STANDARD_OUTPUT = "-"


@verb(
    "capture",
    "Write",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option(
    "-o",
    "--output",
    default="captured.toml",
    show_default=True,
    type=click.Path(dir_okay=False, allow_dash=True),
    help="File to write; - is standard output, after what the command prints.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
@click.option(
    "--everything", is_flag=True, help="Write every switch, also those at their defaults."
)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(output: str, words: tuple[str, ...], *, force: bool, everything: bool) -> None:
    """Run a command, and write the numeric switches that it set as a profile.

    Looks at the Python process that the command starts, or at the last one to end if it starts
    several, when it ends. No profile is put in force for it: what is captured is what the program
    does by itself. Exits as the command does; with 3 where that is 0 and the file cannot be
    written.
    """
    argv = list(words[1:] if words[:1] == ("--",) else words)
    if not argv:
        raise UsageError(
            "`backendcfg capture` needs a command",
            helps=["write `backendcfg capture -- python train.py`"],
        )
    if output != STANDARD_OUTPUT and not force and os.path.lexists(output):
        raise UsageError(
            f"{output} is there already",
            helps=["give another file with `--output`, or `--force` to write over it"],
        )
    if output != STANDARD_OUTPUT:
        _refuse_unwritable(output)
    with childprocess.scratch() as folder:
        status = _run(argv, folder)
        found = _states(folder)
    if not found:
        _refuse_nothing(status)
    written = _write(found[-1], output, force=force, everything=everything, of_many=len(found))
    raise click.exceptions.Exit(status if written else status or StateUnwritableError.exit_code)


def _refuse_unwritable(output: str) -> None:
    """Say before the command runs, which may take long, that its profile could not be written."""
    folder = os.path.dirname(os.path.realpath(output))
    is_special = os.path.exists(output) and not os.path.isfile(output)
    if os.path.isdir(output):
        obstacle = f"{output} is a folder"
    elif not os.path.isdir(folder):
        obstacle = f"there is no folder {folder}"
    elif not os.access(output if is_special else folder, os.W_OK):
        obstacle = "this user may not write there"
    else:
        return
    raise UsageError(
        f"{output} cannot be written: {obstacle}",
        state="the command was not started",
        helps=["give another file with `--output`, or `--output -` for standard output"],
    )


def _run(argv: list[str], folder: str) -> int:
    """The exit status of the command, as a shell gives it."""
    from backendcfg import environ
    from backendcfg.cli import child
    from backendcfg.session.starting import python_path

    environment = environ.copy()
    environment[environ.CAPTURE.name] = folder
    environment["PYTHONPATH"] = python_path(environment.get("PYTHONPATH", ""))
    return child.wait_for(argv, environment)


def _states(folder: str) -> list[ProcessState]:
    """What the command's Python processes left, the last to end last."""
    from backendcfg.audit.capture import from_dict

    files = [entry for entry in os.scandir(folder) if entry.name.endswith(".json")]
    files.sort(key=lambda entry: entry.stat().st_mtime_ns)
    found = []
    for entry in files:
        with open(entry.path, encoding="utf-8") as file:
            found.append(from_dict(json.load(file)))
    return found


def _refuse_nothing(status: int) -> None:
    raise UsageError(
        "the command ran no Python that could be looked at when it ended",
        notes=["looked at is a Python that has backendcfg and ends by itself, not by a signal"],
        state=f"the command ended with status {status}; nothing was written",
        helps=["in the program, call `backendcfg.capture().write(...)` where all is set"],
    )


def _write(
    of: ProcessState, output: str, *, force: bool, everything: bool, of_many: int = 1
) -> bool:
    """Write the profile, else print it; whether it is where it was to be."""
    from backendcfg.audit.capture import baseline, captured
    from backendcfg.resolve.words import counted

    made = captured(of, None if everything else baseline(of))
    say = current().note
    written = True
    if output != STANDARD_OUTPUT:
        try:
            made.write(output, overwrite=force)
        except (OSError, InvalidArgumentError) as error:
            # The command may have run for days: what was found must not be lost with the file.
            why = error.strerror if isinstance(error, OSError) else error.message
            say(f"{output} cannot be written: {why}; the profile goes to standard output instead")
            output, written = STANDARD_OUTPUT, False
    where = "standard output" if output == STANDARD_OUTPUT else output
    if of_many > 1:
        say(f"{of_many} Python processes ran; this is the last to end: {made.command}")
    say(f"{counted(len(made.flags), 'flag')} written to {where}")
    for note in made.notes:
        say(f"  not expressed: {note}")
    data: dict[str, Any] = {"path": None if output == STANDARD_OUTPUT else output, **made.to_dict()}
    if current().as_json:
        current().answer(data, [])
    elif output == STANDARD_OUTPUT:
        current().answer(data, made.to_toml().rstrip("\n").split("\n"), exact=True)
    return written
