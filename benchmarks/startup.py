"""What backendcfg costs a process: importing it, starting under a profile, and its commands.

    python benchmarks/startup.py [--quick]

Everything is a fresh process, compared with `python -c pass` in the same series.
"""

from __future__ import annotations

import os
import sys
import tempfile

from measure import Row, clean_environment, emit, nanoseconds, processes


def rows(*, quick: bool) -> list[Row]:
    """One row per process, each over or beside a bare interpreter."""
    with tempfile.TemporaryDirectory() as scratch:
        nothing = _world(scratch, "nothing")
        active = _world(scratch, "active")
        under = {**_world(scratch, "under"), "BACKENDCFG_PROFILE": "reproducible"}
        python = [sys.executable]
        verb = [sys.executable, "-m", "backendcfg"]
        commands = {
            "bare": ([*python, "-c", "pass"], nothing),
            "import": ([*python, "-c", "import backendcfg"], nothing),
            "start": ([*python, "-c", "import backendcfg"], under),
            "start active": ([*python, "-c", "import backendcfg"], active),
            "status": ([*verb, "status"], active),
            "apply": ([*verb, "apply", "reproducible"], active),
            "plan": ([*verb, "plan", "reproducible"], active),
        }
        # `apply` first, so that the rest of "active" has something active.
        processes({"apply": commands["apply"][0]}, {"apply": active}, rounds=1)
        took = processes(
            {name: command for name, (command, _) in commands.items()},
            {name: environment for name, (_, environment) in commands.items()},
            rounds=7 if quick else 31,
        )
    bare = took["bare"]

    def over(what: str, name: str, limit: float) -> Row:
        cost = took[name] - bare
        return Row(
            what,
            f"+{nanoseconds(cost)}",
            f"bare interpreter {nanoseconds(bare)}",
            target=f"<= +{limit * 1e3:.0f} ms",
            met=cost <= limit,
        )

    def within(what: str, name: str, limit: float | None) -> Row:
        return Row(
            what,
            nanoseconds(took[name]),
            f"bare interpreter {nanoseconds(bare)}",
            f"{took[name] / bare:.1f}",
            f"<= {limit * 1e3:.0f} ms" if limit else "",
            took[name] <= limit if limit else None,
        )

    return [
        over("`import backendcfg`, nothing active", "import", 0.010),
        over("`import backendcfg` under `BACKENDCFG_PROFILE`, plan compiled", "start", 0.025),
        over("`import backendcfg` under an active generation", "start active", 0.025),
        within("`backendcfg status`", "status", 0.120),
        within("`backendcfg apply reproducible`", "apply", 0.300),
        within("`backendcfg plan reproducible`", "plan", None),
    ]


def _world(scratch: str, name: str) -> dict[str, str]:
    """An environment with directories of its own."""
    return clean_environment(
        **{
            f"BACKENDCFG_{kind}_DIR": os.path.join(scratch, name, kind.lower())
            for kind in ("CONFIG", "SYSTEM", "STATE", "CACHE")
        }
    )


if __name__ == "__main__":
    emit(rows(quick="--quick" in sys.argv))
