"""Dask: each worker under a profile, from the start of its interpreter.

A nanny starts a worker, and starts another one when that ends. It is given the variables that make
the worker's Python start under the profile, as a child of `backendcfg run` does. What raises in a
nanny does not keep its worker from joining, nor does what raises in a worker that has joined. So a
worker that cannot be under the profile ends at its start, or closes itself before its first task.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distributed import NannyPlugin, WorkerPlugin

from backendcfg import environ, session
from backendcfg.errors import FleetWorkerError, UsageError
from backendcfg.fleet import workers
from backendcfg.fleet.agreement import Agreement, agreed
from backendcfg.session import children, starting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from distributed import Client, Nanny, Worker

    from backendcfg.transact.compiled import Asked

NAME = "backendcfg"
"""Of our plugins in a cluster: another profile replaces them."""


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
    requests = workers.requested(name, settings, threads)
    # Or what an earlier call installed would refuse workers that start under this profile.
    _unregister(client, nanny=False)
    try:
        client.register_plugin(_OfNanny(requests), name=NAME)
        client.register_plugin(_OfWorker(requests), name=NAME)
    except BaseException:
        uninstall(client)
        raise
    return agree(client)


def uninstall(client: Client) -> None:
    """Have further workers started without a profile; after `client.restart()` all of them."""
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
    answers = client.run(workers.told, on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, ModuleNotFoundError):
            raise FleetWorkerError(
                f"worker {worker} cannot say how it computes: {answer}",
                helps=["install backendcfg where that worker runs"],
            ) from answer
        if isinstance(answer, BaseException):
            raise answer
    return agreed(
        answers, 'start all under one profile: `backendcfg.fleet.dask.install(client, "fast")`'
    )


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
        original, *environments = nanny.instantiate, nanny.pre_spawn_env, nanny.env
        _originals[nanny] = original, *environments
        try:
            variables = await asyncio.to_thread(_variables, self.requests)
        except Exception as error:
            # A nanny that has just come ignores what is raised here, and would start its worker.
            nanny.instantiate = _raising(error)
            raise

        async def instantiate() -> Any:
            with _as_before(nanny.pre_spawn_env.keys() | variables.keys()):
                for name in variables.keys() - nanny.pre_spawn_env.keys():
                    environ.current().pop(name, None)
                return await original()

        _give(nanny, instantiate, *(_with(variables, one) for one in environments))
        if nanny.process is not None:
            await nanny.restart(reason="a profile was installed")
            if not nanny.is_alive():
                raise FleetWorkerError(
                    f"the worker of {nanny.address} did not start under the profile",
                    notes=["what it printed says why"],
                    state="it is gone",
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
        try:
            if worker.nanny is not None:
                workers.begin(self.requests, "Dask", str(worker.name))
            else:
                workers.refuse_other_settings(self.requests, worker.address)
        except Exception as error:
            if not worker.periodic_callbacks["heartbeat"].is_running():  # it is about to join
                worker.loop.add_callback(worker.close, nanny=True, reason=str(error))
            raise


_originals: WeakKeyDictionary[Nanny, tuple[Any, ...]] = WeakKeyDictionary()
"""How nannies of this process start a worker by themselves, and the variables that they set."""


def _restore(nanny: Nanny) -> None:
    if nanny in _originals:
        _give(nanny, *_originals.pop(nanny))


def _give(nanny: Nanny, instantiate: Any, pre_spawn: dict[str, str], later: dict[str, str]) -> None:
    """Have a nanny start workers in a way, and with variables before and after their start."""
    nanny.instantiate = instantiate
    for one in (nanny, nanny.process):  # the second one starts a worker anew
        if one is not None:
            one.pre_spawn_env, one.env = pre_spawn, later


def _variables(requests: Sequence[Asked]) -> dict[str, str | None]:
    """What the environment of a worker on this host must have, and under None must not have."""
    plans = workers.plans_of(requests)
    return {
        **session.run_environment(plans[-1]),
        environ.INHERIT.name: children.in_words([plan.request for plan in plans]),
        "PYTHONPATH": starting.python_path(environ.current().get("PYTHONPATH", "")),
    }


def _with(variables: Mapping[str, str | None], environment: Mapping[str, str]) -> dict[str, str]:
    merged = {**environment, **variables}
    return {name: text for name, text in merged.items() if text is not None}


def _raising(error: Exception) -> Callable[[], Awaitable[Any]]:
    async def instantiate() -> Any:
        raise error

    return instantiate


_held: dict[str, tuple[int, str | None]] = {}
"""Variables of this process while nannies in it start workers: how many do, and what they were."""


@contextmanager
def _as_before(names: Collection[str]) -> Iterator[None]:
    """Put back variables when the last of those is done that start workers at a time.

    Dask sets them in the nanny's process and leaves them there. In a `LocalCluster` that is the
    program's own, whose other children would be under the profile, too.
    """
    present = environ.current()
    for name in names:
        count, before = _held.get(name, (0, present.get(name)))
        _held[name] = count + 1, before
    try:
        yield
    finally:
        for name in names:
            count, before = _held.pop(name)
            if count > 1:
                _held[name] = count - 1, before
            elif before is None:
                present.pop(name, None)
            else:
                present[name] = before
