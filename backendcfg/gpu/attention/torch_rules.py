"""What PyTorch's own attention kernels need of a call with arrays of a GPU: its table `ON_CUDA`.

The rules and their texts are those of PyTorch 2.13 (`sdp_utils_cpp.h` of the wheel) and, for what
only its CUDA sources have, of `sdp_utils.cpp` of 2.12. Each function says why a rule is broken, or
"". Those in this module depend on the GPU: they were read in PyTorch's sources, not run. Those
that depend on the arrays and the flags alone are in `dispatch/attention_rules.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch import attention_rules
from backendcfg.dispatch.attention import Requirement

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Call, Case

HALF = ("float16", "bfloat16")

_RANGES = {
    "flash": ("Flash attention", (8, 0)),
    "efficient": ("Mem Efficient Attention", (5, 0)),
    "cudnn": ("cuDNN MHA", (8, 0)),
}
"""What each is called, and the oldest NVIDIA device that it serves."""


def architecture(case: Case) -> str:
    """The GPU is one that the kernel was compiled for; AOTriton knows itself which AMD ones."""
    if case.device.vendor == "amd":
        return "Torch was not compiled with cuDNN attention." if case.kernel == "cudnn" else ""
    title, lowest = _RANGES[case.kernel]
    if case.device.is_between(lowest, (12, 1)):
        return ""
    major, minor = case.device.sm
    return (
        f"{title} only supports gpu architectures in the range [sm{lowest[0]}{lowest[1]}, sm121]. "
        f"Attempting to run on a sm {major}.{minor} gpu."
    )


def dense(case: Case) -> str:
    """Ragged tensors are taken; the lengths inside are left to PyTorch's own check."""
    if not case.call.nested:
        return ""
    if case.kernel == "efficient" and case.call.trains and case.device.vendor != "amd":
        return "Memory efficient attention currently doesn't support training with NT inputs."
    if case.kernel != "cudnn":
        return ""
    if not case.device.nested_cudnn:
        return "Experimental cuDNN SDPA nested tensor support is not enabled."
    if case.device.sm[0] not in (9, 10):
        return "cuDNN SDPA supports nested tensors on SM 9.0, SM 10.0."
    return ""


def _widths(call: Call) -> str:
    query, key, value = (each.shape[-1] for each in (call.query, call.key, call.value))
    return f"Got Query.size(-1): {query}, Key.size(-1): {key}, Value.size(-1): {value} instead."


def equal_widths(case: Case) -> str:
    """Query, key and value are equally wide."""
    # AOTriton serves 512, on gfx11 256.
    wide = case.device.vendor == "amd" and not case.device.architecture.startswith("gfx11")
    most = 512 if wide else 256
    width = case.call.query.shape[-1]
    if width == case.call.key.shape[-1] == case.call.value.shape[-1] and width <= most:
        return ""
    return (
        "Flash attention requires q,k,v to have the same last dimension and to be less than or "
        f"equal to {most}. {_widths(case.call)}"
    )


