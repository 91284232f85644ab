"""The plan of a fleet, as it stands in a file, and whether a host is as it has it."""

from __future__ import annotations

import os
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import Field

from backendcfg.catalogue.variables import VARIABLES
from backendcfg.errors import FleetDisagreesError, InvalidFleetPlanError
from backendcfg.fleet import levels
from backendcfg.fleet.agreement import MOST_NAMED, OWN
from backendcfg.load.json_file import read as read_json
from backendcfg.resolve.ground import ENVIRONMENT, core_count
from backendcfg.resolve.words import assignment, counted, listed, literal, quoted, some_lines
from backendcfg.schema.base import Document, Tier
from backendcfg.schema.profile import defaults, flags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from backendcfg.schema.host import Host
    from backendcfg.transact.compiled import Compiled

THREADS = "threads.count"

Values = tuple[tuple[Any, tuple[str, ...], int], ...]
"""Each value with some hosts that have it, and how many have."""


def in_words(values: Values) -> str:
    """Who has what: 112 on node-a, node-b; 48 on node-c."""
    told = []
    for value, names, count in values:
        shown = ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")
        told.append(f"{clipped(value)} on {shown}")
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
        alike.setdefault(in_words(pin.values), []).append(assignment(pin.flag, pin.value))
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


MOST_SHOWN = 200
"""Characters of a value that a message has."""

MARK = rb'"builds"\s*:'
"""What every file of a fleet plan has, and hardly any other."""


class FleetPlan(Document):
    """One plan for all hosts of a fleet.

    Attributes:
        profile: the profile, as it was asked for.
        tier: its tier, which every host keeps.
        settings: flags that are set over it on every host, as TOML text.
        values: what each flag comes to that a host reads and that can change bits.
        builds: the software that all hosts have, and variables that no flag of the plan decides.
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
    profile: Annotated[str, Field(max_length=4096)]
    tier: Tier
    settings: dict[str, str]
    values: dict[str, Any]
    builds: dict[str, str]
    ranks: Annotated[int, Field(ge=1)] = 1
    level: str = ""
    processors: tuple[str, ...]
    gpus: tuple[tuple[str, ...], ...]
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
    derived = levels.of_level(fleet.level, packages).get(ENVIRONMENT, {})
    declared = flags()
    unsafe = [
        flag
        for flag, text in fleet.settings.items()
        if flag in declared
        and declared[flag].flag.trusted
        and not (flag == ENVIRONMENT and _table(text).items() <= derived.items())
    ]
    if unsafe:
        raise InvalidFleetPlanError(
            f"{path} sets {quoted(unsafe)}, which may run any code",
            helps=["set it in a profile that this user has or trusts, and plan with that"],
        )


def _table(text: str) -> dict[str, Any]:
    """A table in TOML text; one that nothing equals where it is none."""
    try:
        found = tomllib.loads(f"x = {text}")["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"": text}


def builds(host: Host, decided: Collection[str]) -> dict[str, str]:
    """What must be the same software on all hosts, and the same variables of its.

    Args:
        host: the host.
        decided: flags that a profile decides, whose variables it sets or unsets.
    """
    python = ".".join(host.python.version.split(".")[:2])
    libraries: dict[str, list[str]] = {}
    for one in sorted(host.libraries, key=lambda one: (one.kind, one.owner, one.path)):
        if one.provider or one.owner in host.packages:
            # Wheels have a digest of the library in its file's name.
            facts = (one.version, os.path.basename(one.path), one.threading)
            text = " ".join(filter(None, facts))
            libraries.setdefault(f"library {one.kind} of {one.owner}", []).append(text)
    left_out = {*_variables_of(decided), *OWN, *ELSEWHERE}
    return {
        "system": host.system.os,
        "architecture": host.cpu.architecture,
        "python": f"{host.python.implementation} {python}",
        **{f"package {name}": version for name, version in sorted(host.packages.items())},
        **{name: ", ".join(found) for name, found in libraries.items()},
        **{
            f"variable {name}": value
            for name, value in sorted(host.environment.items())
            if name not in left_out
        },
    }


ELSEWHERE = ("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_DEVICE_ORDER")
"""Variables by which launchers say where files and devices are; what is found there is compared."""


def _variables_of(flags: Collection[str]) -> set[str]:
    """The variables that `run` sets or unsets for flags."""
    rows = [row for row in VARIABLES if row.flag in flags]
    return {name for row in rows for name in (row.name, row.cap, *row.rivals)}


def gpus_of(host: Host) -> tuple[str, ...]:
    """The models of the GPUs that programs see."""
    return tuple(dict.fromkeys(gpu.name for gpu in host.gpus if gpu.visible))


def refuse_unless_as_planned(
    fleet: FleetPlan, plan: Compiled, host: Host, path: str, settings: Mapping[str, str]
) -> None:
    """Refuse a host that is not as a fleet's plan has it.

    Args:
        fleet: the plan.
        plan: what its profile and settings come to here.
        host: what is here.
        path: the file of the plan.
        settings: what the profile was resolved with here, as TOML text.

    Raises:
        FleetDisagreesError: it names what is otherwise.
    """
    here: dict[str, Any] = dict(builds(host, plan.effective))
    planned: dict[str, Any] = dict(fleet.builds)
    decided = [flag for flag in plan.effective if flag not in plan.bitless]
    for flag in dict.fromkeys((*fleet.values, *decided)):
        if flag not in plan.dormant:
            here[flag] = plan.values.get(flag)
            planned[flag] = fleet.values.get(flag, defaults().get(flag))
    here["tier"], planned["tier"] = plan.tier, fleet.tier
    found = [
        f"{name}: {clipped(here.get(name))} here, {clipped(planned.get(name))} in the plan"
        for name in dict.fromkeys((*planned, *here))
        if here.get(name) != planned.get(name)
    ]
    processor = host.cpu.microarchitecture
    if processor not in fleet.processors and fleet.level not in host.cpu.lineage:
        found.append(
            f"processor: {processor} here, {clipped(' or '.join(fleet.processors))} in the plan"
        )
    gpus = gpus_of(host)
    if not any(set(gpus) <= set(each) and bool(gpus) == bool(each) for each in fleet.gpus):
        each = " or ".join(" and ".join(names) or "none" for names in fleet.gpus)
        found.append(f"GPUs: {' and '.join(gpus) or 'none'} here, {clipped(each)} in the plan")
    threads, cores = fleet.values.get(THREADS), core_count(host)
    if isinstance(threads, int) and threads > cores:
        found.append(
            f"{THREADS}: {threads} in the plan, and this process may use"
            f" {counted(cores, 'core')}; plan with `--ranks N` for N processes on a host"
        )
    if found:
        added = [
            f"`--set {flag}={text}`"
            for flag, text in settings.items()
            if fleet.settings.get(flag) != text
        ]
        cure = f"drop {listed(added)}, or give it to `backendcfg fleet plan`" if added else ANEW
        refuse(path, found, cure)


ANEW = "capture this host with `backendcfg detect --capture FILE`, and plan anew"


def refuse(path: str, found: Sequence[str], cure: str) -> NoReturn:
    """Refuse this host for what is otherwise here.

    Raises:
        FleetDisagreesError: always.
    """
    raise FleetDisagreesError(
        f"this host is not as {path} has it",
        notes=some_lines(found, MOST_NAMED),
        state="the command was not started",
        helps=[cure],
    )


def clipped(value: Any) -> str:
    """A value, as far as it fits into a message; text as it is."""
    text = "none" if value is None else value if isinstance(value, str) else literal(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."
