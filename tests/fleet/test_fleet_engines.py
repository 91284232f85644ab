"""Ranks that real engines start: each refuses with the same words where one has another setting."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

# What each rank does when its engine has brought it together with the others. It writes what it
# found, because engines mix up what ranks print.
ENDING = """
import json, sys
import backendcfg.fleet
found = []
for _ in range(2):
    try:
        found.append(str(backendcfg.fleet.agree(deadline=60)))
    except backendcfg.errors.BackendCfgError as error:
        found.append([str(error), *error.notes])
with open(f"found-{rank}.json", "w") as file:
    json.dump(found, file)
"""

# PyTorch's threads may outlive Python and end the process with a signal (docs/recipes/torchrun.md).
LEAVING = """
import os
dist.barrier()
os._exit(0)
"""

TORCH = (
    """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1 and "odd" in sys.argv:
    torch.set_default_dtype(torch.float64)
"""
    + ENDING
    + LEAVING
)

MPI = (
    """
import sys, numpy
from mpi4py import MPI
rank = MPI.COMM_WORLD.Get_rank()
if rank == 1 and "odd" in sys.argv:
    import threadpoolctl
    threadpoolctl.threadpool_limits(1, user_api="blas")
"""
    + ENDING
)

JAX = (
    """
import sys, jax
rank = int(sys.argv[1])
jax.distributed.initialize(sys.argv[2], 2, rank)
if rank == 1 and "odd" in sys.argv:
    jax.config.update("jax_default_matmul_precision", "highest")
"""
    + ENDING
)


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


@pytest.fixture(name="started")
def _started(tmp_path):
    """Run commands side by side in a folder of their own, and give what each rank found."""

    def run(script, *commands):
        (tmp_path / "script.py").write_text(script)
        environment = {**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
        children = [
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command in commands
        ]
        for child in children:
            printed, _ = child.communicate(timeout=300)
            assert child.returncode == 0, printed
        return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("found-*.json"))]

    return run


@pytest.mark.torch
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_torchrun_agree_or_all_refuse(size, started):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={size}", "script.py"]
    assert started(TORCH, command) == [[f"Agreement(size={size}, unlike=())"] * 2] * size
    others = "rank 0" if size == 2 else "ranks 0, 2, 3"
    refused = [
        f"1 of {size} ranks computes otherwise than the other{'' if size == 2 else ' 3'}",
        'facts.torch.default_dtype: "float32" on ' + others + ', "float64" on rank 1'
        f" ({socket.gethostname()})",
    ]
    assert started(TORCH, [*command, "odd"]) == [[refused] * 2] * size


@needs("mpi4py")
def test_ranks_of_mpirun_agree_or_all_refuse(started):
    command = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root"]
    command += ["--oversubscribe", "--bind-to", "none", "-n", "3", sys.executable, "script.py"]
    assert started(MPI, command) == [["Agreement(size=3, unlike=())"] * 2] * 3
    refused = [
        "1 of 3 ranks computes otherwise than the other 2",
        f"openblas[numpy].threads: 2 on ranks 0, 2, 1 on rank 1 ({socket.gethostname()})",
    ]
    assert started(MPI, [*command, "odd"]) == [[refused] * 2] * 3


@pytest.mark.jax
def test_processes_of_jax_agree_or_all_refuse(started):
    def commands(*more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        return [[sys.executable, "script.py", str(rank), address, *more] for rank in range(2)]

    assert started(JAX, *commands()) == [["Agreement(size=2, unlike=())"] * 2] * 2
    refused = [
        "1 of 2 ranks computes otherwise than the other",
        (
            'jax.default_matmul_precision: "default" on rank 0, "highest" on rank 1'
            f" ({socket.gethostname()})"
        ),
    ]
    assert started(JAX, *commands("odd")) == [[refused] * 2] * 2


LATE = (
    """
import json, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
import backendcfg.fleet
if rank != 1:
    try:
        backendcfg.fleet.agree(deadline=1)
    except backendcfg.errors.FleetTimeoutError as error:
        with open(f"found-{rank}.json", "w") as file:
            json.dump(str(error), file)
"""
    + LEAVING
)


@pytest.mark.torch
def test_a_rank_that_does_not_call_it_is_named_by_the_others(started):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    found = started(LATE, [*command, "--nproc-per-node=3", "script.py"])
    assert found == ["rank 1 of 3 did not answer in time"] * 2


@pytest.mark.torch
def test_a_part_of_the_ranks_agrees_by_itself(started):
    script = (
        """
import json, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
group = dist.new_group([0, 2])
import backendcfg, backendcfg.fleet
if rank == 1:
    torch.set_default_dtype(torch.float64)
try:
    found = str(backendcfg.fleet.agree(group))
except backendcfg.errors.UsageError as error:
    found = str(error)
with open(f"found-{rank}.json", "w") as file:
    json.dump(found, file)
"""
        + LEAVING
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    found = started(script, [*command, "--nproc-per-node=3", "script.py"])
    agreed = "Agreement(size=2, unlike=())"
    assert found == [agreed, "this process is not in the group", agreed]


def test_without_an_engine_it_is_refused(python):
    printed = python("import backendcfg; backendcfg.fleet.agree()", fails=1)
    assert "UsageError: no ranks were brought together in this process\n" in printed
