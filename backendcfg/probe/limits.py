"""How much of the machine this process may use: affinity, cgroups, memory.

Standard library only: a starting process compares this with what a stored plan was made for.
Every file is read below a root that tests replace. Formats: cgroups(7), proc_pid_mountinfo(5),
Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of Linux.
"""

from __future__ import annotations

import os

from backendcfg.probe import text_of
from backendcfg.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTROLLERS = ("cpu", "cpuset", "memory")


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


def processors(ranges: str) -> int:
    """How many processors a kernel list names: "0-3,8" is 5."""
    count = 0
    for part in ranges.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            count += int(last or first) - int(first) + 1
    return count


def _groups(root: str) -> Iterator[_Group]:
    """The cgroups of this process and every ancestor that is visible here."""
    mounts = _mounts(root)
    for line in _text(os.path.join(root, "proc/self/cgroup")).splitlines():
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
    for line in _text(os.path.join(root, "proc/self/mountinfo")).splitlines():
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
        if count := processors(_text(os.path.join(group.path, name))):
            return count
    return 0


def _text(path: str) -> str:
    """A file that may name cgroups, whose names may have any bytes."""
    return text_of(path, errors="surrogateescape")
