"""What attention kernels need of a call: the table for arrays of the CPU, and every reason against.

    unmet("flash", call, Device(), flags)                   # arrays of the CPU
    unmet("flash", call, device, flags, rules.ON_DEVICES)   # another table

A table is a tuple of requirements, each with the rule that says why it does not hold. For arrays
of the CPU it has what our own kernels need, in PyTorch's words where it has the same rule. The
tables for arrays of a GPU are in `backendcfg/gpu/attention`. PyTorch stops at the first rule that a
call breaks; here all are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch import attention_cpu_rules as cpu_rules
from backendcfg.dispatch import attention_rules as rules
from backendcfg.dispatch.attention_facts import Case
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.dispatch.attention_facts import AttentionFlags, Call, Device
    from backendcfg.dispatch.attention_rules import Rule

KERNELS = ("flash", "efficient", "cudnn")
"""The fused kernels. Attention as plain products, `math`, needs little but its flag."""

OURS = ("flash", "efficient", "math")
"""The kernels that serve arrays of the CPU."""


@record(frozen=True)
class Requirement:
    """One thing that a kernel needs.

    Attributes:
        name: unique in a table.
        text: what must hold, for people.
        broken: why it does not hold in a case, or "".
        kernels: the kernels that need it.
        after: requirements that must hold for this one to be looked at.
    """

    name: str
    text: str
    broken: Rule
    kernels: tuple[str, ...] = KERNELS
    after: tuple[str, ...] = ()


_FUSED = ("flash", "efficient")
_SHAPED = frozenset({"four-dimensional", "cudnn-dimensions", "valid"})
"""Requirements after which a rule may look at every length of every array."""

NOT_RAGGED = Requirement("not-ragged", "no tensor is ragged", cpu_rules.dense, OURS)
VALID = Requirement(
    "valid", "shapes and dtypes make a call of attention", cpu_rules.valid, OURS, ("not-ragged",)
)
EQUAL_HEADS = Requirement(
    "equal-heads",
    "key and value have equal heads where several share one",
    cpu_rules.equal_heads,
    _FUSED,
    ("valid",),
)

ON_CPU = (
    Requirement("enabled", "its flag is on", rules.enabled, OURS),
    Requirement("on-cpu", "query, key and value are on the CPU", cpu_rules.on_cpu, OURS),
    NOT_RAGGED,
    VALID,
    Requirement(
        "not-empty", "there are queries and keys", rules.not_empty, _FUSED, after=("valid",)
    ),
    Requirement(
        "has-width", "query and value have a width", cpu_rules.has_width, _FUSED, ("valid",)
    ),
    EQUAL_HEADS,
    Requirement(
        "mask-gradient", "the mask needs no gradient", cpu_rules.mask_without_gradient, _FUSED
    ),
    Requirement(
        "products",
        "a library that keeps the tier serves its products",
        cpu_rules.products,
        ("math",),
        ("valid",),
    ),
)
"""What our own kernels for arrays of the CPU need, in the order in which reasons are told."""


def reasons(
    kernel: str,
    call: Call,
    device: Device,
    flags: AttentionFlags,
    table: tuple[Requirement, ...] = ON_CPU,
) -> tuple[str, ...]:
    """Why a kernel cannot serve a call: every reason, in the order of the table; () if it can.

    A requirement is passed over where one that it comes after does not hold: the width of an array
    of two dimensions is no reason.

    Args:
        kernel: "flash", "efficient", "math" or "cudnn".
        call: what is to be computed.
        device: where, and by what.
        flags: the flags in force.
        table: what kernels need where the arrays are; by default `ON_CPU`.
    """
    return tuple(why for _, why in unmet(kernel, call, device, flags, table))


def unmet(
    kernel: str,
    call: Call,
    device: Device,
    flags: AttentionFlags,
    table: tuple[Requirement, ...] = ON_CPU,
) -> Iterator[tuple[Requirement, str]]:
    """The requirements that do not hold, each with the reason; see `reasons`."""
    case = Case(kernel, call, device, flags)
    broken: set[str] = set()
    for requirement in table:
        if kernel not in requirement.kernels or not broken.isdisjoint(requirement.after):
            continue
        if call.nested and not _SHAPED.isdisjoint(requirement.after):
            continue  # a ragged tensor does not have all its lengths
        if why := requirement.broken(case):
            broken.add(requirement.name)
            yield requirement, why
