"""Plans: from a name to a plan, and from a name to a compiled plan without resolving again."""

from __future__ import annotations

import os
from collections.abc import Mapping

from backendcfg import environ
from backendcfg.session import cache
from backendcfg.transact.compiled import Compiled, compile_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from backendcfg.schema.base import Rank
    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack
    from backendcfg.schema.plan import Plan


def anywhere(name: str | None) -> str | None:
    """A profile's name as it can be understood from any folder: a path to a file made absolute."""
    if name is not None and ("/" in name or name.endswith(".toml")):
        return os.path.abspath(os.path.expanduser(name))
    return name


def detect() -> Host:
    """What this machine and this process have, as data.

    Nothing is imported or opened in this process: libraries that are not loaded are inspected in
    a child process.
    """
    from backendcfg.probe.host import detect as detect_host

    return detect_host()


def stack(
    name: str | None = None,
    *,
    arguments: Mapping[str, str] | None = None,
    rank: Rank = "profile-by-argument",
) -> Stack:
    """Every layer of flags behind a name, weakest first.

    Args:
        name: a profile, several joined by `+`, or a path to a file; None takes whoever picks one.
        arguments: flags with their values as TOML text; they win over everything.
        rank: how strong the name is.

    Raises:
        RequestError: whatever is wrong with the files, every fault of a file at once.
    """
    from backendcfg.load.request import Request
    from backendcfg.load.stack import load

    return load(Request(name=name, rank=rank, arguments=dict(arguments or {})))


def plan(
    name: str | None = None,
    *,
    host: Host | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """What a profile means on a host, without changing anything.

    Args:
        name: a profile, or several joined by `+`; None takes whoever picks one.
        host: the machine to plan for; None detects this one.
        settings: flags to set over the profile: `{"threads.count": 4}`.

    Raises:
        RequestError: the profile or a setting is wrong.
        MachineError: the host cannot serve it.
    """
    from backendcfg.resolve.plan import resolve

    layers = stack(name, arguments=as_arguments(settings))
    return resolve(layers, host if host is not None else detect())


def as_arguments(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Settings given as Python values, as the TOML text that the loader takes."""
    from backendcfg.errors import InvalidValueError
    from backendcfg.resolve.words import literal

    texts = {}
    for flag, value in (settings or {}).items():
        if not _is_plain(value):
            raise InvalidValueError(
                f"`{flag}` cannot be set to {value!r}: TOML has no such value",
                helps=["give a bool, an int, a str, or a list or dict of these"],
            )
        texts[flag] = literal(value)
    return texts


def _is_plain(value: Any) -> bool:
    """Whether a value is made of what flags are made of."""
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
) -> Compiled:
    """The compiled plan of a name: the stored one while it is valid, else a new one.

    Raises:
        BackendCfgError: as `plan`.
    """
    arguments = dict(arguments or {})
    before = _environment_before()
    key = cache.key(name or "", rank, arguments, environ.working_directory(), before)
    if (stored := cache.read(key, before)) is not None:
        return stored
    _, fresh = resolved(name, arguments=arguments, rank=rank)
    cache.write(key, fresh)
    return fresh


def resolved(
    name: str | None,
    *,
    arguments: Mapping[str, str] | None = None,
    rank: Rank = "profile-by-argument",
) -> tuple[Plan, Compiled]:
    """The plan of a name on this machine, and its compiled form with a fresh stamp."""
    from backendcfg.probe.environment import relevant
    from backendcfg.probe.stamp import stamp
    from backendcfg.resolve.plan import resolve

    before = _environment_before()
    host = detect().model_copy(update={"environment": relevant(before)})
    while True:
        layers = stack(name, arguments=arguments, rank=rank)
        result = resolve(layers, host)
        taken = stamp(layers.files, layers.missing, environment=before)
        # A file that was edited between its reading and the stamp would be stamped as new.
        if stack(name, arguments=arguments, rank=rank).files == layers.files:
            return result, compile_plan(result, taken)


def _environment_before() -> dict[str, str]:
    """The environment with the variables that an earlier `apply` set here as they were before it.

    What it set is no wish of the user's: a plan neither contradicts it nor is stored under it.
    """
    from backendcfg.bridges.environment import EnvironmentVariable
    from backendcfg.registry.base import applied

    environment = dict(environ.current())
    for name, one in applied().items():
        if not isinstance(one.setting.knob, EnvironmentVariable):
            continue
        if one.original is None:
            environment.pop(name, None)
        elif one.original != one.setting.wanted:
            environment[name] = one.original
    return environment


def profiles() -> Any:
    """Every profile that can be named here, in the order of the search."""
    from backendcfg.load.listing import profiles as listed

    return listed()
