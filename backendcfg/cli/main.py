"""The entry of the command line: run one verb, and the only way out.

Importing this module imports click and the errors, nothing else of the package; each verb is
imported when it is called. `main` returns the exit code and never lets a traceback through
unless it is asked for one: every failure becomes one record, printed one way, with its code.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

import backendcfg
from backendcfg import __version__
from backendcfg.cli.group import VerbGroup, common_options
from backendcfg.cli.output import (
    Colour,
    Output,
    OutputLostError,
    document,
    fitted,
    flush,
    give_up_on,
    open_closed_streams,
    terminal_width,
    write,
    write_exactly,
)
from backendcfg.errors import BackendCfgError, InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType


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
    """One TOML profile sets threads, precision, determinism and seeds.

    A profile is validated, resolved against the hardware and libraries that are here, applied to
    every numeric library or to none, and read back.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Codes: 0 done, 1 a check says no, 2 the request is wrong, 3 this machine cannot, 4 tried and
    rolled back, 5 rollback incomplete, 70 a bug, 130 interrupted, 141 nobody reads the output, 129
    and 143 ended by SIGHUP and by SIGTERM.

    Args:
        argv: the words after the program's name; those of the process when None.
    """
    open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    output = Output.for_words(words)
    try:
        if _completes():
            return 0
        with _signals(), group.make_context(PROGRAM, words, obj=output) as context:
            group.invoke(context)
        flush()
        return 0
    except click.exceptions.Exit as leaving:
        return flushed(leaving.exit_code, output)
    except click.ClickException as error:
        return leave(from_click(error), output)
    except BackendCfgError as error:
        return leave(error, output)
    except _Ended as ended:
        name = signal.Signals(ended.number).name
        return interrupted(output, f"ended by {name}", 128 + ended.number)
    except (KeyboardInterrupt, click.Abort):
        return interrupted(output)
    except BrokenPipeError:
        return broken_pipe()
    except Exception as error:
        return leave(from_bug(error, output), output, cause=error)


def _completes() -> bool:
    """Answer a shell that asks for completion; the variable starts with an underscore."""
    from backendcfg import environ

    instruction = environ.current().get(f"_{PROGRAM.upper()}_COMPLETE")
    if not instruction:
        return False
    from click.shell_completion import shell_complete

    shell_complete(group, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE", instruction)
    return True


_PROSE = re.compile(r"error\[|  (?:note|state|help): ")
"""Lines of an error that may be wrapped; in the others carets point at columns."""

INTERRUPTED = 130
NOBODY_READS = 141
"""What a shell reports of a C program that SIGPIPE ended; Python turns the signal off."""


def leave(error: BackendCfgError, output: Output, cause: Exception | None = None) -> int:
    """Print the error, as JSON on standard output or as text on standard error.

    Args:
        error: the record.
        output: how the command prints.
        cause: the exception of a bug, whose traceback is shown when asked for.

    Returns:
        The error's exit code.
    """
    if cause is not None and (output.traceback or _debugging()):
        for entry in traceback.format_exception(cause):
            for line in entry.splitlines():
                write(line, sys.stderr)
    try:
        if isinstance(error, OutputLostError):
            give_up_on(sys.stdout)
        elif output.as_json:
            write_exactly(document({"error": error.to_dict()}))
            flush()
            return error.exit_code
        else:
            flush()  # what was printed before the failure stands before it
    except BrokenPipeError:
        return broken_pipe()
    except OutputLostError as lost:
        return leave(lost, output)
    show(error, output)
    return error.exit_code


def show(error: BackendCfgError, output: Output) -> None:
    """Print an error on standard error, its sentences fitted to the terminal."""
    columns = terminal_width(sys.stderr)
    for written in error.render().split("\n"):
        for line in fitted(written, columns) if _PROSE.match(written) else [written]:
            write(_coloured(line, output), sys.stderr)


def from_click(error: click.ClickException) -> BackendCfgError:
    """A mistake that click found on the command line, in our form."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "backendcfg"
    helps = [f"run `{path} --help` for what it accepts"]
    if isinstance(error, click.NoSuchOption):
        near = difflib.get_close_matches(error.option_name, _options(context), n=1, cutoff=0.6)
        if near:
            helps.insert(0, f"did you mean `{near[0]}`?")
        return UsageError(f"unknown option `{error.option_name}` of `{path}`", helps=helps)
    if isinstance(error, click.MissingParameter):
        name = error.param.human_readable_name if error.param is not None else "a parameter"
        return UsageError(f"`{path}` needs {name}", helps=helps)
    if isinstance(error, click.BadParameter) and error.param is not None:
        name = "/".join(error.param.opts) if error.param.param_type_name == "option" else ""
        name = name or error.param.human_readable_name
        return UsageError(f"`{path}`: {name}: {_plain(error.message)}", helps=helps)
    return UsageError(f"`{path}`: {_plain(error.format_message())}", helps=helps)


