"""Which kernel serves a call of attention, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.dispatch import attention, attention_facts
from backendcfg.dispatch.attention_facts import Device

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.attention import Requirement
    from backendcfg.dispatch.attention_facts import AttentionFlags, Call


@dataclass(frozen=True)
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
    return first(attention.ON_CPU, attention.OURS, call, Device(), flags)


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
        unmet = list(attention.unmet(name, call, device, flags, table))
        if not unmet:
            if kernel:
                behind.append(name)
            kernel = kernel or name
        else:
            against[name] = tuple(reason for _, reason in unmet)
            needs[name] = unmet[0][0].text
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
    operation = "dgemm" if call.query.dtype == "float64" else "sgemm"
    handles = native.ordered(snapshot, operation)
    return native.describe(handles[0]).name if handles else ""
