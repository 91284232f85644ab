"""Which kernel serves attention of arrays on a device, and why the others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.dispatch import attention_facts
from backendcfg.gpu.attention import rules
from backendcfg.gpu.attention.math import multiplied_in
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.products import recipes
from backendcfg.ops.attention import choice as attention_choice
from backendcfg.ops.devices import CUDA
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.attention_facts import Call, Device
    from backendcfg.ops.attention.choice import Choice


def choose(call: Call, values: Mapping[str, Any], device: Device) -> Choice:
    """The first kernel that may and can serve a call, in the order of `cuda.sdp_priority`.

    Where that flag gives no order, cuDNN is the first on the devices on which PyTorch tries it
    first, but not for calls with a mask: for a query that sees no key, cuDNN gives NaN and our own
    kernels give 0.

    Args:
        call: its arrays and options, in which nothing is wrong.
        values: the flags in force, those of `attention_facts.FLAGS` at least.
        device: where the arrays are.
    """
    flags = attention_facts.flags_of(values)
    if not values["cuda.sdp_priority"] and call.mask is None and rules.prefers_cudnn(device):
        flags = replace(flags, order=tuple(dict.fromkeys(("cudnn", *flags.order))))
    found = attention_choice.first(rules.ON_DEVICES, rules.KERNELS, call, device, flags)
    if found.kernel == "math" and (why := _no_products(call, values)):
        # Asked only now, because it loads a library that the other kernels do without.
        device = replace(device, no_products=why)
        found = attention_choice.first(rules.ON_DEVICES, rules.KERNELS, call, device, flags)
    return found


def choose_at(
    place: tuple[int, int], call: Call, values: Mapping[str, Any]
) -> tuple[tuple[str, ...], Choice]:
    """The kernels of a device, and which of them would serve a call there; nothing is started.

    Args:
        place: the kind of the device, with DLPack's number, and its index.
        call: its arrays and options, in which nothing is wrong.
        values: the flags in force.
    """
    device, _ = loading.device(*place, start=False)
    return rules.KERNELS, choose(call, values, device)


def _no_products(call: Call, values: Mapping[str, Any]) -> str:
    """Why no library multiplies for `math` where the arrays are, or ""."""
    rounds = values["cuda.allow_fp16_bf16_reduction_math_sdp"]
    element = multiplied_in(call.query.dtype, rounds=bool(rounds))
    place = CUDA, call.query.index
    chosen = recipes.choose(_native.snapshot(), *place, element, start=False)
    if chosen.recipe is not None:
        return ""
    told = "; ".join(f"{name}: {why}" for name, why in chosen.reasons.items())
    return f"No library can multiply {element} there: {told}."
