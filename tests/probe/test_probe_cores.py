"""The cores that a process should compute on, alone and as one of several ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from backendcfg.probe import limits
from backendcfg.probe.limits import Cores, Rank, count_cores, local_rank

HERE = sorted(os.sched_getaffinity(0))
RANK = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
SHOW = """
import json
from backendcfg.probe.limits import read_cores
from backendcfg.probe.limits import Limits, read_limits
limits = Limits(64, 64, quota=QUOTA) if QUOTA else read_limits()
own = read_cores(limits)
print(json.dumps([own.count, own.sentence]))
"""
two = pytest.mark.skipif(len(HERE) < 2, reason="needs two processors: hardware")


def own_cores(*before, quota=None, **variables):
    """What a process is told that this one starts, through the words before it."""
    words = [*before, sys.executable, "-c", SHOW.replace("QUOTA", repr(quota))]
    done = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def smt(tree, pairs, active="1"):
    files = {
        f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list": siblings
        for number, siblings in enumerate(pairs)
    }
    return tree({**files, "sys/devices/system/cpu/smt/active": f"{active}\n"})


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, Rank("LOCAL_RANK", 1, 4)),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None),
        (
            {"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            Rank("OMPI_COMM_WORLD_LOCAL_RANK", 3, 8),
        ),
        (
            {"MV2_COMM_WORLD_LOCAL_RANK": "0", "MV2_COMM_WORLD_LOCAL_SIZE": "2"},
            Rank("MV2_COMM_WORLD_LOCAL_RANK", 0, 2),
        ),
        ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, Rank("MPI_LOCALRANKID", 1, 2)),
        ({"PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}, Rank("PMI_LOCAL_RANK", 1, 2)),
        (
            {"SLURM_LOCALID": "2", "SLURM_STEP_TASKS_PER_NODE": "4"},
            Rank("SLURM_LOCALID", 2, 4),
        ),
        (
            {
                "SLURM_LOCALID": "0",
                "SLURM_NODEID": "2",
                "SLURM_STEP_TASKS_PER_NODE": "4(x2),2,1",
            },
            Rank("SLURM_LOCALID", 0, 2),
        ),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "many"}, None),
        ({"SLURM_LOCALID": "0", "SLURM_NODEID": "9", "SLURM_STEP_TASKS_PER_NODE": "4"}, None),
        # A batch script is no step: nothing says how many tasks there are.
        ({"SLURM_LOCALID": "0"}, None),
        # `export LOCAL_RANK=$SLURM_LOCALID`, as scripts for PyTorch have it.
        (
            {"LOCAL_RANK": "1", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2"},
            Rank("SLURM_LOCALID", 1, 2),
        ),
        # `srun torchrun`: the ranks are torchrun's.
        (
            {
                "LOCAL_RANK": "3",
                "LOCAL_WORLD_SIZE": "8",
                "SLURM_LOCALID": "0",
                "SLURM_STEP_TASKS_PER_NODE": "1",
            },
            Rank("LOCAL_RANK", 3, 8),
        ),
        ({"LOCAL_RANK": "first", "LOCAL_WORLD_SIZE": "2"}, None),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "0"}, None),
        # Python reads no number of so many digits.
        ({"LOCAL_RANK": "1" * 5000, "LOCAL_WORLD_SIZE": "9" * 5000}, None),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "9" * 5000}, None),
    ],
)
def test_a_rank_is_known_by_the_variables_of_its_launcher(environment, rank):
    assert local_rank(environment) == rank


def test_hardware_threads_of_one_core_count_once(tree):
    root = smt(tree, ["0,2", "1,3", "0,2", "1,3"])
    assert [count_cores(numbers, root) for numbers in ([0, 1, 2, 3], [0, 2], [3], [0, 3])] == [
        2,
        1,
        1,
        2,
    ]


def test_without_hardware_threads_no_core_is_looked_at(tree):
    assert count_cores([0, 1, 2], smt(tree, ["0-2", "0-2", "0-2"], active="0")) == 3


def test_where_the_kernel_says_nothing_every_processor_is_a_core(tree):
    assert count_cores([4, 9], tree({"proc/uptime": "1"})) == 2


def test_a_process_that_is_no_rank_has_all_that_it_may_use():
    assert own_cores() == [count_cores(HERE), ""]


@two
def test_ranks_that_nobody_binds_share_the_cores_of_their_launcher():
    told = "rank 0 of 2 here, by LOCAL_RANK"
    assert own_cores(**RANK) == [count_cores(HERE) // 2, told]
    # Shells and `env` between launcher and rank have the rank's variables too.
    assert own_cores("sh", "-c", '"$@"; exit $?', "sh", "env", **RANK) == [
        count_cores(HERE) // 2,
        told,
    ]


@two
def test_a_rank_that_its_launcher_binds_has_the_cores_it_is_bound_to():
    assert own_cores("taskset", "-c", str(HERE[0]), **RANK) == [1, ""]


@two
def test_a_task_of_slurm_has_no_more_cores_than_were_asked_for():
    task = [1, "a task of Slurm, to which SLURM_CPUS_PER_TASK gives 1"]
    assert own_cores(SLURM_CPUS_PER_TASK="1") == task
    step = {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1"}
    assert own_cores(SLURM_CPUS_PER_TASK="1", **step) == task
    all_of_them = [count_cores(HERE), ""]
    assert own_cores(SLURM_CPUS_PER_TASK="9999") == all_of_them
    assert own_cores(SLURM_CPUS_PER_TASK="many") == all_of_them
    # The script of a job with several tasks, which is none of them.
    assert own_cores(SLURM_CPUS_PER_TASK="1", SLURM_NTASKS="2") == all_of_them
    # Its ranks are.
    assert own_cores(SLURM_CPUS_PER_TASK="1", SLURM_NTASKS="4", **RANK)[0] == 1


def test_ranks_of_a_launcher_in_a_task_of_slurm_share_what_the_task_has(monkeypatch):
    monkeypatch.setattr(limits, "_of_launcher", lambda rank, root: (64, True))
    monkeypatch.setattr(limits, "count_cores", lambda processors, root: 64)
    node = limits.Limits(64, 64)
    found = {}
    for cpus in (8, 16, 32, 128):
        variables = {
            "SLURM_CPUS_PER_TASK": str(cpus),
            "SLURM_NTASKS": "1",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "4",
        }
        monkeypatch.setattr(limits.environ, "copy", lambda here=variables: dict(here))
        found[cpus] = limits.read_cores(node).count
    assert found == {8: 2, 16: 4, 32: 8, 128: 16}


def test_more_ranks_than_cores_have_a_core_each():
    assert own_cores(LOCAL_RANK="7", LOCAL_WORLD_SIZE="999")[0] == 1


@two
def test_ranks_share_the_time_that_their_cgroup_gives():
    assert own_cores(quota=2.0)[0] == min(2, count_cores(HERE))
    assert own_cores(quota=2.0, **RANK) == [1, "rank 0 of 2 here, by LOCAL_RANK"]


def test_cores_that_are_a_part_say_of_what():
    assert Cores(4).sentence == ""
    assert Cores(4, Rank("SLURM_LOCALID", 1, 2)).sentence == "rank 1 of 2 here, by SLURM_LOCALID"
