"""Whether ranks compute alike: digests first, and settings only of ranks whose digests differ.

Rank 0 says that it has begun, and only then do the others tell it their digests: one which gave up
before has told nothing. Where digests differ, one rank of each kind tells its settings. Rank 0
finds those that differ and tells all, so that every rank refuses with the same words. It ends
when the others have read them, as it may be the one that keeps what is told.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from backendcfg.audit.token import digest, numerics_token
from backendcfg.errors import FleetDisagreesError, FleetTimeoutError, FleetWarning
from backendcfg.fleet.groups import group_of
from backendcfg.resolve.words import counted, literal, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backendcfg.fleet.groups import Group

SETTINGS = ("switches", "flags", "facts", "variables", "libraries", "versions")
"""Parts of a token that must be the same in all ranks."""

WHOLE = ("flags", "variables")
"""Those of them that do not depend on what a rank has imported: not to have one is a difference."""

HOST = ("processor", "devices")
"""Parts that say what a host is, and that nobody can set."""

COMPARED = ("settings", "host")
"""What is compared apart from each other."""

DEADLINE = 60.0
"""Seconds that ranks wait for one that has not called, unless said otherwise."""

DEADLINE_AT_START = 300.0
"""The same where a profile asks: ranks that have just come together may be minutes apart."""

GRACE = 10.0
"""Seconds that a rank has to answer a question, and to read the answer."""

_STATE = "nothing was compared"

MOST_ASKED = 32
"""Ranks that are asked for their settings at a time; further ones only where those are alike."""

MOST_NAMED = 8
"""Settings, values of one, and ranks of a value that are named."""

MOST_TEXT = 120
"""Characters of a value that are told: a processor has hundreds of features."""

FEW = 3
"""Ranks that have the value of most and that are named all the same."""

# They are right to differ: each rank has devices and processors of its own, and a number of threads
# that holds for the thread that asks.
OWN = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "JAX_LOCAL_DEVICE_IDS",
    "JAX_PARTITION_INDEX",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "OMP_PLACES",
)
_OWN_ENDINGS = (".local_threads", "_visible_devices")
_READ_AT_START = ("PYTHONHASHSEED",)
_UNKNOWN = "unreadable"
"""A switch that cannot be read yet, such as one of CUDA in a rank that has not used it."""


@dataclass(frozen=True)
class Setting:
    """Something that is not the same in all ranks.

    Attributes:
        name: "switches.torch.num_threads".
        values: each value with the ranks that have it, that of most ranks first; None where it is
            not set.
        hosts: the hosts of the ranks that have another value than most.
        kind: what the ranks are called; workers of Ray and Dask have names instead of numbers.
    """

    name: str
    values: tuple[tuple[Any, tuple[Any, ...]], ...]
    hosts: tuple[str, ...] = ()
    kind: str = "rank"

    def __str__(self) -> str:
        (_, ranks), *others = self.values
        many = counted(len(ranks), self.kind)
        most, *values = _apart([shown(value) for value, _ in self.values[: 1 + MOST_NAMED]])
        told = [f"{most} on {many if len(ranks) > FEW else _named(ranks, self.kind)}"]
        for value, (_, which) in zip(values, others, strict=False):
            told.append(f"{value} on {_named(which, self.kind)}")
        if (more := len(others) - MOST_NAMED) > 0:
            told.append(f"and {counted(more, 'more value')}")
        name = self.name.removeprefix("switches.")
        hosts = f" ({', '.join(self.hosts[:MOST_NAMED])})" if self.hosts else ""
        return f"{name}: {', '.join(told)}{hosts}"

    def named(self, names: Sequence[Any], kind: str = "rank") -> Setting:
        """The same with other numbers or names for its ranks."""
        values = ((value, tuple(names[rank] for rank in ranks)) for value, ranks in self.values)
        return replace(self, values=tuple(values), kind=kind)


@dataclass(frozen=True)
class Agreement:
    """What `agree` found where all ranks have the same settings.

    Attributes:
        size: how many ranks there are.
        unlike: what differs of their hosts: equal settings do not give equal bits on these.
    """

    size: int
    unlike: tuple[Setting, ...] = ()


def agree(group: Any = None, *, deadline: float = DEADLINE) -> Agreement:
    """Hold the settings of all ranks against each other, and refuse where they differ.

    Every rank of the group calls it, as it would call a collective operation. It uses none: ranks
    exchange digests through the store of `torch.distributed`, the coordination service of JAX, or
    messages of MPI. Call it when everything that computes is imported. A library that only some
    ranks have imported is no difference, nor is what a rank has of its own: its devices.

    Args:
        group: a process group of `torch.distributed` or a communicator of mpi4py; None for all
            ranks of whichever engine is initialised.
        deadline: seconds for which a rank waits for rank 0 to call it, and that for the others.

    Raises:
        FleetDisagreesError: ranks have other settings; it names them, in every rank alike.
        FleetTimeoutError: a rank did not call it in time, or has ended meanwhile.
        UsageError: no ranks were brought together in this process.
    """
    return _agree(group_of(group), deadline)


def _agree(ranks: Group, deadline: float) -> Agreement:
    # The first token takes a quarter of a second, which a program of one rank is to be spared.
    if ranks.size == 1:
        return Agreement(1)
    return compared(ranks, numerics_token().parts, socket.gethostname(), deadline)


def agree_or(what: str, engine: str) -> None:
    """Ask all ranks of an engine to agree, and "refuse" or "warn" where they do not."""
    try:
        _agree(group_of(engine=engine), DEADLINE_AT_START)
    except (FleetDisagreesError, FleetTimeoutError) as error:
        if what == "refuse":
            raise
        error.state = "the program goes on"
        warnings.warn(error.render(), FleetWarning, stacklevel=3)


def compared(
    group: Group, parts: Mapping[str, Mapping[str, Any]], host: str, deadline: float
) -> Agreement:
    """What `agree` does, in a group and with the parts of a token that are given."""
    call = f"backendcfg/agree/{group.name}/{next(group.calls)}"
    mine = compared_parts(parts)
    said = json.dumps([*map(digest, mine.values()), host])
    if group.rank:
        answer = _answered(group, call, said, json.dumps(mine, default=str), deadline)
    else:
        answer = _gathered(group, call, said, mine, deadline)
    return _concluded(answer, group.size)


def agreed(
    workers: Mapping[str, tuple[str, Mapping[str, Mapping[str, Any]]]],
    cure: str,
    kind: str = "worker",
) -> Agreement:
    """Hold the settings of workers against each other that have told them already.

    Args:
        workers: by its name, each one's host and the parts of its token.
        cure: what to do where they differ.
        kind: what they are called.

    Raises:
        FleetDisagreesError: they have other settings.
    """
    names = list(workers)
    told, parts = {}, {}
    for rank, (host, each) in enumerate(workers.values()):
        parts[rank] = compared_parts(each)
        told[rank] = [*map(digest, parts[rank].values()), host]
    kinds, hosts = _kinds(told)
    settings, unlike = (
        tuple(
            one.named(names, kind)
            for one in differing({rank: parts[rank][what] for rank in kinds}, kinds, hosts)
        )
        for what in COMPARED
    )
    if settings:
        raise _refused(
            settings,
            unlike,
            len(names),
            all_asked=True,
            kind=kind,
            state="they go on",
            cure=cure,
        )
    return Agreement(len(names), unlike)


def compared_parts(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """What is compared of a token: its settings, and what its host is."""
    return {"settings": settings_of(parts), "host": {name: dict(parts[name]) for name in HOST}}


def settings_of(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The parts that must be the same, without what each rank has of its own."""
    return {
        part: {
            name: _comparable(name, value)
            for name, value in parts[part].items()
            if name not in OWN and not name.endswith(_OWN_ENDINGS) and value != _UNKNOWN
        }
        for part in SETTINGS
    }


