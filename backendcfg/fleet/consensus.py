"""One plan for unlike hosts: what is equal, what can be made equal, and what cannot.

Each host resolves the profile for itself. What then differs is set for all: the least number of
threads, and the nearest instruction set that all processors have, for each library that would
choose by the processor. Other builds of libraries, or another architecture, no setting makes equal.

Pure, as `resolve` is: hosts are data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.errors import BackendCfgError, FleetUnlikeError
from backendcfg.fleet import levels
from backendcfg.fleet.agreement import MOST_NAMED
from backendcfg.fleet.planned import THREADS, FleetPlan, Pin, Unlike, builds, gpus_of, pins_in_words
from backendcfg.resolve.ground import ENVIRONMENT, core_count
from backendcfg.resolve.plan import host_digest, resolve
from backendcfg.resolve.words import counted, literal, some, some_lines
from backendcfg.schema.profile import flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from backendcfg.schema.host import Host
    from backendcfg.schema.plan import Entry, Plan
    from backendcfg.schema.profile import Stack

UNLIKE = "fleet.unlike"
OPEN = ("auto", "all", True)
"""Values of these flags under which a library chooses by the processor."""


class Kind:
    """Hosts that are alike but for their names.

    Attributes:
        host: one of them.
        names: of all.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.names: list[str] = []


def consensus(
    name: str,
    stack: Callable[[Mapping[str, str]], Stack],
    settings: Mapping[str, str],
    hosts: Iterable[tuple[str, Host]],
    ranks: int = 1,
) -> FleetPlan:
    """One plan for hosts.

    Args:
        name: the profile, as it was asked for.
        stack: its layers with some flags set over them.
        settings: flags that are set over it, as TOML text.
        hosts: each host with a name for it.
        ranks: processes on each host, among which its cores are divided.

    Raises:
        FleetUnlikeError: they cannot be made alike, or the profile has `fleet.unlike = "refuse"`.
    """
    kinds = _kinds(hosts)
    there = [kind.host for kind in kinds.values()]
    _refuse_parts(kinds)
    plans = _plans(name, stack(settings), kinds)
    there_are = {key: builds(kind.host, _in_effect(plans[key])) for key, kind in kinds.items()}
    software = [*_differing(there_are, kinds)]
    if software:
        raise FleetUnlikeError(
            f"{_total(kinds)} do not have the same software",
            notes=_shown(software),
            state="no plan was written",
            helps=[
                "install the same versions, set the same variables, or plan for each kind apart"
            ],
        )
    processors = {key: kind.host.cpu.microarchitecture for key, kind in kinds.items()}
    are_unlike = len(set(processors.values())) > 1
    level = levels.common(there) if are_unlike else ""
    if are_unlike and not level:
        raise FleetUnlikeError(
            f"{_total(kinds)} have no instruction set in common that libraries can be told to use",
            notes=[str(Unlike(name="processor", values=_values(processors, kinds)))],
            state="no plan was written",
            helps=["plan for each kind of host apart"],
        )
    of_level = levels.of_level(level, there[0].packages)
    pins = {pin.flag: pin for pin in _pins(plans, kinds, ranks, of_level)}
    wanted = {_entry(plan, UNLIKE).value for plan in plans.values()}
    unlike = [pin for pin in pins.values() if pin.values]
    if unlike and wanted != {"common"}:
        raise FleetUnlikeError(
            f"{_total(kinds)} do not come to the same plan of profile `{name}`",
            notes=pins_in_words(unlike),
            state="no plan was written",
            helps=[f"add `--set {UNLIKE}=common` to set these for all"],
        )
    arguments = {**settings, **{flag: literal(pin.value) for flag, pin in pins.items()}}
    final = _plans(name, stack(arguments), kinds)
    comes_to = _read(final)
    _refuse_others(name, comes_to, kinds)
    _refuse_more_threads_than_cores(comes_to.get(THREADS, {}), kinds, ranks)
    return FleetPlan(
        profile=name,
        tier=next(iter(final.values())).tier,
        settings=arguments,
        values={flag: next(iter(each.values())) for flag, each in comes_to.items()},
        builds=builds(there[0], _in_effect(next(iter(final.values())))),
        ranks=ranks,
        level=level if pins.keys() & of_level.keys() else "",
        processors=tuple(dict.fromkeys(processors.values())),
        gpus=tuple(dict.fromkeys(gpus_of(host) for host in there)),
        hosts=sum(len(kind.names) for kind in kinds.values()),
        pins=tuple(pins.values()),
        unlike=tuple(_differing({key: _nature(kind.host) for key, kind in kinds.items()}, kinds)),
    )


