"""Read the flags out of validated data: canonical names, legacy spellings expanded, places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.errors import (
    BackendCfgError,
    ConflictingFlagsError,
    InvalidValueError,
    UnknownFlagError,
)
from backendcfg.load.complaints import nearest
from backendcfg.schema import describe
from backendcfg.schema.base import candidates
from backendcfg.schema.layer import Assignment, Dropped, Place
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.load.parsed import Parsed
    from backendcfg.load.positions import Path
    from backendcfg.schema.flag import FlagField

NOTHING = object()


def assignments(
    parsed: Parsed, base: Path = (), refused: frozenset[Path] = frozenset()
) -> tuple[tuple[Assignment, ...], list[BackendCfgError]]:
    """Every flag that the table at `base` sets, in file order, and the conflicts among them.

    What stands at a `refused` path is wrong already and is left out.
    """
    found: dict[str, tuple[Assignment, Path]] = {}
    errors: list[BackendCfgError] = []
    table = parsed.value(base)
    for name, flag in flags().items():
        path: Path = (*base, *name.split("."))
        if (value := _at(table, name)) is NOTHING or is_refused(path, refused):
            continue
        for assignment in expand(flag, value, parsed.place(path)):
            if (earlier := found.get(assignment.flag)) is None:
                found[assignment.flag] = (assignment, path)
            else:
                errors.append(_conflict(parsed, assignment, earlier, path))
    ordered = sorted(
        (assignment for assignment, _ in found.values()),
        key=lambda assignment: (assignment.place.line, assignment.place.column),
    )
    return tuple(ordered), errors


def is_refused(path: Path, refused: frozenset[Path]) -> bool:
    """Whether the value at a path, or something in it or around it, was refused."""
    return any(path[: len(other)] == other[: len(path)] for other in refused)


def expand(flag: FlagField, value: Any, place: Place) -> Iterator[Assignment]:
    """What a flag's valid value writes: itself, or the flags that a legacy spelling stands for."""
    if flag.flag.spells:
        for target, meant in flag.flag.spells[value].items():
            yield Assignment(flag=target, value=meant, place=place, written_as=flag.name)
    else:
        yield Assignment(flag=flag.name, value=normal(flag, value), place=place)


def normal(flag: FlagField, value: Any) -> Any:
    """The one form of a valid value: `"mkl"` for a library becomes `{"prefer": ["mkl"]}`."""
    if not candidates(flag.info.annotation):
        return value
    table = {"prefer": [value]} if isinstance(value, str) else value
    return {name: inner for name, inner in table.items() if inner}


def _at(table: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(table, dict) or part not in table:
            return NOTHING
        table = table[part]
    return table


def _conflict(
    parsed: Parsed, later: Assignment, earlier: tuple[Assignment, Path], path: Path
) -> ConflictingFlagsError:
    """Two spellings of one flag in one table; which came first in the file is not known yet."""
    first, first_path = earlier
    pairs = sorted([(first, first_path), (later, path)], key=lambda pair: _order(parsed, pair[1]))
    texts = [
        f"{assignment.written_as or assignment.flag} = {describe.toml(parsed.value(where))}"
        for assignment, where in pairs
    ]
    legacy = next(a.written_as for a, _ in pairs if a.written_as)
    return ConflictingFlagsError(
        f"`{texts[0]}` and `{texts[1]}` are two spellings of one flag",
        spans=[
            parsed.span(
                where,
                f"the legacy spelling of `{assignment.flag}`"
                if assignment.written_as
                else "the flag itself",
                on="key",
            )
            for assignment, where in pairs
        ],
        helps=[f"keep `{later.flag}` and remove `{legacy}`"],
    )


def _order(parsed: Parsed, path: Path) -> tuple[int, int]:
    mark = parsed.mark(path, on="key")
    return mark.line, mark.column


def dropped(
    parsed: Parsed, refused: frozenset[Path] = frozenset()
) -> tuple[tuple[Dropped, ...], list[BackendCfgError]]:
    """What `drop` names, and the names in it that are neither a flag nor a table of flags."""
    tables = {name.rsplit(".", depth)[0] for name in flags() for depth in range(1, 4)}
    found: list[Dropped] = []
    errors: list[BackendCfgError] = []
    names = () if is_refused(("drop",), refused) else parsed.data.get("drop", ())
    for index, name in enumerate(names):
        place = parsed.place(("drop", index))
        if name in flags():
            targets = {target for writes in flags()[name].flag.spells.values() for target in writes}
            found += [Dropped(flag=flag, place=place) for flag in sorted(targets) or [name]]
        elif name in tables or name.startswith("environment."):
            found.append(Dropped(flag=name, place=place))
        else:
            near = nearest(name, {*flags(), *tables})
            errors.append(
                UnknownFlagError(
                    f"`drop` names {describe.toml(name)}, which is neither a flag nor a table",
                    spans=[
                        parsed.span(
                            ("drop", index), f"did you mean `{near}`?" if near else "no such flag"
                        )
                    ],
                    helps=[
                        f'write `"{near}"`' if near else f"every flag is in {describe.KEYS_PAGE}"
                    ],
                )
            )
    return tuple(found), errors


def invalid(parsed: Parsed, path: Path, message: str, label: str, cure: str) -> BackendCfgError:
    """A value that its type allows and its meaning does not."""
    return InvalidValueError(message, spans=[parsed.span(path, label)], helps=[cure])
