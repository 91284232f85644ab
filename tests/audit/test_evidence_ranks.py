"""Ranks of a program whose runs are compared: each is held against itself."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backendcfg.audit.evidence import ranks
from backendcfg.audit.evidence.outputs import Deviation, Part
from backendcfg.audit.evidence.prove import prove
from backendcfg.audit.evidence.results import results_of
from backendcfg.audit.evidence.runs import Side, run
from backendcfg.audit.evidence.sides import plan_of, side_of
from backendcfg.audit.evidence.why import Parted
from backendcfg.audit.report.words import place
from backendcfg.audit.trace.reading import partings, rank_of, read
from backendcfg.audit.trace.streams import Wanted, want
from backendcfg.cli.main import main
from backendcfg.probe.launchers import rank_of_job
from backendcfg.probe.limits import Rank

pytestmark = pytest.mark.usefixtures("idle")


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


# It starts one rank after the other, in every second run of a proof the last one first.
LAUNCHER = """
import os, subprocess, sys
order = list(range(int(sys.argv[1])))
if len(os.environ.get("SURROUNDINGS", "")) // 97 % 2:
    order.reverse()
print("launching", flush=True)
for rank in order:
    variables = {"RANK": str(rank), "WORLD_SIZE": str(len(order))}
    subprocess.run([sys.executable, *sys.argv[2:]], env={**os.environ, **variables}, check=True)
"""


@pytest.fixture(name="command")
def _command(tmp_path, monkeypatch):
    """The command that starts two ranks of a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "launcher.py").write_text(LAUNCHER)

    def made(program, size=2):
        head = "import os, backendcfg\nrank = int(os.environ['RANK'])\n"
        (tmp_path / "rank.py").write_text(head + program)
        return [sys.executable, "launcher.py", str(size), "rank.py"]

    return made


def proven(words, folder, runs=3):
    return prove(words, Side("here", dict(os.environ)), {}, runs=runs, folder=str(folder))


@pytest.mark.slow
def test_which_rank_prints_first_is_no_difference(command, tmp_path):
    found = proven(command("print('rank', rank, 'has', rank * 0.5)"), tmp_path)
    assert found.equal
    assert (found.ranks, found.numbers) == (2, 4)
    assert not proven(command("os.write(2, b'x'); os.write(1, os.urandom(8))"), tmp_path).equal


def test_a_rank_that_computes_otherwise_is_named(command, tmp_path):
    program = """
odd = bool(os.environ["SURROUNDINGS"]) and rank == 1
print("loss", 0.5 if odd else 0.25)
print("took", len(os.environ["SURROUNDINGS"]) or 5, "s")
backendcfg.record("loss", 0.5 if odd else 0.25)
"""
    found = proven(command(program), tmp_path, runs=2)
    (odd,) = found.differences
    assert odd.output.state == "equal"
    line = "rank 1: line 1 has 0.5, not 0.25; 1 of 1 numbers differ, apart by 5.0e-01 at most"
    assert odd.ranks == (Deviation("rank 1", line),)
    one = "has 0.5, not 0.25, apart by 5.0e-01 at most"
    assert odd.records == (Deviation("loss", f"rank 1: record `loss` {one}"),)
    assert found.left_out == (Part("time", "took 5", 2, 0), Part("time", "took 5", 2, 1))


@pytest.mark.slow
def test_a_rank_of_one_run_alone_and_its_processes_are_told(command, tmp_path):
    program = """
backendcfg.record("x", 1)
if rank == 1 and os.environ["SURROUNDINGS"]:
    if not os.fork():
        backendcfg.record("x", 2)
        os._exit(0)
    os.wait()
"""
    (odd,) = proven(command(program), tmp_path, runs=2).differences
    assert odd.records == (Deviation("", "2 processes of rank 1 recorded values, not 1"),)
    program = "if rank == 0 or not os.environ['SURROUNDINGS']: backendcfg.record('x', 1)"
    (odd,) = proven(command(program), tmp_path, runs=2).differences
    assert odd.records == (Deviation("", "0 processes of rank 1 recorded values, not 1"),)


def test_what_a_rank_starts_prints_with_it_unless_it_reads_the_output(command):
    program = """
import subprocess, sys
child = [sys.executable, "-c", "import backendcfg; print('child')"]
print("read", subprocess.run(child, capture_output=True, text=True).stdout, end="", flush=True)
subprocess.run(child, check=True)
subprocess.run(["echo", "another"], check=True)
"""
    found = run(command(program), Side("here", dict(os.environ)))
    each = "read child\nchild\nanother\n"
    assert (found.text, found.ranks) == ("launching\n", {0: each, 1: each})
    assert found.whole_text == f"launching\nrank0:\n{each}rank1:\n{each}"


def test_an_output_that_was_given_to_a_rank_is_left_to_it(command, tmp_path):
    words = command("print('into a file')", size=1)
    launched = LAUNCHER.replace("check=True", "check=True, stdout=open('given', 'w')")
    (tmp_path / "launcher.py").write_text(launched)
    found = run(words, Side("here", dict(os.environ)))
    assert (found.text, found.ranks) == ("launching\n", {})
    assert (tmp_path / "given").read_text() == "into a file\n"


