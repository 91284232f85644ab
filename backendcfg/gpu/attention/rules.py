"""Which kernel serves attention of arrays on a device: what each needs of a call, and the choice.

The table is `ON_DEVICES`; each function says why a rule is broken, or "". The rules of our own
kernels differ from those of PyTorch's: ours take masks, groups of heads, and lengths that differ.
For cuDNN, PyTorch's text is used where PyTorch has the rule (`sdp_utils.cpp`), and the text of
NVIDIA's frontend where that has it (`sdpa_support_surface.h`). The rules without either are about
what cuDNN would compute differently from what `ops` documents.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from backendcfg import _native
from backendcfg.dispatch import attention, attention_facts
from backendcfg.dispatch.attention import OURS, Requirement, requirement
from backendcfg.gpu.attention import torch_rules
from backendcfg.gpu.attention.efficient import WIDEST
from backendcfg.gpu.attention.flash import OLDEST as OLDEST_OF_FLASH
from backendcfg.gpu.attention.math import multiplied_in
from backendcfg.gpu.attention.torch_rules import HALF
from backendcfg.gpu.kernels import loading
from backendcfg.gpu.kernels.sources import OLDEST
from backendcfg.gpu.messages import unkept
from backendcfg.gpu.products import recipes
from backendcfg.ops.devices import CUDA
from backendcfg.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.attention import Choice
    from backendcfg.dispatch.attention_facts import Call, Case, Device

KERNELS = (*OURS, "cudnn")
"""The kernels that serve arrays of a device."""

# Where PyTorch tries cuDNN first, and after which version of it.
_FASTEST = ((9, 0), (10, 0), (10, 3))
_FASTEST_AFTER = 91500
_MOST_HEADS = 65535
_BLOCK = 128

_FLASH = ("flash",)
_CUDNN = ("cudnn",)
_VALID = ("valid",)
_PLACED = ("nvidia", "driver")
_SHAPED = ("four-dimensional",)
# Where one of these does not hold, the version of cuDNN is not known.
_VERSIONED = ("nvidia", "driver", "cudnn-library")


@requirement("nvidia", "an NVIDIA device", KERNELS)
def nvidia(case: Case) -> str:
    """The arrays are on an NVIDIA device."""
    return "" if case.device.vendor == "nvidia" else "It is for NVIDIA devices alone."


@requirement("driver", "its driver is here, and knows the device", KERNELS, ("nvidia",))
def driver(case: Case) -> str:
    """NVIDIA's driver is here, and knows the device."""
    return case.device.no_driver


@requirement("instructions", "flash: sm_80 or newer; the others: sm_50 or newer", OURS, _PLACED)
def instructions(case: Case) -> str:
    """The device has the instructions of the kernel."""
    oldest = OLDEST_OF_FLASH if case.kernel == "flash" else OLDEST
    if case.device.sm >= oldest:
        return ""
    least = f"It needs sm_{oldest[0]}{oldest[1]} or newer, and"
    if case.device.capability is None:
        return f"{least} the driver does not say what this device is."
    major, minor = case.device.sm
    return f"{least} this is sm_{major}{minor}."


@requirement("compiler", "NVRTC is here, and compiles for the device", OURS, ("nvidia",))
def compiler(case: Case) -> str:
    """A compiler for the device is here."""
    return case.device.no_compiler


@requirement("device-products", "a library that multiplies there is here", ("math",))
def products(case: Case) -> str:
    """A library multiplies on the device."""
    return case.device.no_products


@requirement("sixteen-bits", "bfloat16 or float16", _FLASH)
def sixteen_bits(case: Case) -> str:
    """bfloat16 or float16."""
    if (element := case.call.query.element) in HALF:
        return ""
    return f"It computes bfloat16 and float16, not {element}."


@requirement(
    "tiled-widths",
    "query, key and value are equally wide: 32 to 256, a multiple of 8",
    _FLASH,
    _VALID,
)
def tiled_widths(case: Case) -> str:
    """Heads that the kernel has tiles for."""
    query, value = case.call.query.shape[-1], case.call.value.shape[-1]
    if query != value:
        return f"It needs value as wide as query, {query}, not {value}."
    if 32 <= query <= 256 and query % 8 == 0:
        return ""
    return f"It needs heads that are 32 to 256 wide, a multiple of 8, not {query}."


@requirement("value-width", "value is 256 wide at most", ("efficient",), _VALID)
def value_width(case: Case) -> str:
    """Values that fit the registers of the kernel."""
    width = case.call.value.shape[-1]
    return "" if width <= WIDEST else f"It needs value to be at most {WIDEST} wide, not {width}."


