"""Other software's environment variables that are part of what a host is.

Those that a flag of ours decides are in `backendcfg.catalogue.variables`; here are the others that
change numbers, speed, or which libraries and devices a program gets. Standard library only: a
starting process compares these with what a stored plan was made under.
"""

from __future__ import annotations

from backendcfg import environ
from backendcfg.catalogue import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERS = {
    "BLIS_THREAD_IMPL": "Threading of BLIS.",
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "cuBLAS emulates float64 products.",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "cuBLAS emulates float32 products in bfloat16.",
    "CUDA_DEVICE_ORDER": "Order of NVIDIA devices.",
    "CUDA_LAUNCH_BLOCKING": "CUDA kernels run one by one.",
    "CUDA_VISIBLE_DEVICES": "NVIDIA devices that a program sees.",
    "FLEXIBLAS": "Library behind FlexiBLAS.",
    "GLIBC_TUNABLES": "Can hide processor features from every library.",
    "GOMP_CPU_AFFINITY": "Binds GNU OpenMP's threads to processors.",
    "GOMP_SPINCOUNT": "Idle spin of GNU OpenMP.",
    "HIP_VISIBLE_DEVICES": "AMD devices that a program sees.",
    "HSA_OVERRIDE_GFX_VERSION": "Architecture that AMD's runtime pretends.",
    "JAX_PLATFORMS": "Devices that JAX uses.",
    "KMP_AFFINITY": "Binds Intel OpenMP's threads to processors.",
    "KMP_BLOCKTIME": "Idle spin of Intel OpenMP.",
    "KMP_DETERMINISTIC_REDUCTION": "Fixes the order of Intel OpenMP's reductions.",
    "KMP_HW_SUBSET": "Processors that Intel OpenMP uses.",
    "LD_BIND_NOW": "Binds every symbol at once; MKL's libmkl_rt cannot be opened then.",
    "LD_LIBRARY_PATH": "Directories searched for libraries.",
    "LD_PRELOAD": "Libraries loaded before all others.",
    "MIOPEN_FIND_MODE": "How MIOpen searches for an algorithm.",
    "NPY_DISABLE_CPU_FEATURES": "Instruction sets that NumPy leaves out.",
    "NUMEXPR_NUM_THREADS": "Threads of numexpr.",
    "ROCR_VISIBLE_DEVICES": "AMD devices that the runtime sees.",
    "TF_CUDNN_DETERMINISTIC": "Deterministic cuDNN in TensorFlow.",
    "VECLIB_MAXIMUM_THREADS": "Threads of Apple's Accelerate.",
    "XLA_FLAGS": "Switches of XLA.",
}
"""Beside the whole families below."""

# Whatever is set under these names was meant for a library that computes.
_FAMILIES = ("OPENBLAS_", "GOTO_", "OMP_", "MKL_", "BLIS_", "NVPL_", "ONEDNN_", "DNNL_")
_NAMES = frozenset((*OTHERS, *variables.names()))

# Beside those: what a library reads for its numbers or for the code that it compiles. They are
# compared within a process; a plan does not depend on them.
_WATCHED_FAMILIES = (
    *("TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "CUDNN_", "CUBLAS_", "CUBLASLT_"),
    *("NCCL_", "TF_XLA_", "JAX_", "CUPY_", "TRITON_"),
)
# Terraform's variables begin with TF_ as well, so TensorFlow's are listed.
_WATCHED_NAMES = frozenset(
    (
        *("TF_CUDNN_USE_AUTOTUNE", "TF_CUDNN_USE_FRONTEND", "TF_CUDNN_WORKSPACE_LIMIT_IN_MB"),
        *("TF_DETERMINISTIC_OPS", "TF_DISABLE_MKL", "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32"),
        *("TF_ENABLE_CUDNN_RNN_TENSOR_OP_MATH_FP32", "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32"),
        *("TF_ENABLE_WINOGRAD_NONFUSED", "TF_FP16_CONV_USE_FP32_COMPUTE"),
        *("TF_FP16_MATMUL_USE_FP32_COMPUTE", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"),
        "TF_USE_CUBLASLT",
    )
)
# Names of what says where files lie or what is printed, in words of the name.
_INCIDENTAL = frozenset(
    (
        *("ADDRESS", "ADDRESSES", "CACHE", "COORDINATOR", "DBG", "DIR", "DUMP", "EXPLAIN", "HOME"),
        *("LOG", "LOGS", "LOGGING", "PATH", "PPRINT", "REPORT", "STACKTRACES", "TIMEOUT"),
        *("TRACE", "TRACEBACK", "TRACEBACKS", "WARN"),
    )
)


def relevant(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are set and matter, sorted by name.

    CUDA_VISIBLE_DEVICES and its like are here even when empty: empty hides every device.

    Args:
        environment: instead of this process's.
    """
    source = environ.copy() if environment is None else environment
    return {
        name: source[name]
        for name in sorted(source)
        if (name in _NAMES or name.startswith(_FAMILIES))
        and (source[name] or name.endswith("_VISIBLE_DEVICES"))
    }


def watched(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are set and can change bits or compiled code, sorted by name.

    Those of `relevant`, and the families of frameworks, without what says where files lie or what
    is printed.

    Args:
        environment: instead of this process's.
    """
    source = environ.copy() if environment is None else environment
    wider = {
        name: source[name]
        for name in source
        if (name in _WATCHED_NAMES or name.startswith(_WATCHED_FAMILIES))
        and source[name]
        and not is_incidental(name)
    }
    return dict(sorted({**relevant(source), **wider}.items()))


def is_incidental(name: str) -> bool:
    """Whether a variable or option, by its name, says where files lie or what is printed."""
    name = name.upper()
    return name.startswith("NCCL_DEBUG") or not _INCIDENTAL.isdisjoint(name.split("_"))