def _comparable(name: str, value: Any) -> Any:
    """A setting without the number of a device, and without what a variable was before."""
    if name.endswith("default_device") and isinstance(value, str):
        return value.partition(":")[0]
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not name.isupper():
        return value
    # A variable that the process changed. Whoever launches the other ranks in a process of its own
    # has it now as they got it.
    return value[0 if name in _READ_AT_START else 1]


def _answered(group: Group, call: str, said: str, mine: str, deadline: float) -> dict[str, Any]:
    """In another rank than 0: what rank 0 found, which may ask for settings before that."""
    begun = group.ask(f"{call}/begun", 0, deadline)
    if begun is not None:
        # Another one each time: where ranks come together anew, old answers may still be there.
        call = f"{call}/{begun}"
        group.tell(f"{call}/digest", said)
        wait = deadline + GRACE
        for turn in count(1):
            text = group.ask(f"{call}/{turn}", 0, wait)
            if text is None:
                break
            answer: dict[str, Any] = json.loads(text)
            if "ask" not in answer:
                with suppress(FleetTimeoutError):
                    group.tell(f"{call}/read", "")
                return answer
            if group.rank in answer["ask"]:
                group.tell(f"{call}/settings", mine)
            wait = 2 * GRACE
    raise FleetTimeoutError(
        f"rank {group.names[0]} did not answer in time",
        state=_STATE,
        helps=["call it in every rank, and look at what that one printed"],
    )


