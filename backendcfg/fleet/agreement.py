"""Whether ranks compute alike: digests first, and settings only of ranks whose digests differ.

Rank 0 reads a digest from every rank. Where these differ, one rank of each kind says all that is in
it, rank 0 finds the settings that differ, and tells them to all, so that every rank refuses with
the same words.
"""

from __future__ import annotations

import json
import socket
import time
import warnings
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from backendcfg.audit.token import digest, numerics_token
from backendcfg.errors import FleetDisagreesError, FleetTimeoutError, FleetWarning
from backendcfg.fleet.groups import group_of
from backendcfg.resolve.words import counted, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backendcfg.fleet.groups import Group

SETTINGS = ("switches", "flags", "facts", "variables", "libraries", "versions")
"""Parts of a token that must be the same in all ranks."""

HOST = ("processor", "devices")
"""Parts that say what a host is, and that nobody can set."""

GRACE = 10.0
"""Seconds that ranks wait for rank 0 longer than that does for them."""

MOST_ASKED = 32
"""Ranks that are asked for their settings at a time; further ones only where those are alike."""

MOST_NAMED = 8
"""Settings, and ranks of one value, that are named."""

FEW = 3
"""Ranks that have the value of most and that are named all the same."""

# They are right to differ: each rank has devices of its own, and a number of threads that holds for
# the thread that asks.
_OWN_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
_OWN_SWITCH = ".local_threads"


@dataclass(frozen=True)
class Setting:
    """Something that is not the same in all ranks.

    Attributes:
        name: "switches.torch.num_threads".
        values: each value with the ranks that have it, that of most ranks first.
        hosts: the hosts of the ranks that have another value than most.
    """

    name: str
    values: tuple[tuple[Any, tuple[int, ...]], ...]
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        (most, ranks), *others = self.values
        many = counted(len(ranks), "rank") if len(ranks) > FEW else _ranks(ranks)
        told = [f"{literal(most)} on {many}"]
        told += [f"{literal(value)} on {_ranks(which)}" for value, which in others]
        name = self.name.removeprefix("switches.")
        hosts = f" ({', '.join(self.hosts[:MOST_NAMED])})" if self.hosts else ""
        return f"{name}: {', '.join(told)}{hosts}"


@dataclass(frozen=True)
class Agreement:
    """What `agree` found where all ranks have the same settings.

    Attributes:
        size: how many ranks there are.
        unlike: what differs of their hosts: equal settings do not give equal bits on these.
    """

    size: int
    unlike: tuple[Setting, ...] = ()


def agree(group: Any = None, *, deadline: float = 60.0) -> Agreement:
    """Hold the settings of all ranks against each other, and refuse where they differ.

    Every rank of the group calls it, as it would call a collective operation. It uses none: ranks
    exchange digests through the store of `torch.distributed`, the coordination service of JAX, or
    messages of MPI. Call it when everything that computes is imported. A library that only some
    ranks have imported is no difference, nor is what a rank has of its own: its devices.

    Args:
        group: a process group of `torch.distributed` or a communicator of mpi4py; None for all
            ranks of whichever engine is initialised.
        deadline: seconds that ranks have from the first call to the last.

    Raises:
        FleetDisagreesError: ranks have other settings; it names them, in every rank alike.
        FleetTimeoutError: a rank did not call it in time.
        UsageError: no ranks were brought together in this process.
    """
    ranks = group_of(group)
    return compared(ranks, numerics_token().parts, socket.gethostname(), deadline)


def agree_or(what: str) -> None:
    """Ask all ranks to agree, and "refuse" or "warn" where they do not."""
    try:
        agree()
    except (FleetDisagreesError, FleetTimeoutError) as error:
        if what == "refuse":
            raise
        warnings.warn(error.render(), FleetWarning, stacklevel=3)


def compared(
    group: Group, parts: Mapping[str, Mapping[str, Any]], host: str, deadline: float
) -> Agreement:
    """What `agree` does, in a group and with the parts of a token that are given."""
    if group.size == 1:
        return Agreement(1)
    end = time.monotonic() + deadline
    call = f"backendcfg/agree/{group.name}/{next(group.calls)}"
    mine = {"settings": _settings(parts), "host": {name: dict(parts[name]) for name in HOST}}
    digests = [digest(mine["settings"]), digest(mine["host"])]
    said = json.dumps([*digests, host])
    if group.rank:
        group.tell(f"{call}/digest", said)
        answer = _answered(group, call, json.dumps(mine), end)
    else:
        answer = _gathered(group, call, mine, said, end)
    group.settle(GRACE)
    return _concluded(answer, group.size)


