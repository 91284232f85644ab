"""The files of the store of active profiles: the index, and a JSON document for each generation.

    backendcfg 1 2
    3<TAB>9f86d081884c7d65<TAB>/home/ana/solver<TAB>5<TAB>2
    1<TAB>user<TAB>*user*<TAB>1<TAB>0

The index is the only commit point. Its first line counts the others, so that a truncated file is
noticed. A row is: the active generation (0 is none), the key that names the scope's directory, the
project's path, the highest generation committed so far, and the generation that `undo` returns to.
A project that this user trusts has a row of its own, with `*trusted*` before its path. A
generation's document is final once the index names it.
"""

from __future__ import annotations

import os

from backendcfg import environ, plain_json, startup
from backendcfg.errors import StateUnwritableError
from backendcfg.records import field, record, replace
from backendcfg.startup import ENVIRONMENT, SHARED, USER
from backendcfg.transact.compiled import Compiled
from backendcfg.transact.disk import discard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
_HEADER = f"backendcfg {FORMAT}"
UNREADABLE = "it is not a plain file that you own and nobody else may write"
LATER = "a later release of backendcfg wrote it"


@record(frozen=True)
class Row:
    """One scope: a project, or the user.

    Attributes:
        generation: the active one, or 0.
        key: name of the directory that holds its generations.
        path: the project's absolute path, escaped, or `USER` or `ENVIRONMENT`; after `TRUSTED` for
            one that is trusted.
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
    if path in (USER, ENVIRONMENT):
        return path.strip("*")
    import hashlib  # only the first commit of a scope comes here

    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def read_index(file: str, *, lenient: bool = False) -> dict[str, Row]:
    """The rows by escaped path. No file is no rows.

    Args:
        file: the index.
        lenient: whether one that cannot be read, or is somebody else's, counts as none.

    Raises:
        StateUnwritableError: the file is damaged, or cannot be read.
    """
    rows, fault = parse_index(file)
    if fault and not (lenient and fault in (UNREADABLE, SHARED)):
        raise damaged(file, fault)
    return rows


def damaged(file: str, fault: str) -> StateUnwritableError:
    """The error for an index with a fault.

    One of a later release, or in a folder that others may write, may be whole, and is left alone.
    """
    if fault == SHARED:
        folder = os.path.dirname(file)
        moved = [] if _option(file) else ["or set BACKENDCFG_STATE_DIR to another directory"]
        return StateUnwritableError(
            f"{file} is ignored: {fault}",
            notes=["it says which profile is active for each project"],
            helps=[f"if the folder is yours, run `chmod go-w {folder}`", *moved],
        )
    if fault == LATER:
        return StateUnwritableError(
            f"cannot read {file}: {fault}",
            notes=["it says which profile is active for each project"],
            helps=[
                "use that release",
                "or set BACKENDCFG_STATE_DIR to another directory for this one",
            ],
        )
    return StateUnwritableError(
        f"{file} is damaged: {fault}",
        notes=["it says which profile is active for each project"],
        helps=[
            f"run `backendcfg off{_option(file)}`, which rescues what it can and starts a new one",
            "until then, BACKENDCFG_DISABLE=1 starts programs without a profile",
        ],
    )


def _option(file: str) -> str:
    """What makes verbs mean the environment's state, where a file is of that."""
    shared = startup.is_within(file, startup.environment_directory())
    return " --environment" if shared else ""


def parse_index(file: str) -> tuple[dict[str, Row], str]:
    """Every row that can be read, and what is wrong with the file, or ""."""
    content = startup.read(file, own=True)
    if content is None:
        if startup.is_shared(os.path.dirname(file)):
            return {}, SHARED
        return {}, UNREADABLE if os.path.lexists(file) else ""
    text = os.fsdecode(content)  # as paths of this process are: one folder, one row
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
        if not (key.isascii() and key.isalnum()):
            fault = fault or f"line {number} does not name a directory of its own"
            continue
        if not (0 <= row.generation <= row.highest and 0 <= row.back <= row.highest):
            fault = fault or f"line {number} has numbers that cannot be"
            continue
        rows[path] = row
    release = header.split(" ")[1:2]
    if header.startswith("backendcfg ") and release[0].isdecimal() and release[0] > str(FORMAT):
        fault = LATER
    elif header.rpartition(" ")[0] != _HEADER:
        fault = fault or f"its first line is not `{_HEADER}` and a number"
    elif header.rpartition(" ")[2] != str(len(rows)):
        fault = fault or f"it should have {header.rpartition(' ')[2]} rows and has {len(rows)}"
    return rows, fault


