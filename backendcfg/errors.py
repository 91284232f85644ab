"""Every error of backendcfg as a record, and the one renderer that prints it.

An error says what is wrong (`message`), where (`spans`), the facts (`notes`), what state the
process or the disk was left in (`state`) and what to do (`helps`). The same record is JSON under
`--json`. This module imports nothing of the package but `records`, so every stage may raise.
"""

from __future__ import annotations

import os

from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, ClassVar

NOTHING_CHANGED = "nothing was changed"


def shown_path(path: str) -> str:
    """A file as the user would name it: relative when it lies below the working directory.

    Whoever names a file may put control characters into its name; they are shown as `?`.
    """
    try:
        here = os.getcwd().rstrip(os.sep)
    except OSError:  # the working directory was deleted
        here = ""
    # In the root directory a path stays whole: without its slash it would look relative.
    path = path.removeprefix(here + os.sep if here else "")
    return "".join(character if character.isprintable() else "?" for character in path)


def visible(text: str) -> str:
    r"""One line of text that a terminal can do nothing with but show it.

    Control characters, those that turn the direction of writing and others that are not seen are
    written as Python writes them: `\x1b`, `\n`, `\u202e`.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in _SPACES else one.encode("unicode_escape").decode("ascii")
        for one in text
    )


_SPACES = "\xa0\u202f\u3000"


@record(frozen=True)
class Span:
    """One place in a text file.

    Attributes:
        path: the file; printed relative to the working directory when it lies below it.
        line: 1-based line number.
        column: 1-based column, in characters.
        length: number of characters to underline, at least 1.
        source: the whole line, without its newline.
        label: what to say under the caret.
    """

    path: str
    line: int
    column: int
    length: int = 1
    source: str = ""
    label: str = ""

    def __str__(self) -> str:
        return f"{shown_path(self.path)}:{self.line}:{self.column}"


class BackendCfgError(Exception):
    """Base of every error that backendcfg raises on purpose.

    Attributes:
        code: stable kebab-case name, documented in docs/errors.md.
        exit_code: what the command line exits with.
        message: one line without a final period; `str(error)` is this and the first place.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        message: str,
        *,
        spans: Iterable[Span] = (),
        notes: Iterable[str] = (),
        state: str = NOTHING_CHANGED,
        helps: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.spans = tuple(spans)
        self.notes = tuple(notes)
        self.state = state
        self.helps = tuple(helps)
        self._added: list[str] = []

    @property
    def __notes__(self) -> list[str]:
        """What a traceback prints below the message: the rest of the record, and notes added."""
        return [*self._rest(), *self._added]

    @__notes__.setter
    def __notes__(self, notes: Iterable[str]) -> None:
        # tblib sets what it read, with which Dask unpickles the exceptions of its workers.
        rest = self._rest()
        self._added = [note for note in notes if note not in rest]

    def _rest(self) -> list[str]:
        """The lines of the record without that of the message."""
        return self.render().splitlines()[1:]

    def add_note(self, note: str) -> None:
        """Add a note, as to any exception."""
        self._added.append(note)

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython prints of it: the record, and where the program met it."""
        return [*self.render().splitlines(), *self._added, *_places(self)]

    def __str__(self) -> str:
        message = visible(self.message)
        return f"{message} ({self.spans[0]})" if self.spans else message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle by calling the class with args; the record lives in the attributes.
        return (type(self), (self.message,), self.__dict__)

    @property
    def each(self) -> tuple[BackendCfgError, ...]:
        """The errors that this one stands for: itself, unless it is several."""
        return (self,)

    def render(self) -> str:
        """The whole message as plain ASCII-framed text, complete without colour."""
        lines = [f"error[{self.code}]: {visible(self.message)}"]
        margin = len(str(max((span.line for span in self.spans), default=0)))
        for span in self.spans:
            lines += _excerpt(span, margin)
        lines += [f"  note: {visible(note)}" for note in self.notes]
        lines.append(f"  state: {visible(self.state)}")
        lines += [f"  help: {visible(text)}" for text in self.helps]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same record as JSON-ready data."""
        from dataclasses import asdict

        return {
            "code": self.code,
            "exit_code": self.exit_code,
            "message": self.message,
            "places": [asdict(span) for span in self.spans],
            "notes": list(self.notes),
            "state": self.state,
            "helps": list(self.helps),
        }


_PLACES = 3