def _settings(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The parts that must be the same, without what each rank has of its own."""
    found = {name: dict(parts[name]) for name in SETTINGS}
    found["switches"] = {
        name: value for name, value in found["switches"].items() if not name.endswith(_OWN_SWITCH)
    }
    # Of one that a process changed there are two texts. Whoever launches the others in a process of
    # its own has it as they got it now.
    found["variables"] = {
        name: value[-1] if isinstance(value, (list, tuple)) else value
        for name, value in found["variables"].items()
        if name not in _OWN_VARIABLES
    }
    return found


def _answered(group: Group, call: str, mine: str, end: float) -> dict[str, Any]:
    """In another rank than 0: what rank 0 found, which may ask for settings before that."""
    for turn in count(1):
        text = group.ask(f"{call}/{turn}", 0, end + turn * GRACE - time.monotonic())
        if text is None:
            break
        answer: dict[str, Any] = json.loads(text)
        if "ask" not in answer:
            return answer
        if group.rank in answer["ask"]:
            group.tell(f"{call}/settings", mine)
    raise FleetTimeoutError(
        f"rank 0 of {group.size} did not answer in time",
        state="nothing was compared",
        helps=["call it in every rank, and look at what rank 0 printed"],
    )


def _gathered(
    group: Group, call: str, mine: dict[str, Any], digests: str, end: float
) -> dict[str, Any]:
    """In rank 0: what it finds, which it tells the others."""
    told = {0: json.loads(digests)}
    for rank in range(1, group.size):
        text = group.ask(f"{call}/digest", rank, max(0.0, end - time.monotonic()))
        if text is not None:
            told[rank] = json.loads(text)
    missing = [rank for rank in range(group.size) if rank not in told]
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, (settings, of_host, _) in told.items():
        alike.setdefault((settings, of_host), []).append(rank)
    kinds = {ranks[0]: tuple(ranks) for ranks in alike.values()}
    hosts = {rank: host for rank, (_, _, host) in told.items()}
    said, turn = {0: mine}, 0
    answer: dict[str, Any] = {}
    while not missing and len(said) < len(kinds) and not answer.get("settings"):
        turn += 1
        asked = [rank for rank in kinds if rank not in said][:MOST_ASKED]
        group.tell(f"{call}/{turn}", json.dumps({"ask": asked}))
        for rank in asked:
            if (text := group.ask(f"{call}/settings", rank, GRACE)) is None:
                missing.append(rank)
            else:
                said[rank] = json.loads(text)
        for what in ("settings", "host"):
            of = {rank: parts[what] for rank, parts in said.items()}
            answer[what] = [asdict(one) for one in differing(of, kinds, hosts)]
    if missing:
        answer = {"missing": missing}
    group.tell(f"{call}/{turn + 1}", json.dumps(answer))
    return answer


def differing(
    said: Mapping[int, Mapping[str, Mapping[str, Any]]],
    alike: Mapping[int, tuple[int, ...]],
    hosts: Mapping[int, str],
) -> list[Setting]:
    """What some ranks have otherwise; what some do not have at all is not.

    Args:
        said: by rank, the parts of its token.
        alike: by rank, those that are like it, itself among them.
        hosts: the names of all ranks' hosts.
    """
    values: dict[str, dict[str, list[int]]] = {}
    for rank, parts in said.items():
        for part, named in parts.items():
            for name, value in named.items():
                text = json.dumps(value, sort_keys=True)
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
            f"{_ranks(missing)} of {size} did not answer in time",
            state="every rank refuses; nothing was compared",
            helps=["start each rank with backendcfg, and look at what that one printed"],
        )
    found, unlike = (
        tuple(
            Setting(
                one["name"],
                tuple((value, tuple(ranks)) for value, ranks in one["values"]),
                tuple(one["hosts"]),
            )
            for one in answer.get(what, ())
        )
        for what in ("settings", "host")
    )
    if found:
        raise _refused(found, unlike, size)
    return Agreement(size, unlike)


def _refused(found: Sequence[Setting], unlike: Sequence[Setting], size: int) -> FleetDisagreesError:
    odd = {rank for one in found for _, ranks in one.values[1:] for rank in ranks}
    notes = [str(one) for one in found[:MOST_NAMED]]
    if (more := len(found) - MOST_NAMED) > 0:
        notes.append(f"and {counted(more, 'more setting')}")
    if unlike:
        notes.append(f"their hosts are not alike: {unlike[0]}")
    others = f"other {size - len(odd)}" if size - len(odd) > 1 else "other"
    return FleetDisagreesError(
        f"{len(odd)} of {size} ranks compute{'s' * (len(odd) == 1)} otherwise than the {others}",
        notes=notes,
        state="every rank refuses",
        helps=["start all under one profile: `backendcfg run reproducible -- torchrun ...`"],
    )


def _ranks(ranks: Iterable[int]) -> str:
    """Ranks by their numbers: "rank 3", "ranks 3, 7 and 4 more"."""
    numbers = [str(rank) for rank in ranks]
    more = len(numbers) - MOST_NAMED
    shown = numbers[:MOST_NAMED]
    words = f"{', '.join(shown)} and {more} more" if more > 0 else ", ".join(shown)
    return f"rank{'s' if len(numbers) > 1 else ''} {words}"
