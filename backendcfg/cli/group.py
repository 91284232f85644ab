"""The group of verbs: each is one file in `verbs/`, found by its name and imported when called.

While one runs, what takes long is shown in one line on a terminal.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from backendcfg import environ, progress
from backendcfg.cli.output import delivering, wrapped
from backendcfg.errors import UsageError, visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


DELAY = 0.5
TICK = 0.1
"""Seconds of a command before the line is drawn, and between two drawings."""

BAR = 30
ERASE = "\r\x1b[K"


@contextmanager
def shown(stream: TextIO) -> Iterator[None]:
    """Show what takes long on a terminal, if it can erase a line."""
    if environ.foreign(("TERM",)).get("TERM") == "dumb":
        yield
        return
    began = time.monotonic()
    progress.show = lambda: Line(stream, began).begin()
    try:
        yield
    finally:
        progress.show = None


class Line:
    """The line while some step lasts."""

    def __init__(self, stream: TextIO, command_began: float) -> None:
        self._stream = stream
        self._began = time.monotonic()
        self._pause = max(DELAY - (self._began - command_began), TICK)
        self._ended = threading.Event()
        self._drawing = threading.Lock()
        self._drawn = False

    def begin(self) -> Callable[[], None]:
        """Draw it from now on; what is returned ends that."""
        threading.Thread(target=self._draw, daemon=True).start()
        return self.end

    def end(self) -> None:
        """Erase it."""
        self._ended.set()
        with self._drawing:
            if self._drawn:
                self._write(ERASE)

    def _draw(self) -> None:
        while not self._ended.wait(self._pause):
            self._pause = TICK
            step = progress.current()
            with self._drawing:
                if step is not None and not self._ended.is_set():
                    self._drawn = True
                    self._write(ERASE + text(step, time.monotonic() - self._began, self._columns()))

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, shown: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(shown.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._ended.set()


def text(step: progress.Step, seconds: float, columns: int) -> str:
    """The line, cut to fit: in a terminal's last column the cursor may go to the next line."""
    if step.part is None:
        turning = "|/-\\"[int(seconds / TICK) % 4]
        whole = f"{turning} {step.what}, {seconds:.0f} s"
    else:
        part, width = min(step.part, 1.0), min(BAR, columns // 2)
        whole = f"[{'#' * round(part * width):.<{width}}] {part:4.0%} {step.what}"
    return wrapped(visible(whole), columns - 1)[0]


VERBS = "backendcfg.cli.verbs"

Section = Literal["Use", "Look", "Write", "Prove", "Manage"]
SECTIONS: tuple[Section, ...] = get_args(Section)

SUCCESSORS = {
    "schema": "validate --schema",
    "show": "plan PROFILE --toml",
    "why-not": "plan PROFILE --why-not",
}
"""Verbs of 0.1.0, and what does the same now."""

Function = TypeVar("Function", bound=Callable[..., Any])


class Verb(click.Command):
    """One verb.

    Attributes:
        section: where the overview lists it.
        tolerant: whether it runs although an unknown BACKENDCFG_* variable is set.
        interrupted: what to say of the state when it is interrupted.
    """

    section: Section
    tolerant: bool
    interrupted: str

    def __init__(
        self,
        *args: Any,
        section: Section,
        tolerant: bool = False,
        interrupted: str = "nothing was changed",
        **keywords: Any,
    ) -> None:
        super().__init__(*args, **keywords)
        self.section = section
        self.tolerant = tolerant
        self.interrupted = interrupted

    def make_context(self, *args: Any, **keywords: Any) -> click.Context:
        """Parse the words; `--help` prints while it is parsed."""
        with delivering():
            return super().make_context(*args, **keywords)

    def invoke(self, ctx: click.Context) -> Any:
        """Refuse unknown variables of ours, then run."""
        logs = _show_log()
        if not self.tolerant:
            reject_unknown_variables()
        ctx.obj.interrupted = self.interrupted
        if logs or not sys.stderr.isatty():
            return super().invoke(ctx)

        with shown(sys.stderr):
            return super().invoke(ctx)


class VerbGroup(click.Group):
    """A group whose commands are the modules of `backendcfg.cli.verbs`."""

    def make_context(self, *args: Any, **keywords: Any) -> click.Context:
        """Parse the words; `--help` prints while it is parsed."""
        with delivering():
            return super().make_context(*args, **keywords)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, by alphabet."""
        return verb_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, or None; imports its module."""
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", cmd_name):
            return None
        name = f"{VERBS}.{cmd_name.replace('-', '_')}"
        try:
            command: click.Command = importlib.import_module(name).command
        except ModuleNotFoundError as error:
            if error.name != name:  # the verb is there, and what it imports is not
                raise
            return None
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the first word names.

        Raises:
            UsageError: there is no such verb; the nearest one is proposed.
        """
        word = args[0]
        command = self.get_command(ctx, word)
        if command is None:
            raise unknown_verb(word)
        return word, command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs under their sections."""
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        for section in SECTIONS:
            rows = [
                (name, verb.get_short_help_str(limit=80))
                for name, verb in verbs
                if isinstance(verb, Verb) and verb.section == section
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)


def verb(
    name: str, section: Section, cls: type[Verb] = Verb, **settings: Any
) -> Callable[[Callable[..., Any]], Verb]:
    """Make a function a verb with the options that every verb has."""

    def decorate(function: Callable[..., Any]) -> Verb:
        return click.command(name, cls=cls, section=section, **settings)(common_options(function))

    return decorate


def verb_names() -> list[str]:
    """The verbs, from the names of their files."""
    import pkgutil

    spec = importlib.util.find_spec(VERBS)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(places))


