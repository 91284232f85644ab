"""What the choice of an attention kernel looks at: the arrays, the device, the flags.

Plain data, so that a rule about a GPU can be tried without one. What a GPU is asked was read in
PyTorch's sources, not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backendcfg.dispatch.array_facts import ArrayFacts


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
