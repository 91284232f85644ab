"""Plans: from a name to a plan, and from a name to a compiled plan without resolving again.

Compiled plans are kept on disk, so that a process starts under a profile without resolving it. That
is a cache only: every entry can be lost, and one that cannot be read, or whose stamp does not hold,
counts as none.
"""

from __future__ import annotations

import os
import sys

from backendcfg import __version__, environ, plain_json, startup
from backendcfg.errors import BackendCfgError
from backendcfg.probe.limits import is_worker_of_ray, local_rank
from backendcfg.probe.stamp import holds, relevant_environment
from backendcfg.progress import Step
from backendcfg.records import replace
from backendcfg.session.choice import chosen, rests_on_these_files
from backendcfg.transact import generations
from backendcfg.transact.compiled import Asked, Compiled, compile_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from backendcfg.schema.base import Rank
    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Plan
    from backendcfg.schema.profile import Stack
    from backendcfg.session.choice import Picked

PLANS_KEPT = 64
"""Compiled plans that are kept; the oldest ones go."""


def anywhere(name: str | None) -> str | None:
    """A profile's name as it can be understood from any folder: a path to a file made absolute."""
    if name is not None and ("/" in name or name.endswith(".toml")):
        return os.path.abspath(os.path.expanduser(name))
    return name


def refuse_no_name(name: object, *, optional: bool = True) -> None:
    """Refuse what cannot name a profile.

    Args:
        name: text, or None where it is `optional`.
        optional: whether None takes the profile in force.

    Raises:
        InvalidArgumentError: it is something else.
    """
    if isinstance(name, str) or (name is None and optional):
        return
    from backendcfg.errors import InvalidArgumentError

    if isinstance(name, os.PathLike):
        remedy = f"give the path as text: {os.fspath(name)!r}"
    else:
        remedy = 'write for example "fast", or "fast+mine" for several'
    raise InvalidArgumentError(
        f"`name` must be the name of a profile as text, not {name!r}", helps=[remedy]
    )


def detect() -> Host:
    """What this machine and this process have, as data.

    Nothing is imported or opened in this process: libraries that are not loaded are inspected in
    a child process.
    """
    from backendcfg.probe.host import detect as detect_host

    with Step("looking at this machine"):
        return detect_host()


def stack(
    name: str | None = None,
    *,
    arguments: Mapping[str, str] | None = None,
    rank: Rank = "profile-by-argument",
    directory: str = "",
) -> Stack:
    """Every layer of flags behind a name, weakest first.

    Args:
        name: a profile, several joined by `+`, or a path to a file; None takes whoever picks one.
        arguments: flags with their values as TOML text; they win over everything.
        rank: how strong the name is; "default" without a name asks for the arguments alone.
        directory: where to look for a project; "" for the working directory.

    Raises:
        RequestError: whatever is wrong with the files, every fault of a file at once.
    """
    refuse_no_name(name)
    from pathlib import Path

    from backendcfg.load.stack import Request, load

    return load(
        Request(
            name=name,
            rank=rank,
            arguments=dict(arguments or {}),
            cwd=Path(directory) if directory else None,
            environment=_environment_before(),
        )
    )