def unknown_verb(word: str) -> UsageError:
    """The error for a word that is no verb."""
    if word in SUCCESSORS:
        return UsageError(
            f"`backendcfg {word}` is `backendcfg {SUCCESSORS[word]}` now",
            helps=[f"write `backendcfg {SUCCESSORS[word]}`"],
        )
    near = difflib.get_close_matches(word, verb_names(), n=1, cutoff=0.6)
    return UsageError(
        f"`backendcfg {word}` is not a command",
        helps=[
            *(f"did you mean `{name}`?" for name in near),
            "run `backendcfg --help` to list the commands",
        ],
    )


def common_options(function: Function) -> Function:
    """Add --json, --no-color and --traceback, before or after the verb."""
    for declaration, attribute, text in (
        ("--traceback", "traceback", "Show where a bug in backendcfg happened."),
        ("--no-color", "no_color", "No colour, also on a terminal."),
        ("--json", "as_json", "Print one JSON document on standard output."),
    ):
        function = click.option(
            declaration,
            attribute,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_remember,
            help=text,
        )(function)
    return function


def _remember(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given and context.obj is not None and parameter.name:
        setattr(context.obj, parameter.name, True)


def _show_log() -> bool:
    """Show what the library logs on standard error when BACKENDCFG_LOG_LEVEL asks for it."""
    from backendcfg import environ

    text = environ.current().get(environ.flag_variable("log.level"), "").strip("\"' ")
    if text not in ("debug", "info"):
        return False
    import logging

    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("backendcfg").setLevel(text.upper())
    return True


def reject_unknown_variables() -> None:
    """Refuse BACKENDCFG_* variables that nobody reads.

    The names of the flags cost an import of the schema, which is only paid when a variable is set
    that is not one of the fixed ones.

    Raises:
        UnknownVariableError: with the nearest name.
    """
    from backendcfg import environ

    fixed = {variable.name for variable in environ.VARIABLES}
    derived = [name for name in environ.copy() if name.startswith(environ.PREFIX)]
    if fixed.issuperset(derived):
        return
    from backendcfg.schema.profile import flags

    environ.reject_unknown(environ.flag_variable(flag) for flag in flags())
