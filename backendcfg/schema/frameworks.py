"""The flag tables of frameworks, for what torch.backends does not have.

What a flag does on a GPU was read in the sources that it names, not run.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from backendcfg.schema.base import Document, Flag
from backendcfg.schema.tables import TORCH

JAX = "https://docs.jax.dev/en/latest/config_options.html"
XLA = "https://openxla.org/xla/flags_guidance"
TENSORFLOW = "https://www.tensorflow.org/api_docs/python/tf/config"
NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


class Torch(Document):
    """`[torch]`: what PyTorch reads outside torch.backends."""

    cpu_capability: Annotated[
        Literal["auto", "default", "avx2", "avx512"],
        Flag("ATen's kernel set (ATEN_CPU_CAPABILITY).", ("torch",), source=TORCH),
    ] = "auto"
    tunable_op: Annotated[
        bool,
        Flag("Tune GEMM at run time (PYTORCH_TUNABLEOP_ENABLED).", ("torch",), ("amd-gpu",)),
    ] = False
    cublas_workspace_config: Annotated[
        Literal["auto", ":4096:8", ":16:8"],
        Flag(
            "cuBLAS workspaces (CUBLAS_WORKSPACE_CONFIG).",
            ("torch", "cublas"),
            ("nvidia-gpu",),
            source="https://docs.nvidia.com/cuda/cublas/#results-reproducibility",
        ),
    ] = "auto"
    cudnn_lru_cache_limit: Annotated[
        int,
        Field(ge=-1, le=2147483647),
        Flag(
            "Convolution plans kept; 0: all, -1: none (TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT).",
            ("torch",),
            ("nvidia-gpu",),
            source="https://docs.pytorch.org/docs/2.13/cuda_environment_variables.html",
            bits=False,
        ),
    ] = 10000


class OneDnn(Document):
    """`[onednn]`: the library's own variables."""

    default_fpmath_mode: Annotated[
        Literal["strict", "bf16", "f16", "tf32", "any"],
        Flag(
            "Down-conversion oneDNN may do by itself (ONEDNN_DEFAULT_FPMATH_MODE).",
            ("onednn",),
            source="https://uxlfoundation.github.io/oneDNN/dev_guide_attributes_fpmath_mode.html",
        ),
    ] = "strict"
    max_cpu_isa: Annotated[
        Literal["all", "sse41", "avx", "avx2", "avx512_core", "avx512_core_bf16"],
        Flag(
            "Newest instruction set oneDNN may use (ONEDNN_MAX_CPU_ISA).",
            ("onednn",),
            source="https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html",
        ),
    ] = "all"


class Jax(Document):
    """`[jax]`."""

    default_matmul_precision: Annotated[
        Literal["default", "high", "highest", "bfloat16", "tensorfloat32", "float32"],
        Flag(
            "Precision of products (jax_default_matmul_precision).",
            ("jax",),
            source="https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html",
        ),
    ] = "default"
    threefry_partitionable: Annotated[
        bool,
        Flag(
            "Random streams that do not depend on sharding (jax_threefry_partitionable).",
            ("jax",),
            source=JAX,
        ),
    ] = True
    default_prng_impl: Annotated[
        Literal["threefry2x32", "rbg", "unsafe_rbg"],
        Flag(
            "Generator of new random keys (jax_default_prng_impl).",
            ("jax",),
            source="https://docs.jax.dev/en/latest/jax.random.html",
        ),
    ] = "threefry2x32"
    enable_x64: Annotated[
        bool,
        Flag("64-bit types, which JAX otherwise narrows (jax_enable_x64).", ("jax",), source=JAX),
    ] = False
    deterministic_ops: Annotated[
        bool,
        Flag(
            "Only deterministic GPU kernels (--xla_gpu_deterministic_ops in XLA_FLAGS).",
            ("jax",),
            ("nvidia-gpu", "amd-gpu"),
            source=XLA,
        ),
    ] = False
    autotune_level: Annotated[
        int,
        Field(ge=0, le=5),
        Flag(
            "How far GPU kernels are timed; 0 is off (--xla_gpu_autotune_level in XLA_FLAGS).",
            ("jax",),
            ("nvidia-gpu", "amd-gpu"),
            source=XLA,
        ),
    ] = 4


class TensorFlow(Document):
    """`[tensorflow]`."""

    op_determinism: Annotated[
        bool,
        Flag(
            "Only deterministic operations; random ones then need a seed, and it cannot be undone.",
            ("tensorflow",),
            source="https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism",
        ),
    ] = False
    tensor_float_32_execution: Annotated[
        bool,
        Flag(
            "TF32 in products and convolutions.",
            ("tensorflow",),
            ("nvidia-gpu",),
            source=f"{TENSORFLOW}/experimental/enable_tensor_float_32_execution",
        ),
    ] = True
    onednn_opts: Annotated[
        bool,
        Flag(
            "Operations on the CPU through oneDNN (TF_ENABLE_ONEDNN_OPTS).",
            ("tensorflow",),
            source="https://www.intel.com/content/www/us/en/developer/articles/guide/optimization-for-tensorflow-installation-guide.html",
        ),
    ] = True


class Cupy(Document):
    """`[cupy]`."""

    compute_type: Annotated[
        Literal["default", "pedantic", "fp32", "tf32"],
        Flag(
            "Compute type of products of float32 and complex64.",
            ("cupy",),
            ("nvidia-gpu", "amd-gpu"),
            source="https://github.com/cupy/cupy/blob/main/cupy/_core/_routines_linalg.pyx",
        ),
    ] = "default"


class Nccl(Document):
    """`[nccl]`: collective communication."""

    algo: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9,;:^_-]*$"),
        Flag("NCCL_ALGO; empty lets NCCL choose.", ("nccl",), ("nvidia-gpu",), source=NCCL),
    ] = ""
    proto: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9,;:^_-]*$"),
        Flag("NCCL_PROTO; empty lets NCCL choose.", ("nccl",), ("nvidia-gpu",), source=NCCL),
    ] = ""
    nvls: Annotated[
        Literal["auto", "on", "off"],
        Flag("In-network sums (NCCL_NVLS_ENABLE).", ("nccl",), ("nvidia-gpu",), source=NCCL),
    ] = "auto"
