"""The flags of torch.backends (PyTorch 2.13), under its names, with its defaults.

Names, defaults and allowed values were read in the 2.13.0 wheel and measured on its CPU build.
What they do on a GPU was read in PyTorch's sources, not run. Read-only names of torch.backends
(availability, versions) are not flags: detection answers those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from backendcfg.records import field, record
from backendcfg.schema.base import SPELLED, Document, Flag, Fp32, Preference

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = "https://docs.pytorch.org/docs/2.13/backends.html"
SDPA = "https://docs.pytorch.org/docs/2.13/generated/torch.nn.attention.sdpa_kernel.html"

GPU = ("nvidia-gpu", "amd-gpu")


def torch_flag(summary: str, *readers: str, needs: tuple[str, ...] = (), **more: Any) -> Flag:
    """A flag that PyTorch reads, among others."""
    more = {"source": DOCS, **more}
    return Flag(summary, ("torch", *readers), needs, **more)


Tf32Or = Literal["none", "ieee", "tf32"]


def tf32_spelling(*targets: str) -> dict[Any, dict[str, Any]]:
    """What a legacy `allow_tf32` writes; False means IEEE here, where torch may leave `none`."""
    return {
        True: dict.fromkeys(targets, "tf32"),
        False: dict.fromkeys(targets, "ieee"),
    }


class CudaMatmul(Document):
    """`torch.backends.cuda.matmul`."""

    fp32_precision: Annotated[
        Tf32Or,
        torch_flag(
            "Internal precision of float32 GEMM on the GPU.", "native", needs=GPU, in_c=True
        ),
    ] = "none"
    allow_tf32: Annotated[
        bool,
        torch_flag(
            "Legacy spelling of `cuda.matmul.fp32_precision`.",
            needs=GPU,
            spells=tf32_spelling("cuda.matmul.fp32_precision"),
        ),
    ] = False
    allow_fp16_reduced_precision_reduction: Annotated[
        bool, torch_flag("Let float16 GEMM reduce in float16.", "native", needs=GPU, in_c=True)
    ] = True
    allow_fp16_reduced_precision_reduction_split_k: Annotated[
        bool,
        torch_flag(
            "Let float16 GEMM split K; false needs cuBLASLt.", "native", needs=GPU, in_c=True
        ),
    ] = True
    allow_bf16_reduced_precision_reduction: Annotated[
        bool, torch_flag("Let bfloat16 GEMM reduce in bfloat16.", "native", needs=GPU, in_c=True)
    ] = True
    allow_bf16_reduced_precision_reduction_split_k: Annotated[
        bool,
        torch_flag(
            "Let bfloat16 GEMM split K; false needs cuBLASLt.", "native", needs=GPU, in_c=True
        ),
    ] = True
    allow_fp16_accumulation: Annotated[
        bool,
        torch_flag(
            "Accumulate float16 GEMM in float16.",
            "native",
            needs=GPU,
            in_c=True,
            calls="_{}_cublas_allow_fp16_accumulation",
        ),
    ] = False


class CufftPlanCache(Document):
    """`torch.backends.cuda.cufft_plan_cache`."""

    max_size: Annotated[
        int,
        Field(ge=0),
        torch_flag("Plans kept per device; 0 keeps none.", "native", bits=False),
    ] = 4096


class Cuda(Document):
    """`torch.backends.cuda`."""

    matmul: CudaMatmul = CudaMatmul()
    cufft_plan_cache: CufftPlanCache = CufftPlanCache()
    preferred_linalg_library: Annotated[
        Preference[Literal["default", "cusolver", "magma"]],
        SPELLED,
        torch_flag("Library for decompositions of device arrays.", "native", needs=GPU),
    ] = Preference()
    preferred_blas_library: Annotated[
        Preference[Literal["default", "cublas", "cublaslt", "hipblas", "hipblaslt", "ck"]],
        SPELLED,
        torch_flag("Library for products of device arrays.", "native", needs=GPU, in_c=True),
    ] = Preference()
    preferred_rocm_fa_library: Annotated[
        Preference[Literal["default", "aotriton", "ck"]],
        SPELLED,
        torch_flag("Flash attention library on ROCm.", needs=("amd-gpu",)),
    ] = Preference()
    cublas_workspace_size: Annotated[
        int,
        Field(ge=0),
        torch_flag("cuBLAS workspace in bytes; 0 keeps torch's.", "native", needs=GPU, in_c=True),
    ] = 0
    cublaslt_workspace_size: Annotated[
        int,
        Field(ge=0),
        torch_flag("cuBLASLt workspace in bytes; 0 keeps torch's.", "native", needs=GPU, in_c=True),
    ] = 0
    enable_flash_sdp: Annotated[
        bool, torch_flag("Allow the flash attention kernel.", "native", source=SDPA)
    ] = True
    enable_mem_efficient_sdp: Annotated[
        bool, torch_flag("Allow the memory-efficient attention kernel.", "native", source=SDPA)
    ] = True
    enable_math_sdp: Annotated[
        bool, torch_flag("Allow attention as plain products.", "native", source=SDPA)
    ] = True
    enable_cudnn_sdp: Annotated[
        bool,
        torch_flag("Allow cuDNN's attention kernel.", "native", needs=("nvidia-gpu",), source=SDPA),
    ] = True
    sdp_priority: Annotated[
        tuple[Literal["flash", "efficient", "math", "cudnn", "overrideable"], ...],
        torch_flag(
            "Order in which attention kernels are tried; PyTorch's on a CPU ignore it.",
            "native",
            source=SDPA,
        ),
    ] = ()
    allow_fp16_bf16_reduction_math_sdp: Annotated[
        bool,
        torch_flag(
            "Let `math` attention reduce in 16 bits.",
            "native",
            source=SDPA,
            calls="_{}_math_sdp_allow_fp16_bf16_reduction",
        ),
    ] = False


class CudnnConvolution(Document):
    """`torch.backends.cudnn.conv`."""

    fp32_precision: Annotated[
        Tf32Or, torch_flag("Internal precision of float32 in cuDNN.", "native", needs=GPU)
    ] = "tf32"


class CudnnRecurrence(Document):
    """`torch.backends.cudnn.rnn`."""

    fp32_precision: Annotated[
        Tf32Or, torch_flag("Internal precision of float32 in cuDNN.", needs=GPU)
    ] = "tf32"


class Cudnn(Document):
    """`torch.backends.cudnn`; also governs MIOpen."""

    enabled: Annotated[
        bool, torch_flag("Use cuDNN or MIOpen at all.", "native", calls="_{}_cudnn_enabled")
    ] = True
    benchmark: Annotated[
        bool,
        torch_flag(
            "Time the convolution algorithms, keep the fastest.",
            "native",
            calls="_{}_cudnn_benchmark",
        ),
    ] = False
    benchmark_limit: Annotated[
        int,
        Field(ge=0),
        torch_flag(
            "Algorithms to time; 0 means all.",
            "native",
            bits=False,
            calls="_cuda_{}_cudnn_benchmark_limit",
        ),
    ] = 10
    deterministic: Annotated[
        bool,
        torch_flag(
            "Only deterministic convolution algorithms.", "native", calls="_{}_cudnn_deterministic"
        ),
    ] = False
    allow_tf32: Annotated[
        bool,
        torch_flag(
            "Legacy spelling of `cudnn.conv.fp32_precision` and `cudnn.rnn.fp32_precision`.",
            needs=GPU,
            spells=tf32_spelling("cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
        ),
    ] = True
    fp32_precision: Annotated[
        Tf32Or,
        torch_flag("Internal precision of float32 in all of CUDA.", "native", needs=GPU, in_c=True),
    ] = "none"
    conv: CudnnConvolution = CudnnConvolution()
    rnn: CudnnRecurrence = CudnnRecurrence()
    depthwise_kernel: Annotated[
        Literal["auto", "cudnn", "native"],
        torch_flag(
            "Kernel for depthwise convolution.",
            needs=("nvidia-gpu",),
            calls="_{}_cudnn_depthwise_kernel",
        ),
    ] = "auto"


class Mha(Document):
    """`torch.backends.mha`."""

    fastpath_enabled: Annotated[
        bool, torch_flag("Fused path of multi-head attention in inference.")
    ] = True


class Miopen(Document):
    """`torch.backends.miopen`."""

    immediate: Annotated[
        bool,
        torch_flag(
            "MIOpen's immediate mode: no search.", needs=("amd-gpu",), calls="_{}_miopen_immediate"
        ),
    ] = False


class Mkl(Document):
    """`torch.backends.mkl`; the layer and the branch of MKL are under `blas.mkl`."""

    verbose: Annotated[
        int,
        # Not Literal[0, 1], which takes true and 1.0 for 1 even in strict mode.
        Field(ge=0, le=1),
        torch_flag("MKL prints every call when 1.", "mkl", bits=False),
    ] = 0


class MkldnnPart(Document):
    """`torch.backends.mkldnn.matmul`, `.conv` and `.rnn`."""

    fp32_precision: Annotated[Fp32, torch_flag("Internal precision of float32 in oneDNN.")] = "none"


class Mkldnn(Document):
    """`torch.backends.mkldnn` (oneDNN)."""

    enabled: Annotated[
        bool, torch_flag("Use oneDNN at all.", "native", calls="_{}_mkldnn_enabled")
    ] = True
    deterministic: Annotated[
        bool,
        torch_flag(
            "Only deterministic oneDNN primitives.", "native", calls="_{}_mkldnn_deterministic"
        ),
    ] = False
    allow_tf32: Annotated[
        bool,
        torch_flag(
            "Legacy spelling of the three `mkldnn.*.fp32_precision`.",
            needs=("intel-gpu",),
            spells=tf32_spelling(
                "mkldnn.matmul.fp32_precision",
                "mkldnn.conv.fp32_precision",
                "mkldnn.rnn.fp32_precision",
            ),
        ),
    ] = False
    fp32_precision: Annotated[Fp32, torch_flag("Parent of the three below.")] = "none"
    matmul: MkldnnPart = MkldnnPart()
    conv: MkldnnPart = MkldnnPart()
    rnn: MkldnnPart = MkldnnPart()
    verbose: Annotated[
        int,
        Field(ge=0, le=2),
        torch_flag("oneDNN prints every call (1) and creation (2).", "onednn", bits=False),
    ] = 0


class Nnpack(Document):
    """`torch.backends.nnpack`."""

    enabled: Annotated[
        bool, torch_flag("Use NNPACK's convolutions.", calls="_{}_nnpack_enabled")
    ] = True


class OptEinsum(Document):
    """`torch.backends.opt_einsum`."""

    enabled: Annotated[
        bool, torch_flag("Search a contraction order for einsum.", "native", carried=True)
    ] = True
    strategy: Annotated[
        Literal["auto", "greedy", "optimal"],
        torch_flag("How the order is searched.", "native", carried=True),
    ] = "auto"


class Quantized(Document):
    """`torch.backends.quantized`."""

    engine: Annotated[
        Literal["default", "none", "fbgemm", "qnnpack", "onednn", "x86"],
        torch_flag("Kernels of quantized operators; `default` keeps torch's choice."),
    ] = "default"


class Dsl(Document):
    """One kernel language of `torch.backends.python_native`."""

    enabled: Annotated[bool, torch_flag("Allow operators written in this language.")] = True


class PythonNative(Document):
    """`torch.backends.python_native`."""

    cutedsl: Dsl = Dsl()
    triton: Dsl = Dsl()
    disabled_operations: Annotated[
        tuple[str, ...], torch_flag("Operators that keep their built-in kernel.")
    ] = ()
    disabled_dispatch_keys: Annotated[
        tuple[str, ...], torch_flag("Dispatch keys whose operators keep their built-in kernel.")
    ] = ()


@record(frozen=True)
class Initial:
    """A variable of PyTorch that gives a switch its first value, and what it makes of the flag.

    PyTorch reads it once, when it is imported. Whoever sets one says what the flag shall be, as
    plainly as by BACKENDCFG_<FLAG>, so it counts with the same rank, and the latter wins when both
    are set. That PyTorch starts with these values was measured on the CPU build of 2.13; what they
    do on a GPU, and CUBLASLT_WORKSPACE_SIZE, was read in PyTorch's sources (Context.h,
    CublasHandlePool.cpp), not run. A text that PyTorch ignores with a warning ("yes") is ignored
    here too.

    Attributes:
        variable: its name.
        flag: the flag that it gives a value.
        values: what its texts mean; others mean nothing, except numbers when there is a unit.
        unit: for a size, the bytes that one stands for; 0 for what is no size.
    """

    variable: str
    flag: str
    values: Mapping[str, Any] = field(default_factory=dict)
    unit: int = 0

    def value(self, text: str) -> Any:
        """What a text makes of the flag, or None when PyTorch makes nothing of it."""
        if self.unit:
            return int(text) * self.unit if text.isascii() and text.isdecimal() else None
        return self.values.get(text)


INITIALS: tuple[Initial, ...] = (
    Initial("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "cuda.matmul.fp32_precision", {"1": "tf32"}),
    Initial("TORCH_LINALG_PREFER_HIPSOLVER", "cuda.preferred_linalg_library", {"1": "cusolver"}),
    Initial("TORCH_LINALG_PREFER_CUSOLVER", "cuda.preferred_linalg_library", {"1": "cusolver"}),
    Initial(
        "TORCH_BLAS_PREFER_HIPBLASLT",
        "cuda.preferred_blas_library",
        {"1": "hipblaslt", "0": "hipblas"},
    ),
    Initial(
        "TORCH_BLAS_PREFER_CUBLASLT",
        "cuda.preferred_blas_library",
        {"1": "cublaslt", "0": "cublas"},
    ),
    Initial("TORCH_ROCM_FA_PREFER_CK", "cuda.preferred_rocm_fa_library", {"1": "ck"}),
    Initial("CUBLASLT_WORKSPACE_SIZE", "cuda.cublaslt_workspace_size", unit=1024),
)
"""Where two give one flag a value, the later wins, and a 1 over a 0."""


def initial_settings(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """The flags that an environment gives a value in this way: `{flag: (variable, value)}`."""
    found: dict[str, tuple[str, Any]] = {}
    for each in INITIALS:
        text = environment.get(each.variable, "")
        if (value := each.value(text)) is None or (text == "0" and each.flag in found):
            continue
        found[each.flag] = (each.variable, value)
    return found
