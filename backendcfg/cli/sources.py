"""Where the verbs get stacks, hosts and plans: from what is named, else from what is in force.

A host can come from a JSON file: it is read with every fault named in words, and written whole or
not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg import environ, session
from backendcfg.cli.output import current
from backendcfg.errors import InvalidHostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Plan
    from backendcfg.schema.profile import Stack
    from backendcfg.session.choice import Picked

HOST_MARK = rb'"microarchitecture"\s*:'
"""What every file of a host has, and hardly any other."""


def picked(name: str | None, settings: Mapping[str, str]) -> Picked:
    """Who picked what a name means here; without one, the profile in force for a new process."""
    from backendcfg.session.choice import Picked, chosen

    found = chosen(name, settings)
    if found is None:
        return Picked(name, "profile-by-argument", "no profile", arguments=dict(settings))
    return found


def stack(pick: Picked) -> Stack:
    """Every layer behind a profile that was picked, weakest first."""
    return session.stack(pick.request, arguments=pick.arguments, rank=pick.rank)


def host(path: str | None) -> Host:
    """The host in a file, or this one."""
    if path is None:
        return session.detect()
    return read_host(path)


def plan(name: str | None, settings: Mapping[str, str], host_file: str | None = None) -> Plan:
    """The plan of a name on a host.

    Raises:
        RequestError: the name, a file or a setting is wrong.
        MachineError: the host cannot serve it.
    """
    from backendcfg.cli.wording import without_profile
    from backendcfg.progress import Step
    from backendcfg.resolve.plan import resolve
    from backendcfg.session.choice import settings_alone

    pick = picked(name, settings)
    with Step("making the plan"):
        found = resolve(stack(pick), host(host_file))
    nobody_picked = pick.name is None and pick.rank == "profile-by-argument"  # as `picked` says it
    if nobody_picked and not settings and not environ.disabled():
        for sentence in without_profile(settings_alone()):
            current().note(sentence)
    return found


def read_host(path: str) -> Host:
    """The host in a file that `backendcfg detect --capture` wrote.

    Raises:
        UnreadableFileError: the file cannot be read as text.
        InvalidHostError: it is not a host; every fault is named.
    """
    from backendcfg.load.json_file import read
    from backendcfg.schema.host import Host

    return read(path, Host, "host", InvalidHostError, "backendcfg detect --capture")


def write_host(host: Host, path: str) -> None:
    """Store a host but for its machine's name; a reader sees the old file or the new one.

    Raises:
        UnreadableFileError: the file cannot be written.
    """
    from backendcfg.transact.disk import replace_named

    nameless = host.model_copy(update={"system": host.system.model_copy(update={"name": ""})})
    replace_named(path, nameless.model_dump_json(by_alias=True, indent=2).encode() + b"\n")
