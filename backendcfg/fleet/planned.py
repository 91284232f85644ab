"""The plan of a fleet, as it stands in a file, and whether a host is as it has it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from backendcfg.errors import FleetDisagreesError, InvalidFleetPlanError
from backendcfg.fleet import levels
from backendcfg.fleet.agreement import MOST_NAMED
from backendcfg.load.json_file import read as read_json
from backendcfg.resolve.ground import core_count
from backendcfg.resolve.words import counted, listed, literal, quoted
from backendcfg.schema.base import Document, Tier
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backendcfg.schema.host import Host
    from backendcfg.transact.compiled import Compiled

Values = tuple[tuple[Any, tuple[str, ...], int], ...]
"""Each value with some hosts that have it, and how many have."""


def in_words(values: Values) -> str:
    """Who has what: 112 on node-a, node-b; 48 on node-c."""
    told = []
    for value, names, count in values:
        shown = ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")
        text = value if isinstance(value, str) else "none" if value is None else literal(value)
        told.append(f"{text} on {shown}")
    return "; ".join(told)


class Pin(Document):
    """A flag that is set for all hosts.

    Attributes:
        flag: its name.
        value: what it is set to.
        values: what hosts would have without; empty where all would have the same.
    """

    flag: str
    value: Any
    values: Values = ()


def pins_in_words(pins: Iterable[Pin]) -> list[str]:
    """What is set for all hosts, those together that differ in the same way."""
    alike: dict[str, list[str]] = {}
    for pin in pins:
        alike.setdefault(in_words(pin.values), []).append(f"{pin.flag} = {literal(pin.value)}")
    return [f"{', '.join(flags)}: {values}" for values, flags in alike.items()]


class Unlike(Document):
    """What is not the same on all hosts.

    Attributes:
        name: what it is, in words: "package numpy".
        values: who has which.
    """

    name: str
    values: Values

    def __str__(self) -> str:
        return f"{self.name}: {in_words(self.values)}"


MOST_SHOWN = 80
"""Characters of a value that a message has."""

Name = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(max_length=2000)]


class FleetPlan(Document):
    """One plan for all hosts of a fleet.

    Attributes:
        profile: the profile, as it was asked for.
        tier: its tier, which every host keeps.
        settings: flags that are set over it on every host, as TOML text.
        values: what each flag comes to that a host reads and that can change bits.
        builds: the software that all hosts have.
        ranks: processes on each host.
        level: the instruction set that flags are set to, by archspec's name; "" where all
            processors are of one microarchitecture or nothing chooses by it.
        processors: the microarchitectures of the hosts.
        gpus: the models of the GPUs of each kind of host.
        hosts: how many hosts it is for.
        pins: the flags of `settings` that are there because of the hosts.
        unlike: what differs of hosts and no setting changes.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    profile: Name
    tier: Tier
    settings: dict[Name, Text]
    values: dict[Name, Any]
    builds: dict[Name, Name]
    ranks: Annotated[int, Field(ge=1)] = 1
    level: Name = ""
    processors: tuple[Name, ...]
    gpus: tuple[Name, ...]
    hosts: Annotated[int, Field(ge=1)]
    pins: tuple[Pin, ...] = ()
    unlike: tuple[Unlike, ...] = ()


def read(path: str) -> FleetPlan:
    """The plan in a file that `backendcfg fleet plan` wrote.

    Raises:
        UnreadableFileError: the file cannot be read as text.
        InvalidFleetPlanError: it is no such plan; every fault is named.
    """
    command = "backendcfg fleet plan PROFILE HOSTS... --output"
    return read_json(path, FleetPlan, "fleet plan", InvalidFleetPlanError, command)


def refuse_unsafe(fleet: FleetPlan, path: str) -> None:
    """Refuse a file that sets what may run code, but for what `fleet plan` itself sets.

    Raises:
        InvalidFleetPlanError: it names the flags.
    """
    packages = {
        name.removeprefix("package "): version
        for name, version in fleet.builds.items()
        if name.startswith("package ")
    }
    derived = levels.of_level(fleet.level, packages)
    declared = flags()
    unsafe = [
        flag
        for flag, text in fleet.settings.items()
        if text != literal(derived.get(flag)) and flag in declared and declared[flag].flag.trusted
    ]
    if unsafe:
        raise InvalidFleetPlanError(
            f"{path} sets {quoted(unsafe)}, which may run any code",
            helps=["set it in a profile that this user has or trusts, and plan with that"],
        )


def builds(host: Host) -> dict[str, str]:
    """What must be the same software on all hosts."""
    python = ".".join(host.python.version.split(".")[:2])
    return {
        "system": host.system.os,
        "architecture": host.cpu.architecture,
        "python": f"{host.python.implementation} {python}",
        **{f"package {name}": version for name, version in sorted(host.packages.items())},
        # Wheels have a digest of the library in its file's name.
        **{
            f"library {one.kind} of {one.owner}": f"{one.version} {os.path.basename(one.path)}"
            for one in sorted(host.libraries, key=lambda one: (one.kind, one.owner, one.path))
            if one.provider or one.owner in host.packages
        },
    }


def shown(value: Any) -> str:
    """A value, as far as it fits into a message."""
    text = literal(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def gpus_of(host: Host) -> str:
    """The models of the GPUs that programs see, in words."""
    return ", ".join(dict.fromkeys(gpu.name for gpu in host.gpus if gpu.visible)) or "none"


def refuse_unless_as_planned(fleet: FleetPlan, plan: Compiled, host: Host, path: str) -> None:
    """Refuse a host that is not as a fleet's plan has it.

    Args:
        fleet: the plan.
        plan: what its profile and settings come to here.
        host: what is here.
        path: the file of the plan.

    Raises:
        FleetDisagreesError: it names what is otherwise.
    """
    here = builds(host)
    found = [
        f"{name}: {here.get(name, 'none')} here, {fleet.builds.get(name, 'none')} in the plan"
        for name in dict.fromkeys((*fleet.builds, *here))
        if here.get(name) != fleet.builds.get(name)
    ]
    found += [
        f"{flag}: {shown(plan.values.get(flag))} here, {shown(value)} in the plan"
        for flag, value in fleet.values.items()
        if plan.values.get(flag) != value and flag not in plan.dormant
    ]
    processor = host.cpu.microarchitecture
    if processor not in fleet.processors and fleet.level not in host.cpu.lineage:
        planned = listed(fleet.processors[:MOST_NAMED])
        found.append(f"processor: {processor} here, {planned} in the plan")
    if gpus_of(host) not in fleet.gpus:
        planned = " or ".join(fleet.gpus[:MOST_NAMED])
        found.append(f"GPUs: {gpus_of(host)} here, {planned} in the plan")
    threads, cores = fleet.values.get("threads.count"), core_count(host)
    if isinstance(threads, int) and threads > cores:
        found.append(
            f"threads.count: {threads} in the plan, and this process may use"
            f" {counted(cores, 'core')}; plan with `--ranks N` for N processes on a host"
        )
    if not found:
        return
    more = len(found) - MOST_NAMED
    raise FleetDisagreesError(
        f"this host is not as {path} has it",
        notes=found[:MOST_NAMED] + ([f"and {more} more"] if more > 0 else []),
        state="the command was not started",
        helps=["capture this host with `backendcfg detect --capture FILE`, and plan anew"],
    )
