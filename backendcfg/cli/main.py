"""The entry of the command line: run one verb, and the only way out.

Importing this module imports click and the errors, nothing else of the package; each verb is
imported when it is called. `main` returns the exit code and never lets a traceback through
unless it is asked for one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from backendcfg import __version__
from backendcfg.cli import failures
from backendcfg.cli.group import VerbGroup, common_options
from backendcfg.cli.output import Output, flush, open_closed_streams, write
from backendcfg.errors import BackendCfgError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "backendcfg"


def _print_version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    write(f"{PROGRAM} {__version__}")
    context.exit(0)


@click.group(
    name=PROGRAM,
    cls=VerbGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
@common_options
def group() -> None:
    """One TOML profile says how this machine computes.

    A profile is validated, resolved against the hardware and libraries that are here, applied to
    every numeric library or to none, and read back.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Codes: 0 done, 1 a check says no, 2 the request is wrong, 3 this machine cannot, 4 tried and
    rolled back, 5 rollback incomplete, 70 a bug, 130 interrupted, 141 nobody reads the output.

    Args:
        argv: the words after the program's name; those of the process when None.
    """
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    output = Output.for_words(words)
    try:
        if _completes():
            return 0
        with group.make_context(PROGRAM, words, obj=output) as context:
            group.invoke(context)
        flush()
        return 0
    except click.exceptions.Exit as leaving:
        return failures.flushed(leaving.exit_code, output)
    except click.ClickException as error:
        return failures.leave(failures.from_click(error), output)
    except BackendCfgError as error:
        return failures.leave(error, output)
    except (KeyboardInterrupt, click.Abort):
        return failures.interrupted(output)
    except BrokenPipeError:
        return failures.broken_pipe()
    except Exception as error:
        return failures.leave(failures.from_bug(error, output), output, cause=error)


def _completes() -> bool:
    """Answer a shell that asks for completion; the variable starts with an underscore."""
    from backendcfg import environ

    instruction = environ.current().get(f"_{PROGRAM.upper()}_COMPLETE")
    if not instruction:
        return False
    from click.shell_completion import shell_complete

    shell_complete(group, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE", instruction)
    return True
