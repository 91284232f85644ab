"""Ray: each worker under a profile, before its first task.

A worker of Ray must not end while its interpreter starts, as Ray then starts another one, for ever.
So the profile is applied by Ray's hook for workers, whose failure fails the tasks, with the message
in what Ray prints. Tasks with another profile or another number of threads get workers of their
own, because their runtime environment differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from backendcfg import environ
from backendcfg.errors import UsageError
from backendcfg.fleet import workers
from backendcfg.fleet.agreement import DEADLINE, Agreement, agreed
from backendcfg.session import installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN = 16
"""Digits of the numbers of nodes and actors that a message has; those of a job end alike."""

_HOOK = "worker_process_setup_hook"
# Where Ray looks for the hook in a worker. It sets it from `ray.init(runtime_env=...)` only: a hook
# in the runtime environment of a task would be ignored.
_HOOK_VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
_OURS = f"{__name__}.begin"


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
        over: a runtime environment that this is to have, too.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: this machine cannot serve it.
        UsageError: `over` has a hook for workers, and only one can be.
    """
    found = dict(over or {})
    if found.get(_HOOK) or found.get("env_vars", {}).get(_HOOK_VARIABLE, _OURS) != _OURS:
        raise UsageError(
            f"the runtime environment has a `{_HOOK}` of its own, and Ray calls only one",
            helps=["call `backendcfg.fleet.ray.begin()` in it, and give `env_vars` of ours"],
        )
    requests = workers.requested(name, settings, threads)
    found["env_vars"] = {
        **workers.before_start(workers.plans_of(requests)),
        **found.get("env_vars", {}),
        environ.WORKER.name: workers.in_words(requests),
        _HOOK_VARIABLE: _OURS,
    }
    return found


def begin() -> None:
    """In a worker: compute under the profile of its runtime environment from now on.

    Ray calls it. It does nothing in a worker that has none.

    Raises:
        BackendCfgError: this worker cannot be under it; Ray ends it, and fails its tasks.
    """
    if text := environ.WORKER.read():
        name = ray.get_runtime_context().get_worker_id()
        workers.begin(workers.from_words(text), "Ray", name)


def hook(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What `ray.init` takes instead of its `runtime_env` where RAY_RUNTIME_ENV_HOOK names this.

    `backendcfg run` sets it, so that the driver's profile is that of all workers. Where nothing is
    in force in this process, or the environment has a profile or a hook of its own, that stays.
    """
    variables = (given or {}).get("env_vars", {})
    has_own = (
        environ.WORKER.name in variables or _HOOK_VARIABLE in variables or _HOOK in (given or {})
    )
    if environ.disabled() or has_own or installed.in_force() is None:
        return given
    return runtime_env(over=given)


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
