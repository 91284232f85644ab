"""Ray: each worker under a profile, before its first task.

A worker of Ray must not end while its interpreter starts, as Ray then starts another one, for ever.
So the profile is applied by Ray's hook for workers, whose failure fails the tasks, with the message
in what Ray prints. Tasks with another profile or another number of threads get workers of their
own, because their runtime environment differs.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from backendcfg import environ
from backendcfg.bridges import lineage
from backendcfg.errors import UsageError
from backendcfg.fleet import workers
from backendcfg.fleet.agreement import DEADLINE, Agreement, agreed
from backendcfg.session import installed
from backendcfg.session.start import OUR_WORKER_HOOK, RAY_WORKER_HOOK, start_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SHOWN = 16
"""Digits of the numbers of nodes and actors that a message has; those of a job end alike."""

_HOOK = "worker_process_setup_hook"
"""Ray takes it from `ray.init(runtime_env=...)` only; in that of a task it would be ignored."""


def runtime_env(
    name: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    threads: int | None = None,
    over: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A runtime environment of Ray whose workers compute under a profile.

    For all tasks and actors, `ray.init(runtime_env=runtime_env("fast"))`; for some, which get
    workers of their own, `task.options(num_cpus=4, runtime_env=runtime_env("fast", threads=4))`.

    Args:
        name: the profile; None for the one in force in this process, else the one in force here.
            A profile of a file must be where it is here on every node, or in `working_dir`.
        settings: flags to set over it: `{"cudnn.benchmark": True}`.
        threads: of each worker; None for one where the profile has `threads.count = "auto"`.
            Ray gives a task one processor unless it has `num_cpus`.
        over: a runtime environment that this is to have, too. Its hook for workers is called when
            the profile is in force.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: this machine cannot serve it.
        UsageError: the job has a hook for workers, which those of this environment would not run.
    """
    found = dict(over or {})
    if environ.disabled():
        return found
    requests = workers.requested(name, settings, threads)
    found["env_vars"] = {
        **workers.before_start(workers.plans_of(requests)),
        **(found.get("env_vars") or {}),
        environ.WORKER.name: workers.in_words(requests),
    }
    if found.get(_HOOK):
        found[_HOOK] = _after_begin(found[_HOOK])
        return found
    if ray.is_initialized():
        job = ray.get_runtime_context().runtime_env.get("env_vars") or {}
        if job.get(RAY_WORKER_HOOK, OUR_WORKER_HOOK) != OUR_WORKER_HOOK:
            raise UsageError(
                f"the job has a `{_HOOK}`, which workers of another runtime environment do not run",
                helps=[
                    "give the profile to the job: `ray.init(runtime_env=runtime_env(over=...))`"
                ],
            )
    found["env_vars"][RAY_WORKER_HOOK] = OUR_WORKER_HOOK
    return found


def _after_begin(hook: Callable[[], object] | str) -> Callable[[], None]:
    """A hook of a program, called when the worker is under the profile.

    A function within a function, because Ray sends that to workers as it is.
    """

    def worker_process_setup_hook() -> None:
        begin()
        if isinstance(hook, str):
            module, _, function = hook.rpartition(".")
            getattr(import_module(module), function)()
        else:
            hook()

    return worker_process_setup_hook


def begin() -> None:
    """In a worker: compute under the profile of its runtime environment from now on.

    Ray calls it. A worker that has none there takes the one that it inherited from its node.

    Raises:
        BackendCfgError: this worker cannot be under it; Ray ends it, and fails its tasks.
    """
    name = ray.get_runtime_context().get_worker_id()
    if text := environ.WORKER.read():
        workers.begin(workers.from_words(text), "Ray", name)
    elif installed.in_force() is None and not environ.disabled():
        lineage.become(("worker", name))
        start_alone()


def hook(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What `ray.init` takes instead of its `runtime_env` where RAY_RUNTIME_ENV_HOOK names this.

    A driver under `backendcfg run` has it so, and its profile is that of all workers. Where nothing
    is in force in this process, or the environment has a profile already, that stays.
    """
    if given is None:
        given = _of_job()
    has_own = environ.WORKER.name in ((given or {}).get("env_vars") or {})
    if environ.disabled() or has_own or installed.in_force() is None:
        return given
    return runtime_env(over=given)


def _of_job() -> Mapping[str, Any] | None:
    """The runtime environment of the `job_config` that the program gives to `ray.init`.

    Ray calls the hook without it, and puts what the hook gives in its place.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "init" and "job_config" in frame.f_locals:
            job = frame.f_locals["job_config"]
            return job.runtime_env if job is not None else None
        frame = frame.f_back
    return None


def agree(actors: Sequence[Any] | None = None, *, deadline: float = DEADLINE) -> Agreement:
    """Hold the settings of actors against each other, or those of a worker on each node.

    Args:
        actors: handles of actors; None for one task on each node that is alive.
        deadline: seconds to wait for all of them.

    Raises:
        FleetDisagreesError: they have other settings; it names them, the workers and the hosts.
        ray.exceptions.GetTimeoutError: one did not answer in time.
    """
    if actors is None:
        kind, task = "node", ray.remote(num_cpus=0)(workers.told)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
        names = [node[:SHOWN] for node in nodes]
        asked = [task.options(scheduling_strategy=place).remote() for place in places]
    else:
        kind, names = "actor", [actor._actor_id.hex()[:SHOWN] for actor in actors]
        asked = [actor.__ray_call__.remote(_of_actor) for actor in actors]
    answers = ray.get(asked, timeout=deadline)
    cure = "start all under one profile: `ray.init(runtime_env=backendcfg.fleet.ray.runtime_env())`"
    return agreed(dict(zip(names, answers, strict=True)), cure, kind)


def _of_actor(_: Any) -> Any:
    return workers.told()
