"""What the kernels that serve `ops` need of a call with arrays of a device: the table `ON_DEVICES`.

Each function says why a rule is broken, or "". The rules of our own kernels differ from those of
PyTorch's: ours take masks, groups of heads, and lengths that differ. For cuDNN, PyTorch's text is
used where PyTorch has the rule (`sdp_utils.cpp`), and the text of NVIDIA's frontend where that has
it (`sdpa_support_surface.h`). The rules without either are about what cuDNN would compute
differently from what `ops` documents.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from backendcfg.dispatch import attention_rules, attention_shapes
from backendcfg.dispatch.attention import EQUAL_HEADS, NOT_RAGGED, OURS, VALID, Requirement
from backendcfg.gpu.attention import torch_rules
from backendcfg.gpu.attention.efficient import WIDEST
from backendcfg.gpu.attention.flash import OLDEST as OLDEST_OF_FLASH
from backendcfg.gpu.attention.torch_rules import HALF
from backendcfg.gpu.kernels.sources import OLDEST
from backendcfg.gpu.messages import unkept

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Case, Device

KERNELS = (*OURS, "cudnn")
"""The kernels that serve arrays of a device."""

# Where PyTorch tries cuDNN first, and after which version of it.
_FASTEST = ((9, 0), (10, 0), (10, 3))
_FASTEST_AFTER = 91500
_MOST_HEADS = 65535
_BLOCK = 128


def driver(case: Case) -> str:
    """NVIDIA's driver is here, and knows the device."""
    return case.device.no_driver


def nvidia(case: Case) -> str:
    """The arrays are on an NVIDIA device."""
    return "" if case.device.vendor == "nvidia" else "It is for NVIDIA devices alone."


def architecture(case: Case) -> str:
    """The device has the instructions of the kernel."""
    oldest = OLDEST_OF_FLASH if case.kernel == "flash" else OLDEST
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
    width = case.call.value.shape[-1]
    return "" if width <= WIDEST else f"It needs value to be at most {WIDEST} wide, not {width}."


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
    """The tier of the profile is one that a device can keep."""
    return unkept(case.flags.tier, "no kernel on a device keeps.")


def prefers_cudnn(device: Device) -> bool:
    """Whether cuDNN is tried first where no order is set: PyTorch's rule since 2.12."""
    return (
        device.vendor == "nvidia"
        and device.cudnn > _FASTEST_AFTER
        and device.capability in _FASTEST
    )


def cudnn_library(case: Case) -> str:
    """CuDNN is here, and has an engine if it was asked for one."""
    return case.device.no_cudnn


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


def added_mask(case: Case) -> str:
    """A mask is added."""
    if case.call.mask is None or case.call.mask.dtype != "bool":
        return ""
    return "It adds a mask to the scores, and attn_mask is bool: nothing is converted."


def cudnn_layout(case: Case) -> str:
    """Addresses and strides that whole vectors can be copied from."""
    call = case.call
    steps = [
        step
        for each in (call.query, call.key, call.value)
        for length, step in zip(each.shape[:-1], each.strides[:-1], strict=True)
        if length > 1
    ]
    if call.is_aligned and all(step > 0 and step % 8 == 0 for step in steps):
        return ""
    return (
        "It needs query, key and value at addresses that are multiples of 16 bytes, and strides "
        "above 0 that are multiples of 8 numbers."
    )


def positive_scale(case: Case) -> str:
    """A scale that does not turn the greatest score into the least."""
    if case.call.scale is None or case.call.scale > 0:
        return ""
    return f"It needs a scale above 0, not {case.call.scale:g}."


def no_dropout(case: Case) -> str:
    """No weight is dropped."""
    if not case.call.dropout:
        return ""
    return "A seed drops the same weights wherever it is used, and cuDNN would drop others."


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


_FLASH = ("flash",)
_CUDNN = ("cudnn",)
_VALID = ("valid",)
_PLACED = ("nvidia", "driver")
_SHAPED = ("cudnn-dimensions",)
# Where one of these does not hold, the version of cuDNN is not known.
_VERSIONED = ("nvidia", "driver", "cudnn-library")

