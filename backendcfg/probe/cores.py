"""How many cores this process should compute on: its own, divided among the ranks of a launcher.

Two hardware threads of one core share its arithmetic units, so a core counts once. Where a launcher
starts several ranks on this machine and binds none of them, every rank sees all cores; each then
gets an equal part of what the launcher may use. Standard library only: a starting process compares
the number with that of a stored plan.

Sources: Documentation/admin-guide/cputopology.rst of Linux; the variables of torchrun, Open MPI,
MVAPICH2, MPICH's Hydra, Intel MPI and srun(1).
"""

from __future__ import annotations

import os

from backendcfg import environ
from backendcfg.probe import text_of
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from backendcfg.probe.limits import Limits

# The rank on this machine, and how many there are. The first is the innermost where launchers start
# each other: `srun torchrun`.
_LAUNCHERS = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


@record(frozen=True)
class Rank:
    """One of several processes that a launcher started on this machine.

    Attributes:
        variable: that has the rank.
        number: of this process among them.
        size: how many there are.
    """

    variable: str
    number: int
    size: int


@record(frozen=True)
class Cores:
    """What this process should compute on.

    Attributes:
        count: how many, at least 1.
        rank: which rank it is, where it shares the cores that it may use with other ranks.
    """

    count: int
    rank: Rank | None = None

    @property
    def sentence(self) -> str:
        """Why it should not compute on all that it may use, in words, or ""."""
        if self.rank is None:
            return ""
        return f"rank {self.rank.number} of {self.rank.size} here, by {self.rank.variable}"


def read_cores(limits: Limits, root: str = "/") -> Cores:
    """The cores of this process.

    Args:
        limits: what it may use.
        root: where /proc and /sys are found.
    """
    own = limits.usable
    if hasattr(os, "sched_getaffinity"):
        own = min(own, count_cores(os.sched_getaffinity(0), root))
    rank = local_rank(environ.current())
    if rank is None:
        return Cores(own)
    all_ranks, shares_quota = _of_launcher(rank, root)
    if shares_quota and limits.quota is not None:
        all_ranks = min(all_ranks, limits.whole_quota)
    part = max(1, all_ranks // rank.size)
    if part >= own:
        return Cores(own)  # the launcher has bound this rank already
    return Cores(part, rank)


processors: list[int] = []
"""Those of this process, before an OpenMP runtime bound its first thread to one."""


def note_processors() -> None:
    """Remember the processors of this process."""
    if not processors and hasattr(os, "sched_getaffinity"):
        processors.extend(sorted(os.sched_getaffinity(0)))


def local_rank(environment: Mapping[str, str]) -> Rank | None:
    """Which of several ranks on this machine a process is, or None where it is the only one."""
    for variable, counted in _LAUNCHERS:
        number, text = environment.get(variable, ""), environment.get(counted, "")
        if not number.isdecimal():
            continue
        size = _tasks_here(text, environment) if counted.startswith("SLURM") else _number(text)
        if size:
            return Rank(variable, int(number), size) if size > 1 else None
    return None


def count_cores(processors: Collection[int], root: str = "/") -> int:
    """How many cores logical processors belong to; each its own where the kernel does not say."""
    cpus = os.path.join(root, "sys/devices/system/cpu")
    if text_of(os.path.join(cpus, "smt/active")).strip() == "0":
        return len(processors)
    left, cores = set(processors), 0
    while left:
        number = min(left)
        left.difference_update(siblings(number, root))
        cores += 1
    return cores


def siblings(number: int, root: str = "/") -> list[int]:
    """The processors that share a core with one, itself among them, in order."""
    folder = os.path.join(root, f"sys/devices/system/cpu/cpu{number}/topology")
    for name in ("core_cpus_list", "thread_siblings_list"):
        try:
            found = numbers(text_of(os.path.join(folder, name)))
        except ValueError:
            continue
        if number in found:
            return found
    return [number]


def numbers(ranges: str) -> list[int]:
    """The processors that a kernel list names: "0-2,8" is 0, 1, 2 and 8.

    Raises:
        ValueError: it is not such a list.
    """
    found: list[int] = []
    for part in filter(None, (part.strip() for part in ranges.split(","))):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _of_launcher(rank: Rank, root: str) -> tuple[int, bool]:
    """The cores that a launcher may use, and whether it is in the cgroup of its rank.

    The launcher is the nearest ancestor that is not this rank: shells and wrappers between them
    inherit the rank's variable.
    """
    wanted = f"{rank.variable}={rank.number}".encode()
    process = os.getpid()
    while (parent := _parent(process, root)) > 1:
        process = parent
        # Of another user's process it cannot be read, and that is no rank of ours.
        if wanted not in _bytes_of(os.path.join(root, f"proc/{process}/environ")).split(b"\0"):
            break
    try:
        mask: Collection[int] = os.sched_getaffinity(max(parent, 1))
    except OSError:
        mask = os.sched_getaffinity(0)
    groups = [_bytes_of(os.path.join(root, f"proc/{each}/cgroup")) for each in ("self", process)]
    return count_cores(mask, root), groups[0] == groups[1]


def _parent(process: int, root: str) -> int:
    # The name of the program, in brackets, may have spaces and brackets.
    fields = text_of(os.path.join(root, f"proc/{process}/stat")).rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _tasks_here(text: str, environment: Mapping[str, str]) -> int:
    """The tasks of a Slurm step on this node, of a list as "2(x3),1"."""
    import re  # not where no Slurm is: a start has little time

    node = _number(environment.get("SLURM_NODEID", ""))
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            return 0
        nodes = int(found[2] or 1)
        if node < nodes:
            return int(found[1])
        node -= nodes
    return 0


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
