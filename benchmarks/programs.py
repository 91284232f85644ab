"""Programs that nobody rewrote, under a profile against without: `python X` in turns.

    python benchmarks/programs.py [--quick] [--profile fast] [NAME ...]

Each program of `programs/` runs in fresh processes in the order plain, profile, profile, plain. A
block gives one ratio; the ratio of its two plain runs shows what noise alone does. A program whose
packages are not installed is left out, and said.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import Row, clean_environment, emit, nanoseconds, options

PROGRAMS = Path(__file__).with_name("programs")
TARGETS = {"gpt2_training": 1.6, "numpy_temporaries": 1.4, "mixed": 5.0}
"""How many times as fast, at least."""
OVERALL = 1.2


def rows(names: list[str], profile: str, *, blocks: int) -> list[Row]:
    """One row per program, and the geometric mean of all."""
    found, ratios = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or sorted(path.stem for path in PROGRAMS.glob("*.py")):
            if name == "turns":
                continue
            runs = [block(name, profile, scratch) for _ in range(blocks)]
            if missing := next((run for run in runs if isinstance(run, str)), ""):
                found.append(Row(name, f"not measured: {missing}"))
                continue
            row, ratio = told(name, [run for run in runs if not isinstance(run, str)])
            found.append(row)
            ratios.append(ratio)
            print(" | ".join(row.cells()), file=sys.stderr, flush=True)
    if len(ratios) > 1:
        mean = statistics.geometric_mean(ratios)
        found.append(
            Row(
                "geometric mean",
                "",
                "",
                f"{mean:.2f}",
                f">= {OVERALL} of the speed",
                mean >= OVERALL,
            )
        )
    return found


def block(name: str, profile: str, scratch: str) -> list[dict[str, Any]] | str:
    """What four runs of a program said: plain, profile, profile, plain; or what it lacks."""
    plain = [sys.executable, str(PROGRAMS / f"{name}.py")]
    governed = [sys.executable, "-m", "backendcfg", "run", profile, "--", *plain]
    said = []
    for command in (plain, governed, governed, plain):
        done = subprocess.run(
            command,
            cwd=scratch,
            env=clean_environment(
                **{f"BACKENDCFG_{kind}_DIR": os.path.join(scratch, kind) for kind in KINDS}
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        said.append(json.loads(done.stdout.splitlines()[-1]))
    return said


KINDS = ("CONFIG", "SYSTEM", "STATE", "CACHE")


def told(name: str, runs: list[list[dict[str, Any]]]) -> tuple[Row, float]:
    """The row of a program, and how many times as fast the profile makes it."""
    plain = [run[i]["seconds"] for run in runs for i in (0, 3)]
    governed = [run[i]["seconds"] for run in runs for i in (1, 2)]
    ratios = [
        (run[0]["seconds"] + run[3]["seconds"]) / (run[1]["seconds"] + run[2]["seconds"])
        for run in runs
    ]
    noise = statistics.median(
        max(a, b) / min(a, b) for a, b in ((run[0]["seconds"], run[3]["seconds"]) for run in runs)
    )
    ratio = statistics.median(ratios)
    low, high = interval(ratios)
    peaks = [statistics.median(run[i]["peak"] for run in runs) for i in (1, 0)]
    apart = max(abs(run[1]["number"] - run[0]["number"]) / abs(run[0]["number"]) for run in runs)
    spread = f", {low:.2f} to {high:.2f}" if len(runs) > 1 else ""
    target = TARGETS.get(name)
    return (
        Row(
            f"{name}: numbers apart by {apart:.0e}, peak memory {peaks[0] / peaks[1]:.2f}",
            nanoseconds(statistics.median(governed)),
            f"{nanoseconds(statistics.median(plain))} without",
            f"{ratio:.2f} of its speed{spread}; noise {noise:.2f}",
            f">= {target} of the speed" if target else "",
            ratio >= target if target else None,
        ),
        ratio,
    )


def interval(ratios: list[float]) -> tuple[float, float]:
    """Where the median lies in 95 of 100 draws of as many ratios, with replacement."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--profile", default="fast", help="a name or a file; fast")
    parser.add_argument("names", nargs="*", help="programs; all of them")
    asked = parser.parse_args()
    emit(rows(asked.names, asked.profile, blocks=1 if asked.quick else 5))
