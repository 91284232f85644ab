"""What happens when `backendcfg` is imported: the profile that is in force is applied.

A child process takes over what was in force in the one that started it. One that `multiprocessing`
started gets the plans themselves: the profile of the process and the scopes that were open, as one
base, because a child has no scope to return to. Any other program gets the request that led to the
profile, in BACKENDCFG_INHERIT, and resolves it for itself.
"""

from __future__ import annotations

import sys

from backendcfg import __version__, environ, startup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


RAY_HOOK = "RAY_RUNTIME_ENV_HOOK"
"""The variable by which a driver of Ray finds what gives its profile to all workers."""

RAY_WORKER_HOOK = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
OUR_WORKER_HOOK = "backendcfg.fleet.ray.begin"
"""The variable by which a worker of Ray finds what it calls before its first task, and ours."""


def takes_over() -> bool:
    """Whether this process is about to take over what is in force in its parent."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and hasattr(module.current_process(), "_backendcfg_given")


def start(capture_at_exit: Callable[[str], None]) -> None:
    """Apply the profile in force, if there is one.

    Args:
        capture_at_exit: arranges that this process leaves the state of its switches in a folder,
            for `backendcfg capture`.

    What is active and cannot be applied is told in one line on standard error, and the program goes
    on: it did not ask for it here.

    Raises:
        BackendCfgError: BACKENDCFG_PROFILE, `backendcfg run` or the process that started this one
            asks for what cannot be applied; a wrong name never falls back to none.
    """
    if not startup.is_command_line(sys.orig_argv) and (folder := environ.CAPTURE.read()):
        environ.current().pop(environ.CAPTURE.name)
        capture_at_exit(folder)
        if not environ.STARTED_BY.read():
            return  # what is captured is what the program does by itself
    if environ.disabled() or startup.is_command_line(sys.orig_argv) or takes_over():
        return
    of_ray = _is_starting_worker_of_ray()
    if (environ.STARTED_BY.read() or "").startswith("run "):
        environ.current().setdefault(RAY_HOOK, "backendcfg.fleet.ray.hook")
    if startup.may_have_profile(committed=True)[0] and not (of_ray and _leaves_it_to_ray()):
        # `startup.anew` has said what it could not set; `backendcfg run` sets all of it in time.
        needs_no_note = hasattr(sys, startup.AT_START) or environ.STARTED_BY.read()
        try:
            late = start_alone()
        except Exception as error:
            asked = (environ.STARTED_BY, environ.PROFILE, environ.INHERIT)
            if not of_ray and any(variable.read() for variable in asked):
                raise
            startup.warn(error)
            return
        if late and not needs_no_note and not of_ray and _is_the_program():
            # No warning: where a program makes errors of them, `import backendcfg` would fail.
            startup.say("\n".join(f"note: {sentence}" for sentence in late))


def _is_the_program() -> bool:
    """Whether this process is the program itself, and none of its workers or further ranks."""
    from backendcfg.probe.launchers import this_rank

    process = sys.modules.get("multiprocessing.process")
    if startup.is_worker(sys.orig_argv) or (process and process.parent_process()):
        return False
    if "_pytest" in sys.modules:
        return False  # the header of our plugin says it
    rank = this_rank()
    return rank is None or rank.number == 0


def _is_starting_worker_of_ray() -> bool:
    """Whether this interpreter is about to become a worker of Ray."""
    name = startup.program(sys.orig_argv)[1]
    return name in ("default_worker.py", "setup_worker.py") and "ray" not in sys.modules


def _leaves_it_to_ray() -> bool:
    """Whether a worker of Ray, which starts here, takes its profile when Ray calls its hook.

    Ray starts another worker where one ends at its start, for ever. What the hook raises fails the
    worker's tasks instead.
    """
    hook = environ.current().setdefault(RAY_WORKER_HOOK, OUR_WORKER_HOOK)
    return hook == OUR_WORKER_HOOK or environ.WORKER.read() is not None


def start_alone() -> list[str]:
    """Start as a program does that nobody handed any plans.

    Returns:
        Sentences about what the profile's tier rests on and can no longer be set.
    """
    if by_variable():
        return []
    from backendcfg.session.choice import chosen

    if (picked := chosen()) is None:
        return []
    from backendcfg.session.planning import compiled_pick

    plan = compiled_pick(picked)
    if (anew := getattr(sys, startup.AT_START, None)) is not None:
        from backendcfg.bridges.environment import before_interpreter

        if wanted := before_interpreter(plan.values, plan.effective):
            anew(wanted, plan.name)
    # After that, because an interpreter that is about to start anew needs nothing of it.
    from backendcfg.session.process import install

    report = install(plan, picked.source, found=True)
    from backendcfg.transact.outcome import what_comes_too_late

    return list(what_comes_too_late(plan, report.outcomes).values())


def receive(given: str) -> None:
    """In a child that unpickles its `Process` object: take over what came with it.

    Raises:
        RolledBackError: a switch could not be set; the child then ends with this error.
    """
    import json

    from backendcfg import log
    from backendcfg.session import children, installed, process, tasks
    from backendcfg.transact.compiled import Compiled

    if environ.disabled():
        return
    data = json.loads(given)
    if data["version"] != __version__:
        log.error(
            "this process has backendcfg %s and cannot take over from its parent, which has %s",
            __version__,
            data["version"],
        )
        start_alone()
        return
    children.connect(process.take_over)
    base = installed.in_force()
    there = base is not None and [plan.to_json() for plan in base.plans] == data["plans"]
    plans = tuple(Compiled.from_dict(json.loads(text)) for text in data["plans"])
    children.settle(
        plans, tuple(data["identity"]), there=there, size=data["size"], found=data["found"]
    )
    if data["tasks"]:
        children.received(tasks.Tasks.from_list(data["tasks"]))


def by_variable() -> bool:
    """Take over what BACKENDCFG_INHERIT names, unless BACKENDCFG_PROFILE was set since.

    Returns:
        Whether it did.

    Raises:
        InvalidValueError: backendcfg did not write what the variable holds.
        BackendCfgError: the profile cannot be resolved or applied here.
    """
    from backendcfg.session.choice import PARENT, inherited

    if not (requests := inherited()):
        return False
    from backendcfg.session import process
    from backendcfg.session.planning import compiled_request

    plans = [compiled_request(request) for request in requests]
    process.take_over(plans, PARENT)
    return True
