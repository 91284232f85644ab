"""Where settings and profiles are looked for, and every profile that can be named here."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from backendcfg import startup
from backendcfg.errors import BackendCfgError, UnreadableFileError
from backendcfg.load.document import PYPROJECT, is_name, read_profile
from backendcfg.records import field, record

if TYPE_CHECKING:
    from collections.abc import Iterator


PROJECT = "backendcfg.toml"


@record(frozen=True)
class Locations:
    """The places that concern one working directory.

    Attributes:
        cwd: that directory.
        project_root: its nearest ancestor with backendcfg.toml or [tool.backendcfg], if any, below
            those that belong to somebody else.
        project_file: the file that makes it one.
        project_profiles: where that project's profiles are.
        user_dir, system_dir: settings (config.toml) and profiles/ of the user and the system.
        shipped_dir: the profiles that came with backendcfg.
        missing: settings files that would have counted had they existed.
        seen: pyproject.toml files without our table; one may get it.
    """

    cwd: Path
    project_root: Path | None
    project_file: Path | None
    project_profiles: Path | None
    user_dir: Path
    system_dir: Path
    shipped_dir: Path
    missing: tuple[Path, ...] = ()
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def user_file(self) -> Path:
        """The user's settings."""
        return self.user_dir / "config.toml"

    @property
    def system_file(self) -> Path:
        """The system's settings."""
        return self.system_dir / "config.toml"

    def search(self) -> tuple[Path, ...]:
        """The directories of profiles, the first that has a name winning."""
        project = (self.project_profiles,) if self.project_profiles else ()
        settings = [self.user_dir, self.system_dir]
        ours = (each / "profiles" for each in settings if str(each) != startup.NOWHERE)
        return (*project, *ours, self.shipped_dir)

    def title(self, directory: Path) -> str:
        """Whose profiles a directory of `search` holds: "project", "user", "system", "shipped"."""
        return {
            self.shipped_dir: "shipped",
            self.system_dir / "profiles": "system",
            self.user_dir / "profiles": "user",
        }.get(directory, "project")

    def passed_over(self) -> Path | None:
        """The `pyproject.toml` whose table does not count beside a `backendcfg.toml`."""
        file = self.project_file
        if file is None or file.name != PROJECT:
            return None
        beside = file.with_name(PYPROJECT)
        return beside if startup.has_table(startup.read(str(beside)) or b"") else None

    def is_own(self, path: str) -> bool:
        """Whether a file belongs to the user, the system or backendcfg, and not to a project."""
        own = (self.user_dir, self.system_dir, self.shipped_dir)
        return any(Path(path).is_relative_to(directory) for directory in own)


def locate(cwd: str | os.PathLike[str] | None = None) -> Locations:
    """The places that concern a working directory, by default this process's.

    Raises:
        UnreadableFileError: the working directory was deleted.
    """
    try:
        here = Path(os.path.abspath(cwd if cwd is not None else os.getcwd()))
    except OSError:
        raise UnreadableFileError(
            "the working directory does not exist any more", helps=["change to one that does"]
        ) from None
    missing: list[Path] = []
    seen: dict[str, tuple[int, int]] = {}
    root, project_file = None, None
    for directory in map(Path, startup.upwards(str(here))):
        if marker := startup.marker(str(directory)):
            root, project_file = directory, Path(marker)
            break
        # Where it is there, it is another user's and does not count.
        if not os.path.lexists(directory / PROJECT):
            missing.append(directory / PROJECT)
        pyproject = directory / PYPROJECT
        if not os.path.lexists(pyproject):
            missing.append(pyproject)
        elif pyproject.is_file():
            found = pyproject.stat()
            seen[str(pyproject)] = (found.st_mtime_ns, found.st_size)
    return Locations(
        cwd=here,
        project_root=root,
        project_file=project_file,
        project_profiles=root / "profiles" if root else None,
        user_dir=user_dir(),
        system_dir=system_dir(),
        shipped_dir=shipped_dir(),
        missing=tuple(missing),
        seen=seen,
    )


def user_dir() -> Path:
    """The user's configuration directory."""
    return Path(startup.user_directory())


def system_dir() -> Path:
    """The system's configuration directory."""
    return Path(startup.system_directory())


def shipped_dir() -> Path:
    """The profiles that came with backendcfg: in the package, or beside it in a source tree."""
    # Joined before it becomes a path: in an editable install the package is in several places.
    inside = Path(str(resources.files("backendcfg") / "profiles"))
    return inside if inside.is_dir() else Path(__file__).parents[2] / "profiles"


def profile_files(directory: Path) -> Iterator[Path]:
    """The profiles in a directory, by name; nothing where there is no directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")):
        yield directory / f"{name}.toml"


@record(frozen=True)
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