def _gathered(
    group: Group, call: str, said: str, mine: dict[str, Any], deadline: float
) -> dict[str, Any]:
    """In rank 0: what it finds, which it tells the others."""
    begun, nonce = f"{call}/begun", secrets.token_hex(4)
    group.tell(begun, nonce)
    call = f"{call}/{nonce}"
    told = {0: said, **_told(group, f"{call}/digest", range(1, group.size), deadline)}
    kinds, hosts = _kinds({rank: json.loads(text) for rank, text in told.items()})
    missing = [rank for rank in range(group.size) if rank not in told]
    settings, turn = {0: mine}, 0
    found: dict[str, list[Setting]] = {}
    while not missing and len(settings) < len(kinds) and not found.get("settings"):
        turn += 1
        asked = [rank for rank in kinds if rank not in settings][:MOST_ASKED]
        group.tell(f"{call}/{turn}", json.dumps({"ask": asked}))
        texts = _told(group, f"{call}/settings", asked, GRACE)
        missing = [rank for rank in asked if rank not in texts]
        settings |= {rank: json.loads(text) for rank, text in texts.items()}
        for what in COMPARED:
            of = {rank: parts[what] for rank, parts in settings.items()}
            found[what] = differing(of, kinds, hosts)
    answer: dict[str, Any] = {
        what: [asdict(one.named(group.names)) for one in each] for what, each in found.items()
    }
    answer["all asked"] = len(settings) == len(kinds)
    if missing:
        answer = {"missing": [group.names[rank] for rank in missing]}
    group.tell(f"{call}/{turn + 1}", json.dumps(answer))
    _told(group, f"{call}/read", [rank for rank in told if rank and rank not in missing], GRACE)
    group.forget(begun)
    return answer


def _told(group: Group, key: str, ranks: Iterable[int], seconds: float) -> dict[int, str]:
    """What ranks tell within so many seconds for all of them."""
    end = time.monotonic() + seconds
    texts = {rank: group.ask(key, rank, max(0.0, end - time.monotonic())) for rank in ranks}
    return {rank: text for rank, text in texts.items() if text is not None}


def _kinds(
    told: Mapping[int, Sequence[str]],
) -> tuple[dict[int, tuple[int, ...]], dict[int, str]]:
    """The first rank of each kind, with all that are like it; and the host of each rank."""
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, (settings, of_host, _) in told.items():
        alike.setdefault((settings, of_host), []).append(rank)
    kinds = {ranks[0]: tuple(ranks) for ranks in alike.values()}
    return kinds, {rank: host for rank, (_, _, host) in told.items()}


def differing(
    said: Mapping[int, Mapping[str, Mapping[str, Any]]],
    alike: Mapping[int, tuple[int, ...]],
    hosts: Mapping[int, str],
) -> list[Setting]:
    """What some ranks have otherwise.

    What some do not have at all is, too, in the parts of WHOLE; in others it was imported later.

    Args:
        said: by rank, the parts of its token.
        alike: by rank, those that are like it, itself among them.
        hosts: the names of all ranks' hosts.
    """
    values: dict[str, dict[str, list[int]]] = {}
    whole = {
        part: dict.fromkeys(name for parts in said.values() for name in parts.get(part, ()))
        for part in WHOLE
    }
    for rank, parts in said.items():
        for part, named in parts.items():
            for name, value in {**whole.get(part, {}), **named}.items():
                text = json.dumps(value, sort_keys=True, default=str)
                values.setdefault(f"{part}.{name}", {}).setdefault(text, []).extend(alike[rank])
    found = []
    for name, by_value in sorted(values.items()):
        if len(by_value) > 1:
            order = sorted(by_value.items(), key=lambda each: (-len(each[1]), min(each[1])))
            others = sorted(rank for _, ranks in order[1:] for rank in ranks)
            found.append(
                Setting(
                    name,
                    tuple((json.loads(text), tuple(sorted(ranks))) for text, ranks in order),
                    tuple(dict.fromkeys(hosts[rank] for rank in others)),
                )
            )
    return found


