"""Requirements of our own attention kernels on NVIDIA GPUs, which serve `ops`.

As in `attention_rules.py`, each function says why a rule is broken, or "". They are other rules
than those of PyTorch's kernels: ours take masks, groups of heads, and lengths that differ.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from backendcfg.dispatch import attention_shapes
from backendcfg.gpu.attention import plain_programs
from backendcfg.gpu.attention.flash_variants import OLDEST
from backendcfg.gpu.attention.gpu_rules import HALF

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Case

UNKEPT_TIERS = ("cross-machine", "batch-invariant")
"""What nothing promises that computes on a device."""


def driver(case: Case) -> str:
    """NVIDIA's driver is here, and knows the device."""
    return case.device.no_driver


def nvidia(case: Case) -> str:
    """The arrays are on an NVIDIA device."""
    return "" if case.device.vendor == "nvidia" else "It is for NVIDIA devices alone."


def architecture(case: Case) -> str:
    """The device has the instructions of the kernel."""
    oldest = OLDEST if case.kernel == "flash" else plain_programs.OLDEST
    if case.device.sm >= oldest:
        return ""
    least = f"It needs sm_{oldest[0]}{oldest[1]} or newer, and"
    if case.device.capability is None:
        return f"{least} the driver does not say what this device is."
    major, minor = case.device.sm
    return f"{least} this is sm_{major}{minor}."


def compiler(case: Case) -> str:
    """A compiler for the device is here."""
    return case.device.no_compiler


def products(case: Case) -> str:
    """A library multiplies on the device."""
    return case.device.no_products


def sixteen_bits(case: Case) -> str:
    """bfloat16 or float16."""
    if (element := case.call.query.dtype) in HALF:
        return ""
    return f"It computes bfloat16 and float16, not {element}."


def widths(case: Case) -> str:
    """Heads that the kernel has tiles for."""
    query, value = case.call.query.shape[-1], case.call.value.shape[-1]
    if query != value:
        return f"It needs value as wide as query, {query}, not {value}."
    if 32 <= query <= 256 and query % 8 == 0:
        return ""
    return f"It needs heads that are 32 to 256 wide, a multiple of 8, not {query}."


def value_width(case: Case) -> str:
    """Values that fit the registers of the kernel."""
    width, widest = case.call.value.shape[-1], plain_programs.WIDEST
    return "" if width <= widest else f"It needs value to be at most {widest} wide, not {width}."


def has_width(case: Case) -> str:
    """There is something to multiply."""
    if case.call.query.shape[-1] and case.call.value.shape[-1]:
        return ""
    return "It needs query and value to have a width."


def four_at_most(case: Case) -> str:
    """(batch, heads, length, width), or fewer."""
    call = case.call
    dims = [len(each.shape) for each in (call.query, call.key, call.value)]
    if max(dims) <= 4:
        return ""
    query, key, value = dims
    return (
        "It takes 4 dimensions at most, but got "
        f"Query dim: {query}, Key dim: {key}, Value dim: {value}."
    )


def rows_side_by_side(case: Case) -> str:
    """The numbers of a row of query, key and value lie side by side."""
    inputs = (case.call.query, case.call.key, case.call.value)
    if all(each.strides[-1] == 1 or 0 in each.shape for each in inputs):
        return ""
    query, key, value = (each.strides[-1] for each in inputs)
    return (
        "It needs the last dimension to have stride 1. "
        f"Got Query.stride(-1): {query}, Key.stride(-1): {key}, Value.stride(-1): {value}"
    )


def no_gradient_of_mask(case: Case) -> str:
    """The mask needs no gradient."""
    mask = case.call.mask
    if mask is None or not mask.requires_grad:
        return ""
    return "It gives no gradient of the mask, which needs one."


def countable(case: Case) -> str:
    """Positions and blocks can be counted in 32 bits."""
    shapes = attention_shapes.sizes(case.call)
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


def tier(case: Case) -> str:
    """The profile promises what a device can keep."""
    if case.flags.tier not in UNKEPT_TIERS:
        return ""
    return f"`determinism.tier` promises `{case.flags.tier}`, which no kernel on a device keeps."
