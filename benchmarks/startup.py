"""What backendcfg costs a process: importing it, starting under a profile, and its commands.

    python benchmarks/startup.py [--quick]

Everything is a fresh process, compared with `python -c pass` in the same series.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv

from measure import Row, clean_environment, emit, nanoseconds, options, processes

import backendcfg

START_FILE = "backendcfg-startup.pth"


def rows(*, quick: bool) -> list[Row]:
    """One row per process, each over or beside a bare interpreter."""
    with tempfile.TemporaryDirectory() as scratch:
        nothing = _world(scratch, "nothing")
        active = _world(scratch, "active")
        under = {**_world(scratch, "under"), "BACKENDCFG_PROFILE": "fast"}
        anew = {**_world(scratch, "anew"), "BACKENDCFG_PROFILE": "reproducible"}
        python = [sys.executable]
        verb = [sys.executable, "-m", "backendcfg"]
        commands = {
            "bare": ([*python, "-c", "pass"], nothing),
            "import": ([*python, "-c", "import backendcfg"], nothing),
            "start": ([*python, "-c", "import backendcfg"], under),
            "start anew": ([*python, "-c", "import backendcfg"], anew),
            "start active": ([*python, "-c", "import backendcfg"], active),
            "status": ([*verb, "status"], active),
            "apply": ([*verb, "apply", "reproducible"], active),
            "plan": ([*verb, "plan", "reproducible"], active),
            "list": ([*verb, "list"], active),
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
        over("`import backendcfg` under `fast`, plan compiled", "start", 0.020),
        over("the same under `reproducible`, which starts anew", "start anew", 0.035),
        over("the same under an active generation", "start active", 0.035),
        within("`backendcfg status`", "status", 0.080),
        within("`backendcfg apply reproducible`", "apply", 0.300),
        within("`backendcfg plan reproducible`", "plan", 0.250),
        within("`backendcfg list`", "list", 0.250),
        *autoload_rows(quick=quick),
    ]


def autoload_rows(*, quick: bool) -> list[Row]:
    """What the start-up file that the wheel brings costs an interpreter."""
    with tempfile.TemporaryDirectory() as scratch:
        never = _world(scratch, "never")
        elsewhere = _world(scratch, "elsewhere")
        off = _environment(os.path.join(scratch, "off"))
        on = _environment(os.path.join(scratch, "on"), start_file=True)
        command = [on, "-m", "backendcfg"]
        # A profile is active in another project than the directory that is measured in.
        project = os.path.join(scratch, "project")
        os.mkdir(project)
        with open(os.path.join(project, "backendcfg.toml"), "w", encoding="utf-8") as file:
            file.write("schema = 1\n")
        subprocess.run(
            [*command, "apply", "reproducible"],
            cwd=project,
            env=elsewhere,
            check=True,
            capture_output=True,
        )
        took = processes(
            {
                "off": [off, "-c", "pass"],
                "on": [on, "-c", "pass"],
                "elsewhere": [on, "-c", "pass"],
            },
            {"off": never, "on": never, "elsewhere": elsewhere},
            rounds=31 if quick else 201,
        )
    return [
        Row(
            f"a Python with the start-up file, {what}",
            f"{'+' if took[name] >= took['off'] else '-'}"
            f"{nanoseconds(abs(took[name] - took['off']))}",
            f"without it {nanoseconds(took['off'])}",
            target="<= +1 ms",
            met=took[name] - took["off"] <= 0.001,
        )
        for name, what in (("on", "nothing active"), ("elsewhere", "active in other projects only"))
    ]


def _environment(path: str, *, start_file: bool = False) -> str:
    """The interpreter of a new virtual environment where this backendcfg can be imported."""
    venv.create(path, symlinks=True)
    python = os.path.join(path, "bin", "python")
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    here = sysconfig.get_path("purelib")
    folders = [os.path.dirname(os.path.dirname(backendcfg.__file__)), here]
    # Before what an editable install has, which looks for a module in these folders.
    with open(os.path.join(packages, "A-paths.pth"), "w", encoding="utf-8") as file:
        file.write("".join(f"{folder}\n" for folder in folders))
    for name in os.listdir(here):
        if name.endswith(".pth") and name != START_FILE:
            shutil.copy(os.path.join(here, name), packages)
    if start_file:
        package = os.path.dirname(backendcfg.__file__)
        shutil.copy(
            os.path.join(package, "startup.py"), os.path.join(packages, "_backendcfg_startup.py")
        )
        shutil.copy(os.path.join(package, "bridges", "start", START_FILE), packages)
        # As pip does; the first start would pay for it otherwise.
        subprocess.run([python, "-m", "compileall", "-q", packages], check=True)
    return python


def _world(scratch: str, name: str) -> dict[str, str]:
    """An environment with directories of its own."""
    return clean_environment(
        **{
            f"BACKENDCFG_{kind}_DIR": os.path.join(scratch, name, kind.lower())
            for kind in ("CONFIG", "SYSTEM", "STATE", "CACHE")
        }
    )


if __name__ == "__main__":
    emit(rows(quick=options(__doc__).parse_args().quick))