def _concluded(answer: Mapping[str, Any], size: int) -> Agreement:
    if missing := answer.get("missing"):
        raise FleetTimeoutError(
            f"{_named(missing)} did not answer in time",
            state=f"every rank refuses; {_STATE}",
            helps=["start each rank with backendcfg, and look at what that one printed"],
        )
    found, unlike = (tuple(map(_setting, answer.get(what, ()))) for what in COMPARED)
    if found:
        raise _refused(found, unlike, size, all_asked=answer["all asked"])
    return Agreement(size, unlike)


def _setting(document: Mapping[str, Any]) -> Setting:
    values = tuple((value, tuple(ranks)) for value, ranks in document["values"])
    return Setting(document["name"], values, tuple(document["hosts"]))


def _refused(
    found: Sequence[Setting],
    unlike: Sequence[Setting],
    size: int,
    *,
    all_asked: bool,
    kind: str = "rank",
    state: str = "every rank refuses",
    cure: str = "",
) -> FleetDisagreesError:
    notes = [str(one) for one in found[:MOST_NAMED]]
    if (more := len(found) - MOST_NAMED) > 0:
        notes.append(f"and {counted(more, 'more setting')}")
    if unlike:
        notes.append(f"their hosts are not alike: {unlike[0]}")
    what = unlike_in_words(found, size, kind, all_asked=all_asked)
    return FleetDisagreesError(what, notes=notes, state=state, helps=[cure or _cure(found)])


def _cure(found: Sequence[Setting]) -> str:
    """What makes ranks agree, by what differs."""
    flags = {one.name for one in found if one.name.startswith("flags.")}
    if flags and all(name.startswith("flags.threads.") for name in flags):
        return "give all ranks as many cores, or set `threads.count` to a number"
    return "start all under one profile: `backendcfg run reproducible -- LAUNCHER ...`"


def unlike_in_words(
    found: Sequence[Setting], size: int, kind: str = "rank", *, all_asked: bool = True
) -> str:
    """How many ranks are odd ones, where those are few: "1 of 4 ranks computes otherwise ...".

    Args:
        found: the settings that differ.
        size: how many ranks there are.
        kind: what they are called.
        all_asked: whether one of each kind has told its settings.
    """
    odd = len({rank for one in found for _, ranks in one.values[1:] for rank in ranks})
    if all_asked and 2 * odd < size:
        does = "computes" if odd == 1 else "compute"
        return f"{odd} of {size} {kind}s {does} otherwise than the other {size - odd}"
    return f"{size} {kind}s do not compute alike"


def shown(value: Any) -> str:
    """A value of a setting, which may not be set at all."""
    return "unset" if value is None else literal(value)


def _apart(texts: Sequence[str]) -> list[str]:
    """Texts as they are, or of long ones what is around the place where they begin to differ."""
    if max(map(len, texts)) <= MOST_TEXT:
        return [*texts]
    # What the first and the last by alphabet have in common, all have.
    pairs = zip(min(texts), max(texts), strict=False)
    same = sum(1 for _ in takewhile(lambda two: two[0] == two[1], pairs))
    start = max(0, same - MOST_TEXT // 4)
    found = [
        "..." * (start > 0)
        + text[start : start + MOST_TEXT]
        + "..." * (len(text) > start + MOST_TEXT)
        for text in texts
    ]
    if len(set(found)) == len(set(texts)):
        return found
    # Some part later only.
    return [f"{part} ({digest(text)})" for part, text in zip(found, texts, strict=True)]


def _named(ranks: Iterable[Any], kind: str = "rank") -> str:
    """Ranks by their numbers: "rank 3", "ranks 3, 7 and 4 more"."""
    numbers = [str(rank) for rank in ranks]
    return f"{kind}{'s' if len(numbers) > 1 else ''} {some(numbers, MOST_NAMED)}"
