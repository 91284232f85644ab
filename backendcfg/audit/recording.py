"""What a program does to numeric switches, written down by itself for `backendcfg run --guard`.

Each process has a file of its own in the folder that BACKENDCFG_GUARD names, with one JSON document
to a line: that it began, and what it left when it ended. `audit.guarded` reads them.

A worker of a pool has a file once there is something to say, or when it ends by itself: pools end
theirs by a signal, and what became of a worker that had nothing to say is no news.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from backendcfg import startup
from backendcfg.audit import draws, facts, writers
from backendcfg.audit.guard import Watched
from backendcfg.audit.writers import Writers
from backendcfg.bridges import imports
from backendcfg.registry import base
from backendcfg.session import children, installed
from backendcfg.transact import log
from backendcfg.transact.outcome import reason

if TYPE_CHECKING:
    from typing import Any

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
        by_program = applied is not None and installed.source() != children.SOURCE
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
        thread.
        """
        mine = base.applied().get(change.switch)
        other = installed.source() == children.SOURCE or installed.depth() > self.watched.depth
        if other and mine is not None and mine.setting.wanted == change.now:
            return True
        worker = sys.modules.get(_LOADERS_WORKER)
        if worker is None or worker.get_worker_info() is None:
            return False
        watched = self.watched.switches.get(change.switch)
        return watched is not None and watched.flag == "threads.count"

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
        "place": writers.wrote(change.switch, change.now),
        "text": str(change),
    }


def _drawn(draw: Draw) -> dict[str, Any]:
    return {**vars(draw), "text": str(draw)}
