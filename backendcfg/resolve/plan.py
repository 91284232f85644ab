"""From (profile, host) to a plan. Pure: opens nothing, reads no variable, calls no library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.errors import SeveralErrors
from backendcfg.resolve.digest import host_digest
from backendcfg.resolve.examination import Examination, examine
from backendcfg.resolve.overrides import overrides
from backendcfg.resolve.tiers import TIER, unkept
from backendcfg.schema.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backendcfg.schema.host import Host
    from backendcfg.schema.layer import Stack


def resolve(stack: Stack, host: Host, *, candidates: Sequence[str] = ()) -> Plan:
    """What a profile means on a host: every flag with its value, its origin and its adaptation.

    The same layers and the same host give the same plan, anywhere.

    Args:
        stack: the layers, weakest first.
        host: the machine, detected here or captured elsewhere.
        candidates: names of profiles that fit the host, offered when this one needs other
            hardware; see `backendcfg.resolve.recommend`.

    Raises:
        UnsupportedHardwareError: a requirement is not met.
        ConflictingFlagsError: two values cannot both hold; SeveralErrors when more than one
            pair does.
        InvalidValueError: a kernel set is named that does not exist.
        MissingLibraryError: a required library is not usable.
        TierNotKeptError: the flags do not keep the promise here.
    """
    found = examine(stack, host, candidates)
    if found.refusals:
        raise _first(found)
    return Plan(
        name=stack.name,
        description=next(
            (layer.description for layer in reversed(stack.layers) if layer.description), ""
        ),
        tier=found.ground.value(TIER),
        host=host.summary(),
        host_digest=host_digest(host),
        entries=found.entries,
        choices=found.choices,
        libraries=found.ground.libraries,
        checks=found.checks,
        unkept=unkept(found.ground.value(TIER), found.ground),
        overrides=overrides(found.ground),
    )


def _first(found: Examination) -> Exception:
    """The most fundamental refusal, with all others that end the same way."""
    first = found.refusals[0]
    alike = [error for error in found.refusals if error.exit_code == first.exit_code]
    if first.exit_code != SeveralErrors.exit_code or len(alike) == 1:
        return first
    return SeveralErrors(f"{len(alike)} errors in profile `{found.name}`", errors=alike)
