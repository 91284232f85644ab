"""What PyTorch's own attention kernels need of a call with arrays of a GPU: its table `ON_CUDA`.

The rules and their texts are those of PyTorch 2.13 (`sdp_utils_cpp.h` of the wheel) and, for what
only its CUDA sources have, of `sdp_utils.cpp` of 2.12. Each function says why a rule is broken, or
"". What depends on the GPU was read in PyTorch's sources, not run. The texts are PyTorch's, so that
they can be searched for. Those of `rules.py` for cuDNN rest on these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch import attention
from backendcfg.dispatch.attention import Requirement, requirement
from backendcfg.records import replace

if TYPE_CHECKING:
    from backendcfg.dispatch.array_facts import ArrayFacts
    from backendcfg.dispatch.attention_facts import Call, Case

HALF = ("float16", "bfloat16")

_RANGES = {
    "flash": ("Flash attention", (8, 0)),
    "efficient": ("Mem Efficient Attention", (5, 0)),
    "cudnn": ("cuDNN MHA", (8, 0)),
}
"""What each is called, and the oldest NVIDIA device that it serves."""
NO_DEVICE = {
    "flash": "flash attention requires a CUDA device, which is not available.",
    "efficient": "Mem Efficient attention requires a CUDA device, which is not available.",
    "cudnn": "cuDNN SDPA requires a CUDA device, which is not available.",
}
TITLES = {
    "flash": "flash attention",
    "efficient": "memory efficient attention",
    "cudnn": "cuDNN attention",
}


_BROADCAST = (
    "To broadcast dense inputs, try using unsqueeze and expand_to before passing them into the "
    "kernel."
)

_SHAPED = ("four-dimensional",)
_FLASH = ("flash",)
_CUDNN = ("cudnn",)


@requirement("kernel", "somebody here brings the kernel")
def kernel(case: Case) -> str:
    """Somebody here brings the kernel."""
    if case.kernel in case.device.kernels:
        return ""
    return f"Nothing in this process brings {TITLES[case.kernel]}."


@requirement("on-cuda", "query, key and value are on a GPU")
def on_cuda(case: Case) -> str:
    """All arrays are on a GPU."""
    places = [each.device for each in case.call.arrays]
    # PyTorch looks at query alone, and its dispatcher has refused a mixture before.
    if places == ["cuda"] * 3:
        return ""
    query, key, value = places
    return (
        f"All tensors need to be on cuda device. Got query on device: {query}, "
        f"key on device: {key}, value on device: {value}"
    )


@requirement("gpu", "a GPU is here")
def gpu(case: Case) -> str:
    """A GPU is here."""
    return "" if case.device.vendor in ("nvidia", "amd") else NO_DEVICE[case.kernel]


@requirement(
    "architecture", "flash and cuDNN: sm80 to sm121; efficient: sm50 to sm121", after=("gpu",)
)
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


@requirement(
    "dense", "ragged tensors: flash; efficient without training; cuDNN on request on sm90 and sm100"
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


@requirement("four-dimensional", "query, key and value have 4 dimensions")
def four_dimensional(case: Case) -> str:
    """(batch, heads, length, width)."""
    if case.call.nested:
        return ""
    dims = [len(each.shape) for each in case.call.arrays]
    if dims == [4, 4, 4]:
        return ""
    return (
        "All fused kernels requires query, key and value to be 4 dimensional, but got "
        f"Query dim: {dims[0]}, Key dim: {dims[1]}, Value dim: {dims[2]} instead."
    )


@requirement("no-mask", "there is no mask", _FLASH)
def no_mask(case: Case) -> str:
    """There is no mask."""
    return "" if case.call.mask is None else "Flash Attention does not support non-null attn_mask."


@requirement(
    "mask-shape",
    "the mask is 2-D or 4-D, broadcasts to the scores, and needs no gradient",
    _CUDNN,
    _SHAPED,
)
def mask_shape(case: Case) -> str:
    """The mask broadcasts to the scores."""
    if (mask := case.call.mask) is None:
        return ""
    if mask.requires_grad:
        # PyTorch refuses this without a word.
        return "attn_mask requires a gradient, which cuDNN attention does not give."
    batch, heads, length, _ = case.call.query.shape
    targets = (batch, heads, length, case.call.key.shape[2])
    if len(mask.shape) in (2, 4) and all(
        have in (1, want)
        for have, want in zip(reversed(mask.shape), reversed(targets), strict=False)
    ):
        return ""
    return (
        "Please use the following attn mask shapes: 2d - ({Q_seq_len, 1}  x {KV_seq_len, 1}); "
        "4d - ({Batch, 1} x {Num_heads, 1} x {Q_seq_len, 1}  x {KV_seq_len, 1})"
    )


def _widths(call: Call) -> str:
    query, key, value = (each.shape[-1] for each in call.arrays)
    return f"Got Query.size(-1): {query}, Key.size(-1): {key}, Value.size(-1): {value} instead."


@requirement(
    "equal-widths",
    "query, key and value are equally wide, 256 at most (512 on ROCm)",
    _FLASH,
    _SHAPED,
)
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


@requirement(
    "aligned-widths", "widths are multiples of 4 or 8, by device and dtype", ("efficient",), _SHAPED
)
def aligned_widths(case: Case) -> str:
    """Widths fit the loads of the kernel."""
    half = case.call.query.element in HALF
    if case.device.vendor == "nvidia":
        # Tensor cores take 128 bits at once, and any device from sm80 at least 4 numbers.
        tensor_cores = case.device.sm[0] >= 8 or (case.device.sm[0] >= 7 and half)
        least = 4 if case.device.sm[0] >= 8 else 1
        step = max(least, 128 // (16 if half else 32)) if tensor_cores else least
    else:
        step = 8 if half else 4
    query, key, value = (each.shape[-1] for each in case.call.arrays)
    if query == key and all(width > 0 and width % step == 0 for width in (query, value)):
        return ""
    return (
        "Mem efficient attention requires last dimension of inputs to be divisible by "
        f"{step}. {_widths(case.call)}"
    )


@requirement(
    "cudnn-widths",
    "widths are multiples of 8 and 128 at most (256 on sm90, 192 and 128 on sm10x)",
    _CUDNN,
    _SHAPED,
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


@requirement(
    "training-width",
    "training on sm86, sm89, sm120, sm121: width 192 at most, or above 224 without dropout",
    _FLASH,
    (*_SHAPED, "gpu"),
)
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


@requirement("square-causal", "a causal call has as many queries as keys", _FLASH, _SHAPED)
def square_causal(case: Case) -> str:
    """As many queries as keys, when causal."""
    queries, keys = case.call.query.shape[-2], case.call.key.shape[-2]
    if not case.call.is_causal or queries == keys:
        return ""
    return (
        "Flash attention does not support the is_causal flag when seqlen_q != seqlen_k. "
        f"Got seqlen_q: {queries} seqlen_k: {keys}. If you would like to use causal attention "
        "with non-square masks, please see CausalAttnMask."
    )


@requirement(
    "dtype", "float16, and bfloat16 from sm80; efficient also float32; FlashAttention 3 also float8"
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
    query, key, value = (each.element for each in case.call.arrays)
    if query == key == value and query in allowed:
        return ""
    return (
        f"Expected query, key and value to all be of dtype: {{{', '.join(allowed)}}}. Got "
        f"Query dtype: {query}, Key dtype: {key}, and Value dtype: {value} instead."
    )


@requirement(
    "batches-and-heads",
    "equal batches and heads; flash and cuDNN take groups of heads when they are asked to",
    after=_SHAPED,
)
def batches_and_heads(case: Case) -> str:
    """Batches and heads match."""
    query, key, value = (list(each.shape) for each in case.call.arrays)
    dotted = f"Query.sizes(): {query}, Key.sizes(): {key}, Value.sizes(): {value} instead."
    if not query[0] == key[0] == value[0]:
        return (
            "For dense inputs, both fused kernels require query, key and value to have the same "
            f"batch_size. {dotted} {_BROADCAST}"
        )
    if case.call.enable_gqa and case.kernel != "efficient":
        return _groups(case.kernel, query, key, value)
    if query[1] == key[1] == value[1]:
        return ""
    sizes = f"Query.sizes(): {query}, Key sizes(): {key}, Value sizes(): {value} instead."
    return (
        "For dense input, both fused kernels require query, key and value to have the same "
        f"num_heads. {sizes} {_BROADCAST}"
    )


def _groups(kernel: str, query: list[int], key: list[int], value: list[int]) -> str:
    """Grouped heads: cuDNN takes groups of key and of value of different sizes."""
    if kernel != "cudnn" and key[1] != value[1]:
        return (
            "Both fused kernels require key and value to have the same num_heads and batch_size "
            f"but got: Key sizes: {key}, Value sizes: {value}, Query sizes: {query} instead."
        )
    # PyTorch divides by zero here.
    if all(heads and query[1] % heads == 0 for heads in (key[1], value[1])):
        return ""
    return (
        "The number of heads in key/value must divide number of heads in query."
        f"Got input Key sizes(): {key[1]}, Value sizes(): {value[1]}, Query sizes(): {query[1]} "
        "instead."
    )


not_empty = replace(attention.not_empty, kernels=attention.KERNELS, after=_SHAPED)


@requirement("last-stride", "the last dimension is contiguous", after=_SHAPED)
def last_stride(case: Case) -> str:
    """The last dimension is contiguous."""
    call, mask = case.call, case.call.mask
    # A width of 1 is padded, so its stride is nothing; the efficient kernel looks all the same.
    single = case.kernel != "efficient" and call.query.shape[-1] == 1
    looked_at = () if single else call.arrays
    if mask is not None and call.query.device != "cpu":
        looked_at = (*looked_at, mask)
    if all(_last(each) == 1 for each in looked_at):
        return ""
    query, key, value = (_last(each) for each in call.arrays)
    text = (
        "All fused kernels require the last dimension of the input to have stride 1. "
        f"Got Query.stride(-1): {query}, Key.stride(-1): {key}, Value.stride(-1): {value}"
    )
    if mask is None:
        return text
    return (
        f"{text}, Attn_mask.stride(-1): {_last(mask)} (GPU backends require attn_mask's "
        "last dimension to have stride 1 while the CPU does not)."
    )


def _last(tensor: ArrayFacts) -> int:
    return tensor.strides[-1] if tensor.strides else 1


@requirement(
    "cudnn-lengths", "more than one key; more than one query with dropout", _CUDNN, _SHAPED
)
def cudnn_lengths(case: Case) -> str:
    """Lengths that cuDNN can do."""
    if case.call.key.shape[2] == 1:
        return "cudnn SDPA does not support key/value sequence length 1."
    if case.call.dropout and case.call.query.shape[2] == 1:
        return "cudnn SDPA does not support query sequence length 1 with dropout."
    return ""


@requirement(
    "cudnn-version", "cuDNN 9 or newer, and for dropout not 9.11 to 9.13", _CUDNN, ("kernel",)
)
def cudnn_version(case: Case) -> str:
    """A cuDNN that can do it."""
    if case.device.cudnn < 90000:
        return f"{case.device.cudnn} cuDNN version too old to use cuDNN Attention (< v9.0.0)"
    if case.call.dropout > 0 and 91100 < case.device.cudnn < 91400:
        return f"{case.device.cudnn} cuDNN version does not support droppout in SDPA (9.11 - 9.13)."
    return ""


@requirement("deterministic", "algorithms that are not deterministic are allowed", _CUDNN)
def may_vary(case: Case) -> str:
    """Nobody forbids what is not deterministic."""
    return "cuDNN SDPA is not deterministic." if case.flags.deterministic else ""


ON_CUDA: tuple[Requirement, ...] = (
    kernel,
    replace(attention.enabled, kernels=attention.KERNELS),
    *(on_cuda, gpu, architecture, dense, four_dimensional, no_mask, mask_shape, equal_widths),
    *(aligned_widths, cudnn_widths, training_width, square_causal, dtype, batches_and_heads),
    not_empty,
    *(last_stride, cudnn_lengths, cudnn_version, may_vary),
)
"""What PyTorch's kernels need, in the order in which reasons are told."""
