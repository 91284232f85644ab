"""One TOML profile sets threads, precision, determinism and seeds of every numeric library.

    import backendcfg

    with backendcfg.profile("fast"):
        ...

The public names are `profile`, `apply`, `undo`, `plan`, `verify`, `detect`, `active`, `flags`,
`reload`, `guard`, `capture`, `numerics_token`, `probe_precision`, `record`, `evidence`, `backends`,
`fleet`, `ops` and `errors`. Importing this package applies the profile that `backendcfg status`
shows: one that BACKENDCFG_PROFILE names, that was applied for the project, the user or the
environment, or that a settings file picks. Where there is none it opens no library, sets no
variable and costs a few milliseconds.

PYTEST_DONT_REWRITE, because pytest would warn of a package that a start-up file imported already.
"""

from __future__ import annotations

from backendcfg import locks

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg import backends, errors, fleet, ops
    from backendcfg.audit.capture import capture
    from backendcfg.audit.evidence.probes import probe_precision
    from backendcfg.audit.evidence.record import record
    from backendcfg.audit.guard import guard
    from backendcfg.audit.report.data import evidence
    from backendcfg.audit.token import numerics_token
    from backendcfg.audit.verify import verify
    from backendcfg.session import active, apply, detect, flags, plan, profile, reload, undo

__all__ = [
    "__version__",
    "active",
    "apply",
    "backends",
    "capture",
    "detect",
    "errors",
    "evidence",
    "flags",
    "fleet",
    "guard",
    "numerics_token",
    "ops",
    "plan",
    "probe_precision",
    "profile",
    "record",
    "reload",
    "undo",
    "verify",
]

_HOMES = {
    "capture": "audit.capture",
    "evidence": "audit.report.data",
    "guard": "audit.guard",
    "load_ipython_extension": "notebook",
    "numerics_token": "audit.token",
    "probe_precision": "audit.evidence.probes",
    "record": "audit.evidence.record",
    "unload_ipython_extension": "notebook",
    "verify": "audit.verify",
}
"""The modules of names that are not in `session`; IPython looks for those of its extension here."""


def __getattr__(name: str) -> Any:
    """Load a public name the first time that it is used."""
    if name.startswith("_") or name not in {*__all__, *_HOMES}:
        raise AttributeError(f"module 'backendcfg' has no attribute {name!r}")
    # Nothing is imported before: a child that is forked meanwhile would wait for that import.
    with locks.LOADING:
        import importlib

        if name in ("backends", "errors", "fleet", "ops"):
            return importlib.import_module(f"backendcfg.{name}")
        home = importlib.import_module(f"backendcfg.{_HOMES.get(name, 'session')}")
        value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _start() -> None:
    import sys

    from backendcfg import environ, startup
    from backendcfg.session.start import start

    if (records := environ.RECORDS.read()) and not startup.is_command_line(sys.orig_argv):
        from backendcfg.probe.launchers import this_rank

        if (rank := this_rank()) is not None:
            from backendcfg.audit.evidence import ranks

            ranks.print_apart(records, rank.number)
    start(_capture_at_exit)
    guard, trace = environ.GUARD.read(), environ.TRACE.read()
    if not (guard or trace) or environ.disabled() or startup.is_command_line(sys.orig_argv):
        return
    if guard:
        from backendcfg.audit import recording

        recording.begin(guard)
    if trace:
        from backendcfg.audit.trace import watching

        watching.begin(trace)


def _capture_at_exit(folder: str) -> None:
    """Leave the state of the switches when this process ends; its own children do not."""
    import atexit
    import os

    process = os.getpid()

    def leave() -> None:
        from backendcfg.audit.capture import at_exit

        at_exit(folder, process)

    atexit.register(leave)


def _save_at_exit() -> None:
    """Leave what this process computes with when it ends, if it is a rank of `run --save-ranks`."""
    import os
    import sys

    from backendcfg import environ, startup

    given = environ.RANKS.read()
    if not given or environ.disabled() or startup.is_command_line(sys.orig_argv):
        return
    from backendcfg.probe import launchers

    # A rank puts its process ID before the folder: what it starts is no rank, though it inherits
    # the launcher's variables. A rank that starts itself anew keeps its ID, and is known by it.
    process = os.getpid()
    owner, _, folder = given.partition(":") if given[0] != "/" else ("", "", given)
    if owner not in ("", str(process)) or launchers.is_launcher(sys.orig_argv):
        return
    if launchers.this_rank() is not None:
        environ.current()[environ.RANKS.name] = f"{process}:{folder}"
    import atexit

    def leave() -> None:
        if os.getpid() == process and launchers.may_be_rank():
            from backendcfg.fleet import saving

            saving.leave(folder)

    atexit.register(leave)


if "_is_started" not in globals():  # `importlib.reload` and `%reload_ext` run this file again
    _is_started = True
    _start()
    _save_at_exit()
