"""Which rank of a job this process is, and the launchers that say so.

Sources: the variables of torchrun, Open MPI, MVAPICH2, MPICH's Hydra and srun(1).
"""

from __future__ import annotations

import os
import sys

from backendcfg import environ, startup
from backendcfg.catalogue.frameworks import JAX, TORCH
from backendcfg.probe import text_of
from backendcfg.probe.limits import MOST_DIGITS, Rank, parent_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The rank among all processes of a job, on whichever machine, and how many there are. The first is
# the innermost: `srun torchrun`. In a batch script, which is no rank, Slurm sets no size.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)

# Programs of Python that start the ranks of their host. Slurm gives them a number, too.
_OF_PYTHON = (
    *("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate"),
    *("accelerate.commands.launch", "deepspeed", "deepspeed.launcher.launch", "fabric", "composer"),
    *("torch.backends.xeon.run_cpu", "backendcfg.backends.xeon.run_cpu"),
)

# What starts ranks of MPI. They read from a pipe what a rank prints, and pass it on.
_OTHERS = (
    *("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "orted", "prterun", "prte", "prted"),
    *("hydra_pmi_proxy", "hydra_bstrap_pr", "mpirun_rsh", "mpispawn"),
)
_OF_SLURM = "slurmstepd"
"""Starts ranks on a node, and sends what they print to `srun`."""

_ENGINES = (TORCH.name, JAX.name, "mpi4py")

RANK = "rank"
"""Before its number in the names of what belongs to a rank."""


def rank_of_job(environment: Mapping[str, str]) -> Rank | None:
    """The rank that a launcher gave to a process or to what started it; None for none."""
    for variable, counted in _VARIABLES:
        number, size = (_number(environment.get(name, "")) for name in (variable, counted))
        if 0 <= number < size:
            return Rank(variable, number, size)
    return None


def half_named(environment: Mapping[str, str]) -> str:
    """Why an environment names no rank although it has half of what does, in words; "" else.

    A batch script of Slurm has half of it, and is no rank.
    """
    if rank_of_job(environment) is None:
        for pair in _VARIABLES[:-1]:
            there = [name for name in pair if environment.get(name)]
            if len(there) == 1:
                other = pair[1 - pair.index(there[0])]
                return f"{there[0]} is set and {other} is not, so this is no rank of a job"
    return ""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else -1


def this_rank() -> Rank | None:
    """The rank that this process is, or that started it; a launcher is none."""
    return None if is_launcher(sys.orig_argv) else rank_of_job(environ.copy())


def may_be_rank() -> bool:
    """Whether this process can have a number, of a launcher or of an engine that it imported."""
    return this_rank() is not None or any(name in sys.modules for name in _ENGINES)


def prefix() -> str:
    """What the names of what belongs to the rank of this process begin with; "" for no rank."""
    rank = this_rank()
    return f"{RANK}{rank.number}." if rank is not None else ""


def is_launcher(words: list[str]) -> bool:
    """Whether a command line runs a launcher that is a program of Python."""
    return startup.program(words)[1] in _OF_PYTHON


def starts_ranks(command: list[str]) -> bool:
    """Whether a command starts ranks on this host: `torchrun`, `python -m deepspeed`, `mpirun`."""
    name = os.path.basename(command[0])
    if name.startswith("python"):
        return is_launcher(command)
    begins = (name, *command[1:2])
    return begins == ("accelerate", "launch") or name in ("torchrun", "deepspeed", *_OTHERS)


def above() -> Iterator[int]:
    """The launchers that pass on what this process prints, the nearest first.

    Empty where something else started it, such as a shell: that may have given it another output.
    """
    process = os.getppid()
    while process > 1:
        name = _name(process)
        if name == _OF_SLURM:
            # It is no child of `srun`, which prints what ranks print. That runs where the command
            # was started, so on other nodes there is none.
            every = (int(each) for each in os.listdir("/proc") if each.isdecimal())
            yield from (each for each in every if _name(each) == "srun")
            return
        if name not in _OTHERS and not is_launcher(text_of(f"/proc/{process}/cmdline").split("\0")):
            return
        yield process
        process = parent_of(process)


def _name(process: int) -> str:
    return text_of(f"/proc/{process}/comm").strip()