LAUNCHED = {
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "8"}, Rank("RANK", 3, 8)),
    "torchrun within srun": (
        {"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
        Rank("RANK", 5, 8),
    ),
    "Open MPI": (
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        Rank("OMPI_COMM_WORLD_RANK", 1, 2),
    ),
    "MPICH": ({"PMI_RANK": "0", "PMI_SIZE": "4"}, Rank("PMI_RANK", 0, 4)),
    "srun": (
        {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"},
        Rank("SLURM_PROCID", 2, 4),
    ),
    "a batch script of Slurm": ({"SLURM_PROCID": "0"}, None),
    "torchrun with one rank": ({"RANK": "0", "WORLD_SIZE": "1"}, Rank("RANK", 0, 1)),
    "a rank beyond all": ({"RANK": "8", "WORLD_SIZE": "8"}, None),
    "a rank that no file is named by": ({"RANK": "1" * 10, "WORLD_SIZE": "9" * 10}, None),
    "a rank that Python does not read": ({"RANK": "1" * 5000, "WORLD_SIZE": "9" * 5000}, None),
    "a variable of somebody": ({"RANK": "general", "WORLD_SIZE": "8"}, None),
    "nobody": ({}, None),
}


@pytest.mark.parametrize(("variables", "rank"), LAUNCHED.values(), ids=LAUNCHED)
def test_launchers_say_which_rank_of_a_job_a_process_is(variables, rank):
    assert rank_of_job(variables) == rank


def test_what_a_program_puts_among_the_outputs_of_ranks_is_left_alone(tmp_path):
    (tmp_path / "rank10").write_bytes(b"ten\xff")
    (tmp_path / "rank2").write_text("two")
    (tmp_path / "rank3").symlink_to(tmp_path / "rank2")
    os.mkfifo(tmp_path / "rank4")
    (tmp_path / "rank5").mkdir()
    for name in ("rank", "rankx", "rank1.0.records", "rank12345678901", "ranks"):
        (tmp_path / name).write_text("not of a rank")
    assert ranks.read(str(tmp_path), most=5 * 4) == {2: "two", 10: "ten\ufffd"}


def test_the_key_of_a_stream_says_whose_it_is():
    assert [rank_of(key) for key in ("0-0", "rank3.0-0", "rank12.0.1-2.0", "rank-0", "")] == [
        None,
        3,
        12,
        None,
        None,
    ]


@pytest.mark.slow
def test_each_rank_has_streams_of_its_own(command, tmp_path):
    (tmp_path / "empty.toml").write_text("schema = 1\n")
    folders = [tmp_path / "trace-0", tmp_path / "trace-1"]
    runs = []
    for number, folder in enumerate(folders):
        folder.mkdir()
        want(str(folder), Wanted())
        side = side_of("empty", plan_of("./empty.toml"))
        variables = {"SURROUNDINGS": "x" * 97 * number, "BACKENDCFG_TRACE": str(folder)}
        words = command("import numpy as np; np.random.default_rng(7).random(4) @ np.full(4, rank)")
        run(words, replace(side, environment={**side.environment, **variables}))
        runs.append(read(str(folder)))
    for each in runs:
        assert [one.key for one in each if len(one.records)] == ["rank0.0-0", "rank1.0-0"]
    assert partings(*runs) == []


@pytest.mark.exhaustive
def test_the_first_operation_that_differs_is_found_in_its_rank(command, capsys):
    program = """
import numpy as np
x = np.random.default_rng(7).random((4, 4))
if rank == 1:
    x = x + np.random.rand(4, 4)
print(rank, (x @ x).sum())
"""
    words = ["prove", "tf32-off", "--runs", "2", "--why", "--", *command(program)]
    assert main(["--json", *words]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["differences"][0]["ranks"]] == ["rank 1"]
    (step,) = found["why"]["steps"]
    assert (step["stream"], step["place"]) == ("rank1.0-0", "rank.py:7")
    assert found["cure"] == {"seed.value": 0}
    shown = Parted(step["operation"], step["other"], step["index"], step["stream"], step["place"])
    assert place(shown) == "rank.py:7, in rank 1"


MPIRUN = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe"]
MPIRUN += ["--bind-to", "none", "-n", "2"]
OF_MPI = "import os, backendcfg\nprint('of', os.environ['OMPI_COMM_WORLD_RANK'])\n"


@needs("mpi4py")
def test_ranks_of_mpirun_are_held_against_themselves(command, tmp_path):
    command("")
    (tmp_path / "rank.py").write_text(OF_MPI)
    found = run([*MPIRUN, sys.executable, "rank.py"], Side("here", dict(os.environ)))
    assert (found.text, found.ranks) == ("", {0: "of 0\n", 1: "of 1\n"})


@needs("mpi4py")
def test_what_a_program_pipes_redirects_or_captures_of_mpirun_is_its_own(command, tmp_path):
    command("")
    (tmp_path / "rank.py").write_text(OF_MPI)
    start = shlex.join([*MPIRUN, sys.executable, "rank.py"])
    each = shlex.join([*MPIRUN, "sh", "-c", f"exec {sys.executable} rank.py >each.$PMIX_RANK"])
    lines = [f"{start} | sort", f"{start} >file", "sort file", f"echo $({start} | sort)", each]
    (tmp_path / "job.sh").write_text("set -e\n" + "\n".join([*lines, "cat each.0 each.1"]))
    found = run(["sh", "job.sh"], Side("here", dict(os.environ)))
    assert found.ranks == {}
    assert found.text == "of 0\nof 1\nof 0\nof 1\nof 0 of 1\nof 0\nof 1\n"


@pytest.mark.slow
def test_ranks_of_a_launcher_that_has_a_number_itself_are_held_against_themselves(
    command, tmp_path, monkeypatch
):
    for name, text in {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}.items():
        monkeypatch.setenv(name, text)
    found = run(command("print('rank', rank)"), Side("here", dict(os.environ)))
    assert (found.text, found.ranks) == ("launching\n", {0: "rank 0\n", 1: "rank 1\n"})
    (tmp_path / "launcher.py").write_text(f"import backendcfg\n{LAUNCHER}")
    found = proven(command("print('rank', rank)"), tmp_path)
    assert (found.equal, found.ranks) == (True, 2)


@pytest.mark.slow
def test_records_of_a_lock_belong_to_their_rank(command, tmp_path):
    program = "n = rank ^ bool(os.environ.get('SWAP')); backendcfg.record('x', n); print('1' * n)"
    one = run(command(program), Side("here", dict(os.environ)))
    other = run(command(program), Side("here", {**os.environ, "SWAP": "1"}))
    proof = proven(command("pass"), tmp_path)
    first, second = (results_of(proof, each, {}) for each in (one, other))
    assert first.records != second.records
    assert first.text != second.text
    assert results_of(proof, one, {}) == first


TRAINING = """
import sys, torch, torch.distributed as dist
import backendcfg
dist.init_process_group("gloo")
torch.manual_seed(7)
x = torch.randn(64, 64)
y = x @ x
backendcfg.record("y", y)
dist.all_reduce(y)
for step in range(3):
    print("rank", dist.get_rank(), "step", step, "norm", y.norm().item(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@needs("torch")
def test_ranks_of_two_agents_of_torchrun_compute_the_same_in_each_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINING)
    # As two nodes have them, on one machine: which agent is ready first differs.
    (tmp_path / "nodes.py").write_text(
        "import socket, subprocess, sys\n"
        "with socket.socket() as found:\n"
        "    found.bind(('127.0.0.1', 0))\n"
        "    port = found.getsockname()[1]\n"
        "agent = [sys.executable, '-m', 'torch.distributed.run', '--nnodes', '2', '--node-rank']\n"
        "rest = ['--nproc-per-node', '2', '--master-addr', '127.0.0.1', '--master-port', str(port)]\n"
        "both = [subprocess.Popen([*agent, str(node), *rest, 'train.py']) for node in range(2)]\n"
        "sys.exit(any([one.wait() for one in both]))\n"
    )
    words = ["prove", "reproducible", "--runs", "2", "--", sys.executable, "nodes.py"]
    command = [sys.executable, "-m", "backendcfg", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["equal"], found["ranks"], found["records"]) == (True, 4, 4)


SUM_OF_MPI = """
import numpy as np
from mpi4py import MPI
import backendcfg
rank = MPI.COMM_WORLD.Get_rank()
x = np.random.default_rng(rank).standard_normal((200, 200)).astype("f4")
product = x @ x
total = np.empty_like(product)
MPI.COMM_WORLD.Allreduce(product, total)
backendcfg.record("total", total)
"""

SUM_OF_JAX = """
import sys, jax
import backendcfg
jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[1]))
x = jax.random.normal(jax.random.key(int(sys.argv[1])), (200, 200))
backendcfg.record("product", x @ x)
"""

# Which rank of JAX a process is stands in no variable, so those of a launcher are set.
OF_JAX = """
import os, socket, subprocess, sys
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
both = [
    subprocess.Popen(
        [sys.executable, "rank.py", str(rank), address],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
    )
    for rank in range(2)
]
sys.exit(any([one.wait() for one in both]))
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param(SUM_OF_MPI, [*MPIRUN, sys.executable, "rank.py"], marks=needs("mpi4py")),
        pytest.param(SUM_OF_JAX, [sys.executable, "start.py"], marks=pytest.mark.jax),
    ],
    ids=["mpirun", "processes of JAX"],
)
def test_ranks_give_the_same_bits_twice_under_reproducible(program, words, tmp_path):
    (tmp_path / "rank.py").write_text(program)
    (tmp_path / "start.py").write_text(OF_JAX)
    ours = [sys.executable, "-m", "backendcfg", "--json", "prove", "reproducible", "--runs", "2"]
    done = subprocess.run(
        [*ours, "--", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["equal"], found["ranks"], found["records"]) == (True, 2, 2)
