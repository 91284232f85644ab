"""Files that are replaced whole or not at all, and a lock that dies with its holder.

Every write goes to a temporary file that is flushed to the disk before it gets its name, and the
directory is flushed after, so that a crash leaves the old file or the new one.
"""

from __future__ import annotations

import errno
import os
import time

from backendcfg import startup
from backendcfg.errors import StateUnwritableError, UnreadableFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

WAIT_SECONDS = 30.0
"""How long to wait for another writer; a write takes milliseconds."""

UNFINISHED = ".new"
"""How the name of a file ends that is being written."""

_FLUSH_UNSUPPORTED = (errno.EINVAL, errno.EROFS, errno.EBADF)


def unwritable(path: str, error: OSError, doing: str) -> StateUnwritableError:
    """The error for a file of ours that the system refuses to `doing` ("write", "read")."""
    helps = {
        errno.ENOSPC: "free some space on that file system, then repeat the command",
        errno.EDQUOT: "free some of your quota on that file system, then repeat the command",
        errno.EFBIG: "raise the limit on the size of files, `ulimit -f`, then repeat the command",
    }
    reason = os.strerror(error.errno or 0)
    file = _file_above(path) if error.errno in (errno.ENOTDIR, errno.EEXIST) else ""
    if file:
        reason = f"{file} is a file, not a directory"
    if startup.is_within(path, startup.environment_directory()):
        otherwise = (
            "run it as the owner of that environment, or in a virtual environment of your own"
        )
    elif file:
        otherwise = "set BACKENDCFG_STATE_DIR to a directory, or to a place for one"
    elif error.errno == errno.EROFS:
        otherwise = "that file system is read-only: set BACKENDCFG_STATE_DIR to another place"
    else:
        otherwise = "give yourself permission, or set BACKENDCFG_STATE_DIR to a place that is yours"
    return StateUnwritableError(
        f"cannot {doing} {path}: {reason}",
        state="the active profile is as before the call",
        helps=[helps.get(error.errno or 0, otherwise)],
    )


def _file_above(path: str) -> str:
    """What stands where a directory of a path would have to be, or ""."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return "" if os.path.isdir(path) else path


def replace(path: str, content: bytes, *, commits: bool = False, shared: bool = False) -> None:
    """Give a file new content, durably; its directory exists already.

    Args:
        path: the file.
        content: all of it.
        commits: whether this file's name is what makes the new state the active one.
        shared: whether everybody may read it, whatever umask says.

    Raises:
        StateUnwritableError: `state` says whether the new content is visible.
    """
    try:
        write_whole(path, content, mode=0o644 if shared else 0o600)
    except OSError as error:
        raise unwritable(path, error, "write") from error
    try:
        flush_directory(os.path.dirname(path))
    except StateUnwritableError as error:
        if commits:
            error.state = "the new profile is active, and may not survive a power failure"
        raise


def write_whole(path: str, content: bytes, *, mode: int | None = None, new: bool = False) -> None:
    """Write a file that nobody sees before it is whole; its directory exists already.

    Args:
        path: the file.
        content: all of it.
        mode: who may read and write it, whatever umask says; None for what umask says, or what
            the file that it replaces has.
        new: whether nothing may be there yet.

    Raises:
        OSError: it cannot be written; FileExistsError where something is there.
    """
    # A name that nobody can foresee, and no file that was there before: a link that somebody put
    # there would send the content elsewhere.
    temporary = f"{path}.{os.urandom(8).hex()}{UNFINISHED}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        if mode is None and not new and os.path.exists(path):
            mode = os.stat(path).st_mode & 0o777
        handle = os.open(temporary, flags, 0o600 if mode is not None else 0o666)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view) :]
            if mode is not None:
                os.fchmod(handle, mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        if new and _linked(temporary, path):
            os.unlink(temporary)
        elif new and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        else:
            os.rename(temporary, path)
    except BaseException:
        discard(temporary)
        raise


def _linked(temporary: str, path: str) -> bool:
    """Give a file another name, which may not be taken; False where a file has one name at most."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            return False
        raise
    return True


