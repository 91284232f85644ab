"""How every benchmark here measures: side by side, many times, medians and ratios.

Two things are compared only within one process or one series, turn by turn (A B A B ...), so that
a change of clock speed or a neighbour's load meets both. Nothing is compared with a number from
another day.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import timeit
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PRESETS = ("OPENBLAS_", "GOTO_", "OMP_", "KMP_", "MKL_", "BLIS_", "BACKENDCFG_", "TORCH_", "XLA_")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        what: what was measured.
        ours, theirs: the two numbers, with their unit.
        ratio: ours to theirs, as the target counts it.
        target: the limit on `ratio` or on `ours`, in words; "" where there is none.
        met: whether the target is met; None where there is none.
    """

    what: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None

    def cells(self) -> list[str]:
        """The line as it is printed and written."""
        verdict = {True: "met", False: "missed", None: ""}[self.met]
        return [self.what, self.ours, self.theirs, self.ratio, self.target, verdict]


HEAD = ["what", "ours", "against", "ratio", "target", ""]


def side_by_side(
    statements: Mapping[str, str],
    names: dict[str, object],
    *,
    rounds: int = 41,
    turn: float = 0.004,
    timer: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median seconds per execution of each statement, measured in turns.

    Statements are compiled into the loop that times them, as `timeit` does, so that no call is
    measured but theirs.

    Args:
        statements: Python source by name.
        names: what the statements refer to.
        rounds: how many turns each has.
        turn: seconds of a turn, about; how many executions that is is found once.
        timer: what counts. What never waits is counted by `time.thread_time`, which stands still
            while a neighbour runs.
    """
    timers = {
        name: timeit.Timer(source, globals=names, timer=timer)
        for name, source in statements.items()
    }
    counts = {}
    for name, timer in timers.items():
        count = 1
        timer.timeit(1)
        # The best of three: one that was interrupted would leave too few executions in a turn.
        while (spent := min(timer.repeat(3, count))) < turn / 4:
            count *= 2
        counts[name] = max(1, round(count * turn / spent))
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            samples[name].append(timer.timeit(counts[name]) / counts[name])
    return {name: statistics.median(values) for name, values in samples.items()}


def clean_environment(**variables: str) -> dict[str, str]:
    """This environment without what presets numeric libraries or the interpreter, for children."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(PRESETS)}
    # Without compiled bytecode, importing would mostly measure the compiler.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, **variables}


def processes(
    commands: Mapping[str, list[str]], environments: Mapping[str, dict[str, str]], *, rounds: int
) -> dict[str, float]:
    """The median wall seconds of each command, measured in turns after one warm-up each."""

    def run(name: str) -> float:
        start = time.perf_counter()
        subprocess.run(
            commands[name],
            cwd="/",  # no project, and no checkout to import from
            env=environments[name],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - start

    for name in commands:
        run(name)
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name in commands:
            samples[name].append(run(name))
    return {name: statistics.median(values) for name, values in samples.items()}


def in_child(script: str, *arguments: str, **variables: str) -> list[Row]:
    """Rows from a script beside this one, run in a fresh process with a clean environment."""
    done = subprocess.run(
        [sys.executable, os.path.join(os.path.dirname(__file__), script), "--rows", *arguments],
        env=clean_environment(**variables),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [Row(**row) for row in json.loads(done.stdout)]


def options(description: str | None) -> argparse.ArgumentParser:
    """The options of every script; `--help` prints what the script says of itself."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a first impression")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)  # see `emit`
    return parser


def emit(rows: list[Row]) -> None:
    """What a script does at its end: JSON for `in_child` under `--rows`, else a table."""
    if "--rows" in sys.argv:
        json.dump([asdict(row) for row in rows], sys.stdout)
    else:
        print(table(rows))


def table(rows: list[Row]) -> str:
    """Rows as a Markdown table that is also readable as text."""
    lines = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    text = [
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        for line in lines
    ]
    rule = " | ".join("-" * max(3, width) for width in widths)
    return "\n".join(f"| {line} |" for line in [text[0], rule, *text[1:]])


def nanoseconds(seconds: float) -> str:
    """`217 ns`, `5.4 us`, `12.3 ms`."""
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (10.0, 1e3, "ms")):
        if seconds < limit:
            value = seconds * scale
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
    return f"{seconds:.1f} s"


def machine() -> str:
    """The machine and the versions, in a few lines of Markdown."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        facts = {key.strip(): value.strip() for key, value in facts.items()}
        name = f"{facts.get('model name', name)}, family {facts.get('cpu family', '?')}"
        name += f" model {facts.get('model', '?')}"
    versions = []
    for package in ("numpy", "scipy", "torch", "jax", "threadpoolctl", "mkl", "backendcfg"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return "\n".join(
        [
            f"- {name}; {len(os.sched_getaffinity(0))} processors usable",
            f"- {platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
            f"- Python {platform.python_version()}; {', '.join(versions)}",
            f"- {time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}",
        ]
    )
