"""Two nodes of Slurm on this machine, each with a name of its own.

Run as a program, it fails where there can be none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from side_by_side import free_port

NODES = ("node0", "node1")
NEEDED = ("slurmctld", "slurmd", "srun", "scontrol", "unshare")
BEGIN = 60.0
"""Seconds in which the cluster must be there."""

# Nobody is authenticated, and nothing is bound: Slurm cannot see which cores a container may use.
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=node0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={processors}
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={processors}
PartitionName=all Nodes=node0,node1 Default=YES MaxTime=INFINITE State=UP
"""


def obstacle():
    """Why there can be no cluster here, or ""."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        return f"slurm is not installed: no {', '.join(missing)}"
    named = subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False)
    return "slurm's nodes may have no names of their own here" if named.returncode else ""


@contextmanager
def cluster(folder, processors):
    """The variables with which `srun` finds two nodes of so many processors each.

    Args:
        folder: an empty one.
        processors: of each node.
    """
    names = {"host": os.uname().nodename, "ports": [free_port() for _ in range(3)]}
    file = folder / "slurm.conf"
    file.write_text(CONFIGURATION.format(folder=folder, processors=processors, **names))
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    variables = {"SLURM_CONF": str(file)}
    named = [f"hostname {node} && exec slurmd -D -N {node}" for node in NODES]
    commands = [["slurmctld", "-D"], *(["unshare", "--uts", "sh", "-c", one] for one in named)]
    started = []
    try:
        started.extend(_started(command, folder, variables) for command in commands)
        _until_idle(folder, variables)
        yield variables
    finally:
        for child in reversed(started):
            child.terminate()
        for child in started:
            child.wait()


def _started(command, folder, variables):
    with open(folder / f"{command[0]}.txt", "ab") as told:
        return subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=told, stderr=subprocess.STDOUT
        )


def _until_idle(folder, variables):
    end = time.monotonic() + BEGIN
    shown = ""
    while shown.count("State=IDLE") < len(NODES):
        if time.monotonic() > end:
            logs = [path.read_text()[-2000:] for path in sorted(folder.glob("*.log"))]
            raise AssertionError("\n".join([shown, *logs]))
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "node"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        shown = done.stdout + done.stderr


if __name__ == "__main__":
    if why := obstacle():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as made, cluster(Path(made), 2) as variables:
        done = subprocess.run(
            ["srun", "-N2", "hostname"],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    if sorted(done.stdout.split()) != [*NODES]:
        sys.exit(f"srun's two tasks ran on {done.stdout.split()}")
