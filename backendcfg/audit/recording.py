"""What a program does to numeric switches, written down by itself for `backendcfg run --guard`.

Each process has a file of its own in the folder that BACKENDCFG_GUARD names, with one JSON document
to a line: that it began, and what it left when it ended. `read` puts them together.

A worker of a pool has a file once there is something to say, or when it ends by itself: pools end
theirs by a signal, and what became of a worker that had nothing to say is no news.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg import log, startup
from backendcfg.audit import draws, facts, places
from backendcfg.audit.guard import Watched
from backendcfg.audit.places import Writers
from backendcfg.bridges import imports
from backendcfg.registry import base
from backendcfg.session import choice, installed
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backendcfg.audit.draws import Draw
    from backendcfg.audit.guard import Change


SUFFIX = ".guard"
_LOADERS_WORKER = "torch.utils.data._utils.worker"


class Recording:
    """Watches this process from now on until it ends.

    Args:
        folder: where its file is written.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = ""
        self.finished = False
        self.watched = Watched()
        imports.watch(self._extend)
        Writers(self.watched)
        draws.watch(self._drawn)
        if not startup.is_worker(sys.orig_argv):
            self._write({"began": sys.orig_argv})
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._forked)

    def finish(self) -> None:
        """Write what is otherwise than at the start, once."""
        if self.finished:
            return
        self.finished = True
        changes = [_plain(change) for change in self.watched.changes() if not self._is_ours(change)]
        applied = installed.prepared()
        by_program = applied is not None and installed.source() != choice.PARENT
        by_program = by_program and installed.depth() > self.watched.depth
        late = [_drawn(draw) for draw in draws.seen() if not draw.place]
        profile = applied.name if by_program and applied is not None else ""
        self._write({"changes": changes, "applied": profile, "draws": late})

    def _extend(self, module: str) -> None:
        try:
            self.watched.extend(module)
        except Exception as error:  # an import of the program does not fail for us
            log.warning("what `import %s` brought is not watched: %s", module, reason(error))

    def _drawn(self, draw: Draw) -> None:
        # At once: a worker of a pool may be ended by a signal.
        self._write({"draws": [_drawn(draw)]})

    def _is_ours(self, change: Change) -> bool:
        """Whether a change is not the program's.

        What holds what the profile in force wants was set by that, in a child that took over from
        its parent or where the program applied one. PyTorch gives each worker of a DataLoader one
        thread; from then on MKL chooses no number itself.
        """
        mine = base.applied().get(change.switch)
        other = installed.source() == choice.PARENT or installed.depth() > self.watched.depth
        if other and mine is not None and mine.setting.wanted == change.now:
            return True
        worker = sys.modules.get(_LOADERS_WORKER)
        if worker is None or worker.get_worker_info() is None:
            return False
        watched = self.watched.switches.get(change.switch)
        return watched is not None and watched.flag in ("threads.count", "threads.dynamic")

    def _forked(self) -> None:
        """In the child: it has a file of its own, and ends as workers of `multiprocessing` do."""
        self.path, self.finished = "", False
        draws.forked()
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.register_after_fork(self, _finish_with_worker)

    def _write(self, entry: dict[str, Any]) -> None:
        if not self.path:
            self.path = os.path.join(self.folder, f"{os.getpid()}-{time.time_ns()}{SUFFIX}")
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError:
            pass  # the command that asked for it has ended, and its folder is gone


def begin(folder: str) -> None:
    """Record this process from now on."""
    Recording(folder)


def _finish_with_worker(recording: Recording) -> None:
    """In a forked worker of `multiprocessing`, which ends without the handlers of `atexit`."""
    sys.modules["multiprocessing.util"].Finalize(recording, recording.finish, exitpriority=-1000)


def _plain(change: Change) -> dict[str, Any]:
    return {
        "switch": change.switch,
        "before": facts.plain(change.before),
        "now": facts.plain(change.now),
        "place": places.wrote(change.switch, change.now),
        "text": str(change),
    }


def _drawn(draw: Draw) -> dict[str, Any]:
    return {**vars(draw), "text": str(draw)}


@dataclass(frozen=True)
class Found:
    """One thing that processes of the command did alike.

    Attributes:
        what: it as JSON data; `text` has it in words.
        processes: how many of them did it.
    """

    what: dict[str, Any]
    processes: int


@dataclass(frozen=True)
class Guarded:
    """What the Python processes of a command did.

    Attributes:
        processes: how many told.
        changes: the switches that they left changed.
        draws: what they drew that no seed governs.
        applied: the profiles that they applied themselves and did not take back.
        silent: the commands of those that began and did not tell how they ended.
    """

    processes: int
    changes: tuple[Found, ...]
    draws: tuple[Found, ...]
    applied: tuple[str, ...]
    silent: tuple[tuple[str, ...], ...]


def read(folder: str) -> Guarded:
    """What the processes left in a folder, in the order in which they began."""
    by_process: dict[str, list[list[dict[str, Any]]]] = {}
    names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    for name in sorted(names, key=lambda name: int(name.removesuffix(SUFFIX).split("-")[1])):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            entries = [_entry(line) for line in file]
        by_process.setdefault(name.split("-")[0], []).append(entries)
    # A process that became another program has a file for each; what it was before is gone.
    last = [files[-1] for files in by_process.values()]
    told = [entries for entries in last if any("changes" in entry for entry in entries)]
    entries = [entry for entries in last for entry in entries]
    return Guarded(
        len(told),
        _alike(change for entry in entries for change in entry.get("changes", ())),
        _alike(draw for entry in entries for draw in entry.get("draws", ())),
        tuple(dict.fromkeys(entry["applied"] for entry in entries if entry.get("applied"))),
        tuple(
            tuple(entry["began"])
            for entries in last
            if entries not in told
            for entry in entries
            if "began" in entry
        ),
    )


def _entry(line: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}  # the process ended while it wrote
    return entry


def _alike(found: Iterable[dict[str, Any]]) -> tuple[Found, ...]:
    counts: dict[str, list[dict[str, Any]]] = {}
    for what in found:
        counts.setdefault(json.dumps(what, sort_keys=True), []).append(what)
    return tuple(Found(same[0], len(same)) for same in counts.values())
