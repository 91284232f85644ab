"""How many threads ranks have that real launchers start: never more than there are cores for them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backendcfg.probe.limits import count_cores, read_limits

# Each rank writes how many threads NumPy has in it, and which processors it may use.
RANK = """
import json, os, tempfile
import numpy
from threadpoolctl import threadpool_info
(blas,) = [one for one in threadpool_info() if "numpy" in one["filepath"]]
found = {"threads": blas["num_threads"], "processors": sorted(os.sched_getaffinity(0))}
with tempfile.NamedTemporaryFile("w", prefix="rank-", dir=".", delete=False) as file:
    json.dump(found, file)
"""

# A program that starts its ranks itself.
SPAWNING = """
import runpy

def rank(number):
    runpy.run_path("rank.py")

if __name__ == "__main__":
    import torch.multiprocessing
    torch.multiprocessing.{function}(rank, nprocs=2)
"""

PYTHON = [sys.executable, "rank.py"]
OURS = [sys.executable, "-m", "backendcfg", "run", "fast", "--"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
MPIRUN = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe"]
UNBOUND, BOUND = ["--bind-to", "none"], ["--bind-to", "core:overload-allowed"]
SPAWN = ("spawn.py", "start_processes.py")
WRAPPED = ["sh", "-c", f"{sys.executable} rank.py; exit $?"]
ONE = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]

CORES = min(count_cores(os.sched_getaffinity(0)), read_limits().usable)
HALF = max(1, CORES // 2)

SETUPS = {
    "one process": ([*OURS, *PYTHON], [CORES]),
    "torchrun": ([*OURS, *TORCHRUN, "rank.py"], [HALF] * 2),
    "torchrun on one processor": ([*OURS, *ONE, *TORCHRUN, "rank.py"], [1] * 2),
    "torchrun with a shell around each rank": (
        [*OURS, *TORCHRUN, "--no-python", *WRAPPED],
        [HALF] * 2,
    ),
    "torchrun that starts us": ([*TORCHRUN, "--no-python", *OURS, *PYTHON], [HALF] * 2),
    "mpirun": ([*OURS, *MPIRUN, *UNBOUND, "-n", "2", *PYTHON], [HALF] * 2),
    "mpirun that binds": ([*OURS, *MPIRUN, *BOUND, "-n", "2", *PYTHON], [1] * 2),
    "mpirun with a shell around each rank": (
        [*OURS, *MPIRUN, *UNBOUND, "-n", "2", *WRAPPED],
        [HALF] * 2,
    ),
    "mpirun that starts us": ([*MPIRUN, *UNBOUND, "-n", "2", *OURS, *PYTHON], [HALF] * 2),
    "torch.multiprocessing.spawn": ([*OURS, sys.executable, "spawn.py"], [HALF] * 2),
    "torch.multiprocessing.start_processes": (
        [*OURS, sys.executable, "start_processes.py"],
        [HALF] * 2,
    ),
    "torchrun within mpirun": (
        [*OURS, *MPIRUN, *UNBOUND, "-n", "1", *TORCHRUN, "rank.py"],
        [HALF] * 2,
    ),
}


def lacks(command):
    """What a command needs and this environment lacks, or ""."""
    needed = {
        "torch": not {TORCHRUN[2], *SPAWN}.isdisjoint(command),
        "mpi4py": MPIRUN[0] in command,
    }
    missing = [name for name, is_needed in needed.items() if is_needed]
    missing = [name for name in [*missing, "threadpoolctl"] if not importlib.util.find_spec(name)]
    missing += [
        word for word in (MPIRUN[0], "taskset") if word in command and shutil.which(word) is None
    ]
    return f"{', '.join(missing)} not installed" if missing else ""


@pytest.mark.parametrize(("command", "threads"), SETUPS.values(), ids=SETUPS)
def test_ranks_share_the_cores(command, threads, tmp_path):
    if obstacle := lacks(command):
        pytest.skip(obstacle)
    (tmp_path / "rank.py").write_text(RANK)
    for name in SPAWN:
        (tmp_path / name).write_text(SPAWNING.format(function=name.removesuffix(".py")))
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = [json.loads(path.read_text()) for path in tmp_path.glob("rank-*")]
    assert [one["threads"] for one in ranks] == threads
    cores = count_cores({each for one in ranks for each in one["processors"]})
    assert sum(threads) <= max(cores, len(ranks))
