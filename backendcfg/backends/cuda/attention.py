"""Attention: which kernels may be used, in which order, and which could serve a call.

What a call needs of a kernel is a table. For arrays of the CPU it is that of
`dispatch/attention.py`, what our own kernels need (`backendcfg.ops.scaled_dot_product_attention`);
for arrays of a GPU that of `gpu/attention/torch_rules.py`, what PyTorch's kernels need.
"""

from __future__ import annotations

import warnings
from enum import Enum
from typing import TYPE_CHECKING, Any

from backendcfg import environ
from backendcfg.backends import base
from backendcfg.backends.base import assign, read, remembered, scoped
from backendcfg.dispatch import attention, attention_facts
from backendcfg.dispatch.array_facts import array_facts
from backendcfg.errors import InvalidArgumentError
from backendcfg.gpu.attention import torch_rules

if TYPE_CHECKING:
    from backendcfg.dispatch.attention_facts import Call, Device
    from backendcfg.session.adjust import Overlay


class SDPBackend(Enum):
    """The kernels of attention, as PyTorch numbers them; `int(member)` is the number."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return self.value


_ENABLING = {
    SDPBackend.FLASH_ATTENTION: "cuda.enable_flash_sdp",
    SDPBackend.EFFICIENT_ATTENTION: "cuda.enable_mem_efficient_sdp",
    SDPBackend.MATH: "cuda.enable_math_sdp",
    SDPBackend.CUDNN_ATTENTION: "cuda.enable_cudnn_sdp",
}
_PRIORITY = "cuda.sdp_priority"
_NAMES = {
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.MATH: "math",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
    SDPBackend.OVERRIDEABLE: "overrideable",
}
"""In PyTorch's own order."""


class SDPAParams:
    """One call of attention: its arrays, of any library, and its options. Read-only.

    Args:
        query, key, value: (batch, heads, length, width).
        attn_mask: an array, or None.
        dropout: a probability.
        is_causal: whether a position sees those before it alone.
        enable_gqa: whether several heads of query may share one of key and value.

    Raises:
        InvalidArgumentError: an argument is not of its kind.
    """

    __slots__ = ("_call", "_given")

    def __init__(  # noqa: PLR0917 - PyTorch's
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool,
        /,
    ) -> None:
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)):
            raise InvalidArgumentError(f"`dropout` must be a number, not {dropout!r}")
        for name, option in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
            if not isinstance(option, bool):
                raise InvalidArgumentError(f"`{name}` must be a bool, not {option!r}")
        self._given = (query, key, value, attn_mask)
        self._call = attention_facts.Call(
            array_facts(query, "query"),
            array_facts(key, "key"),
            array_facts(value, "value"),
            None if attn_mask is None else array_facts(attn_mask, "attn_mask"),
            float(dropout),
            is_causal,
            enable_gqa,
        )

    query = property(lambda self: self._given[0])
    key = property(lambda self: self._given[1])
    value = property(lambda self: self._given[2])
    attn_mask = property(lambda self: self._given[3])
    dropout = property(lambda self: self._call.dropout)
    is_causal = property(lambda self: self._call.is_causal)
    enable_gqa = property(lambda self: self._call.enable_gqa)


