"""What the choice of an attention kernel looks at: shapes that fit, arrays, the device, the flags.

Plain data, so that a rule about a GPU can be tried without one. What a GPU is asked was read in
PyTorch's sources, not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.array_facts import ArrayFacts


ELEMENTS = ("float32", "float64", "bfloat16", "float16")
"""What attention computes with."""


@record(frozen=True)
class Shapes:
    """The sizes of a call.

    Attributes:
        lead: what query, key, value and the result have before (length, width), broadcast.
        queries, keys: lengths.
        width: of query and key.
        value_width: of value and the result.
    """

    lead: tuple[int, ...]
    queries: int
    keys: int
    width: int
    value_width: int

    @property
    def out(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (*self.lead, self.queries, self.value_width)

    @property
    def scores(self) -> tuple[int, ...]:
        """The shape that a mask broadcasts to."""
        return (*self.lead, self.queries, self.keys)


def sizes(call: Call) -> Shapes:
    """The sizes of a call in which nothing is wrong; see `problem`."""
    query, key, value = call.query.shape, call.key.shape, call.value.shape
    leads = [query[:-2], key[:-2], value[:-2]]
    if call.enable_gqa:
        leads = [query[:-2], (*key[:-3], 1), (*value[:-3], 1)]
    lead = leads[0]
    for other in leads[1:]:
        lead = broadcast(lead, other) or ()
    return Shapes(lead, query[-2], key[-2], query[-1], value[-1])


def problem(call: Call) -> str:
    """What is wrong with the arrays of a call, or ""."""
    for find in (_dimensions, _elements, _lengths, _leading, _mask):
        if wrong := find(call):
            return wrong
    return ""


def broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The common shape of two, or None."""
    rank = max(len(one), len(other))
    left, right = (1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other
    pairs = list(zip(left, right, strict=True))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        return None
    return tuple(b if a == 1 else a for a, b in pairs)


def _dimensions(call: Call) -> str:
    for name, array in _named(call).items():
        if len(array.shape) < (least := 3 if call.enable_gqa else 2):
            what = "(..., heads, length, width)" if least == 3 else "(..., length, width)"
            return f"`{name}` must have at least {least} dimensions, {what}, not {len(array.shape)}"
    return ""


def _elements(call: Call) -> str:
    if call.query.element not in ELEMENTS:
        return f"`query` must hold {listed(ELEMENTS)}, not {call.query.element}"
    for name, array in _named(call).items():
        if array.element != call.query.element:
            return f"`{name}` must hold {call.query.element}, as `query` does, not {array.element}"
    # PyTorch takes float32 beside 16 bits as well.
    allowed = tuple(dict.fromkeys(("bool", "float32", call.query.element)))
    if call.query.element == "float64":
        allowed = ("bool", "float64")
    if call.mask is not None and call.mask.element not in allowed:
        return f"`attn_mask` must hold {listed(allowed)}, not {call.mask.element}"
    return ""


def _lengths(call: Call) -> str:
    query, key, value = call.query.shape, call.key.shape, call.value.shape
    if key[-1] != query[-1]:
        return f"`key` must be as wide as `query`, {query[-1]}, not {key[-1]}"
    if value[-2] != key[-2]:
        return f"`value` must be as long as `key`, {key[-2]}, not {value[-2]}"
    return ""


def _leading(call: Call) -> str:
    lead = call.query.shape[:-2]
    for name, array in list(_named(call).items())[1:]:
        other = array.shape[:-2]
        if call.enable_gqa:
            heads, wanted = array.shape[-3], call.query.shape[-3]
            if not heads or wanted % heads:
                return f"the {heads} heads of `{name}` must divide the {wanted} of `query`"
            other = (*array.shape[:-3], 1)
        if (common := broadcast(lead, other)) is None:
            return (
                f"the leading dimensions of `{name}`, {array.shape[:-2]}, must broadcast with "
                f"{'those of `query`' if name == 'key' else 'the others'}, {lead}"
            )
        lead = common
    return ""


def _mask(call: Call) -> str:
    if call.mask is None:
        return ""
    scores = sizes(call).scores
    if broadcast(call.mask.shape, scores) == scores:
        return ""
    return f"`attn_mask` of shape {call.mask.shape} must broadcast to the scores, {scores}"


def _named(call: Call) -> dict[str, ArrayFacts]:
    return {"query": call.query, "key": call.key, "value": call.value}


def listed(words: tuple[str, ...]) -> str:
    """Words in a sentence: "a, b or c"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


@record(frozen=True)
class Call:
    """One call of attention, as `scaled_dot_product_attention` gets it.

    Attributes:
        query, key, value: (batch, heads, length, width).
        mask: what is added to or hides scores, or None.
        dropout: its probability.
        is_causal: whether a position sees those before it alone.
        enable_gqa: whether several heads of query may share one of key and value.
        scale: what scores are multiplied by; None for 1 / sqrt(width).
        is_aligned: whether query, key and value begin at multiples of 16 bytes.
    """

    query: ArrayFacts
    key: ArrayFacts
    value: ArrayFacts
    mask: ArrayFacts | None = None
    dropout: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False
    scale: float | None = None
    is_aligned: bool = True

    @property
    def arrays(self) -> tuple[ArrayFacts, ArrayFacts, ArrayFacts]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def trains(self) -> bool:
        """Whether a backward pass is to be expected."""
        return any(each.requires_grad for each in self.arrays)

    @property
    def nested(self) -> bool:
        """Whether any of the three is ragged."""
        return any(each.nested for each in self.arrays)


@record(frozen=True)
class Device:
    """The GPU that the arrays are on, and what there is to compute with.

    Attributes:
        vendor: "nvidia", "amd", or "" for no GPU.
        capability: (9, 0) for sm90; None on AMD.
        architecture: "gfx942" on AMD, else "".
        cudnn: its version as cuDNN writes it, 91500 for 9.15.0; 0 for none.
        kernels: the fused kernels that somebody in this process brings: "flash", "efficient",
            "cudnn".
        flash_3: whether PyTorch was told to use FlashAttention 3.
        nested_cudnn: whether TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED is 1.
        no_driver: why its driver cannot be used, for our own kernels; "" where it can.
        no_compiler: why none compiles our own kernels for it; "" where one does.
        no_products: why no library multiplies there, for our own "math"; "" where one does, or
            nobody asked.
        no_cudnn: why cuDNN cannot serve arrays of it through us; "" where it can.
    """

    vendor: str = ""
    capability: tuple[int, int] | None = None
    architecture: str = ""
    cudnn: int = 0
    kernels: frozenset[str] = frozenset()
    flash_3: bool = False
    nested_cudnn: bool = False
    no_driver: str = ""
    no_compiler: str = ""
    no_products: str = ""
    no_cudnn: str = ""

    @property
    def sm(self) -> tuple[int, int]:
        """The compute capability, (0, 0) where there is none."""
        return self.capability or (0, 0)

    def is_between(self, lowest: tuple[int, int], highest: tuple[int, int]) -> bool:
        """Whether it is an NVIDIA device of this range, both ends included."""
        return self.capability is not None and lowest <= self.capability <= highest


@record(frozen=True)
class AttentionFlags:
    """The flags that attention obeys.

    Attributes:
        enabled: the kernels that may be used: "flash", "efficient", "math", "cudnn".
        deterministic: whether algorithms that are not deterministic are forbidden.
        order: all of them and "overrideable", in the order in which they are tried.
        tier: what the profile promises.
        library: the provider that would serve the products of "math" on the CPU; "" where nobody
            asked.
    """

    enabled: frozenset[str] = frozenset({"flash", "efficient", "math", "cudnn"})
    deterministic: bool = False
    order: tuple[str, ...] = ("flash", "efficient", "math", "cudnn", "overrideable")
    tier: str = "none"
    library: str = ""


@record(frozen=True)
class Case:
    """What a rule looks at.

    Attributes:
        kernel: "flash", "efficient", "math" or "cudnn".
        call: what is to be computed.
        device: where, and by what.
        flags: the flags in force.
    """

    kernel: str
    call: Call
    device: Device
    flags: AttentionFlags


_ENABLING = {
    "flash": "cuda.enable_flash_sdp",
    "efficient": "cuda.enable_mem_efficient_sdp",
    "math": "cuda.enable_math_sdp",
    "cudnn": "cuda.enable_cudnn_sdp",
}


FLAGS = (
    *_ENABLING.values(),
    "determinism.algorithms",
    "determinism.tier",
    "cuda.sdp_priority",
)
"""The flags that `flags_of` looks at."""


def flags_of(values: Mapping[str, Any], library: str = "") -> AttentionFlags:
    """What the flags of a plan say to attention.

    Args:
        values: flags with their values.
        library: the provider that would serve the products of "math".
    """
    order = dict.fromkeys((*values["cuda.sdp_priority"], *AttentionFlags().order))
    return AttentionFlags(
        enabled=frozenset(kernel for kernel, flag in _ENABLING.items() if values[flag]),
        # `warn` keeps the kernels that are not deterministic, and warns.
        deterministic=values["determinism.algorithms"] == "deterministic",
        order=tuple(order),
        tier=values["determinism.tier"],
        library=library,
    )
