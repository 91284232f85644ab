"""Which attention kernels can serve a call: one table of requirements, and every reason against.

For arrays of a GPU the rules and their texts are those of PyTorch 2.13 (`sdp_utils_cpp.h` of the
wheel) and, for what only its CUDA sources have, of `sdp_utils.cpp` of 2.12. Rules about a GPU were
read, not run. For arrays of the CPU they are what our own kernels need, in PyTorch's words where it
has the same rule. PyTorch stops at the first rule that a call breaks; here all are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backendcfg.dispatch import attention_cpu_rules as cpu_rules
from backendcfg.dispatch import attention_rules as rules
from backendcfg.dispatch.attention_facts import Case
from backendcfg.gpu.attention import cudnn_rules, device_rules, gpu_rules
from backendcfg.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backendcfg.dispatch.attention_facts import AttentionFlags, Call, Device
    from backendcfg.dispatch.attention_rules import Rule

KERNELS = ("flash", "efficient", "cudnn")
"""The fused kernels. Attention as plain products, `math`, needs little but its flag."""

OURS = ("flash", "efficient", "math")
"""The kernels that serve arrays of the CPU."""

ON_DEVICES = ("flash", "efficient", "math", "cudnn")
"""The kernels that are asked for arrays of a device; ours is the first."""


@record(frozen=True)
class Requirement:
    """One thing that a kernel needs.

    Attributes:
        name: unique in the table.
        text: what must hold, for people.
        broken: why it does not hold in a case, or "".
        kernels: the kernels that need it.
        after: requirements that must hold for this one to be looked at.
        on_gpu: whether it depends on the GPU, and therefore was read and not run.
        places: where the arrays are for which it counts: "cpu", and on a GPU "cuda" for PyTorch's
            kernels and "device" for our own. For cuDNN, which has no kernel for the CPU, everything
            counts that counts on a GPU.
    """

    name: str
    text: str
    broken: Rule
    kernels: tuple[str, ...] = KERNELS
    after: tuple[str, ...] = ()
    on_gpu: bool = False
    places: tuple[str, ...] = ("cuda",)


_EVERYWHERE = ("cuda", "cpu", "device")
_HERE = ("cpu",)
_OURS = ("cpu", "device")
_DEVICE = ("device",)
_FLASH = ("flash",)
_PROGRAMS = ("flash", "efficient", "math")  # what is compiled for a device
_OUR_FUSED = ("flash", "efficient")
_ON_NVIDIA = (*_PROGRAMS, "cudnn")
_CUDA_AND_DEVICE = ("cuda", "device")
_SHAPED = ("four-dimensional",)
_SHAPED_ANYWHERE = ("four-dimensional", "cudnn-dimensions")
_PLACED = ("gpu",)

REQUIREMENTS = (
    Requirement("kernel", "somebody here brings the kernel", rules.kernel),
    Requirement("enabled", "its flag is on", rules.enabled, (*KERNELS, "math"), places=_EVERYWHERE),
    Requirement(
        "on-cpu", "query, key and value are on the CPU", cpu_rules.on_cpu, OURS, places=_HERE
    ),
    Requirement("not-ragged", "no tensor is ragged", cpu_rules.dense, OURS, places=_OURS),
    Requirement(
        "valid",
        "shapes and dtypes make a call of attention",
        cpu_rules.valid,
        OURS,
        ("not-ragged",),
        places=_OURS,
    ),
    Requirement("nvidia", "an NVIDIA device", device_rules.nvidia, _ON_NVIDIA, places=_DEVICE),
    Requirement(
        "driver",
        "its driver is here, and knows the device",
        device_rules.driver,
        _ON_NVIDIA,
        ("nvidia",),
        places=_DEVICE,
    ),
    Requirement(
        "instructions",
        "flash: sm_80 or newer; the others: sm_50 or newer",
        device_rules.architecture,
        _PROGRAMS,
        ("nvidia", "driver"),
        places=_DEVICE,
    ),
    Requirement(
        "compiler",
        "NVRTC is here, and compiles for the device",
        device_rules.compiler,
        _PROGRAMS,
        ("nvidia",),
        places=_DEVICE,
    ),
    Requirement(
        "device-products",
        "a library that multiplies there is here",
        device_rules.products,
        ("math",),
        places=_DEVICE,
    ),
    Requirement(
        "sixteen-bits",
        "bfloat16 or float16",
        device_rules.sixteen_bits,
        _FLASH,
        places=_DEVICE,
    ),
    Requirement(
        "tiled-widths",
        "query, key and value are equally wide: 32 to 256, a multiple of 8",
        device_rules.widths,
        _FLASH,
        ("valid",),
        places=_DEVICE,
    ),
    Requirement(
        "value-width",
        "value is 256 wide at most",
        device_rules.value_width,
        ("efficient",),
        ("valid",),
        places=_DEVICE,
    ),
    Requirement(
        "device-width",
        "query and value have a width",
        device_rules.has_width,
        ("efficient", "math"),
        ("valid",),
        places=_DEVICE,
    ),
    Requirement(
        "four-at-most",
        "query, key and value have 4 dimensions at most",
        device_rules.four_at_most,
        _PROGRAMS,
        ("valid",),
        places=_DEVICE,
    ),
    Requirement(
        "rows",
        "the numbers of a row of query, key and value lie side by side",
        device_rules.rows_side_by_side,
        _FLASH,
        ("valid",),
        places=_DEVICE,
    ),
    Requirement(
        "no-gradient-of-mask",
        "the mask needs no gradient",
        device_rules.no_gradient_of_mask,
        _FLASH,
        places=_DEVICE,
    ),
    Requirement(
        "countable",
        "positions and blocks are fewer than 2**31",
        device_rules.countable,
        _PROGRAMS,
        ("valid",),
        places=_DEVICE,
    ),
    Requirement(
        "tier",
        "no tier is promised that no device keeps",
        device_rules.tier,
        _ON_NVIDIA,
        places=_DEVICE,
    ),
    *(
        Requirement(
            *(name, text, rule, ("cudnn",), after, rule.__module__ == gpu_rules.__name__, _DEVICE)
        )
        for name, text, rule, after in cudnn_rules.ROWS
    ),
    Requirement("on-cuda", "query, key and value are on a GPU", rules.on_cuda),
    Requirement("gpu", "a GPU is here", rules.gpu),
    Requirement(
        "architecture",
        "flash and cuDNN: sm80 to sm121; efficient: sm50 to sm121",
        gpu_rules.architecture,
        after=_PLACED,
        on_gpu=True,
    ),
    Requirement(
        "dense",
        "ragged tensors: flash; efficient without training; cuDNN on request on sm90 and sm100",
        gpu_rules.dense,
        on_gpu=True,
    ),
    Requirement(
        "four-dimensional", "query, key and value have 4 dimensions", rules.four_dimensional
    ),
    Requirement("no-mask", "there is no mask", rules.no_mask, ("flash",)),
    Requirement(
        "mask-shape",
        "the mask is 2-D or 4-D, broadcasts to the scores, and needs no gradient",
        rules.mask_shape,
        ("cudnn",),
        after=_SHAPED_ANYWHERE,
        places=_CUDA_AND_DEVICE,
    ),
    Requirement(
        "equal-widths",
        "query, key and value are equally wide, 256 at most (512 on ROCm)",
        gpu_rules.equal_widths,
        ("flash",),
        after=_SHAPED,
        on_gpu=True,
    ),
    Requirement(
        "aligned-widths",
        "widths are multiples of 4 or 8, by device and dtype",
        gpu_rules.aligned_widths,
        ("efficient",),
        after=_SHAPED,
        on_gpu=True,
    ),
    Requirement(
        "cudnn-widths",
        "widths are multiples of 8 and 128 at most (256 on sm90, 192 and 128 on sm10x)",
        gpu_rules.cudnn_widths,
        ("cudnn",),
        after=_SHAPED_ANYWHERE,
        on_gpu=True,
        places=_CUDA_AND_DEVICE,
    ),
    Requirement(
        "training-width",
        "training on sm86, sm89, sm120, sm121: width 192 at most, or above 224 without dropout",
        gpu_rules.training_width,
        ("flash",),
        after=(*_SHAPED, *_PLACED),
        on_gpu=True,
    ),
    Requirement(
        "square-causal",
        "a causal call has as many queries as keys",
        rules.square_causal,
        ("flash",),
        after=_SHAPED,
    ),
    Requirement(
        "dtype",
        "float16, and bfloat16 from sm80; efficient also float32; FlashAttention 3 also float8",
        gpu_rules.dtype,
        on_gpu=True,
    ),
    Requirement(
        "batches-and-heads",
        "equal batches and heads; flash and cuDNN take groups of heads when they are asked to",
        rules.batches_and_heads,
        after=_SHAPED,
    ),
    Requirement(
        "not-empty",
        "there are queries and keys",
        rules.not_empty,
        after=(*_SHAPED, "valid"),
        places=("cuda", "cpu"),
    ),
    Requirement(
        "has-width",
        "query and value have a width",
        cpu_rules.has_width,
        _OUR_FUSED,
        ("valid",),
        places=_HERE,
    ),
    Requirement(
        "equal-heads",
        "key and value have equal heads where several share one",
        cpu_rules.equal_heads,
        _OUR_FUSED,
        ("valid",),
        places=_OURS,
    ),
    Requirement(
        "mask-gradient",
        "the mask needs no gradient",
        cpu_rules.mask_without_gradient,
        _OUR_FUSED,
        places=_HERE,
    ),
    Requirement(
        "products",
        "a library that keeps the tier serves its products",
        cpu_rules.products,
        ("math",),
        ("valid",),
        places=_HERE,
    ),
    Requirement(
        "last-stride", "the last dimension is contiguous", rules.last_stride, after=_SHAPED
    ),
    Requirement(
        "cudnn-lengths",
        "more than one key; more than one query with dropout",
        rules.cudnn_lengths,
        ("cudnn",),
        after=_SHAPED_ANYWHERE,
        places=_CUDA_AND_DEVICE,
    ),
    Requirement(
        "cudnn-version",
        "cuDNN 9 or newer, and for dropout not 9.11 to 9.13",
        gpu_rules.cudnn_version,
        ("cudnn",),
        after=("kernel", *cudnn_rules.VERSIONED),
        on_gpu=True,
        places=_CUDA_AND_DEVICE,
    ),
    Requirement(
        "deterministic",
        "algorithms that are not deterministic are allowed",
        rules.may_vary,
        ("cudnn",),
    ),
)
"""Every requirement, in the order in which reasons are told."""


def reasons(kernel: str, call: Call, device: Device, flags: AttentionFlags) -> tuple[str, ...]:
    """Why a kernel cannot serve a call: every reason, in the order of the table; () if it can.

    A requirement that rests on one that does not hold is passed over: the width of an array of
    two dimensions is no reason.

    Args:
        kernel: one of `KERNELS`, or "math".
        call: what is to be computed.
        device: where, and by what.
        flags: the flags in force.
    """
    return tuple(why for _, why in unmet(kernel, call, device, flags))


def unmet(
    kernel: str, call: Call, device: Device, flags: AttentionFlags
) -> Iterator[tuple[Requirement, str]]:
    """The requirements that do not hold, each with the reason; see `reasons`."""
    case = Case(kernel, call, device, flags)
    here = kernel != "cudnn" and call.query.device == "cpu"
    place = "device" if device.is_ours else "cpu" if here else "cuda"
    broken: set[str] = set()
    for requirement in REQUIREMENTS:
        counts = kernel in requirement.kernels and place in requirement.places
        if not counts or not broken.isdisjoint(requirement.after):
            continue
        if call.nested and {"four-dimensional", "valid"} & {*requirement.after}:
            continue  # a ragged tensor has not all its lengths
        if why := requirement.broken(case):
            broken.add(requirement.name)
            yield requirement, why
