"""A rehearsal: a child process imports the installed frameworks and applies a plan for real.

`python -m backendcfg.session.rehearsal` is that child. It reads a compiled plan on standard input
and prints a report, or an error, as one JSON object.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress

from backendcfg import childprocess, environ
from backendcfg.catalogue.frameworks import NUMPY, ON_DEVICES, SCIPY
from backendcfg.errors import BackendCfgError
from backendcfg.transact.compiled import Compiled
from backendcfg.transact.outcome import Outcome, Report

FRAMEWORKS = (NUMPY.name, f"{SCIPY.name}.linalg", *ON_DEVICES)


def rehearse(compiled: Compiled) -> Report:
    """What a fresh process reports after applying a plan.

    Raises:
        BackendCfgError: the child could not apply it; the record is the child's.
        InternalError: the child died or hung.
    """
    environment = {
        name: value
        for name, value in environ.current().items()
        if not name.startswith(environ.PREFIX)
    }
    # Nothing but the plan on standard input may act in the child.
    environment[environ.DISABLE.name] = "1"
    answer = childprocess.ask(
        ["-m", "backendcfg.session.rehearsal"],
        environment,
        task=f"the rehearsal of profile `{compiled.name}`",
        remedy="leave out --check to apply without a rehearsal",
        given=compiled.to_json(),
    )
    report = answer["report"]
    return Report(
        **{
            **report,
            "outcomes": tuple(Outcome(**outcome) for outcome in report["outcomes"]),
            "overrides": tuple(report["overrides"]),
        }
    )


def main() -> None:
    """The child: apply, then import the frameworks, and report what holds at the end."""
    from backendcfg.session import installed
    from backendcfg.session.process import install

    compiled = Compiled.from_dict(json.load(sys.stdin))
    try:
        install(compiled, "rehearsal")
        for framework in FRAMEWORKS:
            # One that cannot be imported here has no switches to rehearse.
            with suppress(ImportError):
                importlib.import_module(framework)
        if (report := installed.report()) is not None:
            sys.stdout.write("\n" + json.dumps({"report": report.to_dict()}) + "\n")
    except BackendCfgError as error:
        sys.stdout.write("\n" + json.dumps({"error": error.to_dict()}) + "\n")


if __name__ == "__main__":
    main()
