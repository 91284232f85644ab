"""`torch.backends.cuda`: products, decompositions, transforms and attention of device arrays.

`sdpa_kernel` is `torch.nn.attention`'s. docs/attention.md has the rules of the kernels. What the
switches do on a GPU was read in PyTorch's sources, not run.
"""

from __future__ import annotations

from backendcfg.backends import presence
from backendcfg.backends.base import become
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
from backendcfg.backends.cuda.products import cuBLASModule
from backendcfg.catalogue.gpu import CUBLAS, HIPBLAS

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
    built = presence.ask_torch(lambda torch: bool(torch._C._has_cuda))
    if built is not None:
        return bool(built)
    return bool(presence.library(CUBLAS.stem) or presence.library(HIPBLAS.stem))


become(__name__)
