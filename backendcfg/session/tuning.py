"""`backendcfg tune`: measure who is the fastest on this machine, and store it."""

from __future__ import annotations

import time

from backendcfg import native
from backendcfg.catalogue.cpu import BY_NAME, COMPILED_IN
from backendcfg.dispatch import calibration, tuning
from backendcfg.dispatch.calibration import Measurable, Table
from backendcfg.progress import Step
from backendcfg.records import field, record
from backendcfg.session.shell import environment_of_run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.measuring import Process
    from backendcfg.transact.compiled import Compiled

SECONDS = 60.0
"""How long measuring takes at most."""

NOISE = 0.2
"""Turns that differ by more than this part say too little of who is the fastest to be stored."""


@record(frozen=True)
class Tuned:
    """What was measured.

    Attributes:
        table: as it was stored.
        path: of its file; "" where turns differed too much to store it.
        order: the providers, the preferred one first.
        absent: why others were not measured, by name.
        seconds: how long it took.
        complete: whether every turn was taken before the time was up.
        noise: how much turns differ, as a part of what they take.
    """

    table: Table
    path: str
    order: tuple[str, ...]
    absent: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    complete: bool = True
    noise: float = 0.0


def tune(
    compiled: Compiled,
    seconds: float = SECONDS,
    noise: float = NOISE,
) -> Tuned:
    """Measure the providers that a profile may use, with its threads and its kernels, and store it.

    Every library is opened in a child process. When this is interrupted, what was stored before is
    as it was.

    Args:
        compiled: the profile.
        seconds: after which nothing more is measured, once the libraries are open.
        noise: how much turns may differ, as a part of what they take, to be stored.

    Raises:
        StateUnwritableError: the table cannot be stored.
        MissingLibraryError: nobody can be measured.
    """
    calibration.refuse_unwritable()
    environment = environment_of_run(compiled)
    threads = calibration.threads(compiled.values, compiled.asked)
    begin = time.monotonic()
    processes: list[Process] = []
    try:
        with Step("opening the libraries to measure") as step:
            processes, absent = _start(compiled, environment, threads)
            outcome = tuning.measure(processes, seconds, progress=step.at)
        libraries = {
            one.name: _library(one.name, one.path, compiled)
            for one in processes
            if one.name not in outcome.lost
        }
    finally:
        for process in processes:
            process.close()
    table = _table(libraries, outcome.times, threads, environment)
    return Tuned(
        table,
        calibration.write(table) if outcome.noise <= noise else "",
        tuple(libraries),
        {**absent, **outcome.lost},
        time.monotonic() - begin,
        outcome.complete,
        outcome.noise,
    )


def _start(
    compiled: Compiled, environment: Mapping[str, str], threads: int
) -> tuple[list[Process], dict[str, str]]:
    """A process for each provider that the profile may use, and why some have none.

    Raises:
        MissingLibraryError: none of them can be opened.
    """
    from backendcfg.dispatch.measuring import Process
    from backendcfg.errors import MissingLibraryError

    started: list[Process] = []
    absent: dict[str, str] = {}
    try:
        for name in compiled.order:
            try:
                started.append(Process(name, compiled, environment, threads))
            except tuning.ContenderLostError as error:
                absent[name] = str(error)
    except BaseException:
        for process in started:
            process.close()
        raise
    if not started:
        raise MissingLibraryError(
            "there is no library to measure",
            notes=[f"{name}: {why}" for name, why in absent.items()],
            state="the calibration is as it was before",
            helps=["run `backendcfg detect` to list the libraries that were found"],
        )
    return started, absent


def _library(name: str, path: str, compiled: Compiled) -> Measurable:
    if name in COMPILED_IN:
        path = native.file()
    versions = (one.get("version", "") for one in compiled.libraries if one["path"] == path)
    pool = BY_NAME[name].pool
    return Measurable(
        path, next(versions, ""), calibration.identity(path), name if pool is None else pool
    )


def _table(
    libraries: dict[str, Measurable],
    times: dict[str, dict[int, dict[str, calibration.Measured]]],
    threads: int,
    environment: Mapping[str, str],
) -> Table:
    digest, processor = calibration.machine()
    return Table(
        digest,
        processor,
        threads,
        time.time(),
        libraries,
        calibration.kernels(environment),
        times,
    )