@requirement("four-at-most", "query, key and value have 4 dimensions at most", OURS, _VALID)
def four_at_most(case: Case) -> str:
    """(batch, heads, length, width), or fewer."""
    dims = [len(each.shape) for each in case.call.arrays]
    if max(dims) <= 4:
        return ""
    query, key, value = dims
    return (
        "It takes 4 dimensions at most, but got "
        f"Query dim: {query}, Key dim: {key}, Value dim: {value}."
    )


@requirement(
    "rows", "the numbers of a row of query, key and value lie side by side", _FLASH, _VALID
)
def rows_side_by_side(case: Case) -> str:
    """The numbers of a row of query, key and value lie side by side."""
    inputs = case.call.arrays
    if all(each.strides[-1] == 1 or 0 in each.shape for each in inputs):
        return ""
    query, key, value = (each.strides[-1] for each in inputs)
    return (
        "It needs the last dimension to have stride 1. "
        f"Got Query.stride(-1): {query}, Key.stride(-1): {key}, Value.stride(-1): {value}"
    )


@requirement("countable", "positions and blocks are fewer than 2**31", OURS, _VALID)
def countable(case: Case) -> str:
    """Positions and blocks can be counted in 32 bits."""
    shapes = attention_facts.sizes(case.call)
    longest = max(shapes.queries, shapes.keys) + 512
    pairs = prod(shapes.lead)
    rows = 64 if case.kernel == "flash" else 8  # of a block, at least
    blocks = pairs * -(-shapes.queries // rows)
    if case.kernel != "flash" and case.call.trains:
        # Those of a gradient lie along its columns too.
        columns = -(-max(shapes.width, shapes.value_width) // 64)
        blocks = max(blocks, pairs * -(-longest // 32) * columns)
    if (mask := case.call.mask) is not None and mask.requires_grad:
        sizes = (1, *mask.shape)
        blocks = max(blocks, prod(sizes[:-2]) * -(-sizes[-2] // 32) * -(-sizes[-1] // 64))
    if max(longest, blocks) < 2**31:
        return ""
    return f"It counts in 32 bits, and {longest - 512} rows of {pairs} heads are more."


@requirement("tier", "no tier is in force that no device keeps", KERNELS)
def tier(case: Case) -> str:
    """The tier of the profile is one that a device can keep."""
    return unkept(case.flags.tier, "no kernel on a device keeps.")


@requirement(
    "cudnn-library", "cuDNN 9 is here, and has an engine for the call", _CUDNN, ("nvidia",)
)
def cudnn_library(case: Case) -> str:
    """CuDNN is here, and has an engine if it was asked for one."""
    return case.device.no_cudnn


@requirement("cudnn-counts", f"1 to {_MOST_HEADS} batches and heads, and a width", _CUDNN, _SHAPED)
def few_heads(case: Case) -> str:
    """Batches and heads that a grid of blocks can count."""
    batch, heads = case.call.query.shape[:2]
    if not (batch and heads and case.call.query.shape[-1] and case.call.value.shape[-1]):
        return "It computes nothing of arrays without numbers."
    if max(batch, heads) <= _MOST_HEADS:
        return ""
    return (
        f"cuDNN SDPA does not support batch size or num_heads greater than {_MOST_HEADS}. "
        f"Got batch size: {batch}, num_heads: {heads}"
    )


@requirement(
    "cudnn-layout",
    "addresses and strides are multiples of 16 bytes, and nothing is repeated",
    _CUDNN,
    _SHAPED,
)
def cudnn_layout(case: Case) -> str:
    """Addresses and strides that whole vectors can be copied from."""
    call = case.call
    steps = [
        step
        for each in call.arrays
        for length, step in zip(each.shape[:-1], each.strides[:-1], strict=True)
        if length > 1
    ]
    if call.is_aligned and all(step > 0 and step % 8 == 0 for step in steps):
        return ""
    return (
        "It needs query, key and value at addresses that are multiples of 16 bytes, and strides "
        "above 0 that are multiples of 8 numbers."
    )


@requirement("cudnn-mask", "a mask is added, and not bool", _CUDNN)
def added_mask(case: Case) -> str:
    """A mask is added."""
    if case.call.mask is None or case.call.mask.element != "bool":
        return ""
    return "It adds a mask to the scores, and attn_mask is bool: nothing is converted."


@requirement(
    "cudnn-bugs",
    "not 9.10.0 or 9.10.1; no single causal query before 9.10",
    _CUDNN,
    (*_VERSIONED, *_SHAPED),
)
def cudnn_without_bugs(case: Case) -> str:
    """A version of cuDNN that computes it right."""
    version = case.device.cudnn
    if 91000 <= version < 91002:
        return (
            "SDPA FP16/BF16 forward is not supported on cuDNN 9.10.0/9.10.1 due to known bugs. "
            "Please consider upgrading to 9.10.2 or newer."
        )
    if case.call.is_causal and case.call.query.shape[-2] == 1 and version <= 90900:
        return (
            "decode only mode, i.e. s_q == 1, not supported with masking (right_bound is set) for "
            "backend version 9.9 or below"
        )
    return ""


@requirement("cudnn-scale", "the scale is above 0", _CUDNN)
def positive_scale(case: Case) -> str:
    """A scale that does not turn the greatest score into the least."""
    if case.call.scale is None or case.call.scale > 0:
        return ""
    return f"It needs a scale above 0, not {case.call.scale:g}."


@requirement("cudnn-dropout", "no weight is dropped", _CUDNN)
def no_dropout(case: Case) -> str:
    """No weight is dropped."""
    if not case.call.dropout:
        return ""
    return "A seed drops the same weights wherever it is used, and cuDNN would drop others."


@requirement(
    "cudnn-gradients",
    f"training: cuDNN 9.6; up to 9.15.0 keys by {_BLOCK}; not on sm_10x where bits must repeat",
    _CUDNN,
    (*_VERSIONED, *_SHAPED),
)
def cudnn_gradients(case: Case) -> str:
    """No fault is known of the gradients on this version, device and length."""
    call, version, flags = case.call, case.device.cudnn, case.flags
    if not call.trains:
        return ""
    if version < 90600:
        return "Its gradients need cuDNN 9.6 or newer: older ones add to what they find in memory."
    keys = call.key.shape[-2]
    if version <= _FASTEST_AFTER and keys % _BLOCK:
        return (
            f"Its gradients of {keys} keys, which is no multiple of {_BLOCK}, need a cuDNN after "
            "9.15.0."
        )
    if case.device.sm[0] == 10 and (flags.deterministic or flags.tier != "none"):
        return (
            "On sm_10x its gradients may differ from run to run, which `determinism.algorithms` or "
            "`determinism.tier` forbids."
        )
    return ""


def _for_cudnn(of_torch: Requirement, **changes: Any) -> Requirement:
    """A requirement of PyTorch's kernels, of cuDNN alone."""
    return replace(of_torch, kernels=_CUDNN, **changes)


ON_DEVICES: tuple[Requirement, ...] = (
    *(attention.enabled, attention.not_ragged, attention.valid),
    *(nvidia, driver, instructions, compiler, products),
    *(sixteen_bits, tiled_widths, value_width),
    replace(attention.has_width, kernels=("efficient", "math")),
    *(four_at_most, rows_side_by_side),
    replace(attention.mask_gradient, kernels=_FLASH),
    *(countable, tier, cudnn_library),
    _for_cudnn(torch_rules.architecture, text="sm80 to sm121", after=_PLACED),
    _for_cudnn(torch_rules.four_dimensional),
    _for_cudnn(torch_rules.dtype, text="float16 or bfloat16"),
    _for_cudnn(torch_rules.batches_and_heads),
    few_heads,
    _for_cudnn(torch_rules.not_empty),
    _for_cudnn(torch_rules.last_stride),
    *(cudnn_layout, added_mask, cudnn_without_bugs, positive_scale, no_dropout, cudnn_gradients),
    torch_rules.mask_shape,
    torch_rules.cudnn_widths,
    attention.equal_heads,
    torch_rules.cudnn_lengths,
    _for_cudnn(torch_rules.cudnn_version, after=_VERSIONED),
)
"""What the kernels need, in the order in which reasons are told."""


def prefers_cudnn(device: Device) -> bool:
    """Whether cuDNN is tried first where no order is set: PyTorch's rule since 2.12."""
    return (
        device.vendor == "nvidia"
        and device.cudnn > _FASTEST_AFTER
        and device.capability in _FASTEST
    )


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
    if not values["cuda.sdp_priority"] and call.mask is None and prefers_cudnn(device):
        flags = replace(flags, order=tuple(dict.fromkeys(("cudnn", *flags.order))))
    found = attention.first(ON_DEVICES, KERNELS, call, device, flags)
    if found.kernel == "math" and (why := _no_products(call, values)):
        # Asked only now, because it loads a library that the other kernels do without.
        device = replace(device, no_products=why)
        found = attention.first(ON_DEVICES, KERNELS, call, device, flags)
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
    return KERNELS, choose(call, values, device)


def _no_products(call: Call, values: Mapping[str, Any]) -> str:
    """Why no library multiplies for `math` where the arrays are, or ""."""
    rounds = values["cuda.allow_fp16_bf16_reduction_math_sdp"]
    element = multiplied_in(call.query.element, rounds=bool(rounds))
    place = CUDA, call.query.ordinal
    chosen = recipes.choose(_native.snapshot(), *place, element, start=False)
    if chosen.recipe is not None:
        return ""
    told = "; ".join(f"{name}: {why}" for name, why in chosen.reasons.items())
    return f"No library can multiply {element} there: {told}."
