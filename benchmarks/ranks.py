"""What it costs ranks to watch their settings and to be merged, and what it brings to share cores.

    python benchmarks/ranks.py [--quick]

Calls of `fleet.watch()` alternate with steps of training, in one process. Two ranks
of `torchrun` multiply matrices at the same time, under `fast` as it divides the cores, and with as
many threads in each as there are cores, in turns. What 10,000 ranks of three kinds would save is
merged: what this process computes with, with another number of threads in some.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from copy import deepcopy

import torch
from measure import Row, clean_environment, emit, nanoseconds, options, side_by_side

from backendcfg import fleet, numerics_token
from backendcfg.fleet import saving

RANK = """
import json, os, sys, time
import numpy as np
a = np.random.default_rng(0).standard_normal((384, 384))
seconds, done = float(sys.argv[1]), 0
a @ a
begin = time.perf_counter()
while (took := time.perf_counter() - begin) < seconds:
    a @ a
    done += 1
with open(f"{sys.argv[2]}/{os.environ['RANK']}.json", "w") as file:
    json.dump(done / took, file)
"""


def watching(rounds):
    """A call of the watch and a look, beside a step of a small network."""
    network = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), 0.01)
    batch = torch.randn(256, 64)
    watch = fleet.watch()

    def step():
        optimizer.zero_grad()
        network(batch).square().mean().backward()
        optimizer.step()

    took = side_by_side(
        {"step": "step()", "call": "watch()", "look": "look()"},
        {"step": step, "watch": watch, "look": watch.look},
        rounds=rounds,
    )
    return [
        Row(
            what,
            nanoseconds(took[name]),
            f"{nanoseconds(took['step'])} for a step of an MLP of 64, 256 and 1",
            f"{took[name] / took['step']:.5f} of it",
            f"<= {limit} us",
            took[name] <= limit * 1e-6,
        )
        for what, name, limit in (
            ("a call of `watch()` between two looks", "call", 1),
            ("a look at all settings, once a minute", "look", 1000),
        )
    ]


def merging(rounds, size):
    """What ranks of three kinds saved, as one report."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            parts = deepcopy(numerics_token().parts)
            parts["switches"]["torch.num_threads"] += number
            saving.write(folder, saving.Told(number, size, "node-0000", "reproducible"), parts)
            with open(os.path.join(folder, saving.name_of(number)), encoding="utf-8") as file:
                own = json.load(file)
            # Every tenth rank is of the second kind, and one of the third.
            ranks = {0: range(size), 1: range(1, size, 10), 2: [2]}[number]
            for rank in ranks:
                told = {**own, "rank": rank, "host": f"node-{rank // 8:04}"}
                with open(
                    os.path.join(folder, saving.name_of(rank)), "w", encoding="utf-8"
                ) as file:
                    json.dump(told, file)
        total = sum(entry.stat().st_size for entry in os.scandir(folder))
        took = []
        for _ in range(rounds):
            begin = time.perf_counter()
            report = fleet.merge(folder)
            took.append(time.perf_counter() - begin)
    assert (len(report.kinds), report.missing, report.obstacles) == (3, (), ())
    seconds = statistics.median(took)
    return Row(
        f"a report of {size:,} ranks of 3 kinds, simulated",
        f"{seconds:.2f} s",
        f"{total / 1e6:.1f} MB of files",
        f"{seconds / size * 1e6:.0f} us for a rank",
        "<= 1 s, 10 MB" if size == 10_000 else "",
        (seconds <= 1 and total <= 10e6) if size == 10_000 else None,
    )


def sharing(rounds, seconds):
    """Products a second of the slower of two ranks."""
    cores = len(os.sched_getaffinity(0))
    found = {"shared": [], "all": []}
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "rank.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(RANK)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        for _ in range(rounds):
            for name, options in (("shared", []), ("all", ["--set", f"threads.count={cores}"])):
                under = ["-m", "backendcfg", "run", "fast", *options, "--", sys.executable]
                subprocess.run(
                    [sys.executable, *under, *launch, script, str(seconds), folder],
                    env=clean_environment(),
                    check=True,
                    capture_output=True,
                )
                rates = []
                for rank in range(2):
                    with open(os.path.join(folder, f"{rank}.json"), encoding="utf-8") as file:
                        rates.append(json.load(file))
                found[name].append(min(rates))
    ours, theirs = (statistics.median(found[name]) for name in ("shared", "all"))
    return Row(
        f"2 ranks of torchrun on {cores} cores, products of 384 x 384",
        f"{ours:.0f} a second in the slower",
        f"{theirs:.0f} with {cores} threads each",
        f"{ours / theirs:.2f} times as many",
    )


def main() -> int:
    """Watch, merge, then share."""
    quick = options(__doc__).parse_args().quick
    merged = [merging(3 if quick else 7, size) for size in (10_000, 100_000)[: 1 if quick else 2]]
    shared = sharing(2 if quick else 7, 1.0 if quick else 2.0)
    emit([*watching(5 if quick else 31), *merged, shared])
    return 0


if __name__ == "__main__":
    sys.exit(main())