def from_bug(error: Exception, output: Output) -> InternalError:
    """An exception that nobody expected."""
    frames = traceback.extract_tb(error.__traceback__)
    package = os.path.dirname(backendcfg.__file__)
    ours = [frame for frame in frames if frame.filename.startswith(package)] or frames
    text = str(error).splitlines()[0] if str(error) else "no message"
    return InternalError(
        f"{type(error).__name__}: {text}",
        notes=[f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in ours[-1:]],
        state=output.interrupted,
        helps=[
            "run it again with `--traceback` to see where it happened",
            "please report this with the output of `backendcfg doctor --json`",
        ],
    )


class _Ended(KeyboardInterrupt):
    """A signal that ends programs has come; whoever handles Ctrl-C handles it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals() -> Iterator[None]:
    """Have what `kill`, `timeout` or a terminal that is closed sends interrupt, as Ctrl-C does.

    Else this process ended at once, and what it has started would go on.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise _Ended(number)

    taken = []
    with suppress(ValueError):  # another thread than the main one may set no handler
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has SIGHUP ignored
                signal.signal(number, end)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def interrupted(output: Output, what: str = "interrupted", code: int = INTERRUPTED) -> int:
    """Say what an interrupt left behind."""
    if output.as_json:
        write_exactly(document({"interrupted": {"state": output.interrupted}}))
    write(what, sys.stderr)
    write(f"  state: {output.interrupted}", sys.stderr)
    return code


def broken_pipe() -> int:
    """Leave quietly when the reader of our output has gone."""
    give_up_on(sys.stdout)
    return NOBODY_READS


def flushed(code: int, output: Output) -> int:
    """`code`, after what was printed has been delivered."""
    try:
        flush()
    except BrokenPipeError:
        return broken_pipe()
    except OutputLostError as lost:
        return leave(lost, output)
    return code


def _debugging() -> bool:
    from backendcfg import environ

    return environ.current().get(environ.flag_variable("log.level"), "").strip("\"' ") == "debug"


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    return [name for parameter in context.command.params for name in parameter.opts]


def _plain(text: str) -> str:
    """The sentence of click in our form: lower case, no final period, backticks for literals."""
    text = re.sub(r"'([^']*)'", r"`\1`", text.strip().rstrip("."))
    return text[:1].lower() + text[1:]


def _coloured(text: str, output: Output) -> str:
    """The same line with the code, the carets and the headings in colour."""

    def painter(*colours: Colour) -> Callable[[re.Match[str]], str]:
        return lambda found: output.paint(found[0], *colours, stream=sys.stderr)

    text = re.sub(r"^error\[[a-z-]+\]", painter("bold", "red"), text)
    text = re.sub(r"(?<=  )\^+.*$", painter("red"), text)
    return re.sub(r"^ +(?:note|state|help):", painter("cyan"), text)
