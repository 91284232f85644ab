"""What the choice of an attention kernel looks at: the arrays, the device, the flags.

Plain data, so that a rule about a GPU can be tried without one. `tensor` makes it of any array:
NumPy's, PyTorch's, CuPy's, or whatever has a shape and a dtype. What a GPU is asked was read in
PyTorch's sources, not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.errors import InvalidArgumentError
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping


@record(frozen=True)
class Tensor:
    """One array.

    Attributes:
        shape: its lengths.
        strides: in elements, not bytes.
        dtype: "float16", "bfloat16", "float32", "float8_e4m3fn"...
        device: where it is: "cpu", "cuda" (also on ROCm), "mps"...
        index: which device of that kind.
        requires_grad: whether a backward pass will want it, as far as it says.
        nested: whether it is a PyTorch tensor of ragged layout.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str = "cpu"
    index: int = 0
    requires_grad: bool = False
    nested: bool = False


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

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    dropout: float = 0.0
    is_causal: bool = False
    enable_gqa: bool = False
    scale: float | None = None
    is_aligned: bool = True

    @property
    def arrays(self) -> tuple[Tensor, Tensor, Tensor]:
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


def tensor(array: Any, name: str) -> Tensor:
    """The facts of an array.

    Args:
        array: anything with `shape` and `dtype`; `strides` in bytes as NumPy has them, or
            `stride()` in elements as PyTorch has it; none means row-major.
        name: the argument, for the message.

    Raises:
        InvalidArgumentError: it is no array.
    """
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None or dtype is None or isinstance(array, type):
        raise InvalidArgumentError(
            f"`{name}` must be an array, not {type(array).__name__}",
            helps=["give a NumPy array, a PyTorch tensor, or what else has a shape and a dtype"],
        )
    nested = getattr(array, "is_nested", False) is True
    # A ragged tensor refuses to tell lengths that it does not have.
    lengths = (int(array.size(0)),) if nested else tuple(int(length) for length in shape)
    device, index = _device(array)
    return Tensor(
        lengths,
        () if nested else _strides(array, lengths),
        str(dtype).rpartition(".")[2],
        device,
        index,
        getattr(array, "requires_grad", False) is True and grad_enabled(array),
        nested,
    )


def _strides(array: Any, lengths: tuple[int, ...]) -> tuple[int, ...]:
    if callable(getattr(array, "stride", None)):
        return tuple(int(step) for step in array.stride())
    if (bytes_ := getattr(array, "strides", None)) is not None and not callable(bytes_):
        size = int(array.itemsize)
        return tuple(int(step) // size for step in bytes_)
    return row_major(lengths)


def row_major(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an array whose last dimension is dense."""
    steps = [1]
    for length in reversed(lengths[1:]):
        steps.insert(0, steps[0] * max(1, length))
    return tuple(steps[: len(lengths)])


def _device(array: Any) -> tuple[str, int]:
    device = getattr(array, "device", None)
    if callable(device):  # older JAX
        device = device()
    # PyTorch's has a type; JAX's a platform and an id; NumPy's is a text; CuPy's has an id alone.
    kind = getattr(device, "type", None) or getattr(device, "platform", None)
    if kind is None and not isinstance(device, str):
        kind = "cuda" if hasattr(array, "__cuda_array_interface__") else "cpu"
    name, _, number = str(kind or device).partition(":")
    index = getattr(device, "index", None)
    place = index if isinstance(index, int) else getattr(device, "id", None)
    if not isinstance(place, int):
        place = int(number) if number.isdecimal() else 0
    return {"gpu": "cuda", "rocm": "cuda"}.get(name, name), place


def grad_enabled(array: Any) -> bool:
    """Whether the framework of an array records for a backward pass here; PyTorch can be told."""
    import sys

    framework: Any = sys.modules.get(type(array).__module__.partition(".")[0])
    asks = getattr(framework, "is_grad_enabled", None)
    return bool(asks()) if asks is not None else True
