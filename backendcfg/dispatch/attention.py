"""Which kernel serves a call of attention: what each needs, as tables, and the choice by one.

    choose(call, values)                                    # for arrays of the CPU
    unmet("flash", call, Device(), flags)                   # what stands against a kernel there
    unmet("flash", call, device, flags, rules.ON_DEVICES)   # in another table

A table is a tuple of requirements, each with the rule that says why it does not hold. For arrays
of the CPU it has what our own kernels need, in PyTorch's words where it has the same rule. That is
little: they take masks, groups of heads, any width and any strides. The tables for arrays of a GPU
are in `backendcfg/gpu/attention`. PyTorch stops at the first rule that a call breaks; here all are
told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.catalogue.cpu import COMPILED_IN
from backendcfg.dispatch import attention_facts
from backendcfg.dispatch.attention_facts import Case, Device
from backendcfg.dispatch.providers import INVARIANT
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from backendcfg.dispatch.attention_facts import AttentionFlags, Call

    Rule = Callable[[Case], str]

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


def requirement(
    name: str, text: str, kernels: tuple[str, ...] = KERNELS, after: tuple[str, ...] = ()
) -> Callable[[Rule], Requirement]:
    """Make a rule, a function that says why it is broken, a requirement; see its attributes."""
    return lambda broken: Requirement(name, text, broken, kernels, after)


_FUSED = ("flash", "efficient")
_SHAPED = frozenset({"four-dimensional", "valid"})
"""Requirements after which a rule may look at every length of every array."""

DISABLED = {
    "flash": "Flash attention has been runtime disabled.",
    "efficient": "Memory Efficient attention has been runtime disabled.",
    "cudnn": "cuDNN attention has been runtime disabled.",
    "math": "Math attention has been runtime disabled.",
}


@requirement("enabled", "its flag is on", (*OURS, "cudnn"))
def enabled(case: Case) -> str:
    """Its flag is on."""
    return "" if case.kernel in case.flags.enabled else DISABLED[case.kernel]


@requirement("on-cpu", "query, key and value are on the CPU", OURS)
def on_cpu(case: Case) -> str:
    """All arrays are on the CPU."""
    query, key, value = (each.device for each in case.call.arrays)
    if query == key == value:
        return ""
    return (
        f"All tensors need to be on the CPU. Got query on device: {query}, "
        f"key on device: {key}, value on device: {value}"
    )


@requirement("not-ragged", "no tensor is ragged", OURS)
def not_ragged(case: Case) -> str:
    """No ragged tensor."""
    return "Our kernels do not support nested tensors." if case.call.nested else ""


@requirement("valid", "shapes and dtypes make a call of attention", OURS, ("not-ragged",))
def valid(case: Case) -> str:
    """The arrays make a call of attention."""
    return "" if case.call.nested else attention_facts.problem(case.call)


@requirement("not-empty", "there are queries and keys", _FUSED, ("valid",))
def not_empty(case: Case) -> str:
    """There is something to attend to."""
    if case.call.query.shape[-2] and case.call.key.shape[-2]:
        return ""
    return "All fused kernels do not support zero seq_len_q or seq_len_kv."


@requirement("has-width", "query and value have a width", _FUSED, ("valid",))
def has_width(case: Case) -> str:
    """There is something to multiply."""
    if case.call.query.shape[-1] and case.call.value.shape[-1]:
        return ""
    return "It needs query and value to have a width."


@requirement(
    "equal-heads",
    "key and value have equal heads where several share one",
    _FUSED,
    ("valid",),
)
def equal_heads(case: Case) -> str:
    """Key and value have the same heads."""
    query, key, value = (list(each.shape) for each in case.call.arrays)
    if not case.call.enable_gqa or key[-3] == value[-3]:
        return ""
    return (
        "Both fused kernels require key and value to have the same num_heads and batch_size but "
        f"got: Key sizes: {key}, Value sizes: {value}, Query sizes: {query} instead."
    )


@requirement("mask-gradient", "the mask needs no gradient", _FUSED)
def mask_gradient(case: Case) -> str:
    """No gradient of the mask is wanted."""
    if case.call.mask is None or not case.call.mask.requires_grad:
        return ""
    # PyTorch refuses this without a word.
    return "attn_mask requires a gradient, which fused attention does not give."


@requirement("products", "a library that keeps the tier serves its products", ("math",), ("valid",))
def products(case: Case) -> str:
    """The library that serves its products keeps the tier of the profile."""
    flags, call = case.flags, case.call
    multiplies = call.query.shape[-2] and call.key.shape[-2]
    if not (multiplies and flags.tier in INVARIANT and flags.library):
        return ""
    if flags.library in COMPILED_IN:
        return ""
    return (
        f"its products would be served by {flags.library}, whose bits depend on threads and "
        f"shapes, under tier `{flags.tier}`"
    )


ON_CPU: tuple[Requirement, ...] = (
    *(enabled, on_cpu, not_ragged, valid, not_empty, has_width, equal_heads, mask_gradient),
    products,
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


@record(frozen=True)
class Choice:
    """Who serves a call.

    Attributes:
        kernel: "flash", "efficient", "math" or, on a device, "cudnn"; "" where none can.
        reasons: for each kernel that does not serve, everything against it.
        because: why the one that serves does.
    """

    kernel: str
    reasons: dict[str, tuple[str, ...]]
    because: str


def choose(call: Call, values: Mapping[str, Any]) -> Choice:
    """The first kernel for arrays of the CPU that may and can serve a call.

    Args:
        call: its arrays and options, in which nothing is wrong.
        values: the flags in force, those of `attention_facts.FLAGS` at least.
    """
    flags = attention_facts.flags_of(values, _library(call))
    return first(ON_CPU, OURS, call, Device(), flags)


def first(
    table: tuple[Requirement, ...],
    served: tuple[str, ...],
    call: Call,
    device: Device,
    flags: AttentionFlags,
) -> Choice:
    """The first kernel in the order of the flags of which every requirement holds.

    Args:
        table: what the kernels need where the arrays are.
        served: the kernels that there are.
        call: its arrays and options.
        device: where the arrays are.
        flags: the flags of attention.
    """
    kernel, behind, against = "", [], {}
    needs: dict[str, str] = {}
    order = tuple(name for name in flags.order if name in served)
    for name in order:
        broken = list(unmet(name, call, device, flags, table))
        if not broken:
            if kernel:
                behind.append(name)
            kernel = kernel or name
        else:
            against[name] = tuple(reason for _, reason in broken)
            needs[name] = broken[0][0].text
    ahead = order[: order.index(kernel)] if kernel else ()
    because = f"first in the order {', '.join(order)}"
    if ahead:
        # Without numbers of the call: `stats` keeps a counter for each of these.
        because = "; ".join(f"{name} needs: {needs[name]}" for name in ahead)
    told = dict.fromkeys(behind, (f"behind `{kernel}` in the order",))
    return Choice(kernel, {**against, **told}, because if kernel else "")


def _library(call: Call) -> str:
    """Who would serve the products of `math` here and now."""
    snapshot = _native.snapshot()
    operation = "dgemm" if call.query.element == "float64" else "sgemm"
    handles = native.ordered(snapshot, operation)
    return native.describe(handles[0]).name if handles else ""
