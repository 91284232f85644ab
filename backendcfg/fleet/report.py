"""What all ranks of a job computed with, merged from the folder that they saved in.

The folder lies where others may write, and ranks end while they write. So a file is read only if it
is a plain one of a reasonable size, and what is not as `saving` writes it is named and left out.
What ranks have in common is read once.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from backendcfg.audit.left import opened
from backendcfg.audit.token import digest
from backendcfg.errors import UnreadableFileError, UsageError, visible
from backendcfg.fleet.agreement import (
    COMPARED,
    HOST,
    SETTINGS,
    Setting,
    differing,
    unlike_in_words,
)
from backendcfg.fleet.saving import BEGAN, MOST_TOLD, VERSION, Told, is_earlier, name_of
from backendcfg.launch.arrangement import ranges
from backendcfg.resolve.words import counted, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_RANKS = 1 << 20
"""Ranks that a job may have."""

MOST_CONTENT, MOST_CONTENTS = 1 << 20, 16 << 20
"""Bytes that a file with what ranks compute with may have, and all of them; one has some 6 KB."""

DEEPEST = 8
"""How deep a value may be nested; ours are two deep."""

LONGEST = 4096
"""Characters that the name of a host or a profile may have."""

MOST_RUNS, MOST_HOSTS = 6, 4
"""Runs of ranks, as "0-7", and hosts or profiles of a kind that are named."""

_FILE = re.compile(r"rank-.*\.json", re.DOTALL)
_DIGEST = re.compile(r"[0-9a-f]{16}")
_PARTS = {"settings": SETTINGS, "host": HOST}


@dataclass(frozen=True)
class Kind:
    """Ranks that compute with the same on hosts that are alike.

    Attributes:
        digest: of what they compute with.
        ranks: their numbers.
        hosts: where they run.
        profiles: the names of their profiles; "" for none.
        is_known: whether that could be read.
    """

    digest: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    profiles: tuple[str, ...]
    is_known: bool = True


@dataclass(frozen=True)
class Report:
    """What the ranks of a job saved.

    Attributes:
        size: how many ranks the job has.
        kinds: those that saved, by what they compute with, the most first.
        settings: what some ranks have otherwise.
        unlike: what differs of their hosts: equal settings do not give equal bits on these.
        missing: ranks that saved nothing.
        obstacles: what could not be read, or does not fit, in words.
    """

    size: int
    kinds: tuple[Kind, ...]
    settings: tuple[Setting, ...] = ()
    unlike: tuple[Setting, ...] = ()
    missing: tuple[int, ...] = ()
    obstacles: tuple[str, ...] = ()

    @property
    def alike(self) -> bool:
        """Whether all ranks saved, everything could be read, and no setting differs."""
        return bool(self.kinds) and not (self.settings or self.missing or self.obstacles)

    @property
    def verdict(self) -> str:
        """What was found, in a sentence."""
        known = sum(len(kind.ranks) for kind in self.kinds if kind.is_known)
        unknown = sum(len(kind.ranks) for kind in self.kinds) - known
        if self.settings:
            said = unlike_in_words(self.settings, known)
        else:
            said = f"{counted(known, 'rank')} compute{'s' * (known == 1)} alike"
        if self.unlike:
            said += ", on unlike hosts"
        if unknown:
            said += f"; {unknown} could not be compared"
        if self.missing:
            said += f"; {len(self.missing)} of {self.size} saved nothing"
        if self.obstacles:
            said += f"; {counted(len(self.obstacles), 'obstacle')}"
        return said

    def rows(self) -> list[list[str]]:
        """A line for ranks that nothing told here parts: how many, which, their hosts, profiles."""
        # By rank, which of its values it has of what differs; what is not imported has none.
        places = [
            {rank: place for place, (_, ranks) in enumerate(one.values) for rank in ranks}
            for one in (*self.settings, *self.unlike)
        ]
        alike: dict[Any, list[Kind]] = {}
        for kind in self.kinds:
            values = tuple(each.get(kind.ranks[0]) for each in places)
            alike.setdefault(values if kind.is_known else kind, []).append(kind)
        found = []
        for kinds in alike.values():
            ranks = sorted(rank for kind in kinds for rank in kind.ranks)
            hosts = dict.fromkeys(host for kind in kinds for host in kind.hosts)
            profiles = dict.fromkeys(name or "none" for kind in kinds for name in kind.profiles)
            names = (some([*each], MOST_HOSTS) for each in (hosts, profiles))
            found.append([str(len(ranks)), in_runs(ranks), *names])
        return found

    def document(self) -> dict[str, Any]:
        """As data."""
        return {"alike": self.alike, "verdict": self.verdict, **asdict(self)}


class _DamagedError(ValueError):
    """A file is not as it should be, in words that follow its name."""


def merge(folder: str | os.PathLike[str]) -> Report:
    """Put together what ranks saved in a folder.

    Args:
        folder: that of `save`, or of `backendcfg run --save-ranks`.

    Raises:
        UnreadableFileError: the folder cannot be read.
        UsageError: no rank saved anything in it.
    """
    path = os.path.abspath(folder)
    try:
        names = sorted(name for name in os.listdir(path) if _FILE.fullmatch(name))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UnreadableFileError(
            f"cannot read {visible(path)}: {why}", helps=["give the folder of `run --save-ranks`"]
        ) from None
    if not names:
        if os.path.lexists(os.path.join(path, BEGAN)):
            raise UsageError(
                f"no rank saved anything in {visible(path)}, although a run began there",
                helps=[
                    "look for a rank that failed: launchers kill the others, and they save nothing",
                    "call `backendcfg.fleet.save(DIR)` in the ranks before they do what fails",
                ],
            )
        raise UsageError(
            f"no rank saved anything in {visible(path)}",
            helps=[
                "start ranks with `backendcfg run PROFILE --save-ranks DIR -- torchrun ...`",
                "call `backendcfg.fleet.save(DIR)` in ranks that no launcher gives a number",
            ],
        )
    return _merged(path, names)


def _merged(folder: str, names: Iterable[str]) -> Report:
    told: dict[int, Told] = {}
    earlier: dict[int, Told] = {}
    obstacles, damaged = [], set()
    for name in names:
        try:
            one = _told(folder, name)
        except _DamagedError as error:
            obstacles.append(f"{name} {error}")
            damaged.add(name)
        else:
            (earlier if is_earlier(folder, name) else told)[one.rank] = one
    size = _size(told or earlier, obstacles)
    if earlier:
        obstacles.append(
            f"{_named(sorted(earlier))}: saved before the last run with this folder began, and left"
            " out"
        )
    if several := [rank for rank, one in told.items() if one.processes > 1]:
        obstacles.append(
            f"{_named(several)}: saved by several processes, the last of which is told; give each"
            " run a folder of its own"
        )
    missing = [rank for rank in range(size) if rank not in told and name_of(rank) not in damaged]
    kinds = _kinds(told)
    contents = dict(_contents(folder, kinds, obstacles))
    kinds = tuple(replace(kind, is_known=kind.digest in contents) for kind in kinds)
    alike = {kind.ranks[0]: kind.ranks for kind in kinds if kind.digest in contents}
    hosts = {rank: one.host for rank, one in told.items()}
    settings, unlike = (
        tuple(differing({rank: contents[told[rank].digest][what] for rank in alike}, alike, hosts))
        for what in COMPARED
    )
    return Report(size, kinds, settings, unlike, tuple(missing), tuple(obstacles))


def _size(told: Mapping[int, Told], obstacles: list[str]) -> int:
    """How many ranks there are, as most ranks have it."""
    sizes = Counter(one.size for one in told.values())
    if not sizes:
        return 0
    size = max(sizes, key=lambda each: (sizes[each], each))
    if len(sizes) > 1:
        by_size: dict[int, list[int]] = {size: []}
        for rank, one in told.items():
            by_size.setdefault(one.size, []).append(rank)
        values = tuple((each, tuple(ranks)) for each, ranks in by_size.items())
        odd = dict.fromkeys(one.host for one in told.values() if one.size != size)
        obstacles.append(str(Setting("number of ranks", values, tuple(odd))))
    return size


def _kinds(told: Mapping[int, Told]) -> tuple[Kind, ...]:
    alike: dict[str, list[Told]] = {}
    for _, one in sorted(told.items()):
        alike.setdefault(one.digest, []).append(one)
    kinds = [
        Kind(
            key,
            tuple(one.rank for one in ones),
            tuple(dict.fromkeys(one.host for one in ones)),
            tuple(dict.fromkeys(one.profile for one in ones)),
        )
        for key, ones in alike.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: (-len(kind.ranks), kind.ranks[0])))


def _contents(
    folder: str, kinds: Iterable[Kind], obstacles: list[str]
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """What ranks of each kind compute with, by its digest, as far as there is memory for it."""
    left = MOST_CONTENTS
    for kind in kinds:
        name = f"{kind.digest}.json"
        try:
            content, length = _content(folder, name, kind.digest, min(left, MOST_CONTENT))
            left -= length
            yield kind.digest, content
        except _DamagedError as error:
            obstacles.append(f"{name}, of {_named(kind.ranks)}, {error}")


def _told(folder: str, name: str) -> Told:
    data, _ = _read(folder, name, MOST_TOLD)
    if not isinstance(data, dict):
        raise _DamagedError("is not what a rank saves")
    if type(data.get("version")) is int and data["version"] > VERSION:
        raise _DamagedError("was written by a later release of backendcfg")
    if data.pop("version", None) != VERSION or not _is_told(data):
        raise _DamagedError("is not what a rank saves")
    one = Told(**data)
    if name != name_of(one.rank):
        own = name_of(one.rank)
        raise _DamagedError(f"says that it is of rank {one.rank}, whose file is {own}")
    return one


def _is_told(data: dict[str, Any]) -> bool:
    if data.keys() != set(Told._fields):
        return False
    numbers = [data[key] for key in ("rank", "size", "processes")]
    texts = [data[key] for key in ("host", "profile", "process", "digest")]
    rank, size, processes = numbers
    return (
        all(type(one) is int for one in numbers)
        and 0 <= rank < size <= MOST_RANKS
        and processes > 0
        and all(isinstance(text, str) and len(text) <= LONGEST for text in texts)
        and _DIGEST.fullmatch(data["digest"]) is not None
    )


def _content(folder: str, name: str, key: str, most: int) -> tuple[dict[str, dict[str, Any]], int]:
    """What ranks compute with, and how many bytes its file has."""
    data, length = _read(folder, name, most)
    try:
        whole = digest(data) == key
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise _DamagedError("is not what its name says")
    if not (
        isinstance(data, dict)
        and data.keys() == _PARTS.keys()
        and all(_is_parts(data[what], names) for what, names in _PARTS.items())
    ):
        raise _DamagedError("is not what a rank computes with")
    return data, length


def _is_parts(data: Any, names: Iterable[str]) -> bool:
    """Whether these are parts of a token with the names and values that it can have."""
    return (
        isinstance(data, dict)
        and data.keys() == set(names)
        and all(isinstance(part, dict) and _is_shallow(part, DEEPEST) for part in data.values())
    )


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in value)


def _read(folder: str, name: str, most: int) -> tuple[Any, int]:
    """The document in a file, and how many bytes it has."""
    path = os.path.join(folder, name)
    try:
        with opened(path) as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise _DamagedError("is missing") from None
    except OSError as error:
        if os.path.islink(path):
            raise _DamagedError("is a link") from None
        # `opened` has no number for what is no plain file.
        what = f"cannot be read: {error.strerror}" if error.errno else "is not a plain file"
        raise _DamagedError(what) from None
    if len(data) > most:
        raise _DamagedError("is larger than any that a rank saves")
    try:
        return json.loads(data), len(data)
    except (ValueError, RecursionError):
        raise _DamagedError("has no JSON") from None


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {in_runs(ranks)}"


def in_runs(ranks: Iterable[int]) -> str:
    """Ranks as people read them: "0-7, 9"."""
    return some(ranges([*ranks]).split(","), MOST_RUNS)
