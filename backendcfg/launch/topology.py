"""Which processors this process may use, which share a core, and which memory is near them.

Format: Documentation/admin-guide/cputopology.rst and Documentation/ABI/stable/sysfs-devices-node
of Linux. Where the kernel says nothing, every processor is a core of its own on node 0: containers
without /sys, and machines without NUMA.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg.probe import text_of
from backendcfg.probe.cores import numbers, siblings

if TYPE_CHECKING:
    from collections.abc import Collection


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
    home = {number: node for node, numbers in nodes.items() for number in numbers}
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
                members = numbers(text_of(os.path.join(folder, name, "cpulist")))
            except ValueError:
                continue
            if members:
                found[int(name[4:])] = members
    return found
