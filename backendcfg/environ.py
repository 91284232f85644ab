"""Every environment variable that backendcfg reads, and the only module that reads any.

Variables are read when asked for, never at import. A variable that is set but empty counts as
unset, as in every shell convention. `BACKENDCFG_<FLAG>` names are derived from the flags, which
live to the right of this module and are therefore handed in.
"""

from __future__ import annotations

import os
import stat

from backendcfg import startup
from backendcfg.errors import StateUnwritableError, UnknownVariableError, shown_path
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

PREFIX = "BACKENDCFG_"
NOTHING = "nothing"
"""Stands for no profile, where one is picked and where profiles are compared."""


@record(frozen=True)
class Variable:
    """One variable of ours: its name, the release that added it, and what it does."""

    name: str
    since: str
    summary: str

    def read(self, environment: Mapping[str, str] | None = None) -> str | None:
        """The value, or None when unset or empty."""
        return (os.environ if environment is None else environment).get(self.name) or None


PROFILE = Variable(
    "BACKENDCFG_PROFILE", "0.1", "Profile to use when none is named; `a+b` composes, later wins."
)
DISABLE = Variable(
    "BACKENDCFG_DISABLE",
    "0.1",
    "Set to 1 to turn backendcfg off altogether; 0, no, off and false do not.",
)
CONFIG_DIR = Variable(
    "BACKENDCFG_CONFIG_DIR", "0.1", "Replaces the user's configuration directory."
)
SYSTEM_DIR = Variable("BACKENDCFG_SYSTEM_DIR", "0.1", "Replaces the system's directory.")
STATE_DIR = Variable("BACKENDCFG_STATE_DIR", "0.1", "Replaces the directory of generations.")
CACHE_DIR = Variable("BACKENDCFG_CACHE_DIR", "0.1", "Replaces the directory of compiled plans.")
STARTED_BY = Variable(
    "BACKENDCFG_STARTED_BY", "0.1", "Set by `backendcfg run` for its child; not for users."
)
STARTED_ANEW = Variable(
    "BACKENDCFG_STARTED_ANEW", "0.2", "Set by the start-up file for itself; not for users."
)
CARRIED = Variable(
    "BACKENDCFG_CARRIED", "0.1", "Variables that backendcfg set itself; not for users."
)
INHERIT = Variable(
    "BACKENDCFG_INHERIT", "0.1", "Set by `apply()` for programs it starts; not for users."
)
CAPTURE = Variable(
    "BACKENDCFG_CAPTURE", "0.1", "Set by `backendcfg capture` for its child; not for users."
)
GUARD = Variable(
    "BACKENDCFG_GUARD", "0.2", "Set by `backendcfg run --guard` for its child; not for users."
)
TRACE = Variable(
    "BACKENDCFG_TRACE", "0.2", "Set by `backendcfg prove --why` for its child; not for users."
)
RECORDS = Variable(
    "BACKENDCFG_RECORDS",
    "0.2",
    "Set by `backendcfg prove` and `compare` for their children; not for users.",
)
RANKS = Variable(
    "BACKENDCFG_RANKS", "0.2", "Set by `backendcfg run --save-ranks` for its child; not for users."
)
WORKER = Variable(
    "BACKENDCFG_WORKER", "0.2", "Set by `backendcfg.fleet` for workers of Ray; not for users."
)
CORES = Variable(
    "BACKENDCFG_CORES",
    "0.2",
    "Set for workers of a pool: each one's share of cores; not for users.",
)
VARIABLES = (
    PROFILE,
    DISABLE,
    CONFIG_DIR,
    SYSTEM_DIR,
    STATE_DIR,
    CACHE_DIR,
    STARTED_BY,
    STARTED_ANEW,
    CAPTURE,
    GUARD,
    TRACE,
    RECORDS,
    CARRIED,
    INHERIT,
    RANKS,
    WORKER,
    CORES,
)


disabled = startup.is_turned_off
"""Whether BACKENDCFG_DISABLE turns everything off."""


def flag_variable(flag: str) -> str:
    """The variable that sets a flag: `cudnn.benchmark` -> `BACKENDCFG_CUDNN_BENCHMARK`."""
    return PREFIX + flag.upper().replace(".", "_")


