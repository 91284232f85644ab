"""Every profile that can be named here, for `backendcfg list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg.errors import BackendCfgError
from backendcfg.load.document import is_name, read_profile
from backendcfg.load.locations import locate, profile_files

if TYPE_CHECKING:
    import os


@dataclass(frozen=True)
class Listed:
    """One profile file.

    Attributes:
        name: what to call it.
        path: its file.
        title: whose it is: "project", "user", "system" or "shipped".
        description: what it says of itself.
        hidden: whether a file earlier in the search path has the same name.
        problem: why it cannot be used, or "".
    """

    name: str
    path: str
    title: str
    description: str = ""
    hidden: bool = False
    problem: str = ""


def profiles(cwd: str | os.PathLike[str] | None = None) -> list[Listed]:
    """Every profile of the search path, in its order and then by name; a broken one says so."""
    locations = locate(cwd)
    found: list[Listed] = []
    names: set[str] = set()
    for directory in locations.search():
        for path in profile_files(directory):
            description, problem = "", ""
            try:
                description = read_profile(path).description
            except BackendCfgError as error:
                problem = str(error)
            if not is_name(path.stem):
                problem = problem or "its file name is not a name that can be given"
            found.append(
                Listed(
                    name=path.stem,
                    path=str(path),
                    title=locations.title(directory),
                    description=description,
                    hidden=path.stem in names,
                    problem=problem,
                )
            )
            names.add(path.stem)
    return found
