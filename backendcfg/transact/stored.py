"""The files of the generations: one JSON document each, final once the index names it."""

from __future__ import annotations

import os

from backendcfg.errors import StateUnwritableError
from backendcfg.records import field, record
from backendcfg.transact import disk, index
from backendcfg.transact.compiled import Compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT = 50
"""How many generations of a scope are kept, and how many times `undo` can surely go back."""


@record(frozen=True)
class Generation:
    """One profile that was made active.

    Attributes:
        number: from 1, per project.
        parent: the generation that was active before it, 0 for none.
        path: the project's root, or "" for the user.
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


def load(state: str, row: index.Row, number: int) -> Generation:
    """Read one generation of a scope.

    Raises:
        StateUnwritableError: it cannot be read; the message names the file and says why.
    """
    import json  # at the first generation: where none is active, nothing needs it

    file = os.path.join(state, "generations", row.key, f"{number}.json")
    try:
        with open(file, "rb") as opened:
            data = json.loads(opened.read())
        if not isinstance(data, dict):
            raise TypeError("it is not a JSON object")
        if data["format"] != index.FORMAT:
            raise TypeError(f"it has format {data['format']}")
        generation = Generation(
            number=_typed(data, "generation", int),
            parent=_typed(data, "parent", int),
            path=_typed(data, "path", str),
            name=_typed(data, "name", str),
            arguments=_typed(data, "arguments", dict),
            rank=_typed(data, "rank", str),
            created=float(data["created"]),
            compiled=_compiled(_typed(data, "compiled", dict)),
            plan=_typed(data, "plan", dict),
        )
        if generation.number != number or generation.parent >= number:
            raise ValueError(f"it says that it is generation {generation.number}")
        return generation
    except OSError as error:
        fault = os.strerror(error.errno or 0)
    except json.JSONDecodeError as error:
        fault = f"it is not JSON at line {error.lineno}, column {error.colno}"
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        missing = isinstance(error, KeyError)
        fault = f"it has no {error}" if missing else str(error) or type(error).__name__
        fault += ", so another release of backendcfg wrote it, or it is damaged"
    raise StateUnwritableError(
        f"cannot read generation {number}, {file}: {fault}",
        helps=[
            "run `backendcfg apply NAME` to write a new one",
            "run `backendcfg off` to be without a profile",
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


def prune(home: str, row: index.Row) -> None:
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
            disk.discard(os.path.join(home, f"{number}.json"))


def _parent(file: str) -> int:
    import json

    try:
        with open(file, "rb") as opened:
            parent = json.loads(opened.read())["parent"]
        return parent if isinstance(parent, int) else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def clear(home: str, keep: int) -> None:
    """Remove every generation of a scope except one, to make room."""
    for number in numbers(home):
        if number != keep:
            disk.discard(os.path.join(home, f"{number}.json"))