def replace_named(path: str, content: bytes) -> None:
    """Give a file that the user named new content, and the mode it has or umask says.

    A link stays one.

    Raises:
        UnreadableFileError: the file cannot be written.
    """
    target = os.path.realpath(path)
    try:
        write_whole(target, content)
        flush_directory(os.path.dirname(target))
    except (OSError, StateUnwritableError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else error.message
        raise UnreadableFileError(
            f"cannot write {path}: {why}",
            helps=["name a file in a folder that you may write"],
        ) from error


def flush_directory(path: str) -> None:
    """Make the names in a directory survive a power failure, where the file system can."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unwritable(path, error, "read") from error
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _FLUSH_UNSUPPORTED:
            raise unwritable(path, error, "flush") from error
    finally:
        os.close(handle)


def make_directory(path: str, *, shared: bool = False) -> None:
    """Create a directory and its parents, durably; everybody may look into a `shared` one.

    Raises:
        StateUnwritableError: it is not there and cannot be made.
    """
    missing = []
    at = path
    while not os.path.isdir(at):
        missing.append(at)
        if (parent := os.path.dirname(at)) == at:
            break
        at = parent
    for directory in reversed(missing):
        try:
            os.mkdir(directory, 0o700)
            if shared:
                os.chmod(directory, 0o755)  # noqa: S103 - it holds no secret
        except FileExistsError as error:
            if not os.path.isdir(directory):
                raise unwritable(path, error, "make") from error
        except OSError as error:
            raise unwritable(directory, error, "make") from error
        flush_directory(os.path.dirname(directory))


def sweep(directory: str) -> None:
    """Remove what writers that were killed have left; only for who holds the directory's lock."""
    for name in os.listdir(directory):
        if name.endswith(UNFINISHED):
            discard(os.path.join(directory, name))


def discard(path: str) -> None:
    """Remove a file if it is there and can be removed."""
    from contextlib import suppress

    with suppress(OSError):
        os.unlink(path)


def remove(paths: Iterable[str], *, trees: bool = False) -> None:
    """Remove files; what is gone already is passed over.

    Args:
        paths: the files.
        trees: whether directories are removed too, with all that is in them.

    Raises:
        StateUnwritableError: one cannot be removed; `state` says which were.
    """
    import shutil

    gone: list[str] = []
    for path in paths:
        try:
            if trees and os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, onerror=_unless_gone)
            else:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StateUnwritableError(
                f"cannot remove {error.filename or path}: {os.strerror(error.errno or 0)}",
                state=f"removed: {', '.join(gone) or 'nothing'}",
                helps=["run it as the owner of that file"],
            ) from error
        gone.append(path)


def _unless_gone(_function: object, _path: str, raised: Any) -> None:
    """Go on where somebody else removed a file of a directory that is being removed."""
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


def writing(path: str) -> AbstractContextManager[None]:
    """Hold the lock at `path`; other writers wait, readers never do.

    The system drops the lock when its holder ends in whatever way, so none is ever stale.

    Raises:
        StateUnwritableError: on entering; the lock cannot be had.
    """
    from contextlib import contextmanager

    return contextmanager(_locked)(path)


def _locked(path: str) -> Iterator[None]:
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(path, error, "write") from error
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise StateUnwritableError(
                        f"another process has been writing for {WAIT_SECONDS:.0f} seconds and"
                        f" holds {path}",
                        state="the active profile is as before the call",
                        helps=[f"`fuser {path}` names it; a stopped process can be continued"],
                    ) from error
                time.sleep(0.01)
            except OSError as error:
                raise unwritable(path, error, "lock") from error
        yield
        # Explicitly: a process forked meanwhile shares the lock until it is dropped or closed.
        fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
