"""Files of formats that only a library of somebody else reads: HDF5 and Parquet.

A file that is damaged may crash such a library. So `formats.py` reads them in a child process,
which is told one path after another.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from backendcfg import childprocess, environ
from backendcfg.audit.evidence import formats

if TYPE_CHECKING:
    from backendcfg.audit.evidence.formats import Part

LIBRARIES = {".h5": "h5py", ".hdf5": "h5py", ".parquet": "pyarrow"}
"""Which library reads a file, by the end of its name."""

LIMIT_SECONDS = 120.0
"""How long reading one file may take, with the start of the child."""

MOST_LOST = 3
"""Children that a file ends or holds up; after so many no other file is read."""

_PROGRAM = "from backendcfg.audit.evidence.foreign import answer; answer()"


class Reader:
    """Reads files for one run of a program; its child starts with the first that needs it."""

    def __init__(self) -> None:
        self._child: childprocess.Dialogue | None = None
        self._lost = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._close()

    def parts(self, path: str) -> dict[Part, str]:
        """As `formats.parts`; also none for a file whose reading ends the child or takes long."""
        library = LIBRARIES.get(os.path.splitext(path)[1].lower())
        if library is None:
            return formats.parts(path)
        if self._lost == MOST_LOST or find_spec(library) is None:
            return {}
        try:
            if self._child is None:
                # No profile concerns it, and none is to slow it down.
                environment = {**environ.copy(), environ.DISABLE.name: "1"}
                self._child = childprocess.Dialogue(["-c", _PROGRAM], environment)
            self._child.tell({"path": path})
            found = self._child.hear(LIMIT_SECONDS)["parts"]
        except (OSError, EOFError):  # a TimeoutError is an OSError
            self._lost += 1
            self._close()
            return {}
        return {(kind, name): digest for kind, name, digest in found}

    def _close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def answer() -> None:
    """In the child: read the file of each line of standard input, and say what it holds."""
    with os.fdopen(childprocess.begin_answers(), "w", encoding="ascii") as answers:
        for line in sys.stdin:
            found = formats.parts(json.loads(line)["path"])
            parts = [[*part, digest] for part, digest in found.items()]
            answers.write(json.dumps({"parts": parts}) + "\n")
            answers.flush()
