"""Requirements of attention kernels on the arrays and the flags; any machine can try them.

Each function says why a rule is broken, or "". The texts are PyTorch's, so that they can be
searched for. The table that uses them is in `attention.py`. What holds on a GPU was
read in PyTorch's sources, not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from backendcfg.dispatch.attention_facts import Case, Tensor

    Rule = Callable[[Case], str]

DISABLED = {
    "flash": "Flash attention has been runtime disabled.",
    "efficient": "Memory Efficient attention has been runtime disabled.",
    "cudnn": "cuDNN attention has been runtime disabled.",
    "math": "Math attention has been runtime disabled.",
}
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


def kernel(case: Case) -> str:
    """Somebody here brings the kernel."""
    if case.kernel in case.device.kernels:
        return ""
    return f"Nothing in this process brings {TITLES[case.kernel]}."


def enabled(case: Case) -> str:
    """Its flag is on."""
    return "" if case.kernel in case.flags.enabled else DISABLED[case.kernel]


def on_cuda(case: Case) -> str:
    """All arrays are on a GPU."""
    places = [each.device for each in (case.call.query, case.call.key, case.call.value)]
    # PyTorch looks at query alone, and its dispatcher has refused a mixture before.
    if places == ["cuda"] * 3:
        return ""
    query, key, value = places
    return (
        f"All tensors need to be on cuda device. Got query on device: {query}, "
        f"key on device: {key}, value on device: {value}"
    )


def gpu(case: Case) -> str:
    """A GPU is here."""
    return "" if case.device.vendor in ("nvidia", "amd") else NO_DEVICE[case.kernel]


def four_dimensional(case: Case) -> str:
    """(batch, heads, length, width)."""
    if case.call.nested:
        return ""
    dims = [len(each.shape) for each in (case.call.query, case.call.key, case.call.value)]
    if dims == [4, 4, 4]:
        return ""
    return (
        "All fused kernels requires query, key and value to be 4 dimensional, but got "
        f"Query dim: {dims[0]}, Key dim: {dims[1]}, Value dim: {dims[2]} instead."
    )


def no_mask(case: Case) -> str:
    """There is no mask."""
    return "" if case.call.mask is None else "Flash Attention does not support non-null attn_mask."


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


def batches_and_heads(case: Case) -> str:
    """Batches and heads match."""
    query, key, value = (
        list(each.shape) for each in (case.call.query, case.call.key, case.call.value)
    )
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


def not_empty(case: Case) -> str:
    """There is something to attend to."""
    if case.call.query.shape[-2] and case.call.key.shape[-2]:
        return ""
    return "All fused kernels do not support zero seq_len_q or seq_len_kv."


def last_stride(case: Case) -> str:
    """The last dimension is contiguous."""
    inputs = (case.call.query, case.call.key, case.call.value)
    # A width of 1 is padded, so its stride is nothing; the efficient kernel looks all the same.
    single = case.kernel != "efficient" and case.call.query.shape[-1] == 1
    good = single or all(_contiguous(each) for each in inputs)
    mask_matters = case.call.mask is not None and case.call.query.device != "cpu"
    if good and not (
        mask_matters and case.call.mask is not None and not _contiguous(case.call.mask)
    ):
        return ""
    steps = [_last(each) for each in inputs]
    text = (
        "All fused kernels require the last dimension of the input to have stride 1. "
        f"Got Query.stride(-1): {steps[0]}, Key.stride(-1): {steps[1]}, "
        f"Value.stride(-1): {steps[2]}"
    )
    if case.call.mask is not None:
        text += (
            f", Attn_mask.stride(-1): {_last(case.call.mask)} (GPU backends require attn_mask's "
            "last dimension to have stride 1 while the CPU does not)."
        )
    return text


def _contiguous(tensor: Tensor) -> bool:
    return _last(tensor) == 1


def _last(tensor: Tensor) -> int:
    return tensor.strides[-1] if tensor.strides else 1


def cudnn_lengths(case: Case) -> str:
    """Lengths that cuDNN can do."""
    if case.call.key.shape[2] == 1:
        return "cudnn SDPA does not support key/value sequence length 1."
    if case.call.dropout and case.call.query.shape[2] == 1:
        return "cudnn SDPA does not support query sequence length 1 with dropout."
    return ""


def may_vary(case: Case) -> str:
    """Nobody forbids what is not deterministic."""
    return "cuDNN SDPA is not deterministic." if case.flags.deterministic else ""
