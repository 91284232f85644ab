"""What a rank computes with, saved in a folder that all ranks of a job share.

Each rank has a small file of its own. What it computes with stands in another file, which is named
by its digest and written once, however many ranks have the same. A file gets its name when it is
whole: it does not matter which rank is first, nor that one is killed while it writes.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from backendcfg import _native, environ
from backendcfg.audit.left import opened
from backendcfg.audit.token import digest, numerics_token
from backendcfg.catalogue.frameworks import JAX
from backendcfg.errors import StateUnwritableError, UnreadableFileError, UsageError, visible
from backendcfg.fleet.agreement import compared_parts
from backendcfg.fleet.groups import group_of
from backendcfg.probe.launchers import is_launcher, rank_of_job
from backendcfg.transact import disk
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.transact.compiled import Compiled

VERSION = 1
"""Of the files; raised when another release writes them in another way."""

_HELP = "give a folder that every rank may write"


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
    path = made(folder, "nothing was saved")
    write(path, Told(*found, socket.gethostname(), _profile()), numerics_token().parts)


class Told(NamedTuple):
    """What a rank's own file has.

    Attributes:
        rank: its number.
        size: how many ranks there are.
        host: where it runs.
        profile: the name of its profile; "" for none.
        digest: of what it computes with.
    """

    rank: int
    size: int
    host: str
    profile: str
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
    own = {"version": VERSION, **told._replace(digest=key)._asdict()}
    try:
        _replace(folder, f"{key}.json", json.dumps(content, default=str).encode(), once=True)
        _replace(folder, name_of(told.rank), json.dumps(own).encode())
    except StateUnwritableError as error:
        raise UnreadableFileError(error.message, state="nothing was saved", helps=[_HELP]) from None


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
        # Only an attempt tells: a file system may be read-only, or full.
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
    told = rank_of_job(environ.current())
    return (told.number, told.size) if told is not None else None


def _profile() -> str:
    """The name of the profile in force; "" for none."""
    current = _native.current()
    if current is None:
        return ""
    compiled: Compiled = current.payload
    return compiled.name


def begin(folder: str) -> None:
    """Save what this process computes with when it ends, if it is a rank then.

    What a rank starts itself is no rank, though it inherits the launcher's variables.

    Args:
        folder: that BACKENDCFG_RANKS names.
    """
    if is_launcher(sys.orig_argv):
        return
    if _rank_by_variables() is not None:
        environ.current().pop(environ.RANKS.name, None)
    process = os.getpid()

    def leave() -> None:
        if os.getpid() == process:
            _leave(folder)

    atexit.register(leave)


def _leave(folder: str) -> None:
    """Save at the end; a program that did its work does not fail for it."""
    who = "this rank"
    try:
        found = _rank()
        if found is None:
            return
        who = f"rank {found[0]}"
        save(folder)
    except Exception as error:
        if sys.stderr is not None:
            text = f"warning: what {who} computes with was not saved: {reason(error)}"
            sys.stderr.write(visible(text) + "\n")
