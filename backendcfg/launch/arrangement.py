"""Which processors this process may use, and which instance gets which.

The options mean what they mean to `torch.backends.xeon.run_cpu`, with these differences: processors
that this process may not use are never given out, an instance takes processors of one node before
those of the next whatever their numbers, and what cannot be done as asked is an error or a note.

Format of what is read: Documentation/admin-guide/cputopology.rst and
Documentation/ABI/stable/sysfs-devices-node of Linux. Where the kernel says nothing, every processor
is a core of its own on node 0: containers without /sys, and machines without NUMA.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from backendcfg.errors import InvalidArgumentError
from backendcfg.probe import text_of
from backendcfg.probe.limits import listed_processors, siblings
from backendcfg.resolve.words import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


@dataclass(frozen=True)
class Processor:
    """One logical processor.

    Attributes:
        number: the kernel's.
        core: the lowest number among the processors of its core.
        node: its memory node.
    """

    number: int
    core: int
    node: int


@dataclass(frozen=True)
class Topology:
    """The processors that this process may use, by node and number.

    Attributes:
        processors: of each node in turn.
        nodes: the memory nodes of the machine that have processors, usable here or not.
    """

    processors: tuple[Processor, ...]
    nodes: tuple[int, ...] = (0,)

    def logical(self, node: int | None = None) -> tuple[Processor, ...]:
        """Every processor, of one node or of all."""
        return tuple(each for each in self.processors if node in (None, each.node))

    def physical(self, node: int | None = None) -> tuple[Processor, ...]:
        """The first usable processor of each core, of one node or of all."""
        first: dict[int, Processor] = {}
        for each in self.logical(node):
            first.setdefault(each.core, each)
        return tuple(first.values())

    def of_rank(self, number: int, cores: int) -> Topology:
        """The processors of one rank, where each rank gets so many cores in turn."""
        every = self.physical()
        first = number * cores % len(every)
        own = {each.core for each in (*every[first:], *every[:first])[:cores]}
        return Topology(tuple(each for each in self.processors if each.core in own), self.nodes)

    def __str__(self) -> str:
        word = "core" if len(cores := self.physical()) == 1 else "cores"
        return f"{word} {ranges([each.number for each in cores])}"


def read(root: str = "/", *, allowed: Collection[int] | None = None) -> Topology:
    """The processors of this machine that may be used.

    Args:
        root: where /sys is found.
        allowed: numbers of the processors, instead of this process's affinity.
    """
    if allowed is None:
        allowed = os.sched_getaffinity(0)
    nodes = _nodes(os.path.join(root, "sys/devices/system/node"))
    home = {number: node for node, members in nodes.items() for number in members}
    found = [
        Processor(number, min(siblings(number, root)), home.get(number, 0)) for number in allowed
    ]
    found.sort(key=lambda each: (each.node, each.number))
    return Topology(tuple(found), tuple(sorted(nodes)) or (0,))


def ranges(found: Collection[int]) -> str:
    """The kernel list that names these processors: 0, 1, 2 and 8 are "0-2,8"."""
    parts: list[list[int]] = []
    for number in sorted(found):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in parts)


def _nodes(folder: str) -> dict[int, list[int]]:
    """The processors of each node that has any; some nodes are memory alone."""
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found: dict[int, list[int]] = {}
    for name in names:
        if re.fullmatch(r"node\d+", name):
            try:
                members = listed_processors(text_of(os.path.join(folder, name, "cpulist")))
            except ValueError:
                continue
            if members:
                found[int(name[4:])] = members
    return found


WHOLE = (0, 1)
"""All of each instance: the first of one part."""

LATENCY_CORES = 4
"""Cores of an instance in latency mode, as PyTorch has it."""


@dataclass(frozen=True)
class Request:
    """What is asked for; None where nothing is.

    Attributes:
        instances: how many.
        cores: how many cores each has.
        node: the only memory node to use.
        processors: the processors to use, in the order of giving them out.
        rank: the only instance to start.
        mode: "latency" for instances of four cores, "throughput" for one instance per node.
        logical: use every logical processor, not one of each core.
        skip_cross_node: give no instance processors of two nodes; leave some unused instead.
        part: the index and the number of equal parts, of which only one is used of each instance.
    """

    instances: int | None = None
    cores: int | None = None
    node: int | None = None
    processors: tuple[int, ...] | None = None
    rank: int | None = None
    mode: Literal["latency", "throughput", ""] = ""
    logical: bool = False
    skip_cross_node: bool = False
    part: tuple[int, int] = WHOLE


@dataclass(frozen=True)
class Share:
    """The processors of one instance, and the memory nodes they belong to."""

    rank: int
    processors: tuple[int, ...]
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        word = "core" if len(self.processors) == 1 else "cores"
        return f"instance {self.rank} on {word} {ranges(self.processors)}"


@dataclass(frozen=True)
class Arrangement:
    """The instances to start, and what their user should know."""

    shares: tuple[Share, ...]
    notes: tuple[str, ...] = ()


def listed(text: str | None) -> tuple[int, ...] | None:
    """The processors of a list in words, None for none.

    Raises:
        InvalidArgumentError: it is not such a list.
    """
    if text is None:
        return None
    try:
        return tuple(listed_processors(text))
    except ValueError as error:
        raise InvalidArgumentError(
            f'"{text}" is not a list of cores', helps=['write "0, 1, 2" or "0-2"']
        ) from error


def arrange(topology: Topology, request: Request, usable: int) -> Arrangement:
    """Give processors to instances.

    Args:
        topology: the processors that may be used.
        request: what is asked for.
        usable: processors' worth of time that this process has, by its cgroup's quota too.

    Raises:
        InvalidArgumentError: it cannot be done on the processors that may be used here.
    """
    _check(request)
    notes: list[str] = []
    pool = _pool(topology, request, notes)
    groups = _groups(pool, request, usable, notes)
    shares = [_share(rank, group, request) for rank, group in enumerate(groups)]
    if request.rank is not None:
        if request.rank >= len(shares):
            raise InvalidArgumentError(
                f"there is no instance {request.rank}: the instances are 0 to {len(shares) - 1}"
            )
        shares = [shares[request.rank]]
    taken = sum(len(share.processors) for share in shares)
    if taken > usable:
        notes.append(f"{_quota(usable)}, and {taken} cores are bound")
    notes += [
        f"{share} has memory of nodes {', '.join(map(str, share.nodes))};"
        " --skip-cross-node-cores leaves such cores unused"
        for share in shares
        if len(share.nodes) > 1 and len(shares) > 1
    ]
    return Arrangement(tuple(shares), tuple(notes))


def _check(request: Request) -> None:
    for value, name, least in (
        (request.instances, "instances", 1),
        (request.cores, "cores of an instance", 1),
        (request.rank, "rank", 0),
    ):
        if value is not None and value < least:
            raise InvalidArgumentError(f"the {name} must be {least} or more, not {value}")
    if request.processors is not None and request.node is not None:
        raise InvalidArgumentError("give a list of cores or a node, not both")


def _pool(topology: Topology, request: Request, notes: list[str]) -> tuple[Processor, ...]:
    """The processors to give out, in order."""
    if request.processors is not None:
        return _listed(topology, request.processors)
    node, logical = request.node, request.logical
    if request.mode:
        given = {"node": node is not None, "logical cores": logical}
        if ignored := [name for name, there in given.items() if there]:
            notes.append(f"{request.mode} mode takes every core; {' and '.join(ignored)} ignored")
        node, logical = None, False
    if node is not None and node not in topology.nodes:
        raise InvalidArgumentError(
            f"there is no memory node {node} here",
            notes=[f"nodes with processors: {', '.join(map(str, topology.nodes))}"],
        )
    pool = topology.logical(node) if logical else topology.physical(node)
    if not pool:
        raise InvalidArgumentError(
            f"this process may use no processor of node {node}",
            notes=[f"it may use {ranges([each.number for each in topology.processors])}"],
        )
    return pool


def _listed(topology: Topology, wanted: Sequence[int]) -> tuple[Processor, ...]:
    known = {each.number: each for each in topology.processors}
    missing = sorted(set(wanted) - known.keys())
    if missing:
        raise InvalidArgumentError(
            f"this process may not use processor {ranges(missing)}",
            notes=[f"it may use {ranges(known)}"],
        )
    if not wanted or len(set(wanted)) < len(wanted):
        raise InvalidArgumentError(
            "the list of cores names one twice, or none", helps=['write "0, 1, 2" or "0-2"']
        )
    return tuple(known[number] for number in wanted)


def _quota(usable: int) -> str:
    return f"the cgroup gives the time of {counted(usable, 'processor')}"


def _groups(
    pool: tuple[Processor, ...], request: Request, usable: int, notes: list[str]
) -> list[tuple[Processor, ...]]:
    """The processors of each instance."""
    count, cores = request.instances, request.cores
    if request.mode:
        if count is not None or cores is not None:
            notes.append(f"{request.mode} mode sets the number of instances and their cores")
        count, cores = None, None
    free = pool
    if len(pool) > usable and request.processors is None and not (count and cores):
        free = pool[:usable]
        if (cores or count or 1) <= usable:  # else more are used, which is told at the end
            notes.append(f"{usable} of {len(pool)} cores are used, because {_quota(usable)}")
    if request.mode == "throughput":
        by_node = [_of_node(free, node) for node in dict.fromkeys(each.node for each in free)]
        return [tuple(group) for group in by_node]
    if request.mode == "latency":
        cores = min(LATENCY_CORES, len(free))
    if count is not None and cores is None:
        cores = len(free) // count or len(pool) // count
    if cores is None:
        return [free]
    if cores > len(pool) or cores == 0 or (count or 1) * cores > len(pool):
        wanted = f"{count or 1} x {cores} cores" if cores else f"{count} instances"
        raise InvalidArgumentError(
            f"{wanted} are asked for, and {len(pool)} cores may be used",
            notes=[f"they are {ranges([each.number for each in pool])}"],
            helps=["ask for fewer instances, or for fewer cores of each"],
        )
    if request.skip_cross_node:
        groups = _inside_nodes(free if len(free) >= cores else pool, cores)
        if len(groups) < (count or 1):
            raise InvalidArgumentError(
                f"{count or 1} x {cores} cores are asked for, and the nodes hold {len(groups)}"
                f" instances of {cores} cores each",
                helps=["leave out --skip-cross-node-cores, or ask for fewer cores of each"],
            )
        return groups[:count]
    count = count or max(1, len(free) // cores)
    return [pool[first : first + cores] for first in range(0, count * cores, cores)]


def _inside_nodes(pool: Iterable[Processor], cores: int) -> list[tuple[Processor, ...]]:
    """Groups of so many processors, each of one node."""
    pool = tuple(pool)
    groups = []
    for node in dict.fromkeys(each.node for each in pool):
        members = _of_node(pool, node)
        whole = len(members) - len(members) % cores
        groups += [members[first : first + cores] for first in range(0, whole, cores)]
    return groups


def _of_node(pool: Iterable[Processor], node: int) -> tuple[Processor, ...]:
    return tuple(each for each in pool if each.node == node)


def _share(rank: int, group: tuple[Processor, ...], request: Request) -> Share:
    index, parts = request.part
    size = len(group) // parts
    if size == 0:
        raise InvalidArgumentError(
            f"{len(group)} cores cannot be divided among {parts} local ranks",
            helps=["start fewer ranks on this machine, or give each instance more cores"],
        )
    if parts > 1:
        group = group[index * size : (index + 1) * size]
    return Share(
        rank,
        tuple(each.number for each in group),
        tuple(sorted({each.node for each in group})),
    )
