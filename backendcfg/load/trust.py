"""Which project files their user has read and trusts, by content.

A project may choose among flags. It may not name a library to open or a variable to set before
its user says so, because both run code. Trust is recorded outside the project, for a resolved
path with the digest of its content: a changed file is untrusted again.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from backendcfg import environ, startup
from backendcfg.errors import (
    StateUnwritableError,
    UnreadableFileError,
    UntrustedProjectError,
    shown_path,
)
from backendcfg.load.locations import PROJECT, locate, profile_files, user_dir
from backendcfg.load.text import read_text
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from backendcfg.load.parsed import Parsed
    from backendcfg.schema.profile import Assignment


def store() -> Path:
    """The file that records trust."""
    return user_dir() / "trusted.json"


def is_trusted(path: str | os.PathLike[str], digest: str | None = None) -> bool:
    """Whether the user trusts a file with this content, by default its content now.

    Raises:
        UnreadableFileError: the file or the record cannot be read.
    """
    return _recorded().get(os.path.realpath(path)) == (digest or read_text(path).digest)


def trust(root: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Trust a project's settings and profiles, or one file, as they are now; returns the files.

    Raises:
        UnreadableFileError: one of them cannot be read, or there is none.
        StateUnwritableError: the record cannot be written; it is as before.
    """
    files = project_files(root)
    if not files:
        if why := environ.not_counting(os.path.abspath(root)):
            raise UnreadableFileError(why, helps=[environ.OWN_IT])
        raise UnreadableFileError(
            f"{shown_path(os.path.abspath(root))} has neither {PROJECT}, nor [tool.backendcfg] in "
            "pyproject.toml, nor profiles/*.toml to trust",
        )
    digests = {os.path.realpath(path): read_text(path).digest for path in files}
    _update(lambda recorded: {**recorded, **digests})
    return files


def revoke(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Trust a project's files, or one file, no longer; returns those that were trusted.

    Raises:
        StateUnwritableError: the record cannot be written; it is as before.
    """
    where = os.path.realpath(root)
    named = {os.path.realpath(path) for path in project_files(root)}
    # A file that is gone is not found any more, and is revoked with the folder it was in.
    gone = [path for path in _recorded() if path in named or Path(path).is_relative_to(Path(where))]
    if gone:
        _update(lambda known: {path: known[path] for path in known if path not in gone})
    return tuple(sorted(gone))


def recorded() -> dict[str, str]:
    """Every trusted file with the digest that its content had then.

    Raises:
        UnreadableFileError: the record cannot be read.
    """
    return _recorded()


def project_files(root: str | os.PathLike[str]) -> tuple[Path, ...]:
    """What `trust(root)` is about: a file itself, or a project's settings and profiles."""
    root = Path(os.path.abspath(root))
    if not root.is_dir():
        return (root,)
    locations = locate(root)
    settings = [locations.project_file] if locations.project_file else []
    base = locations.project_root or root
    return (*settings, *profile_files(base / "profiles"))


def project_of(path: str) -> str:
    """What to trust for a file to count: its project's root, or itself outside any."""
    for directory in Path(path).parents:
        if os.path.abspath(path) in map(str, project_files(directory)):
            return str(directory)
    return path


def require_trust(parsed: Parsed, assignments: Iterable[Assignment]) -> None:
    """Refuse a project's file that sets what only a trusted one may.

    Raises:
        UntrustedProjectError: naming every such flag.
    """
    guarded = [a for a in assignments if flags()[a.flag].flag.trusted]
    if not guarded or is_trusted(parsed.path, parsed.file.digest):
        return
    where = project_of(parsed.path)
    names = " and ".join(f"`{assignment.flag}`" for assignment in guarded)
    raise UntrustedProjectError(
        f"{shown_path(parsed.path)} sets {names}, which only a trusted project may",
        spans=[parsed.span(tuple(a.flag.split(".")), "needs trust", on="key") for a in guarded],
        notes=["a library path and environment variables can run any code; nothing of it was used"],
        helps=[f"read the file; if you trust it, run `backendcfg trust {shown_path(where)}`"],
    )


def require_ours(path: str) -> None:
    """Refuse a file of the user's or the system's settings that somebody else may write.

    Raises:
        UnreadableFileError: it says what makes the file count.
    """
    folder = os.path.dirname(path)
    if startup.is_shared(path) or startup.is_shared(folder):
        raise UnreadableFileError(
            f"cannot use {shown_path(path)}: somebody else may write it", helps=_to_be_ours(path)
        )


def _to_be_ours(path: str) -> list[str]:
    folder = os.path.dirname(path)
    if startup.is_within(path, startup.system_directory()):
        return [f"root can make it count: `chown root {folder} {path}; chmod go-w {folder} {path}`"]
    return [
        f"if it is not yours, delete it: `rm {path}`",
        f"if it and its folder are yours, run `chmod go-w {path} {folder}`",
    ]


def _update(change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Change the record while nobody else does."""
    directory = user_dir()
    environ.refuse_home_of_sudoer(str(directory), environ.CONFIG_DIR)
    try:
        if environ.is_foreign(str(directory)):
            raise OSError(0, startup.SHARED)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Who can open the file can hold its lock, so nobody else may.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(directory / "trusted.lock", flags, 0o600)
        try:
            os.fchmod(lock, 0o600)
            # The kernel drops a lock with its holder, so that none is ever stale.
            fcntl.flock(lock, fcntl.LOCK_EX)
            _write(change(_recorded()))
        finally:
            os.close(lock)
    except OSError as error:
        raise StateUnwritableError(
            f"cannot record trust in {store()}: {(error.strerror or str(error)).lower()}",
            helps=["make it writable, or set BACKENDCFG_CONFIG_DIR to a place that is yours"],
        ) from error


def _recorded() -> dict[str, str]:
    path = store()
    try:
        text = startup.take(str(path), own=True)[0]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnreadableFileError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}",
            helps=_to_be_ours(str(path)),
        ) from None
    try:
        files = json.loads(text)["files"]
        if not all(isinstance(digest, str) for digest in files.values()):
            raise TypeError
        return {environ.as_path(path): digest for path, digest in files.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UnreadableFileError(
            f"{path} is not what backendcfg wrote",
            helps=[f"delete it and run `backendcfg trust` again: `rm {path}`"],
        ) from None


def _write(files: dict[str, str]) -> None:
    """Replace the record: a reader, or a crash, sees the old one or the new one."""
    path = store()
    files = {environ.as_text(each): digest for each, digest in files.items()}
    # mkstemp creates the file for its owner alone.
    descriptor, temporary = tempfile.mkstemp(prefix=".trusted-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            json.dump({"schema": 1, "files": files}, handle, indent=2, sort_keys=True)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
