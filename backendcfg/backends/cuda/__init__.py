"""`torch.backends.cuda`: products, decompositions, transforms and attention of device arrays.

`sdpa_kernel` is `torch.nn.attention`'s. docs/attention.md has the rules of the kernels. What the
switches do on a GPU was read in PyTorch's sources, not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backendcfg.backends import base
from backendcfg.backends.base import (
    add_simple_flags,
    assign,
    become,
    effective,
    is_tf32,
    read,
    refuse_unknown,
)
from backendcfg.backends.cuda.attention import (
    SDPAParams,
    SDPBackend,
    allow_fp16_bf16_reduction_math_sdp,
    can_use_cudnn_attention,
    can_use_efficient_attention,
    can_use_flash_attention,
    cudnn_sdp_enabled,
    enable_cudnn_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed,
    is_flash_attention_available,
    math_sdp_enabled,
    mem_efficient_sdp_enabled,
    sdp_kernel,
    sdpa_kernel,
)
from backendcfg.backends.cuda.cufft import (
    PlanCaches,
    cuFFTPlanCache,
    cuFFTPlanCacheAttrContextProp,
)
from backendcfg.backends.cuda.libraries import (
    BlasBackend,
    LinalgBackend,
    ROCmFABackend,
    blas_workspace_size,
    cublas_workspace_size,
    cublaslt_workspace_size,
    is_ck_sdpa_available,
    preferred_blas_library,
    preferred_linalg_library,
    preferred_rocm_fa_library,
)
from backendcfg.catalogue.gpu import CUBLAS, HIPBLAS
from backendcfg.errors import ConflictingFlagsError, InvalidValueError, UnknownAttributeError

if TYPE_CHECKING:
    from typing import Never


_NAME = "backendcfg.backends.cuda.matmul"
_PRECISION = "cuda.matmul.fp32_precision"
_REDUCED = "cuda.matmul.allow_{}_reduced_precision_reduction"


class cuBLASModule:  # noqa: N801 - PyTorch's name
    """The switches of products; unknown names are refused.

    Two of them take a bool, or a tuple or list of one or two: whether sums may be in 16 bits, and
    whether the sum may be split (`split_k`), which only cuBLASLt can be told not to.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        allow_fp16_accumulation: bool

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may be computed in TF32; the older name of `fp32_precision`."""
        return is_tf32(_PRECISION)

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        """Set it for this process."""
        assign({"cuda.matmul.allow_tf32": value})

    @property
    def fp32_precision(self) -> str:
        """The precision of float32 products in force: "none", "ieee" or "tf32"."""
        return effective(_PRECISION)

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        """Set it for this process."""
        assign({_PRECISION: value})

    @property
    def allow_fp16_reduced_precision_reduction(self) -> bool:
        """Whether products of float16 may sum in float16."""
        return bool(read(_REDUCED.format("fp16")))

    @allow_fp16_reduced_precision_reduction.setter
    def allow_fp16_reduced_precision_reduction(self, value: bool | tuple[bool, ...]) -> None:
        """Set it for this process."""
        _reduce("fp16", value)

    @property
    def allow_fp16_reduced_precision_reduction_split_k(self) -> bool:
        """Whether sums of float16 products may be split."""
        return bool(read(f"{_REDUCED.format('fp16')}_split_k"))

    @allow_fp16_reduced_precision_reduction_split_k.setter
    def allow_fp16_reduced_precision_reduction_split_k(self, value: bool) -> None:
        """Refused: set the pair, of which this is the second."""
        _refuse_split_k("fp16")

    @property
    def allow_bf16_reduced_precision_reduction(self) -> bool:
        """Whether products of bfloat16 may sum in bfloat16."""
        return bool(read(_REDUCED.format("bf16")))

    @allow_bf16_reduced_precision_reduction.setter
    def allow_bf16_reduced_precision_reduction(self, value: bool | tuple[bool, ...]) -> None:
        """Set it for this process."""
        _reduce("bf16", value)

    @property
    def allow_bf16_reduced_precision_reduction_split_k(self) -> bool:
        """Whether sums of bfloat16 products may be split."""
        return bool(read(f"{_REDUCED.format('bf16')}_split_k"))

    @allow_bf16_reduced_precision_reduction_split_k.setter
    def allow_bf16_reduced_precision_reduction_split_k(self, value: bool) -> None:
        """Refused: set the pair, of which this is the second."""
        _refuse_split_k("bf16")

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__"):
            raise AttributeError(attr)
        refuse_unknown(self, _NAME, attr)

    def __setattr__(self, attr: str, value: Any) -> None:
        if attr not in dir(self):
            refuse_unknown(self, _NAME, attr)
        super().__setattr__(attr, value)

    def __dir__(self) -> list[str]:
        return sorted(name for name in vars(type(self)) if not name.startswith("_"))


add_simple_flags(cuBLASModule, "cuda.matmul")


def _reduce(kind: str, value: object) -> None:
    """Set whether sums may be in 16 bits, and whether they may be split."""
    flag = _REDUCED.format(kind)
    words = list(value) if isinstance(value, (tuple, list)) else [value]
    if len(words) not in (1, 2) or not all(isinstance(word, bool) for word in words):
        raise InvalidValueError(
            f"`{flag}` must be a bool, or a tuple or list of one or two bools, not {value!r}",
            helps=["(False, False) forbids splitting the sum as well"],
        )
    reduced, split = words[0], words[1] if len(words) == 2 else True
    if reduced and not split:
        raise ConflictingFlagsError(
            "allow_splitk=False is not supported when reduced precision reductions are enabled",
            helps=[f"set `{flag} = (False, False)`"],
        )
    assign({flag: reduced, f"{flag}_split_k": split})


def _refuse_split_k(kind: str) -> Never:
    name = f"allow_{kind}_reduced_precision_reduction"
    raise UnknownAttributeError(
        f"`{_NAME}.{name}_split_k` cannot be set",
        helps=[f"set `{name} = (False, False)` or `{name} = (False, True)`"],
    )


__all__ = [
    "BlasBackend",
    "LinalgBackend",
    "ROCmFABackend",
    "SDPAParams",
    "SDPBackend",
    "allow_fp16_bf16_reduction_math_sdp",
    "blas_workspace_size",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cuBLASModule",
    "cuFFTPlanCache",
    "cuFFTPlanCacheAttrContextProp",
    "cuFFTPlanCacheManager",
    "cublas_workspace_size",
    "cublaslt_workspace_size",
    "cudnn_sdp_enabled",
    "cufft_plan_cache",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_ck_sdpa_available",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "preferred_linalg_library",
    "preferred_rocm_fa_library",
    "sdp_kernel",
    "sdpa_kernel",
]

cuFFTPlanCacheManager = PlanCaches  # noqa: N816 - PyTorch's name
cufft_plan_cache = cuFFTPlanCacheManager()
matmul = cuBLASModule()


def is_built() -> bool:
    """Whether CUDA or ROCm could compute here: PyTorch was built for it, or its BLAS is here."""
    built = base.ask_torch(lambda torch: bool(torch._C._has_cuda))
    if built is not None:
        return bool(built)
    return bool(base.library_file(CUBLAS.stem) or base.library_file(HIPBLAS.stem))


become(__name__)