def plan(
    name: str | None = None,
    *,
    host: Host | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """What a profile means on a host, without changing anything.

    Args:
        name: a profile, or several joined by `+`; None takes the one in force here.
        host: the machine to plan for; None detects this one.
        settings: flags to set over the profile: `{"threads.count": 4}`.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: the host cannot serve it.
    """
    from backendcfg.resolve.plan import resolve

    refuse_no_name(name)
    arguments = as_arguments(settings)
    picked = chosen(name, arguments)
    if picked is None:
        layers = stack(None, arguments=arguments)
    else:
        layers = stack(picked.request, arguments=picked.arguments, rank=picked.rank)
    return resolve(layers, host if host is not None else detect())


def as_arguments(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Settings given as Python values, as the TOML text that the loader takes.

    Raises:
        InvalidArgumentError: they are no mapping from names of flags.
        InvalidValueError: a value is none that TOML has.
    """
    from collections.abc import Mapping

    from backendcfg.errors import InvalidArgumentError, InvalidValueError
    from backendcfg.resolve.words import literal

    written = ['write for example `settings={"threads.count": 4}`']
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidArgumentError(
            f"`settings` must map names of flags to values, not be {settings!r}", helps=written
        )
    texts = {}
    for flag, value in (settings or {}).items():
        if not isinstance(flag, str):
            raise InvalidArgumentError(
                f"`settings` must have names of flags as keys, not {flag!r}", helps=written
            )
        is_of_numpy = getattr(value, "shape", None) == () and hasattr(value, "item")
        plain = value.item() if is_of_numpy else value
        if not _is_plain(plain):
            raise InvalidValueError(
                f"`{flag}` cannot be set to {value!r}: TOML has no such value",
                helps=["give a bool, an int, a str, or a list or dict of these"],
            )
        texts[flag] = literal(plain)
    return texts


def _is_plain(value: Any) -> bool:
    """Whether a value is made of what flags are made of."""
    from collections.abc import Mapping

    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (bool, int, float, str))


def compiled(
    name: str | None,
    *,
    arguments: Mapping[str, str] | None = None,
    rank: Rank = "profile-by-argument",
    directory: str = "",
) -> Compiled:
    """The compiled plan of a name: the stored one while it is valid, else a new one.

    Raises:
        BackendCfgError: as `plan`.
    """
    refuse_no_name(name)
    arguments = dict(arguments or {})
    before = _environment_before()
    directory = directory or startup.working_directory()
    key = _cache_key(name, rank, arguments, directory, before)
    if (stored := _stored(key, directory, before)) is not None:
        return stored
    with Step("making the plan"):
        _, fresh = resolved(name, arguments=arguments, rank=rank, directory=directory)
    if not holds(fresh.stamp, environment=before):
        _store(key, fresh)
    return fresh


def compiled_request(request: Asked) -> Compiled:
    """The compiled plan that answers a request, which may come from another process.

    Raises:
        BackendCfgError: as `plan`.
    """
    rank: Any = request.rank
    return compiled(
        request.name, arguments=request.arguments, rank=rank, directory=request.directory
    )


def changed_since(stored: Compiled) -> str:
    """What has changed since a plan was made, in words; "" while it is valid."""
    return holds(stored.stamp, environment=_environment_before())


def compiled_pick(picked: Picked) -> Compiled:
    """The compiled plan of a pick: the generation's own where and while it is valid.

    Raises:
        BackendCfgError: it must be resolved again, and cannot be.
    """
    if picked.asked is not None:
        return compiled_request(replace(picked.asked, arguments=picked.arguments))
    stored = picked.stored
    if stored is not None and not changed_since(stored) and rests_on_these_files(stored.stamp):
        return stored
    try:
        return compiled(picked.request, arguments=picked.arguments, rank=picked.rank)
    except BackendCfgError as error:
        if picked.generation:
            error.notes += (f"{picked.source} picks it, which `backendcfg apply` made active",)
            option = generations.option(picked.where)
            error.helps += (f"run `backendcfg off{option}`, or apply another profile",)
        raise


def resolved(
    name: str | None,
    *,
    arguments: Mapping[str, str] | None = None,
    rank: Rank = "profile-by-argument",
    directory: str = "",
) -> tuple[Plan, Compiled]:
    """The plan of a name on this machine, and its compiled form with a fresh stamp."""
    from backendcfg.bridges import xla_flags
    from backendcfg.probe.environment import relevant
    from backendcfg.probe.stamp import stamp
    from backendcfg.resolve.plan import resolve
    from backendcfg.schema.host import Broken

    before = _environment_before()
    host = detect().model_copy(update={"environment": relevant(before)})
    unanswered = {
        f"{os.path.basename(one.path) or one.probe} gave no answer: {one.reason}": one.again_after
        for one in host.probes
        if isinstance(one, Broken) and one.again_after is not None
    }
    directory = directory or startup.working_directory()
    request = Asked(name, rank, dict(arguments or {}), directory)
    while True:
        layers = stack(name, arguments=arguments, rank=rank, directory=directory)
        taken = stamp(layers.files, layers.missing, environment=before, unanswered=unanswered)
        # A file that was edited since it was read would be stamped as it is now; read it again.
        if _as_read(taken["files"], layers.files):
            break
    result = resolve(layers, host)
    fresh = compile_plan(result, taken, request)
    xla_flags.check(fresh.values, fresh.effective)
    return result, fresh


def _as_read(stamped: Mapping[str, Any], read: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a stamp has every file with the time and the size that it had when it was read."""
    now = {path: stamped[environ.as_text(os.path.abspath(path))] for path in read}
    return all(now[path] and tuple(now[path][:2]) == read[path] for path in read)


def cache_directory() -> str:
    """Where compiled plans are kept."""
    return os.path.join(environ.cache_directory(), "plans")


def _cache_key(
    name: str | None,
    rank: str,
    arguments: Mapping[str, str],
    directory: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    """A file name for what was asked, where, and in which environment: each changes the answer."""
    # _sha1 rather than hashlib, whose import opens OpenSSL and costs more than this function.
    from _sha1 import sha1  # type: ignore[import-not-found]

    variables = sorted(relevant_environment(environment).items())
    # Neither hosts that share a home nor ranks and workers, which have fewer cores, replace each
    # other's plans.
    local = local_rank(environ.copy())
    machine = [os.uname().nodename, local.size if local is not None else int(is_worker_of_ray())]
    asked = plain_json.dumps(
        [__version__, machine, name, rank, sorted(arguments.items()), directory, variables]
    )
    return str(sha1(asked.encode()).hexdigest())


def _stored(key: str, directory: str, environment: Mapping[str, str]) -> Compiled | None:
    """The stored plan, or None when there is none that still holds in a folder and environment."""
    content = startup.read(os.path.join(cache_directory(), f"{key}.json"), own=True)
    try:
        stored = Compiled.from_dict(plain_json.loads((content or b"").decode()))
    except (ValueError, TypeError, KeyError):
        return None
    if holds(stored.stamp, environment=environment):
        return None
    return stored if rests_on_these_files(stored.stamp, directory) else None


def _store(key: str, compiled: Compiled) -> None:
    """Store a plan; a cache that cannot be written is not an error."""
    from backendcfg.probe import kept

    if kept.replace(os.path.join(cache_directory(), f"{key}.json"), compiled.to_json()):
        kept.keep_newest(cache_directory(), ".json", PLANS_KEPT)


def _environment_before() -> dict[str, str]:
    """The environment with the variables that an earlier `apply` set here as they were before it.

    What it set is no wish of the user's: a plan neither contradicts it nor is stored under it.
    """
    environment = environ.wishes(environ.copy())
    if (base := sys.modules.get("backendcfg.registry.base")) is None:
        return environment  # nothing was applied
    from backendcfg.bridges.environment import EnvironmentVariable
    from backendcfg.bridges.xla_flags import XlaFlags

    for name, one in base.applied().items():
        if not isinstance(one.setting.switch, (EnvironmentVariable, XlaFlags)):
            continue
        if one.original is None:
            environment.pop(name, None)
        elif one.original != one.setting.wanted:
            environment[name] = one.original
    return environment


def profiles() -> Any:
    """Every profile that can be named here, in the order of the search."""
    from backendcfg.load.locations import profiles as listed

    return listed()
