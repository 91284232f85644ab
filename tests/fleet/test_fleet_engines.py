"""Ranks that real engines start: each refuses with the same words where one has another setting."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from side_by_side import free_port, run_side_by_side

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
        run_side_by_side(commands, cwd=tmp_path, env=environment)
        return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("found-*.json"))]

    return run


@pytest.mark.torch
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_ranks_of_torchrun_agree_or_all_refuse(size, started):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={size}", "script.py"]
    assert started(TORCH, command) == [[f"Agreement(size={size}, unlike=())"] * 2] * size
    others = "rank 0" if size == 2 else "ranks 0, 2, 3"
    refused = [
        (
            "2 ranks do not compute alike"
            if size == 2
            else "1 of 4 ranks computes otherwise than the other 3"
        ),
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
        address = f"127.0.0.1:{free_port()}"
        return [[sys.executable, "script.py", str(rank), address, *more] for rank in range(2)]

    assert started(JAX, *commands()) == [["Agreement(size=2, unlike=())"] * 2] * 2
    refused = [
        "2 ranks do not compute alike",
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
backendcfg.numerics_token()
dist.barrier()
if rank != 1:
    try:
        backendcfg.fleet.agree(deadline=5)
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
    assert found == ["rank 1 did not answer in time"] * 2


@pytest.mark.torch
def test_a_part_of_the_ranks_agrees_by_itself(started):
    script = (
        """
import json, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
group, pair = dist.new_group([0, 2]), dist.new_group([1, 2])
import backendcfg, backendcfg.fleet
if rank == 1:
    torch.set_default_dtype(torch.float64)
found = []
for each in (group, pair):
    try:
        found.append(str(backendcfg.fleet.agree(each)))
    except backendcfg.errors.BackendCfgError as error:
        found.append([str(error), *error.notes])
with open(f"found-{rank}.json", "w") as file:
    json.dump(found, file)
"""
        + LEAVING
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    found = started(script, [*command, "--nproc-per-node=3", "script.py"])
    agreed = "Agreement(size=2, unlike=())"
    refused = [
        "2 ranks do not compute alike",
        (
            'facts.torch.default_dtype: "float64" on rank 1, "float32" on rank 2'
            f" ({socket.gethostname()})"
        ),
    ]
    outside = ["this process is not in the group"]
    assert found == [[agreed, outside], [outside, refused], [agreed, refused]]


def by_hand(size):
    """A command for each rank, as a launcher other than torchrun starts them."""
    told = ["MASTER_ADDR=127.0.0.1", f"MASTER_PORT={free_port()}", f"WORLD_SIZE={size}"]
    return [["env", *told, f"RANK={rank}", sys.executable, "script.py"] for rank in range(size)]


# Without torchrun rank 0 keeps the store, and ends; rank 1 reads the answer when rank 2 has ended.
ENDING_FIRST = (
    """
import os, sys, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
if rank == 2:
    torch.set_default_dtype(torch.float64)
if rank == 1:
    from backendcfg.fleet import groups
    ask = groups.TorchGroup.ask
    def slow(self, key, source, seconds):
        while key.endswith("/2") and not os.path.exists("found-2.json"):
            os.sched_yield()
        return ask(self, key, source, seconds)
    groups.TorchGroup.ask = slow
"""
    + ENDING.replace("range(2)", "range(1)")
    + """
os._exit(0)
"""
)


@pytest.mark.torch
def test_every_rank_reads_the_answer_where_the_first_keeps_the_store_and_ends(started):
    found = started(ENDING_FIRST, *by_hand(3))
    assert found == [found[0]] * 3
    assert found[0][0][0] == "1 of 3 ranks computes otherwise than the other 2"


# Each communicator counts its calls: MPI gives the number of one that was freed to another one.
FREED = """
import sys, numpy
from mpi4py import MPI
import backendcfg.fleet
world = MPI.COMM_WORLD
rank = world.Get_rank()
found = []
for number in range(3):
    if rank:
        kept = MPI.COMM_SELF.Dup()
    comm = world.Dup()
    found.append(str(backendcfg.fleet.agree(comm, deadline=30)))
    comm.Free()
import json
with open(f"found-{rank}.json", "w") as file:
    json.dump(found, file)
"""


@pytest.mark.exhaustive
@needs("mpi4py")
def test_communicators_that_are_freed_are_not_mistaken_for_others(started):
    command = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root"]
    command += ["--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable, "script.py"]
    assert started(FREED, command) == [["Agreement(size=2, unlike=())"] * 3] * 2


AGAIN = """
import os, torch, torch.distributed as dist
import backendcfg.fleet
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
store = dist.TCPStore("127.0.0.1", port, 3, is_master=not rank)
found = []
for number, size in enumerate((3, 2, 3)):
    if rank < size:
        kept = dist.PrefixStore(str(number), store)
        dist.init_process_group("gloo", store=kept, rank=rank, world_size=size)
        found.append(str(backendcfg.fleet.agree(deadline=30)))
        dist.barrier()
        dist.destroy_process_group()
import json
with open(f"found-{rank}.json", "w") as file:
    json.dump(found, file)
store.add("ended", 1)
while not rank and store.add("ended", 0) < 3:
    os.sched_yield()
os._exit(0)
"""


@pytest.mark.exhaustive
@pytest.mark.torch
def test_ranks_that_come_together_again_in_other_numbers_agree(started):
    agreed = ["Agreement(size=3, unlike=())", "Agreement(size=2, unlike=())"]
    found = started(AGAIN, *by_hand(3))
    assert found == [[*agreed, agreed[0]], [*agreed, agreed[0]], [agreed[0], agreed[0]]]


def test_without_an_engine_it_is_refused(python):
    printed = python("import backendcfg; backendcfg.fleet.agree()", fails=1)
    assert "UsageError: no ranks were brought together in this process\n" in printed
