"""How much of the machine this process may use: affinity, cgroups, memory, and cores to compute on.

Two hardware threads of one core share its arithmetic units, so a core counts once. Where a launcher
starts several ranks on this machine and binds none of them, every rank sees all cores; each then
gets an equal part of what the launcher may use.

Standard library only: a starting process compares this with what a stored plan was made for.
Every file is read below a root that tests replace. Formats: cgroups(7), proc_pid_mountinfo(5),
Documentation/admin-guide/cgroup-v1, cgroup-v2.rst and cputopology.rst of Linux; the variables of
torchrun, Open MPI, MVAPICH2, MPICH's Hydra, Intel MPI and srun(1).
"""

from __future__ import annotations

import os

from backendcfg import environ
from backendcfg.probe import text_of
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


_CONTROLLERS = ("cpu", "cpuset", "memory")

MOST_DIGITS = 9
"""Of the number of a rank, and of how many there are."""


@record(frozen=True)
class Limits:
    """What holds for this process.

    Attributes:
        logical: logical processors of the machine.
        affinity: processors it may be scheduled on.
        cpuset: processors of its cgroup, or 0 when unknown.
        quota: processors' worth of time, as 1.5, or None.
        version: which cgroup set the quota: "cgroup v1", "cgroup v2" or "".
        memory: the least memory limit in bytes, or None.
    """

    logical: int
    affinity: int
    cpuset: int = 0
    quota: float | None = None
    version: str = ""
    memory: int | None = None

    @property
    def usable(self) -> int:
        """Processors to compute on: the least of all, a part of one counting as one, at least 1."""
        bounds = [self.logical, self.affinity]
        if self.cpuset:
            bounds.append(self.cpuset)
        if self.quota is not None:
            bounds.append(self.whole_quota)
        return max(1, min(bounds))

    @property
    def whole_quota(self) -> int:
        """The quota rounded up, since half a processor still runs one thread; 0 for none."""
        return -int(-(self.quota or 0) // 1)  # ceil without importing math

    def sentences(self) -> tuple[str, ...]:
        """What lowers `usable`, in words."""
        said = []
        if 0 < self.cpuset < self.logical:
            said.append(f"cpuset: {self.cpuset} of {self.logical}")
        # The kernel keeps the affinity inside the cpuset; equal numbers are one limit.
        if self.affinity < self.logical and self.affinity != self.cpuset:
            said.append(f"affinity: {self.affinity} of {self.logical}")
        if self.quota is not None and self.quota < self.logical:
            said.append(f"{self.version}: {self.quota:g} of {self.logical}")
        return tuple(said)


@record(frozen=True)
class _Group:
    """One cgroup directory that governs this process: which controllers, which version."""

    path: str
    version: int
    controllers: set[str]


def read_limits(
    root: str = "/", *, affinity: int | None = None, logical: int | None = None
) -> Limits:
    """The limits of this process.

    Args:
        root: where /proc and /sys are found.
        affinity: processors of the affinity mask, instead of asking the kernel.
        logical: processors of the machine, instead of asking the kernel.
    """
    if logical is None:
        logical = os.cpu_count() or 1
    if affinity is None:
        affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    quota: float | None = None
    version = ""
    memory: int | None = None
    cpuset = 0
    for group in _groups(root):
        if "cpu" in group.controllers:
            found = _quota(group)
            if found is not None and (quota is None or found < quota):
                quota, version = found, f"cgroup v{group.version}"
        if "memory" in group.controllers:
            limit = _memory(group)
            if limit is not None and (memory is None or limit < memory):
                memory = limit
        if "cpuset" in group.controllers:
            count = _cpuset(group)
            cpuset = min(cpuset or count, count) if count else cpuset
    return Limits(logical, affinity, min(cpuset, logical), quota, version, memory)


def total_memory(root: str = "/") -> int:
    """Main memory in bytes, 0 when the system does not say."""
    for line in _text(os.path.join(root, "proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if root == "/" else 0
    except (AttributeError, ValueError, OSError):
        return 0


def count_listed(ranges: str) -> int:
    """How many processors a kernel list names: "0-3,8" is 5."""
    try:
        return len(listed_processors(ranges))
    except ValueError:
        return 0


def _groups(root: str) -> Iterator[_Group]:
    """The cgroups of this process and every ancestor that is visible here."""
    mounts = _mounts(root)
    for line in _text(os.path.join(root, "proc/self/cgroup")).split("\n"):
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            wanted, kind = set(_CONTROLLERS), "cgroup2"
        else:
            wanted, kind = set(names.split(",")) & set(_CONTROLLERS), "cgroup"
        for mounted, mount_root, mount_kind, options in mounts:
            if mount_kind != kind or not wanted:
                continue
            if kind == "cgroup" and not set(options) & wanted:
                continue
            version = 2 if kind == "cgroup2" else 1
            for directory in _upwards(mounted, _below(mounted, mount_root, path)):
                yield _Group(directory, version, wanted)
            break


def _mounts(root: str) -> list[tuple[str, str, str, list[str]]]:
    """Mounted cgroup hierarchies: directory, its root in the hierarchy, type, options."""
    found = []
    for line in _text(os.path.join(root, "proc/self/mountinfo")).split("\n"):
        before, separator, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if not separator or len(left) < 5 or len(right) < 3:
            continue
        if right[0] in {"cgroup", "cgroup2"}:
            # Spaces in paths are written \040.
            place = left[4].replace("\\040", " ").lstrip("/")
            found.append((os.path.join(root, place), left[3], right[0], right[2].split(",")))
    return found


def _below(mounted: str, mount_root: str, path: str) -> str:
    """Where a process's cgroup is on disk.

    Inside a container the mount shows a part of the hierarchy, or the path is that of the host
    and not here at all; what is mounted is then the group itself.
    """
    if mount_root != "/":
        path = path.removeprefix(mount_root) if (path + "/").startswith(mount_root + "/") else "/"
    if ".." in path.split("/"):
        return mounted
    directory = os.path.join(mounted, path.lstrip("/")).rstrip("/")
    return directory if os.path.isdir(directory) else mounted


def _upwards(top: str, directory: str) -> Iterator[str]:
    """A directory and its parents up to the mount: a limit on any of them binds."""
    top = top.rstrip("/")
    while True:
        yield directory
        if len(directory) <= len(top):
            return
        directory = os.path.dirname(directory)


def _quota(group: _Group) -> float | None:
    if group.version == 2:
        words = _text(os.path.join(group.path, "cpu.max")).split()
        if len(words) != 2 or words[0] == "max":
            return None
        quota, period = words
    else:
        quota = _text(os.path.join(group.path, "cpu.cfs_quota_us")).strip()
        period = _text(os.path.join(group.path, "cpu.cfs_period_us")).strip()
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def _memory(group: _Group) -> int | None:
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    text = _text(os.path.join(group.path, name)).strip()
    # Version 1 writes "no limit" as the largest multiple of a page below 2**63.
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def _cpuset(group: _Group) -> int:
    names = ("cpuset.cpus.effective",) if group.version == 2 else ("cpuset.effective_cpus",)
    for name in (*names, "cpuset.cpus"):
        if count := count_listed(_text(os.path.join(group.path, name))):
            return count
    return 0


def _text(path: str) -> str:
    """A file that may name cgroups, whose names may have any bytes."""
    return text_of(path, has_names=True)


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
    """One of several processes that a launcher started, on this machine or in a job.

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
        worker: whose worker or task it is, in words, where it has less than all that it may use.
    """

    count: int
    rank: Rank | None = None
    worker: str = ""

    @property
    def sentence(self) -> str:
        """Why it should not compute on all that it may use, in words, or ""."""
        if self.rank is None:
            return self.worker
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
    share, _ = given_share()
    if share is not None and share < own:
        return Cores(share, worker="a worker of a pool, which shares the cores out")
    environment = environ.copy()
    rank = local_rank(environment)
    # Slurm binds to what was asked for only where its administrator set a plugin for that. In a
    # script that is to start several tasks, a process is none of them.
    asked = _number(environment.get("SLURM_CPUS_PER_TASK", ""))
    if 0 < asked < own and (rank is not None or environment.get("SLURM_NTASKS", "1") == "1"):
        own, of_slurm = asked, f"a task of Slurm, to which SLURM_CPUS_PER_TASK gives {asked}"
    else:
        of_slurm = ""
    if rank is None:
        shares = is_worker_of_ray() and own > 1
        ray = "a worker of Ray, which starts one for each processor"
        return Cores(1, worker=ray) if shares else Cores(own, worker=of_slurm)
    all_ranks, shares_quota = _of_launcher(rank, root)
    if of_slurm and not rank.variable.startswith("SLURM"):
        all_ranks = min(all_ranks, own)  # they share what the task has
    if shares_quota and limits.quota is not None:
        all_ranks = min(all_ranks, limits.whole_quota)
    part = max(1, all_ranks // rank.size)
    if part >= own:
        return Cores(own, worker=of_slurm)  # the launcher has bound this rank already
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
        if not number.isdecimal() or len(number) > MOST_DIGITS:
            continue
        size = _tasks_here(text, environment) if counted.startswith("SLURM") else _number(text)
        if size:
            return Rank(variable, int(number), size) if size > 1 else None
    return None


_OURS = " each"
"""What follows the number in BACKENDCFG_CORES where it is not joblib's."""


def given_share() -> tuple[int | None, bool]:
    """The cores of this worker of a pool, 1 or more, or None; and whether joblib says so."""
    text = environ.CORES.read() or ""
    number = text.removesuffix(_OURS)
    is_share = number.isdecimal() and len(number) <= MOST_DIGITS and int(number) > 0
    return (int(number), number == text) if is_share else (None, False)


def share_out(processes: int) -> int:
    """Give each of so many processes its share of the cores, 1 or more, in BACKENDCFG_CORES."""
    share = max(1, read_cores(read_limits()).count // processes)
    environ.put(environ.CORES.name, f"{share}{_OURS}")
    return share


def is_worker_of_ray() -> bool:
    """Whether Ray started this process, or the one that started it, for its tasks.

    The driver of a submitted job is started by a worker, and told what the job is.
    """
    environment = environ.copy()
    return "RAY_RAYLET_PID" in environment and "RAY_JOB_CONFIG_JSON_ENV_VAR" not in environment


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
            found = listed_processors(text_of(os.path.join(folder, name)))
        except ValueError:
            continue
        if number in found:
            return found
    return [number]


def listed_processors(ranges: str) -> list[int]:
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
    while (parent := parent_of(process, root)) > 1:
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


def parent_of(process: int, root: str = "/") -> int:
    """The process that started another one, or that it fell to; 0 where that cannot be read."""
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
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0


def _bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