def _refuse_parts(kinds: Mapping[str, Kind]) -> None:
    """Refuse hosts that one of several ranks captured, which has a part of the cores."""
    parts = [name for kind in kinds.values() if kind.host.memory.ranks > 1 for name in kind.names]
    if parts:
        raise FleetUnlikeError(
            f"{len(parts)} of {_total(kinds)} were captured by one of several processes, which has"
            " a part of the cores",
            notes=[some(parts, MOST_NAMED)],
            state="no plan was written",
            helps=["capture each host by one process: `srun --ntasks-per-node=1 backendcfg ...`"],
        )


def _refuse_more_threads_than_cores(
    threads: Mapping[str, Any], kinds: Mapping[str, Kind], ranks: int
) -> None:
    short = [
        (kind, core_count(kind.host))
        for key, kind in kinds.items()
        if isinstance(threads.get(key), int) and threads[key] * ranks > core_count(kind.host)
    ]
    if short:
        each = next(iter(threads.values()))
        raise FleetUnlikeError(
            f"{counted(ranks, 'process', 'processes')} with {counted(each, 'thread')} on each host"
            " are more threads than cores",
            notes=[
                f"{some(kind.names, MOST_NAMED)}: {counted(cores, 'core')}"
                for kind, cores in short[:MOST_NAMED]
            ],
            state="no plan was written",
            helps=["start fewer processes on a host, or set `threads.count` to less"],
        )


def _in_effect(plan: Plan) -> list[str]:
    """The flags that a plan sets and that have an effect on its host."""
    return [
        entry.flag
        for entry in plan.entries
        if not entry.idle and (entry.origin.rank != "default" or entry.adaptation is not None)
    ]