def _places(error: BaseException) -> list[str]:
    """The program's own frames of an exception, the outermost and the innermost ones."""
    import linecache
    import traceback

    places = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        module, path = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if module.partition(".")[0] in ("IPython", "backendcfg"):
            continue
        # A cell of a notebook has the name of a file that is not there.
        where = f"{shown_path(path)}:{line}" if os.path.exists(path) else f"line {line} of a cell"
        places.append(f"  at: {where}: {linecache.getline(path, line, frame.f_globals).strip()}")
    return places if len(places) <= _PLACES else [places[0], "  ...", *places[1 - _PLACES :]]


def _excerpt(span: Span, margin: int) -> list[str]:
    """A place as rustc shows it; `margin` is the width of the widest line number."""
    pad = " " * (margin + 1)
    lines = [f"{pad}--> {span}"]
    if span.source:
        # Tabs would move the caret; one space keeps every column where `span.column` counts it.
        source = "".join(" " if c == "\t" else c if c.isprintable() else "?" for c in span.source)
        source, column = _window(source, span.column)
        carets = "^" * max(1, min(span.length, len(source) - column + 1))
        under = f"{' ' * (column - 1)}{carets} {visible(span.label)}".rstrip()
        lines += [f"{pad} |", f" {span.line:>{margin}} | {source}", f"{pad} | {under}"]
    return lines


_LONGEST_LINE = 200
"""Characters of a line of a file that an error shows."""


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a long line around a column, and the column in that part."""
    if len(line) <= _LONGEST_LINE:
        return line, column
    first = max(0, min(column - 1 - _LONGEST_LINE // 2, len(line) - _LONGEST_LINE))
    before = "..." if first else ""
    after = "..." if first + _LONGEST_LINE < len(line) else ""
    return f"{before}{line[first : first + _LONGEST_LINE]}{after}", column - first + len(before)


# --- exit code 1: a check says no -------------------------------------------------------------


class SwitchLeftChangedError(BackendCfgError, AssertionError):
    """A block or a test under guard left a numeric switch changed."""

    code = "switch-left-changed"
    exit_code = 1


class LockDriftError(BackendCfgError):
    """What is here is not what a lock of a proven run has; the machine may well run the program."""

    code = "lock-drift"
    exit_code = 1


# --- exit code 2: the request is wrong -------------------------------------------------------


class RequestError(BackendCfgError):
    """The request is wrong; the same request will fail again anywhere."""

    exit_code = 2


class TomlSyntaxError(RequestError, ValueError):
    """A file is not TOML."""

    code = "toml-syntax"


class UnreadableFileError(RequestError):
    """A file cannot be read as text: missing, a directory, binary, too large, forbidden."""

    code = "unreadable-file"


class UnknownKeyError(RequestError, ValueError):
    """A file names a key that the schema does not have."""

    code = "unknown-key"


class WrongTypeError(RequestError, ValueError):
    """A value has another type than its key."""

    code = "wrong-type"


class InvalidValueError(RequestError, ValueError):
    """A value has the right type and is not allowed."""

    code = "invalid-value"


class InheritanceCycleError(RequestError, ValueError):
    """A profile extends itself, directly or through others."""

    code = "inheritance-cycle"


class ConflictingFlagsError(RequestError, ValueError):
    """Two values that cannot both hold."""

    code = "conflicting-flags"


class UnknownProfileError(RequestError, LookupError):
    """No profile has this name."""

    code = "unknown-profile"


class UnknownFlagError(RequestError, LookupError):
    """No flag has this name."""

    code = "unknown-flag"


class UnknownAttributeError(RequestError, AttributeError):
    """A module of `backendcfg.backends` does not have this attribute, or not to be set."""

    code = "unknown-attribute"


class FrozenFlagsError(RequestError, RuntimeError):
    """A flag is set after `disable_global_flags()`."""

    code = "frozen-flags"


class UnknownVariableError(RequestError, LookupError):
    """An environment variable looks like ours and is not."""

    code = "unknown-variable"


class InvalidVariableError(RequestError, ValueError):
    """An environment variable of ours holds what it cannot mean."""

    code = "invalid-variable"


class UnsupportedSchemaError(RequestError, ValueError):
    """A file was written for another schema version."""

    code = "unsupported-schema"


class UntrustedProjectError(RequestError, PermissionError):
    """A project file asks for what only a trusted project may."""

    code = "untrusted-project"


class SeveralErrors(RequestError, ValueError):
    """More than one error in one request; `errors` has each, in file order."""

    code = "several-errors"

    def __init__(
        self, message: str, *, errors: Iterable[BackendCfgError] = (), **record: Any
    ) -> None:
        super().__init__(message, **record)
        self.errors = tuple(errors)

    @property
    def each(self) -> tuple[BackendCfgError, ...]:
        return self.errors

    def render(self) -> str:
        return "\n\n".join([*(error.render() for error in self.errors), visible(self.message)])

    def _rest(self) -> list[str]:
        return self.render().splitlines()[:-2]

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "errors": [error.to_dict() for error in self.errors]}


class UsageError(RequestError, ValueError):
    """The command line is wrong."""

    code = "usage"


class InvalidFleetPlanError(RequestError, ValueError):
    """A file is no plan of a fleet."""

    code = "invalid-fleet-plan"


class InvalidHostError(RequestError, ValueError):
    """A file given as a host is not one."""

    code = "invalid-host"


class InvalidLockError(RequestError, ValueError):
    """A file given as a lock of a proven run is not one."""

    code = "invalid-lock"


class InvalidArgumentError(RequestError, ValueError):
    """An argument of an operation is wrong; the message names the argument."""

    code = "invalid-argument"


class NotFiniteError(InvalidArgumentError):
    """A result has NaN or infinity, which `ops.check_finite` refuses."""

    code = "not-finite"

    @classmethod
    def of(
        cls,
        operation: str,
        found: str = "the result has NaN or infinity",
        *,
        state: str,
        notes: Iterable[str] = (),
    ) -> NotFiniteError:
        """The error of an operation, with what was found in its result and what state is left."""
        return cls(
            f"{operation}: {found}, which `ops.check_finite` refuses",
            notes=notes,
            state=state,
            helps=["look for NaN, infinity or overflow in the operands, or turn it off"],
        )


class CommandNotFoundError(RequestError, FileNotFoundError):
    """`backendcfg run` was given a command that does not exist; 127 is what shells say then."""

    code = "command-not-found"
    exit_code = 127


class CommandNotExecutableError(RequestError, PermissionError):
    """`backendcfg run` was given a command that cannot be executed; 126 is what shells say then."""

    code = "command-not-executable"
    exit_code = 126


class CommandFailedError(RequestError, ChildProcessError):
    """`backendcfg compare`, `prove` or `tune` was given a command that fails by itself."""

    code = "command-failed"


class NothingToUndoError(RequestError, LookupError):
    """There is no earlier generation."""

    code = "nothing-to-undo"


class ProfileBusyError(RequestError, RuntimeError):
    """Another open scope holds a process-wide switch at another value."""

    code = "profile-busy"


# --- exit code 3: this machine cannot ---------------------------------------------------------


class MachineError(BackendCfgError):
    """The request is right and this machine cannot serve it."""

    exit_code = 3


class UnsupportedHardwareError(MachineError):
    """A profile needs hardware that is not here."""

    code = "unsupported-hardware"


class MissingLibraryError(MachineError):
    """A required library is not here, or not usable."""

    code = "missing-library"


class TierNotKeptError(MachineError):
    """A profile's tier cannot be kept on this host."""

    code = "tier-not-kept"