ON_DEVICES = (
    Requirement("enabled", "its flag is on", attention_rules.enabled, KERNELS),
    NOT_RAGGED,
    VALID,
    Requirement("nvidia", "an NVIDIA device", nvidia, KERNELS),
    Requirement("driver", "its driver is here, and knows the device", driver, KERNELS, ("nvidia",)),
    Requirement(
        "instructions",
        "flash: sm_80 or newer; the others: sm_50 or newer",
        architecture,
        OURS,
        _PLACED,
    ),
    Requirement(
        "compiler", "NVRTC is here, and compiles for the device", compiler, OURS, ("nvidia",)
    ),
    Requirement("device-products", "a library that multiplies there is here", products, ("math",)),
    Requirement("sixteen-bits", "bfloat16 or float16", sixteen_bits, _FLASH),
    Requirement(
        "tiled-widths",
        "query, key and value are equally wide: 32 to 256, a multiple of 8",
        widths,
        _FLASH,
        _VALID,
    ),
    Requirement("value-width", "value is 256 wide at most", value_width, ("efficient",), _VALID),
    Requirement(
        "device-width", "query and value have a width", has_width, ("efficient", "math"), _VALID
    ),
    Requirement(
        "four-at-most", "query, key and value have 4 dimensions at most", four_at_most, OURS, _VALID
    ),
    Requirement(
        "rows",
        "the numbers of a row of query, key and value lie side by side",
        rows_side_by_side,
        _FLASH,
        _VALID,
    ),
    Requirement("no-gradient-of-mask", "the mask needs no gradient", no_gradient_of_mask, _FLASH),
    Requirement("countable", "positions and blocks are fewer than 2**31", countable, OURS, _VALID),
    Requirement("tier", "no tier is promised that no device keeps", tier, KERNELS),
    Requirement(
        "cudnn-library",
        "cuDNN 9 is here, and has an engine for the call",
        cudnn_library,
        _CUDNN,
        ("nvidia",),
    ),
    Requirement("cudnn-architecture", "sm80 to sm121", torch_rules.architecture, _CUDNN, _PLACED),
    Requirement(
        "cudnn-dimensions",
        "query, key and value have 4 dimensions",
        attention_rules.four_dimensional,
        _CUDNN,
    ),
    Requirement("cudnn-dtype", "float16 or bfloat16", torch_rules.dtype, _CUDNN),
    Requirement(
        "cudnn-heads",
        "equal batches and heads; groups of heads when it is asked to",
        attention_rules.batches_and_heads,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "cudnn-counts",
        f"1 to {_MOST_HEADS} batches and heads, and a width",
        few_heads,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "cudnn-not-empty", "there are queries and keys", attention_rules.not_empty, _CUDNN, _SHAPED
    ),
    Requirement(
        "cudnn-last-stride",
        "the last dimension is contiguous, of a mask too",
        attention_rules.last_stride,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "cudnn-layout",
        "addresses and strides are multiples of 16 bytes, and nothing is repeated",
        cudnn_layout,
        _CUDNN,
        _SHAPED,
    ),
    Requirement("cudnn-mask", "a mask is added, and not bool", added_mask, _CUDNN),
    Requirement(
        "cudnn-bugs",
        "not 9.10.0 or 9.10.1; no single causal query before 9.10",
        cudnn_without_bugs,
        _CUDNN,
        (*_VERSIONED, *_SHAPED),
    ),
    Requirement("cudnn-scale", "the scale is above 0", positive_scale, _CUDNN),
    Requirement("cudnn-dropout", "no weight is dropped", no_dropout, _CUDNN),
    Requirement(
        "cudnn-gradients",
        f"training: cuDNN 9.6; up to 9.15.0 keys by {_BLOCK}; not on sm_10x where bits must repeat",
        cudnn_gradients,
        _CUDNN,
        (*_VERSIONED, *_SHAPED),
    ),
    Requirement(
        "mask-shape",
        "the mask is 2-D or 4-D, broadcasts to the scores, and needs no gradient",
        attention_rules.mask_shape,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "cudnn-widths",
        "widths are multiples of 8 and 128 at most (256 on sm90, 192 and 128 on sm10x)",
        torch_rules.cudnn_widths,
        _CUDNN,
        _SHAPED,
    ),
    EQUAL_HEADS,
    Requirement(
        "cudnn-lengths",
        "more than one key; more than one query with dropout",
        attention_rules.cudnn_lengths,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "cudnn-version",
        "cuDNN 9 or newer, and for dropout not 9.11 to 9.13",
        torch_rules.cudnn_version,
        _CUDNN,
        _VERSIONED,
    ),
)
"""What the kernels need, in the order in which reasons are told."""