def _kinds(hosts: Iterable[tuple[str, Host]]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for name, host in hosts:
        # What tells devices of one model apart.
        bare = host.model_copy(
            update={"gpus": tuple(gpu.model_copy(update={"uuid": ""}) for gpu in host.gpus)}
        )
        kinds.setdefault(host_digest(bare), Kind(bare)).names.append(name)
    return kinds


def _plans(name: str, layers: Stack, kinds: Mapping[str, Kind]) -> dict[str, Plan]:
    """What the profile comes to on each kind of host.

    Raises:
        FleetUnlikeError: some cannot have it.
    """
    plans, refused = {}, []
    for key, kind in kinds.items():
        try:
            plans[key] = resolve(layers, kind.host)
        except BackendCfgError as error:
            refused.append((kind, error))
    if refused:
        count = sum(len(kind.names) for kind, _ in refused)
        raise FleetUnlikeError(
            f"profile `{name}` cannot be had on {count} of {_total(kinds)}",
            notes=[
                f"{some(kind.names, MOST_NAMED)}: {error}" for kind, error in refused[:MOST_NAMED]
            ],
            state="no plan was written",
            helps=[f"run `backendcfg plan {name} --host FILE` with one of these hosts' files"],
        )
    return plans


def _pins(
    plans: Mapping[str, Plan],
    kinds: Mapping[str, Kind],
    ranks: int,
    of_level: Mapping[str, Any],
) -> list[Pin]:
    """The flags that are set for all hosts; with `values` where they would differ.

    Args:
        plans: by kind of host, what the profile comes to.
        kinds: the kinds.
        ranks: processes on each host.
        of_level: what brings libraries to the instruction set that unlike processors have.
    """
    pins = []
    threads = {key: _threads(plans[key], kinds[key].host, ranks) for key in plans}
    if None not in threads.values():
        least = min(count for count in threads.values() if count is not None)
        pins.append(Pin(flag=THREADS, value=least, values=_values(threads, kinds)))
    chosen = {key: kind.host.cpu.microarchitecture for key, kind in kinds.items()}
    pins += [
        Pin(flag=flag, value=value, values=_values(chosen, kinds))
        for flag, value in _left_open(of_level, plans.values()).items()
    ]
    for flag in dict.fromkeys(choice.flag for plan in plans.values() for choice in plan.choices):
        # Where a flag has no effect, it does not matter what is chosen.
        orders = {
            key: _order(plan, flag) for key, plan in plans.items() if not _entry(plan, flag).idle
        }
        firsts = {key: order[0] for key, order in orders.items() if order}
        if len(set(firsts.values())) > 1:
            best = next(iter(orders.values()))
            common = [one for one in best if all(one in order for order in orders.values())]
            if common:
                value = {"require": common[0]}
                pins.append(Pin(flag=flag, value=value, values=_values(firsts, kinds)))
    return pins


def _threads(plan: Plan, host: Host, ranks: int) -> int | None:
    """The threads of a rank on a host; None where the profile says how many."""
    entry = _entry(plan, THREADS)
    return max(1, core_count(host) // ranks) if entry.adaptation is not None else None


def _left_open(of_level: Mapping[str, Any], plans: Iterable[Plan]) -> dict[str, Any]:
    """Of these flags, those by which some library that is there would choose by the processor."""
    entries = {flag: [_entry(plan, flag) for plan in plans] for flag in of_level}
    found = {
        flag: value
        for flag, value in of_level.items()
        if any(not entry.idle and entry.value in OPEN for entry in entries[flag])
    }
    said = entries.get(ENVIRONMENT, [])
    variables = {
        name: text
        for name, text in of_level.get(ENVIRONMENT, {}).items()
        if any(name not in entry.value for entry in said)
    }
    return found | ({ENVIRONMENT: variables} if variables else {})


def _order(plan: Plan, flag: str) -> tuple[str, ...]:
    return next((choice.order for choice in plan.choices if choice.flag == flag), ())


def _entry(plan: Plan, flag: str) -> Entry:
    return next(entry for entry in plan.entries if entry.flag == flag)


def _read(plans: Mapping[str, Plan]) -> dict[str, dict[str, Any]]:
    """By flag, what it comes to on each kind of host where it has an effect and can change bits."""
    found: dict[str, dict[str, Any]] = {
        flag: {} for plan in plans.values() for flag in _in_effect(plan) if flags()[flag].flag.bits
    }
    for key, plan in plans.items():
        for entry in plan.entries:
            if entry.flag in found and not entry.idle:
                found[entry.flag][key] = entry.value
    return found


def _refuse_others(
    name: str, found: Mapping[str, Mapping[str, Any]], kinds: Mapping[str, Kind]
) -> None:
    """Refuse what differs all the same, as where a `[[when]]` sets a flag on some hosts."""
    left = [
        Unlike(name=flag, values=values)
        for flag, each in found.items()
        if (values := _values(each, kinds))
    ]
    if left:
        raise FleetUnlikeError(
            f"{_total(kinds)} do not come to the same plan of profile `{name}`",
            notes=_shown(left),
            state="no plan was written",
            helps=["set these flags in the profile, or plan for each kind of host apart"],
        )


def _nature(host: Host) -> dict[str, Any]:
    """What a host is, and no setting changes."""
    return {
        "processor": f"{host.cpu.name} ({host.cpu.microarchitecture})",
        "GPUs": " and ".join(gpus_of(host)) or "none",
        **{f"driver {name}": version for name, version in sorted(host.drivers.items())},
        "C library": host.system.libc,
    }


def _differing(
    said: Mapping[str, Mapping[str, Any]], kinds: Mapping[str, Kind]
) -> Iterable[Unlike]:
    """What is not the same on all hosts; what one does not have is None."""
    for name in dict.fromkeys(name for each in said.values() for name in each):
        values = _values({key: each.get(name) for key, each in said.items()}, kinds)
        if values:
            yield Unlike(name=name, values=values)


def _values(
    by_kind: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> tuple[tuple[Any, tuple[str, ...], int], ...]:
    """Each value with hosts that have it and their number, that of most first; () where all do."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for key, value in by_kind.items():
        found.setdefault(literal(value), (value, []))[1].extend(kinds[key].names)
    if len(found) < 2:
        return ()
    order = sorted(found.values(), key=lambda one: -len(one[1]))
    return tuple((value, tuple(names[:MOST_NAMED]), len(names)) for value, names in order)


def _shown(found: Iterable[Unlike]) -> list[str]:
    return some_lines([str(one) for one in found], MOST_NAMED)


def _total(kinds: Mapping[str, Kind]) -> str:
    return counted(sum(len(kind.names) for kind in kinds.values()), "host")