def flag_settings(flags: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The flags set by variables: `{flag: (variable, text)}`, the text being TOML still.

    Raises:
        UnknownVariableError: a BACKENDCFG_* name is neither a variable nor a flag.
    """
    names = {flag_variable(flag): flag for flag in flags}
    reject_unknown(names)
    return {
        names[name]: (name, text) for name, text in sorted(copy().items()) if text and name in names
    }


def reject_unknown(flag_variables: Iterable[str]) -> None:
    """Refuse BACKENDCFG_* names that nobody reads: almost always a typing mistake.

    Raises:
        UnknownVariableError: with the nearest names.
    """
    known = {variable.name for variable in VARIABLES} | set(flag_variables)
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if not unknown:
        return
    import difflib  # only here, because every start of an interpreter imports this module

    helps = []
    for name in unknown:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        helps.append(f"did you mean {near[0]}?" if near else f"run `unset {name}`")
    raise UnknownVariableError(
        f"environment variable {unknown[0]} is not one that backendcfg reads"
        if len(unknown) == 1
        else f"environment variables {', '.join(unknown)} are not ones that backendcfg reads",
        helps=[*helps, "run `backendcfg doctor` to list every variable that is read"],
    )


def current() -> MutableMapping[str, str]:
    """The environment of this process itself, to write one variable or to look one up."""
    return os.environ


def put(name: str, text: str | None) -> None:
    """Set a variable of this process, or unset it for None."""
    if text is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = text


def copy() -> dict[str, str]:
    """The environment of this process as it is now.

    `dict(os.environ)` fails with a KeyError when another thread takes a variable away meanwhile, as
    `import numpy` did with OPENBLAS_MAIN_FREE before NumPy 2.4.2.
    """
    return {name: text for name in os.environ if (text := os.environ.get(name)) is not None}


def changed(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """An environment with variables set or, where the text is None, unset."""
    found = dict(environment)
    for name, text in changes.items():
        found.pop(name, None)
        if text is not None:
            found[name] = text
    return found


def foreign(names: Iterable[str]) -> dict[str, str]:
    """Other software's variables that are set here, of the given names."""
    return {name: text for name in sorted(names) if (text := os.environ.get(name))}


def carried(variables: Mapping[str, str]) -> dict[str, str]:
    """What notes in an environment that these variables in it are no wish of its user's."""
    words = " ".join(f"{name}={text}" for name, text in sorted(variables.items()))
    return {CARRIED.name: words} if words else {}


def wishes(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what `carried` noted in it and nobody changed since."""
    pairs = (word.partition("=") for word in (CARRIED.read(environment) or "").split())
    noted = {name: text for name, _, text in pairs}
    return {
        name: text
        for name, text in environment.items()
        if name != CARRIED.name and noted.get(name) != text
    }


def cache_directory() -> str:
    """Where what can be made again is kept; nowhere without a home directory of this user's."""
    found = startup.below_home("CACHE_DIR", "XDG_CACHE_HOME", "~/.cache")
    if not found or leads_elsewhere(found):
        return startup.NOWHERE
    return startup.NOWHERE if _in_home_of(found, CACHE_DIR) is not None else found


def _in_home_of(path: str, variable: Variable) -> int | None:
    """The other user below whose HOME root would make a path, as `sudo -E` leaves it.

    Args:
        path: a folder of ours.
        variable: what names that folder. Where it is set, the folder is meant.
    """
    home = os.path.join(os.path.expanduser("~"), "")
    if os.geteuid() != 0 or variable.read() or not path.startswith(home):
        return None
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return None  # it will be made
    return None if owner in _owners_of_the_system() else owner


def refuse_home_of_sudoer(path: str, variable: Variable) -> None:
    """Refuse to make folders of root's in the HOME of who ran `sudo -E`, who could not use them.

    In a container root's HOME may be a mounted folder of another user's; that is no mistake.

    Raises:
        StateUnwritableError: the path is there, and no variable of ours names it.
    """
    owner = _in_home_of(path, variable)
    if owner is not None and os.environ.get("SUDO_UID") == str(owner):
        raise StateUnwritableError(
            f"cannot write {shown_path(path)}: this is root, and HOME is that of who ran sudo",
            state="nothing was changed",
            helps=[
                "run it without sudo",
                f"or for root itself, with `sudo -H` or {variable.name}",
            ],
        )


OWN_IT = "run as the user whose folder it is, or make it yours with `chown`"
"""What to do where a project does not count, as it is another user's."""


def not_counting(here: str) -> str:
    """A sentence on the file of a project that does not count in a folder; "" for none."""
    path, theirs = startup.project_of_another(here)
    whose = "it" if theirs == path else shown_path(theirs)
    return f"{shown_path(path)} does not count: {whose} is another user's" if path else ""


def is_foreign(folder: str) -> bool:
    """Whether another user may write in a folder, or say by a link where it is."""
    return leads_elsewhere(folder) or startup.is_shared(folder)


def leads_elsewhere(path: str) -> bool:
    """Whether the way to a path goes by a link of another user's.

    What is written or deleted there would be where that user says; root has many files to lose.
    """
    trusted, at = (os.geteuid(), *_owners_of_the_system()), ""
    for name in path.rstrip("/").split("/"):
        at += name + "/"
        try:
            found = os.lstat(at[:-1] or "/")
        except OSError:
            return False
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in trusted:
            return True
    return False


def _owners_of_the_system() -> tuple[int, int]:
    """Root, and who owns the root folder: in a container that may be another number for root."""
    return 0, os.stat("/").st_uid


def as_text(path: str) -> str:
    """A path as text that names the same file to processes of other locales, by `as_path`."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def as_path(text: str) -> str:
    """The path that `as_text` gave, as this process decodes names."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))
