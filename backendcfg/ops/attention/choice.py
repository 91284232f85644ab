"""Which kernel serves a call of attention, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backendcfg import _native, native
from backendcfg.dispatch import attention, attention_facts
from backendcfg.dispatch.attention_facts import Call, Device
from backendcfg.gpu.attention import cudnn_rules
from backendcfg.ops.devices import CUDA, gpu
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.attention_facts import Call

_NOWHERE = Device()


@dataclass(frozen=True)
class Choice:
    """Who serves a call.

    Attributes:
        kernel: "flash", "efficient" or "math"; "" where none can.
        reasons: for each kernel that does not serve, everything against it.
        because: why the one that serves does.
    """

    kernel: str
    reasons: dict[str, tuple[str, ...]]
    because: str


def choose(call: Call, values: Mapping[str, Any], device: Device = _NOWHERE) -> Choice:
    """The first kernel that may and can serve a call, in the order of `cuda.sdp_priority`.

    Where that says nothing, cuDNN is the first on the devices on which PyTorch tries it first, but
    for calls with a mask: a query that sees nothing gets NaN of it, and 0 of our own kernels.

    Args:
        call: its arrays and options, in which nothing is wrong.
        values: the flags in force, those of `attention_facts.FLAGS` at least.
        device: the GPU whose arrays our own kernel is asked for; by default the CPU.
    """
    found = _choose(call, values, device)
    if found.kernel == "math" and device.is_ours and (why := _no_products(call, values)):
        # Asked for only now: it loads a library that other kernels do without.
        return _choose(call, values, replace(device, no_products=why))
    return found


def _choose(call: Call, values: Mapping[str, Any], device: Device) -> Choice:
    served = attention.ON_DEVICES if device.is_ours else attention.OURS
    flags = attention_facts.flags_of(values, "" if device.is_ours else _library(call))
    is_free = device.is_ours and not values["cuda.sdp_priority"] and call.mask is None
    if is_free and cudnn_rules.leads(device):
        flags = replace(flags, order=tuple(dict.fromkeys(("cudnn", *flags.order))))
    kernel, behind, against = "", [], {}
    needs: dict[str, str] = {}
    for name in flags.order:
        if name not in served:
            continue
        unmet = list(attention.unmet(name, call, device, flags))
        why = tuple(reason for _, reason in unmet)
        if kernel and not why:
            behind.append(name)
        elif why:
            against[name] = why
            needs[name] = unmet[0][0].text
        else:
            kernel = name
    order = tuple(name for name in flags.order if name in served)
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


def _no_products(call: Call, values: Mapping[str, Any]) -> str:
    """Why no library multiplies for `math` where the arrays are, or ""."""
    rounds = values["cuda.allow_fp16_bf16_reduction_math_sdp"]
    element = gpu().multiplied_in(call.query.dtype, rounds=bool(rounds))
    place = CUDA, call.query.index
    chosen = gpu().choose_product(_native.snapshot(), *place, element, start=False)
    if chosen.recipe is not None:
        return ""
    told = "; ".join(f"{name}: {why}" for name, why in chosen.reasons.items())
    return f"No library can multiply {element} there: {told}."
