"""The index of active generations: one small file, and the only commit point of the store.

    backendcfg 1 2
    3<TAB>9f86d081884c7d65<TAB>/home/ana/solver<TAB>5<TAB>2
    1<TAB>user<TAB>*user*<TAB>1<TAB>0

The first line counts the others, so that a truncated file is noticed. A row is: the active
generation (0 is none), the key that names the scope's directory, the project's path, the highest
generation committed so far, and the generation that `undo` returns to.
"""

from __future__ import annotations

import os

from backendcfg.errors import StateUnwritableError
from backendcfg.records import record, replace
from backendcfg.transact.disk import unwritable

FORMAT = 1
USER = "*user*"
_HEADER = f"backendcfg {FORMAT}"


@record(frozen=True)
class Row:
    """One scope: a project, or the user.

    Attributes:
        generation: the active one, or 0.
        key: name of the directory that holds its generations.
        path: the project's absolute path, or `USER`.
        highest: the highest generation that was ever committed.
        back: what `undo` returns to, 0 for no profile.
    """

    generation: int
    key: str
    path: str
    highest: int = 0
    back: int = 0

    def to(self, generation: int, back: int) -> Row:
        """The same scope at another generation."""
        return replace(
            self, generation=generation, back=back, highest=max(self.highest, generation)
        )


def key(path: str) -> str:
    """The directory name of a scope."""
    if path == USER:
        return "user"
    import hashlib  # only the first commit of a scope comes here

    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def escaped(path: str) -> str:
    """A path without the characters that separate fields and lines."""
    return path.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def read(file: str) -> dict[str, Row]:
    """The rows by escaped path. No file is no rows.

    Raises:
        StateUnwritableError: the file cannot be read or is damaged.
    """
    rows, fault = parse(file)
    if fault:
        raise StateUnwritableError(
            f"{file} is damaged: {fault}",
            notes=["it says which profile is active for each project"],
            helps=[
                "run `backendcfg off`, which rescues what it can and starts a new one",
                "until then, BACKENDCFG_DISABLE=1 starts programs without a profile",
            ],
        )
    return rows


def parse(file: str) -> tuple[dict[str, Row], str]:
    """Every row that can be read, and what is wrong with the file, or "".

    Raises:
        StateUnwritableError: the file is there and the system does not give it.
    """
    try:
        with open(file, encoding="utf-8", errors="surrogateescape", newline="\n") as opened:
            text = opened.read()
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        raise unwritable(file, error, "read") from error
    header, _, body = text.partition("\n")
    rows: dict[str, Row] = {}
    fault = "" if text.endswith("\n") else "its last line is cut off"
    # Not splitlines, which also ends a line at characters that a path may have.
    lines = body.removesuffix("\n").split("\n") if body else []
    for number, line in enumerate(lines, start=2):
        try:
            generation, key, path, highest, back = line.split("\t")
            row = Row(int(generation), key, path, int(highest), int(back))
        except ValueError:
            fault = fault or f"line {number} is not a row"
            continue
        if not (0 <= row.generation <= row.highest and 0 <= row.back <= row.highest):
            fault = fault or f"line {number} has numbers that cannot be"
            continue
        rows[path] = row
    if header.rpartition(" ")[0] != _HEADER:
        fault = fault or f"its first line is not `{_HEADER}` and a number"
    elif header.rpartition(" ")[2] != str(len(rows)):
        fault = fault or f"it should have {header.rpartition(' ')[2]} rows and has {len(rows)}"
    return rows, fault


def text(rows: dict[str, Row]) -> bytes:
    """The file that holds these rows."""
    lines = [f"{_HEADER} {len(rows)}"]
    lines += [
        f"{row.generation}\t{row.key}\t{path}\t{row.highest}\t{row.back}"
        for path, row in rows.items()
    ]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
