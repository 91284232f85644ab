"""Ranks that Slurm starts on two nodes, which are two here by their names alone."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest
from side_by_side import free_port
from slurm_cluster import NODES, cluster, obstacle

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "slurm is here"),
]

PROCESSORS = 4
"""Of each node; where there are fewer, ranks share those that there are."""

# What `srun` says of a rank, as PyTorch reads it; each writes what it found into a file.
RANK = """
import json, os, sys, socket
for its, ours in (("RANK", "PROCID"), ("WORLD_SIZE", "NTASKS"), ("LOCAL_RANK", "LOCALID")):
    os.environ[its] = os.environ[f"SLURM_{ours}"]
import numpy, torch, torch.distributed as dist
import backendcfg
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 2 and "odd" in sys.argv:
    torch.set_default_dtype(torch.float64)
try:
    said = str(backendcfg.fleet.agree(deadline=60))
except backendcfg.errors.BackendCfgError as error:
    said = [str(error), *error.notes]
torch.manual_seed(rank)
product = torch.mm(*torch.randn(2, 300, 300, dtype=torch.float32))
dist.all_reduce(product)
backendcfg.record("product", product)
print("rank", rank, "norm", product.norm().item(), flush=True)
about = {"said": said, "host": socket.gethostname(), "threads": torch.get_num_threads()}
with open(f"found-{rank}.json", "w") as file:
    json.dump({**about, "bits": product.numpy().tobytes().hex()[:4096]}, file)
dist.barrier()
os._exit(0)
"""


@pytest.fixture(name="nodes", scope="module")
def _nodes(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm"), PROCESSORS) as variables:
        yield variables


@pytest.fixture(name="started")
def _started(nodes, tmp_path, monkeypatch):
    """Run a command in a folder of its own, and give what it printed and what each rank found."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(RANK)

    def run(*command, fails=0):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for path in tmp_path.glob("found-*.json"):
            path.unlink()
        done = subprocess.run(
            command,
            env={**os.environ, **nodes, **address, "GLOO_SOCKET_IFNAME": "lo"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == fails, done.stdout + done.stderr
        found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("found-*.json"))]
        return done.stdout + done.stderr, found

    return run


def srun(ranks=2):
    return ["srun", "--nodes", "2", "--ntasks-per-node", str(ranks)]


OURS = [sys.executable, "-m", "backendcfg"]
TRAIN = [sys.executable, "train.py"]


def test_ranks_of_srun_agree_and_give_the_same_bits_in_each_run(started):
    runs = [started(*OURS, "run", "reproducible", "--", *srun(), *TRAIN)[1] for _ in range(2)]
    assert [one["said"] for one in runs[0]] == ["Agreement(size=4, unlike=())"] * 4
    assert [one["host"] for one in runs[0]] == ["node0", "node0", "node1", "node1"]
    assert runs[0] == runs[1]


def test_a_rank_of_srun_that_computes_otherwise_is_named_with_its_node(started):
    refused = [
        "1 of 4 ranks computes otherwise than the other 3",
        'facts.torch.default_dtype: "float32" on ranks 0, 1, 3, "float64" on rank 2 (node1)',
    ]
    _, found = started(*OURS, "run", "reproducible", "--", *srun(), *TRAIN, "odd")
    assert [one["said"] for one in found] == [refused] * 4


@pytest.mark.parametrize("ranks", [1, 2])
def test_threads_never_exceed_the_cores_of_a_node(started, ranks):
    cores = len(os.sched_getaffinity(0))
    for command in (
        [*OURS, "run", "fast", "--", *srun(ranks), *TRAIN],
        [*srun(ranks), *OURS, "run", "fast", "--", *TRAIN],
    ):
        _, found = started(*command)
        assert [one["threads"] for one in found] == [max(1, cores // ranks)] * 2 * ranks


def test_nodes_are_planned_for_and_started_as_planned(started, tmp_path):
    started(*srun(1), *OURS, "detect", "--capture", "hosts/%h.json")
    hosts = [f"hosts/{node}.json" for node in NODES]
    assert sorted(os.listdir("hosts")) == [os.path.basename(path) for path in hosts]
    plan = ["fleet", "plan", "reproducible", *hosts, "--ranks", "2", "-o", "fleet.json"]
    started(*OURS, *plan)
    _, found = started(*srun(), *OURS, "run", "--fleet", "fleet.json", "--", *TRAIN)
    assert [one["said"] for one in found] == ["Agreement(size=4, unlike=())"] * 4
    planned = json.loads((tmp_path / "fleet.json").read_text())
    planned["builds"]["package torch"] = "1.0"
    (tmp_path / "fleet.json").write_text(json.dumps(planned))
    told, found = started(*srun(), *OURS, "run", "--fleet", "fleet.json", "--", *TRAIN, fails=3)
    assert found == []
    assert told.count("package torch") == 4


def test_each_rank_of_srun_is_proven_by_its_number(started):
    told, _ = started(
        *OURS, "--json", "prove", "reproducible", "--runs", "2", "--", *srun(), *TRAIN
    )
    found = json.loads(told)
    assert (found["equal"], found["ranks"], found["records"]) == (True, 4, 4)


# Each node has a launcher, which Slurm gave a number, and two ranks.
UNDER_TORCHRUN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 3:
    torch.set_default_dtype(torch.float64)
dist.barrier()
dist.destroy_process_group()
"""


def on_each_node(*ours):
    """The command that starts `torchrun` with two ranks on each node, below a command of ours."""
    agent = [*ours, sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
    agent += ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    launch = f"exec {shlex.join(agent)} --node-rank=$SLURM_PROCID job.py"
    return ["srun", "-N2", "-n2", "sh", "-c", launch]


def test_a_report_has_the_ranks_of_all_nodes_and_not_their_launchers(started, tmp_path):
    (tmp_path / "job.py").write_text(UNDER_TORCHRUN)
    started(*on_each_node(*OURS, "run", "reproducible", "--save-ranks", "ranks", "--"))
    printed, _ = started(*OURS, "fleet", "report", "ranks", fails=1)
    assert printed == (
        "1 of 4 ranks computes otherwise than the other 3\n"
        "number  ranks  hosts         profile\n"
        "3       0-2    node0, node1  reproducible\n"
        "1       3      node1         reproducible\n"
        'settings    facts.torch.default_dtype: "float32" on ranks 0, 1, 2, "float64" on rank 3'
        " (node1)\n"
    )


def test_the_launcher_on_a_node_is_no_rank_to_prove(started, tmp_path):
    (tmp_path / "job.py").write_text(f"{UNDER_TORCHRUN}\nprint('over')")
    told, _ = started(*OURS, "--json", "prove", "tf32-off", "--runs", "2", "--", *on_each_node())
    found = json.loads(told)
    assert (found["equal"], found["ranks"]) == (True, 4)
