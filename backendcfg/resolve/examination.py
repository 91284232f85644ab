"""Everything that can be said of a profile on a host. `resolve` and `why_not` both read it.

Nothing is raised here: what is wrong is collected, so that a refusal and its explanation cannot
tell different stories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backendcfg.resolve import conditions, cores, refusals, tiers
from backendcfg.resolve.conflicts import CONFLICTS, clashes
from backendcfg.resolve.fold import fold
from backendcfg.resolve.ground import ENVIRONMENT, Ground, adapt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backendcfg.errors import BackendCfgError
    from backendcfg.resolve.conflicts import Clash
    from backendcfg.resolve.ground import Adapted
    from backendcfg.resolve.tiers import Kept
    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack
    from backendcfg.schema.plan import Check, Choice, Entry


@dataclass(frozen=True)
class Examination:
    """A profile on a host.

    Attributes:
        name: the profile, as it was asked for.
        ground: the host and every flag as it would be applied.
        choices: how each library was chosen.
        requires: what `requires` tables and pinned kernels need.
        conditions: what `[[when]]` tables looked at; one that does not hold is no fault.
        tier: what the tier needs, and what was found.
        clashes: values that cannot both hold.
        refusals: why the profile does not resolve, the most fundamental reason first; empty when
            it does.
    """

    name: str
    ground: Ground
    choices: tuple[Choice, ...]
    requires: tuple[Check, ...]
    conditions: tuple[Check, ...]
    tier: tuple[Kept, ...]
    clashes: tuple[Clash, ...]
    refusals: tuple[BackendCfgError, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every flag, in schema order."""
        return tuple(self.ground.entries.values())

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every requirement and condition that was looked at."""
        return (*self.requires, *self.conditions, *(kept.check for kept in self.tier))


def examine(stack: Stack, host: Host, candidates: Sequence[str] = ()) -> Examination:
    """Look at a profile on a host from every side.

    Args:
        stack: the layers.
        host: the machine.
        candidates: names of profiles that fit, to be offered when this one does not.
    """
    folded, whens = fold(stack, host)
    adapted = adapt(folded, host)
    ground = Ground(
        host,
        adapted.entries,
        adapted.required,
        adapted.libraries,
        folded[ENVIRONMENT].parts,
    )
    requires = (*_requires(stack, host), *cores.pinned(adapted.entries, host.cpu))
    kept = tiers.examine(ground.value(tiers.TIER), ground)
    clashed = tuple(clashes(CONFLICTS, ground))
    found: list[BackendCfgError] = []
    hardware = refusals.unsupported_hardware(stack.name, requires, host, candidates)
    found += [hardware] if hardware else []
    found += cores.misnamed(adapted.entries)
    found += [refusals.conflicting_flags(clash, stack) for clash in clashed]
    found += _missing(stack, adapted, host)
    entry = ground.entries[tiers.TIER]
    broken = refusals.tier_not_kept(stack.name, entry, kept, tiers.kept(ground))
    found += [broken] if broken else []
    return Examination(
        stack.name, ground, adapted.choices, requires, whens, kept, clashed, tuple(found)
    )


def _requires(stack: Stack, host: Host) -> Iterator[Check]:
    for layer in stack.layers:
        for requirement in layer.requires:
            because = f"`requires` in {layer.title}"
            yield from conditions.check(requirement.condition, host, because, requirement.place)


def _missing(stack: Stack, adapted: Adapted, host: Host) -> Iterator[BackendCfgError]:
    for choice in adapted.choices:
        if not choice.order:
            entry = adapted.entries[choice.flag]
            library = adapted.required.get(choice.flag, "")
            yield refusals.missing_library(stack.name, entry, choice, library, host)