def index_text(rows: dict[str, Row]) -> bytes:
    """The file that holds these rows."""
    lines = [f"{_HEADER} {len(rows)}"]
    lines += [
        f"{row.generation}\t{row.key}\t{path}\t{row.highest}\t{row.back}"
        for path, row in rows.items()
    ]
    return os.fsencode("\n".join(lines) + "\n")


KEPT = 50
"""How many generations of a scope are kept, and how many times `undo` can surely go back."""


@record(frozen=True)
class Generation:
    """One profile that was made active.

    Attributes:
        number: from 1, per project.
        parent: the generation that was active before it, 0 for none.
        beyond: where that is none, what was active before `off`, 0 for nothing.
        path: the project's root, "" for the user, `ENVIRONMENT` for the environment.
        name: the profile: "fast", "base+tf32-off".
        arguments: flags set beside it, as TOML text.
        rank: how strong the pick was.
        created: seconds since the epoch.
        compiled: what a starting process applies; None when another release of backendcfg
            compiled it, and it must be resolved again from the name and the arguments.
        plan: the full plan, as `schema.plan.Plan` dumps it.
        active: whether it is the one in force.
    """

    number: int
    parent: int
    path: str
    name: str
    arguments: dict[str, str]
    rank: str
    created: float
    compiled: Compiled | None
    plan: dict[str, Any] = field(repr=False)
    active: bool = False
    beyond: int = 0


def load(state: str, row: Row, number: int) -> Generation:
    """Read one generation of a scope.

    Raises:
        StateUnwritableError: it cannot be read; the message names the file and says why.
    """
    file = os.path.join(state, "generations", row.key, f"{number}.json")
    try:
        if (content := startup.read(file, own=True)) is None:
            raise TypeError(UNREADABLE if os.path.lexists(file) else "it is gone")
        data = plain_json.loads(content.decode())
        if not isinstance(data, dict):
            raise TypeError("it is not a JSON object")
        if data["format"] != FORMAT:
            raise TypeError(f"it has format {data['format']}")
        generation = Generation(
            number=_typed(data, "generation", int),
            parent=_typed(data, "parent", int),
            path=environ.as_path(_typed(data, "path", str)),
            name=_typed(data, "name", str),
            arguments=_typed(data, "arguments", dict),
            rank=_typed(data, "rank", str),
            created=float(data["created"]),
            compiled=_compiled(_typed(data, "compiled", dict)),
            plan=_typed(data, "plan", dict),
            beyond=_typed({"beyond": 0} | data, "beyond", int),
        )
        if generation.number != number or max(generation.parent, generation.beyond) >= number:
            raise ValueError(f"it says that it is generation {generation.number}")
        return generation
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        if (line := getattr(error, "lineno", None)) is not None:
            fault = f"it is not JSON at line {line}, column {getattr(error, 'colno', 1)}"
        elif content is None:
            fault = str(error)
        else:
            missing = isinstance(error, KeyError)
            fault = f"it has no {error}" if missing else str(error) or type(error).__name__
            fault += ", so another release of backendcfg wrote it, or it is damaged"
    raise StateUnwritableError(
        f"cannot read generation {number}, {file}: {fault}",
        helps=[
            f"run `backendcfg apply NAME{_option(file)}` to write a new one",
            f"run `backendcfg off{_option(file)}` to be without a profile",
        ],
    )


def _compiled(data: dict[str, Any]) -> Compiled | None:
    try:
        return Compiled.from_dict(data)
    except (KeyError, TypeError):
        return None


def _typed(data: dict[str, Any], name: str, kind: type) -> Any:
    value = data[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"its {name!r} is not of type {kind.__name__}")
    return value


def numbers(home: str) -> list[int]:
    """The generations that have a file, ascending."""
    try:
        names = os.listdir(home)
    except OSError:
        return []
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def prune(home: str, row: Row) -> None:
    """Forget old generations, except the active one and its nearest parents."""
    there = [number for number in numbers(home) if number <= row.highest]
    if len(there) <= KEPT:
        return
    kept = set(there[-KEPT:])
    at = row.generation or row.back
    for _ in range(KEPT):
        kept.add(at)
        at = _parent(os.path.join(home, f"{at}.json"))
    for number in there:
        if number not in kept:
            discard(os.path.join(home, f"{number}.json"))


def _parent(file: str) -> int:
    try:
        data = plain_json.loads((startup.read(file, own=True) or b"").decode())
        parent = data["parent"] or data.get("beyond", 0)
        return parent if isinstance(parent, int) else 0
    except (ValueError, KeyError, TypeError):
        return 0


def clear(home: str, keep: int) -> None:
    """Remove every generation of a scope except one, to make room."""
    for number in numbers(home):
        if number != keep:
            discard(os.path.join(home, f"{number}.json"))
