"""Machines made of files, as the kernel shows them below /sys."""

from __future__ import annotations

import pytest
from launch_machines import cores

from backendcfg.launch.arrangement import read


@pytest.fixture(name="machine")
def _machine(tmp_path):
    """`machine({0: [(0, 4), (1, 5)], 1: [...]}, allowed=None)`: the processors of each core by node."""

    def machine(nodes, allowed=None):
        devices = tmp_path / "sys" / "devices" / "system"
        everything = []
        for node, there in nodes.items():
            members = [number for core in there for number in core]
            everything += members
            folder = devices / "node" / f"node{node}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(",".join(map(str, members)) + "\n")
            for core in there:
                for number in core:
                    folder = devices / "cpu" / f"cpu{number}" / "topology"
                    folder.mkdir(parents=True)
                    siblings = ",".join(map(str, core)) + "\n"
                    (folder / "thread_siblings_list").write_text(siblings)
        (devices / "node").mkdir(parents=True, exist_ok=True)
        (devices / "node" / "possible").write_text("0-3\n")
        return read(str(tmp_path), allowed=everything if allowed is None else allowed)

    return machine


@pytest.fixture(name="xeon")
def _xeon(machine):
    """Two sockets of eight cores with two threads each: 0-7 and 16-23, 8-15 and 24-31."""
    return machine({0: cores(0, 8, 2, 16), 1: cores(8, 8, 2, 16)})
