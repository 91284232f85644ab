"""Dask: each worker under a profile, from the start of its interpreter.

A nanny starts a worker, and starts another one when that ends. It is given the variables that make
the worker's Python start under the profile, as a child of `backendcfg run` does. What raises in a
nanny does not keep its worker from joining, nor does what raises in a worker that has joined. So a
worker that cannot be under the profile ends at its start, or closes itself before its first task.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from distributed import NannyPlugin, WorkerPlugin
from distributed.comm import CommClosedError

from backendcfg import environ, session
from backendcfg.errors import BackendCfgError, FleetWorkerError, UsageError
from backendcfg.fleet import workers
from backendcfg.fleet.agreement import Agreement, agreed
from backendcfg.session import children, starting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from distributed import Client, Nanny, Worker

    from backendcfg.transact.compiled import Asked

NAME = "backendcfg"
"""Of our plugins in a cluster: another profile replaces them."""

STARTING = 300.0
"""Seconds that a worker may take to start anew."""

TICK = 0.002
"""Seconds between two looks at whether a worker's process is there."""

_LEFT = (
    "further workers start as before; those that have started anew are under the profile until"
    " `client.restart()`"
)


def install(
    client: Client,
    name: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Agreement:
    """Start all workers of a cluster under a profile: those that run anew, and each that joins.

    What workers hold in memory is lost, as by `client.restart()`.

    Args:
        client: of the cluster.
        name: the profile; None for the one in force in this process, else the one in force here.
            A profile of a file must be where it is here on every host.
        settings: flags to set over it: `{"cudnn.benchmark": True}`.
        threads: of each library in a worker; None for one where the profile has
            `threads.count = "auto"`, as Dask computes several tasks of a worker at a time.

    Returns:
        That the workers agree, with what differs of their hosts.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: this machine cannot serve it, or a worker's cannot.
        FleetWorkerError: a worker did not start under it, or has no nanny and another profile.
        UsageError: the client is asynchronous.
        FleetDisagreesError: workers have other settings all the same.
    """
    _refuse_asynchronous(client)
    if environ.disabled():
        return agree(client)
    requests = workers.requested(name, settings, threads)
    # Before anything is changed: each worker has backendcfg, and can be started anew or is so.
    before = _answers(client, _refuse_other_settings, requests)
    # Or what an earlier call installed would refuse workers that start under this profile.
    _unregister(client, nanny=False)
    try:
        client.register_plugin(_OfNanny(requests), name=NAME)
        client.register_plugin(_OfWorker(requests), name=NAME)
    except BaseException as error:
        for nanny in (False, True):
            with suppress(Exception):  # what went wrong first is told
                _unregister(client, nanny=nanny)
        if isinstance(error, BackendCfgError):
            error.state = _LEFT
        elif isinstance(error, CommClosedError):
            raise FleetWorkerError(
                "a worker did not start under the profile, and its nanny has ended",
                notes=["what it printed says why"],
                state=_LEFT,
            ) from error
        raise
    found = agree(client)
    if before and not found.size:
        raise FleetWorkerError(
            "no worker came back under the profile",
            notes=["what they printed says why"],
            state="workers that come are started under the profile",
        )
    return found


def uninstall(client: Client) -> None:
    """Have further workers started without a profile; after `client.restart()` all of them.

    Raises:
        UsageError: the client is asynchronous.
    """
    _refuse_asynchronous(client)
    _unregister(client, nanny=False)
    _unregister(client, nanny=True)


def _unregister(client: Client, *, nanny: bool) -> None:
    # A plugin that is not there is an error that the scheduler prints. A function within a function
    # goes there as it is; one of this module would need backendcfg there.
    def names(dask_scheduler: Any) -> list[str]:
        return list(dask_scheduler.nanny_plugins if nanny else dask_scheduler.worker_plugins)

    if NAME in client.run_on_scheduler(names):
        client.unregister_worker_plugin(NAME, nanny=nanny)


def agree(client: Client) -> Agreement:
    """Hold the settings of all workers of a cluster against each other.

    Raises:
        FleetDisagreesError: they have other settings; it names them, the workers and the hosts.
        FleetWorkerError: a worker's Python has no backendcfg.
        UsageError: the client is asynchronous.
    """
    _refuse_asynchronous(client)
    cure = 'start all under one profile: `backendcfg.fleet.dask.install(client, "fast")`'
    return agreed(_answers(client, workers.told), cure)


def _answers(client: Client, function: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """What a function of ours gives in each worker.

    Raises:
        FleetWorkerError: a worker's Python has no backendcfg.
    """
    try:
        return dict(client.run(function, *given))
    except BackendCfgError:
        raise
    except Exception as error:
        if "ModuleNotFoundError" not in repr(error):  # it comes back as it is, or as its text
            raise
        raise FleetWorkerError(
            f"a worker cannot say how it computes: {error}",
            helps=["install backendcfg where workers run"],
        ) from error


def _refuse_other_settings(requests: tuple[Asked, ...], dask_worker: Worker) -> None:
    if dask_worker.nanny is None:
        workers.refuse_other_settings(requests, dask_worker.address)


def _refuse_asynchronous(client: Client) -> None:
    if client.asynchronous:
        raise UsageError(
            "the client is asynchronous, and this waits for the workers",
            helps=["call it with a client of its own, `Client(address)`"],
        )


class _OfNanny(NannyPlugin):  # type: ignore[misc]
    """Has a nanny start its workers under a profile."""

    def __init__(self, requests: tuple[Asked, ...]) -> None:
        self.requests = requests

    async def setup(self, nanny: Nanny) -> None:
        """Give the nanny what it starts workers with, and have it start its worker anew."""
        _restore(nanny)
        if environ.disabled():
            return
        own = _Start(nanny.instantiate, nanny.pre_spawn_env, nanny.env)
        setattr(nanny, _OWN, own)
        path = nanny.env.get("PYTHONPATH", environ.current().get("PYTHONPATH", ""))
        try:
            variables = await asyncio.to_thread(_variables, self.requests, path)
        except Exception as error:
            # A nanny that has just come ignores what is raised here, and would start its worker.
            nanny.instantiate = _raising(error)
            raise
        before, later = _with(variables, own.pre_spawn), _with(variables, own.later)
        unset = variables.keys() - before.keys()

        async def instantiate() -> Any:
            return await _instantiated(nanny, own.instantiate, before, unset)

        _give(nanny, _Start(instantiate, before, later))
        if nanny.process is not None:
            outcome = await nanny.restart(timeout=STARTING, reason="a profile was installed")
            if outcome != "OK":
                raise FleetWorkerError(
                    f"the worker of {nanny.address} did not start under the profile",
                    notes=["what it printed says why"],
                )

    def teardown(self, nanny: Nanny) -> None:
        """Let the nanny start workers as before."""
        _restore(nanny)


class _OfWorker(WorkerPlugin):  # type: ignore[misc]
    """Keeps out a worker that is not under the profile, however it was started."""

    def __init__(self, requests: tuple[Asked, ...]) -> None:
        self.requests = requests

    def setup(self, worker: Worker) -> None:
        """See that the profile is in force."""
        if environ.disabled():
            return
        try:
            _refuse_other_settings(self.requests, worker)
            if not worker.address.startswith("inproc:"):  # that is the program itself
                workers.begin(self.requests, "Dask", str(worker.name))
        except Exception as error:
            if not worker.periodic_callbacks["heartbeat"].is_running():  # it is about to join
                worker.loop.add_callback(worker.close, nanny=True, reason=str(error))
            raise


class _Start(NamedTuple):
    """How a nanny starts a worker: the function, and variables before and after the spawn."""

    instantiate: Callable[[], Awaitable[Any]]
    pre_spawn: dict[str, str]
    later: dict[str, str]


_OWN = "_backendcfg_own"
"""Where a nanny keeps how it starts workers by itself."""


def _restore(nanny: Nanny) -> None:
    own = vars(nanny).pop(_OWN, None)
    if own is not None:
        _give(nanny, own)


def _give(nanny: Nanny, start: _Start) -> None:
    nanny.instantiate = start.instantiate
    for one in (nanny, nanny.process):  # the second one starts a worker anew
        if one is not None:
            one.pre_spawn_env, one.env = start.pre_spawn, start.later


def _variables(requests: Sequence[Asked], path: str) -> dict[str, str | None]:
    """What the environment of a worker on this host must have, and under None must not have."""
    plans = workers.plans_of(requests)
    return {
        **session.run_environment(plans[-1]),
        environ.INHERIT.name: children.in_words([plan.request for plan in plans]),
        "PYTHONPATH": starting.python_path(path),
    }


def _with(variables: Mapping[str, str | None], environment: Mapping[str, str]) -> dict[str, str]:
    merged = {**environment, **variables}
    return {name: text for name, text in merged.items() if text is not None}


def _raising(error: Exception) -> Callable[[], Awaitable[Any]]:
    async def instantiate() -> Any:
        raise error

    return instantiate


_spawning = Lock()
"""Held by the nanny of this process whose variables the process has."""


async def _instantiated(
    nanny: Nanny,
    instantiate: Callable[[], Awaitable[Any]],
    variables: Mapping[str, str],
    unset: Collection[str],
) -> Any:
    """Start a worker, and put the variables of this process back once its process is there.

    Dask sets them in the nanny's process and leaves them there. In a `LocalCluster` that is the
    program's own, whose other children would be under the profile, too.
    """
    last = _pid(nanny)
    await asyncio.to_thread(_spawning.acquire)
    try:
        before = {name: environ.current().get(name) for name in (*variables, *unset)}
        for name in unset:
            environ.current().pop(name, None)
        started = asyncio.ensure_future(instantiate())
        try:
            # Dask tells of no process before its worker has connected.
            while not started.done() and _pid(nanny) in (None, last):  # noqa: ASYNC110
                await asyncio.sleep(TICK)
        except BaseException:
            started.cancel()
            raise
        finally:
            for name, text in before.items():
                # What the program has set meanwhile is its own.
                if environ.current().get(name) == variables.get(name):
                    environ.put(name, text)
    finally:
        _spawning.release()
    return await started


def _pid(nanny: Nanny) -> int | None:
    process = nanny.process and nanny.process.process
    return process.pid if process else None