def aligned_widths(case: Case) -> str:
    """Widths fit the loads of the kernel."""
    half = case.call.query.dtype in HALF
    if case.device.vendor == "nvidia":
        # Tensor cores take 128 bits at once, and any device from sm80 at least 4 numbers.
        tensor_cores = case.device.sm[0] >= 8 or (case.device.sm[0] >= 7 and half)
        least = 4 if case.device.sm[0] >= 8 else 1
        step = max(least, 128 // (16 if half else 32)) if tensor_cores else least
    else:
        step = 8 if half else 4
    query, key, value = (
        each.shape[-1] for each in (case.call.query, case.call.key, case.call.value)
    )
    if query == key and all(width > 0 and width % step == 0 for width in (query, value)):
        return ""
    return (
        "Mem efficient attention requires last dimension of inputs to be divisible by "
        f"{step}. {_widths(case.call)}"
    )


def cudnn_widths(case: Case) -> str:
    """Widths that cuDNN can do on this GPU."""
    query, value = case.call.query.shape[-1], case.call.value.shape[-1]
    most = 128
    if case.device.cudnn >= 91000 and case.device.sm == (9, 0):
        most = 256
    if case.device.cudnn >= 91100 and case.device.sm[0] == 10 and (query, value) == (192, 128):
        most = 192
    if query > most or value > most:
        return f"head_dim should be no more than {most}"
    return "head_dim should be a multiple of 8" if query % 8 or value % 8 else ""


def training_width(case: Case) -> str:
    """The backward pass has room on small GPUs."""
    small = case.device.is_between((8, 6), (8, 9)) or case.device.is_between((12, 0), (12, 1))
    width = case.call.query.shape[-1]
    fits = width <= 192 or (not case.call.dropout > 0 and width > 224)
    if not (case.call.trains and small) or fits:
        return ""
    major, minor = case.device.sm
    return (
        "Flash attention currently doesn't support training with head_dim in (192, 224] or "
        "(head_dim in (224, 256] and dropout > 0.0) on gpu architectures in the range[sm86, sm89]."
        f"Attempting to run with dropout set to: {case.call.dropout:g}and head_dim: {width} on a "
        f"sm {major}.{minor} gpu."
    )


def dtype(case: Case) -> str:
    """One dtype that the kernel has."""
    # Before sm80 there is no bfloat16. Without a device the newest rule is told.
    old = case.device.capability is not None and case.device.sm < (8, 0)
    allowed = ["float16"] if old else [*HALF]
    if case.kernel == "efficient":
        allowed.insert(1, "float32")
    elif case.kernel == "flash" and case.device.flash_3 and case.device.sm[0] >= 9:
        allowed.insert(0, "float8_e4m3fn")
    query, key, value = (each.dtype for each in (case.call.query, case.call.key, case.call.value))
    if query == key == value and query in allowed:
        return ""
    return (
        f"Expected query, key and value to all be of dtype: {{{', '.join(allowed)}}}. Got "
        f"Query dtype: {query}, Key dtype: {key}, and Value dtype: {value} instead."
    )


def cudnn_version(case: Case) -> str:
    """A cuDNN that can do it."""
    if case.device.cudnn < 90000:
        return f"{case.device.cudnn} cuDNN version too old to use cuDNN Attention (< v9.0.0)"
    if case.call.dropout > 0 and 91100 < case.device.cudnn < 91400:
        return f"{case.device.cudnn} cuDNN version does not support droppout in SDPA (9.11 - 9.13)."
    return ""


_SHAPED = ("four-dimensional",)
_FLASH = ("flash",)
_CUDNN = ("cudnn",)

ON_CUDA = (
    Requirement("kernel", "somebody here brings the kernel", attention_rules.kernel),
    Requirement("enabled", "its flag is on", attention_rules.enabled),
    Requirement("on-cuda", "query, key and value are on a GPU", attention_rules.on_cuda),
    Requirement("gpu", "a GPU is here", attention_rules.gpu),
    Requirement(
        "architecture",
        "flash and cuDNN: sm80 to sm121; efficient: sm50 to sm121",
        architecture,
        after=("gpu",),
    ),
    Requirement(
        "dense",
        "ragged tensors: flash; efficient without training; cuDNN on request on sm90 and sm100",
        dense,
    ),
    Requirement(
        "four-dimensional",
        "query, key and value have 4 dimensions",
        attention_rules.four_dimensional,
    ),
    Requirement("no-mask", "there is no mask", attention_rules.no_mask, _FLASH),
    Requirement(
        "mask-shape",
        "the mask is 2-D or 4-D, broadcasts to the scores, and needs no gradient",
        attention_rules.mask_shape,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "equal-widths",
        "query, key and value are equally wide, 256 at most (512 on ROCm)",
        equal_widths,
        _FLASH,
        _SHAPED,
    ),
    Requirement(
        "aligned-widths",
        "widths are multiples of 4 or 8, by device and dtype",
        aligned_widths,
        ("efficient",),
        _SHAPED,
    ),
    Requirement(
        "cudnn-widths",
        "widths are multiples of 8 and 128 at most (256 on sm90, 192 and 128 on sm10x)",
        cudnn_widths,
        _CUDNN,
        _SHAPED,
    ),
    Requirement(
        "training-width",
        "training on sm86, sm89, sm120, sm121: width 192 at most, or above 224 without dropout",
        training_width,
        _FLASH,
        (*_SHAPED, "gpu"),
    ),
    Requirement(
        "square-causal",
        "a causal call has as many queries as keys",
        attention_rules.square_causal,
        _FLASH,
        _SHAPED,
    ),
    Requirement(
        "dtype",
        "float16, and bfloat16 from sm80; efficient also float32; FlashAttention 3 also float8",
        dtype,
    ),
    Requirement(
        "batches-and-heads",
        "equal batches and heads; flash and cuDNN take groups of heads when they are asked to",
        attention_rules.batches_and_heads,
        after=_SHAPED,
    ),
    Requirement(
        "not-empty", "there are queries and keys", attention_rules.not_empty, after=_SHAPED
    ),
    Requirement(
        "last-stride",
        "the last dimension is contiguous",
        attention_rules.last_stride,
        after=_SHAPED,
    ),
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
        cudnn_version,
        _CUDNN,
        ("kernel",),
    ),
    Requirement(
        "deterministic",
        "algorithms that are not deterministic are allowed",
        attention_rules.may_vary,
        _CUDNN,
    ),
)
"""What PyTorch's kernels need, in the order in which reasons are told."""
