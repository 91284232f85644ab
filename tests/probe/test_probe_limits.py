"""What this process may use, from trees that look like /proc and /sys of other machines."""

from __future__ import annotations

import os

import pytest

from backendcfg.probe.limits import Limits, count_listed, read_limits, total_memory

V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def limits(root, *, affinity=64, logical=64):
    return read_limits(root, affinity=affinity, logical=logical)


def test_a_machine_without_cgroups_is_limited_by_affinity_alone(tree):
    found = limits(tree({"proc/meminfo": "MemTotal: 1024 kB\n"}), affinity=2)
    assert found == Limits(logical=64, affinity=2)
    assert (found.usable, found.sentences()) == (2, ("affinity: 2 of 64",))


def test_a_version_2_quota_is_rounded_up(tree):
    root = tree(
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/user.slice\n",
            "sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n",
        }
    )
    found = limits(root)
    assert (found.usable, found.sentences()) == (2, ("cgroup v2: 1.5 of 64",))


def test_the_least_quota_of_all_parents_binds(tree):
    root = tree(
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/a/b/c\n",
            "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/b/c/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/a/memory.max": "8589934592\n",
            "sys/fs/cgroup/a/b/c/memory.max": "max\n",
        }
    )
    found = limits(root)
    assert (found.quota, found.usable, found.memory) == (2.0, 2, 8 << 30)


def test_a_version_1_container_is_limited_by_each_controller(tree):
    root = tree(
        {
            "proc/self/mountinfo": V1,
            "proc/self/cgroup": (
                "5:memory:/docker/abc\n4:cpuset:/docker/abc\n3:cpu,cpuacct:/docker/abc\n"
                "1:name=systemd:/docker/abc\n"
            ),
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpuset/docker/abc/cpuset.cpus": "0-7,16\n",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "4294967296\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    found = limits(root, affinity=9)
    assert found == Limits(64, 9, 9, 2.5, "cgroup v1", 4 << 30)
    assert found.usable == 3
    assert found.sentences() == ("cpuset: 9 of 64", "cgroup v1: 2.5 of 64")


def test_the_path_of_the_host_inside_a_container_means_what_is_mounted(tree):
    root = tree(
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/kubepods/pod1/container2\n",
            "sys/fs/cgroup/cpu.max": "400000 100000\n",
        }
    )
    assert limits(root).usable == 4


def test_a_mount_of_a_part_of_the_hierarchy_is_subtracted(tree):
    mount = V2.replace(" / /sys/fs/cgroup", " /docker/abc /sys/fs/cgroup")
    root = tree(
        {
            "proc/self/mountinfo": mount,
            "proc/self/cgroup": "0::/docker/abc/job\n",
            "sys/fs/cgroup/job/cpu.max": "300000 100000\n",
        }
    )
    assert limits(root).usable == 3


def test_a_process_outside_its_cgroup_namespace_is_limited_by_what_is_mounted(tree):
    root = tree(
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/../other\n",
            "sys/fs/cgroup/cpu.max": "100000 100000\n",
        }
    )
    assert limits(root).usable == 1


def test_version_2_beside_version_1_counts_for_the_controllers_it_has(tree):
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    root = tree(
        {
            "proc/self/mountinfo": V1 + unified,
            "proc/self/cgroup": "2:cpu,cpuacct:/\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/unified/cpu.max": "600000 100000\n",
        }
    )
    assert limits(root).sentences() == ("cgroup v2: 6 of 64",)


@pytest.mark.parametrize("text", ["", "max", "rubbish 100000", "100000 0", "-5 100000", "1 2 3"])
def test_a_quota_that_cannot_be_read_is_none(tree, text):
    root = tree(
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": text,
        }
    )
    assert limits(root) == Limits(64, 64)


def test_garbage_in_every_file_limits_nothing(tree):
    root = tree({"proc/self/mountinfo": "a b c\n - \n", "proc/self/cgroup": "no colons\n::\n"})
    assert limits(root) == Limits(64, 64)


def test_a_tiny_quota_still_leaves_one_processor():
    assert Limits(64, 64, quota=0.05, version="cgroup v2").usable == 1


@pytest.mark.parametrize(
    ("ranges", "count"), [("0-3,8", 5), ("0", 1), ("", 0), ("\n", 0), ("x-y", 0), ("0-63", 64)]
)
def test_lists_of_processors_are_counted(ranges, count):
    assert count_listed(ranges) == count


def test_total_memory_is_in_bytes(tree):
    root = tree({"proc/meminfo": "MemFree: 1 kB\nMemTotal:       24684096 kB\n"})
    assert total_memory(root) == 24684096 * 1024


def test_total_memory_is_zero_when_nobody_says(tree):
    assert total_memory(tree({"proc/other": ""})) == 0


def test_this_process_may_use_no_more_than_its_affinity():
    found = read_limits()
    assert 1 <= found.usable <= len(os.sched_getaffinity(0)) <= found.logical


def test_a_narrower_affinity_is_seen_at_once():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert (read_limits().affinity, read_limits().usable) == (1, 1)
    finally:
        os.sched_setaffinity(0, before)
