"""Which profile is in force for a process that starts here, and its compiled plan.

Where none is, this costs one look at the environment and one at the index of active profiles.
"""

from __future__ import annotations

import os

from backendcfg import environ
from backendcfg.records import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from backendcfg.schema.base import Rank
    from backendcfg.transact.compiled import Compiled

MARKERS = ("backendcfg.toml", "pyproject.toml")
"""Files that can make a folder a project; the first always does."""


@record(frozen=True)
class Picked:
    """Who picked which profile.

    Attributes:
        name: the profile, or None for flags set by variables alone.
        rank: how strong the pick is.
        source: who picked it, in words.
        arguments: flags that were set beside it, as TOML text.
        stored: the compiled plan of the generation, if there is one; it may be stale.
        generation: its number, 0 when there is none.
    """

    name: str | None
    rank: Rank
    source: str
    arguments: dict[str, str] = field(default_factory=dict)
    stored: Compiled | None = None
    generation: int = 0


def chosen() -> Picked | None:
    """The profile in force for a process that starts here, or None.

    Raises:
        StateUnwritableError: the state directory holds what cannot be read.
    """
    if environ.disabled():
        return None
    if name := environ.PROFILE.read():
        return Picked(name, "profile-by-environment", "BACKENDCFG_PROFILE")
    from backendcfg.transact import generations

    if (active := generations.active(environ.working_directory())) is not None:
        return Picked(
            active.name,
            "project-file" if active.path else "user-file",
            f"generation {active.number} of {active.path or 'the user'}",
            active.arguments,
            active.compiled,
            active.number,
        )
    ours = {variable.name for variable in environ.VARIABLES}
    if any(
        text and name.startswith(environ.PREFIX) and name not in ours
        for name, text in environ.current().items()
    ):
        return Picked(None, "environment", "environment variables")
    return None


def compiled(choice: Picked) -> Compiled:
    """The compiled plan of a choice: the generation's own where and while it is valid.

    Raises:
        BackendCfgError: it must be resolved again, and cannot be.
    """
    if choice.stored is not None:
        from backendcfg.probe.stamp import holds

        if _rests_on_this_project(choice.stored.stamp) and not holds(choice.stored.stamp):
            return choice.stored
    from backendcfg.session.planning import compiled as compile_by_name

    return compile_by_name(choice.name, arguments=choice.arguments, rank=choice.rank)


def project_files() -> set[str]:
    """The files at or above the working directory that may make it part of a project."""
    found: set[str] = set()
    at = environ.working_directory()
    while True:
        candidates = (os.path.join(at, name) for name in MARKERS)
        if path := next(filter(_may_be_ours, candidates), ""):
            found.add(path)
        if os.path.join(at, MARKERS[0]) in found or (parent := os.path.dirname(at)) == at:
            return found
        at = parent


def _may_be_ours(path: str) -> bool:
    """Whether a file is backendcfg.toml, or a pyproject.toml that speaks of us."""
    if os.path.basename(path) == MARKERS[0]:
        return os.path.lexists(path)
    try:
        with open(path, "rb") as file:
            return b"backendcfg" in file.read()
    except OSError:
        return False


def _rests_on_this_project(stamp: Mapping[str, Any]) -> bool:
    """Whether a plan was made with the project files that count in this folder, and no others.

    The user's profile is in force in every folder, and each project adds its own settings to it.
    """
    markers = (path for path in stamp.get("files", ()) if os.path.basename(path) in MARKERS)
    return set(filter(_may_be_ours, markers)) == project_files()
