"""Where the verbs get stacks, hosts and plans: from what is named, else from what is in force."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backendcfg import session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.schema.base import Rank
    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack
    from backendcfg.schema.plan import Plan


@dataclass(frozen=True)
class Asked:
    """What a command is about.

    Attributes:
        name: the profile, or None for settings files and variables alone.
        rank: how strong the pick is.
        settings: flags set beside it, as TOML text.
        source: who picked it, in words; "" when it was named.
    """

    name: str | None
    rank: Rank = "profile-by-argument"
    settings: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def stack(self) -> Stack:
        """Every layer behind it, weakest first."""
        return session.stack(self.name, arguments=self.settings, rank=self.rank)


def asked(name: str | None, settings: Mapping[str, str]) -> Asked:
    """What a name means here; without one, the profile in force for a process that starts here."""
    if name is not None:
        return Asked(name, settings=settings)
    from backendcfg.session.choice import chosen

    choice = chosen()
    if choice is None:
        return Asked(None, settings=settings, source="no profile")
    return Asked(choice.name, choice.rank, {**choice.arguments, **settings}, choice.source)


def host(path: str | None) -> Host:
    """The host in a file, or this one."""
    if path is None:
        return session.detect()
    from backendcfg.cli.hostfile import read_host

    return read_host(path)


def plan(name: str | None, settings: Mapping[str, str], host_file: str | None = None) -> Plan:
    """The plan of a name on a host.

    Raises:
        RequestError: the name, a file or a setting is wrong.
        MachineError: the host cannot serve it.
    """
    from backendcfg.resolve.plan import resolve

    stack = asked(name, settings).stack()
    return resolve(stack, host(host_file))
