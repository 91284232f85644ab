"""Other software's environment variables that are part of what a host is.

Those that a flag of ours decides are in `backendcfg.probe.variables`; here are the others that
change numbers, speed, or which libraries and devices a program gets. Standard library only: a
starting process compares these with what a stored plan was made under.
"""

from __future__ import annotations

from backendcfg import environ
from backendcfg.probe import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

OTHERS = {
    "BLIS_THREAD_IMPL": "Threading of BLIS.",
    "CUBLASLT_WORKSPACE_SIZE": "Workspace of cuBLASLt, in KiB.",
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "cuBLAS emulates float64 products.",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "cuBLAS emulates float32 products in bfloat16.",
    "CUDA_DEVICE_ORDER": "Order of NVIDIA devices.",
    "CUDA_LAUNCH_BLOCKING": "CUDA kernels run one by one.",
    "CUDA_VISIBLE_DEVICES": "NVIDIA devices that a program sees.",
    "CUPY_TF32": "TF32 in CuPy.",
    "FLEXIBLAS": "Library behind FlexiBLAS.",
    "GLIBC_TUNABLES": "Can hide processor features from every library.",
    "GOMP_CPU_AFFINITY": "Binds GNU OpenMP's threads to processors.",
    "GOMP_SPINCOUNT": "Idle spin of GNU OpenMP.",
    "HIP_VISIBLE_DEVICES": "AMD devices that a program sees.",
    "HSA_OVERRIDE_GFX_VERSION": "Architecture that AMD's runtime pretends.",
    "JAX_DEFAULT_MATMUL_PRECISION": "Precision of products in JAX.",
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
    "NUMBA_NUM_THREADS": "Threads of Numba.",
    "NUMEXPR_NUM_THREADS": "Threads of numexpr.",
    "ROCR_VISIBLE_DEVICES": "AMD devices that the runtime sees.",
    "TF_CUDNN_DETERMINISTIC": "Deterministic cuDNN in TensorFlow.",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "PyTorch starts with TF32 allowed.",
    "TORCH_BLAS_PREFER_CUBLASLT": "PyTorch prefers cuBLASLt.",
    "TORCH_BLAS_PREFER_HIPBLASLT": "PyTorch prefers hipBLASLt.",
    "TORCH_LINALG_PREFER_CUSOLVER": "PyTorch prefers cuSOLVER.",
    "TORCH_LINALG_PREFER_MAGMA": "PyTorch prefers MAGMA.",
    "VECLIB_MAXIMUM_THREADS": "Threads of Apple's Accelerate.",
    "XLA_FLAGS": "Switches of XLA.",
}
"""Beside the whole families below."""

# Whatever is set under these names was meant for a library that computes.
_FAMILIES = ("OPENBLAS_", "GOTO_", "OMP_", "MKL_", "BLIS_", "NVPL_", "ONEDNN_", "DNNL_")
_NAMES = frozenset((*OTHERS, *variables.names()))


def relevant(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are set and matter, sorted by name.

    CUDA_VISIBLE_DEVICES and its like are here even when empty: empty hides every device.

    Args:
        environment: instead of this process's.
    """
    source = environ.current() if environment is None else environment
    return {
        name: source[name]
        for name in sorted(source)
        if (name in _NAMES or name.startswith(_FAMILIES))
        and (source[name] or name.endswith("_VISIBLE_DEVICES"))
    }
