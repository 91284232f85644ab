"""What a rank computes with, saved in a folder that all ranks of a job share.

Each rank has a small file of its own. What it computes with stands in another file, which is named
by its digest and written once, however many ranks have the same. A file gets its name when it is
whole: it does not matter which rank is first, nor that one is killed while it writes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg import _native, environ
from backendcfg.audit.left import opened
from backendcfg.audit.token import digest, numerics_token
from backendcfg.catalogue.frameworks import JAX
from backendcfg.errors import StateUnwritableError, UnreadableFileError, UsageError, visible
from backendcfg.fleet.agreement import compared_parts
from backendcfg.fleet.groups import group_of
from backendcfg.probe import text_of
from backendcfg.probe.launchers import rank_of_job, this_rank
from backendcfg.transact import disk
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.transact.compiled import Compiled

VERSION = 1
"""Of the files; raised when another release writes them in another way."""

MOST_TOLD = 16 << 10
"""Bytes that a rank's own file may have."""

_HELP = "give a folder that every rank may write"

BEGAN = "began"
"""The file whose time is when the last run with a folder began."""


def save(folder: str | os.PathLike[str]) -> None:
    """Save what this rank computes with, for `backendcfg fleet report`.

    Call it in every rank, in the thread that computes, when everything that computes is imported. A
    rank that calls it again replaces what it saved.

    Args:
        folder: the same for all ranks, on a file system that they share; made where it is missing.

    Raises:
        UsageError: no engine brought ranks together in this process, and no launcher gave it a
            number in a variable.
        UnreadableFileError: the folder cannot be written.
    """
    found = _rank()
    if found is None:
        raise UsageError(
            "this process is no rank: nothing gave it a number among others",
            state="nothing was saved",
            helps=[
                "call it after `torch.distributed.init_process_group()`",
                "or start ranks with `torchrun`, `mpirun` or `srun`",
            ],
        )
    _save(folder, *found)


def _save(folder: str | os.PathLike[str], rank: int, size: int) -> None:
    path = made(folder, "nothing was saved")
    told = Told(rank, size, socket.gethostname(), _profile(), _process())
    write(path, told, numerics_token().parts)


class Told(NamedTuple):
    """What a rank's own file has.

    Attributes:
        rank: its number.
        size: how many ranks there are.
        host: where it runs.
        profile: the name of its profile; "" for none.
        process: what no other process is called.
        processes: how many have saved as this rank.
        digest: of what it computes with.
    """

    rank: int
    size: int
    host: str
    profile: str
    process: str = ""
    processes: int = 1
    digest: str = ""


def write(folder: str, told: Told, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the files of a rank.

    Args:
        folder: where.
        told: of the rank, without the digest.
        parts: of its token.

    Raises:
        UnreadableFileError: they cannot be written.
    """
    content = compared_parts(parts)
    key = digest(content)
    told = told._replace(processes=1 + _others(folder, told), digest=key)
    own = {"version": VERSION, **told._asdict()}
    try:
        _replace(folder, f"{key}.json", json.dumps(content, default=str).encode(), once=True)
        _replace(folder, name_of(told.rank), json.dumps(own).encode())
    except StateUnwritableError as error:
        raise UnreadableFileError(error.message, state="nothing was saved", helps=[_HELP]) from None


def begin(folder: str | os.PathLike[str], state: str) -> str:
    """The absolute path of a folder for the ranks of a run that starts now, as by `made`.

    What ranks saved there before is an earlier run's from now on, but for a process that is a rank
    itself, as under `srun backendcfg run`: others of its run may have ended already.

    Args:
        folder: which.
        state: what to say of the state where that cannot be.

    Raises:
        UnreadableFileError: it cannot be made or written.
    """
    path = made(folder, state)
    if rank_of_job(environ.copy()) is not None:
        return path
    try:
        disk.replace(os.path.join(path, BEGAN), b"", shared=True)
    except StateUnwritableError as error:
        raise UnreadableFileError(error.message, state=state, helps=[_HELP]) from None
    return path


def is_earlier(folder: str, name: str) -> bool:
    """Whether a file was written before the last run with this folder began."""
    try:
        began = os.lstat(os.path.join(folder, BEGAN)).st_mtime_ns
        return os.lstat(os.path.join(folder, name)).st_mtime_ns < began
    except OSError:
        return False  # nobody said when it began


def _others(folder: str, told: Told) -> int:
    """How many other processes have saved as this rank before, in this run."""
    if is_earlier(folder, name_of(told.rank)):
        return 0
    try:
        with opened(os.path.join(folder, name_of(told.rank))) as file:
            before = json.loads(file.read(MOST_TOLD))
        number: int = before["processes"] - (before["process"] == told.process)
        return number
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return 0  # nobody, or a file that is not ours


def name_of(rank: int) -> str:
    """The name of a rank's own file."""
    return f"rank-{rank:05}.json"


def _replace(folder: str, name: str, content: bytes, *, once: bool = False) -> None:
    path = os.path.join(folder, name)
    if not (once and _holds(path, content)):
        disk.replace(path, content, shared=True)


def _holds(path: str, content: bytes) -> bool:
    """Whether another rank, which computes with the same, has written this already."""
    try:
        with opened(path) as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


def made(folder: str | os.PathLike[str], state: str) -> str:
    """The absolute path of a folder that ranks can save in, which is made where it is missing.

    Args:
        folder: which.
        state: what to say of the state where that cannot be.

    Raises:
        UnreadableFileError: it cannot be made or written.
    """
    path = os.path.abspath(folder)
    try:
        os.makedirs(path, exist_ok=True)
        # Only an attempt tells: a file system may be read-only.
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as error:  # a name with a zero byte
        why = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(
            f"cannot write in {visible(path)}: {why}", state=state, helps=[_HELP]
        ) from None
    return path


def _rank() -> tuple[int, int] | None:
    """The number of this rank and of all: as the engine has them, else as the launcher said."""
    try:
        group = group_of()
    except UsageError:  # no ranks were brought together, or they have parted
        return _rank_of_jax() or _rank_by_variables()
    return group.names[group.rank], group.size


def _rank_of_jax() -> tuple[int, int] | None:
    """The same where JAX has let its ranks part, as it does by itself before a process ends."""
    jax: Any = sys.modules.get(f"{JAX.name}._src.distributed")
    if jax is None or jax.global_state.num_processes < 2:
        return None
    return jax.global_state.process_id, jax.global_state.num_processes


def _rank_by_variables() -> tuple[int, int] | None:
    told = this_rank()
    return (told.number, told.size) if told is not None else None


def _profile() -> str:
    """The name of the profile in force; "" for none."""
    current = _native.current()
    if current is None:
        return ""
    compiled: Compiled = current.payload
    return compiled.name


def _process() -> str:
    """What no other process is called, and this one also after it started itself anew."""
    fields = text_of("/proc/self/stat").rpartition(")")[2].split()
    began = fields[19] if len(fields) > 19 else ""  # proc_pid_stat(5): field 22
    return f"{socket.gethostname()} {os.getpid()} {began}"


def leave(folder: str) -> None:
    """Save at the end of a process that may be a rank; its work does not fail for it.

    Args:
        folder: that BACKENDCFG_RANKS names.
    """
    # Python forgets it while it runs what is below, and then would not end by the signal.
    is_interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    who = "this rank"
    try:
        found = _rank()
        if found is not None:
            who = f"rank {found[0]}"
            _save(folder, *found)
    except (Exception, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else reason(error)
        if sys.stderr is not None:
            text = f"warning: what {who} computes with was not saved: {why}"
            sys.stderr.write(visible(text) + "\n")
    if is_interrupted:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