def is_flash_attention_available() -> bool:
    """Whether anybody here brings flash attention: for arrays of the CPU we do."""
    return "flash" in attention.OURS


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether flash attention could serve a call as things are: ours, for arrays of the CPU.

    Args:
        params: the call.
        debug: warn of every reason why not. PyTorch warns of the first alone, and on a build
            without CUDA of none.
    """
    return _can_use("flash", params, debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether memory-efficient attention could; see `can_use_flash_attention`."""
    return _can_use("efficient", params, debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether cuDNN's attention could; see `can_use_flash_attention`."""
    return _can_use("cudnn", params, debug)


def flash_sdp_enabled() -> bool:
    """Whether flash attention may be used."""
    return bool(read("cuda.enable_flash_sdp"))


def enable_flash_sdp(enabled: bool) -> None:
    """Allow flash attention, or forbid it."""
    assign({"cuda.enable_flash_sdp": enabled})


def mem_efficient_sdp_enabled() -> bool:
    """Whether memory-efficient attention may be used."""
    return bool(read("cuda.enable_mem_efficient_sdp"))


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow memory-efficient attention, or forbid it."""
    assign({"cuda.enable_mem_efficient_sdp": enabled})


def math_sdp_enabled() -> bool:
    """Whether attention as plain products may be used."""
    return bool(read("cuda.enable_math_sdp"))


def enable_math_sdp(enabled: bool) -> None:
    """Allow attention as plain products, or forbid it."""
    assign({"cuda.enable_math_sdp": enabled})


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN's attention may be used."""
    return bool(read("cuda.enable_cudnn_sdp"))


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow cuDNN's attention, or forbid it."""
    assign({"cuda.enable_cudnn_sdp": enabled})


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Whether attention as plain products may sum in 16 bits."""
    return bool(read("cuda.allow_fp16_bf16_reduction_math_sdp"))


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow attention as plain products to sum in 16 bits, or forbid it."""
    assign({"cuda.allow_fp16_bf16_reduction_math_sdp": enabled})


def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Overlay:
    """A scope in which only these kernels of attention may be used; `torch.nn.attention`'s.

    Args:
        backends: members of `SDPBackend`, ours or PyTorch's; once is as good as twice.
        set_priority: whether they are tried in this order.

    Raises:
        InvalidArgumentError: what is given is no kernel. PyTorch takes ints and strings for none at
            all, and ERROR for one.
    """
    if type(set_priority) is not bool:
        raise InvalidArgumentError(f"`set_priority` must be a bool, not {set_priority!r}")
    given = tuple(backends) if isinstance(backends, list) else (backends,)
    return _only(given, tuple(read(_PRIORITY)) if set_priority else None)


@remembered
def _only(given: tuple[object, ...], order: tuple[str, ...] | None) -> Overlay:
    """The scope of some kernels, tried before those of an order if one is given."""
    chosen = list(dict.fromkeys(map(_member, given)))
    values: dict[str, Any] = {flag: kernel in chosen for kernel, flag in _ENABLING.items()}
    if order is not None:
        names = [_NAMES[kernel] for kernel in chosen]
        values[_PRIORITY] = list(dict.fromkeys((*names, *order, *_NAMES.values())))
    return scoped(values)


def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Overlay:
    """Deprecated, as in PyTorch: a scope with these kernels of attention. Use `sdpa_kernel`."""
    warnings.warn(
        "`backendcfg.backends.cuda.sdp_kernel()` is deprecated, as it is in PyTorch. "
        "Use `backendcfg.backends.cuda.sdpa_kernel()`, which takes the kernels themselves.",
        FutureWarning,
        stacklevel=2,
    )
    return scoped(
        {
            "cuda.enable_flash_sdp": enable_flash,
            "cuda.enable_math_sdp": enable_math,
            "cuda.enable_mem_efficient_sdp": enable_mem_efficient,
            "cuda.enable_cudnn_sdp": enable_cudnn,
        }
    )


def _member(kernel: object) -> SDPBackend:
    """Ours for a member of ours, or for PyTorch's of the same name."""
    if type(kernel).__name__.removeprefix("_") == "SDPBackend":
        found = SDPBackend[kernel.name]  # type: ignore[attr-defined]
        if found in _NAMES:
            return found
    raise InvalidArgumentError(
        f"`backends` must be an SDPBackend or a list of them, not {kernel!r}",
        helps=[f"choose from: {', '.join(kernel.name for kernel in _NAMES)}"],
    )


def _can_use(kernel: str, params: SDPAParams, debug: bool) -> bool:
    if type(debug) is not bool:
        raise InvalidArgumentError(f"`debug` must be a bool, not {debug!r}")
    call = _call(params)
    flags = {flag: read(flag) for flag in attention_facts.FLAGS}
    on_cpu = kernel != "cudnn" and call.query.device == "cpu"
    table = attention.ON_CPU if on_cpu else torch_rules.ON_CUDA
    why = attention.reasons(kernel, call, _device(call), attention_facts.flags_of(flags), table)
    if debug:
        for reason in why:
            warnings.warn(reason, UserWarning, stacklevel=3)
    return not why


def _call(params: Any) -> Call:
    """The facts of a call, given as our SDPAParams or as PyTorch's."""
    if isinstance(params, SDPAParams):
        return params._call
    names = ("query", "key", "value", "attn_mask", "dropout", "is_causal", "enable_gqa")
    if not all(hasattr(params, name) for name in names):
        raise InvalidArgumentError(f"`params` must be an SDPAParams, not {type(params).__name__}")
    return SDPAParams(*(getattr(params, name) for name in names))._call


def _kernels() -> frozenset[str]:
    """The fused kernels for GPUs that the PyTorch of this process brings.

    It does not say whether it has the efficient one, which is built together with flash.
    """

    def brought(torch: Any) -> frozenset[str]:
        fused = ("flash", "efficient") if torch._C._is_flash_attention_available() else ()
        cudnn = torch._C._has_cuda and torch.version.hip is None and torch._C._has_cudnn
        return frozenset((*fused, *(("cudnn",) if cudnn else ())))

    return base.ask_torch(brought) or frozenset()


def _device(call: Call) -> Device:
    """The GPU that the call's arrays are on, else the first; and what there is to compute with."""
    gpus = base.gpus("nvidia", "amd")
    index = call.query.ordinal if call.query.device == "cuda" else 0
    gpu = gpus[index] if index < len(gpus) else None
    major, _, minor = (gpu.compute_capability if gpu else "").partition(".")
    flash_3 = base.ask_torch(lambda torch: torch._C._get_fa3_sdp_enabled())
    nested = "TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED"
    return attention_facts.Device(
        vendor=gpu.vendor if gpu else "",
        capability=(int(major), int(minor)) if major else None,
        architecture=gpu.architecture if gpu and gpu.vendor == "amd" else "",
        cudnn=_cudnn() if gpu else 0,
        kernels=_kernels(),
        flash_3=bool(flash_3),
        nested_cudnn=environ.foreign([nested]).get(nested) == "1",
    )


def _cudnn() -> int:
    from backendcfg.backends import cudnn

    return cudnn.version() or 0