class TooLateError(MachineError):
    """Under --strict: a switch can no longer be set in this process."""

    code = "too-late"


class PendingWarning(UserWarning):
    """Something that a profile's tier rests on can no longer be set in this process."""


class UnreadableSwitchError(MachineError):
    """A switch cannot be read, so it could not be put back; it is not written."""

    code = "unreadable-switch"


class NativeUnavailableError(MachineError):
    """The compiled part of backendcfg is missing or from another release."""

    code = "native-unavailable"


class DeviceFailedError(MachineError, RuntimeError):
    """A library of a device, or its driver, answered a call with an error."""

    code = "device-failed"


class FleetDisagreesError(MachineError, RuntimeError):
    """Ranks that compute together have other settings."""

    code = "fleet-disagrees"


class FleetTimeoutError(MachineError, TimeoutError):
    """A rank did not say in time how it computes."""

    code = "fleet-timeout"


class FleetWorkerError(MachineError, RuntimeError):
    """A worker of an engine is not under the profile that it should have."""

    code = "fleet-worker"


class FleetUnlikeError(MachineError):
    """Hosts cannot have one plan."""

    code = "fleet-unlike"


class FleetWarning(UserWarning):
    """Ranks that compute together have other settings, or do not say which."""


class StateUnwritableError(MachineError):
    """The state directory cannot be written or read."""

    code = "state-unwritable"


# --- exit codes 4 and 5: tried ----------------------------------------------------------------


class RolledBackError(BackendCfgError):
    """An apply failed and everything was undone."""

    code = "rolled-back"
    exit_code = 4


class RollbackIncompleteError(BackendCfgError):
    """An apply failed and something could not be undone; `state` names it."""

    code = "rollback-incomplete"
    exit_code = 5


# --- exit code 70: a bug ----------------------------------------------------------------------


class InternalError(BackendCfgError):
    """A bug in backendcfg."""

    code = "internal"
    exit_code = 70
