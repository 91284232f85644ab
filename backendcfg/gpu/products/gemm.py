"""What the flags say to a library of device arrays: one table from flags to the numbers of its ABI.

    recipe("cublas", flags, "float32", capability=(9, 0)).compute_type   # 77 under tf32

The numbers and the rules are PyTorch's (docs/operations/devices.md says where we depart from them).
Nothing is opened or asked here: what a call does and what `explain` shows come from this function.
"""

from __future__ import annotations

from backendcfg import defaults
from backendcfg.catalogue.gpu import preferred_first
from backendcfg.ops.devices import CUDA, ROCM
from backendcfg.records import record, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

FP32 = "cuda.matmul.fp32_precision"
FP32_OF_CUDA = "cudnn.fp32_precision"
FP32_OF_ALL = "fp32_precision"
EMULATION = "ops.float32_emulation"
ACCUMULATION = "cuda.matmul.allow_fp16_accumulation"
LIBRARY = "cuda.preferred_blas_library"
CUBLAS_WORKSPACE = "cuda.cublas_workspace_size"
CUBLASLT_WORKSPACE = "cuda.cublaslt_workspace_size"
ALGORITHMS = "determinism.algorithms"
TIER = "determinism.tier"

FLAGS = (
    FP32,
    FP32_OF_CUDA,
    FP32_OF_ALL,
    EMULATION,
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k",
    ACCUMULATION,
    LIBRARY,
    CUBLAS_WORKSPACE,
    CUBLASLT_WORKSPACE,
    ALGORITHMS,
    TIER,
    "ops.check_finite",
)
"""Every flag that is looked at."""

DEFAULTS: dict[str, Any] = {flag: defaults.DEFAULTS[flag] for flag in FLAGS}
DEFAULTS[LIBRARY] = "default"  # the word for no preference

ELEMENTS = ("float32", "float64", "complex64", "complex128", "bfloat16", "float16")
"""In the order of `bcfg_element` in C."""

# cudaDataType_t; hipDataType has the same numbers.
TYPES = dict(zip(ELEMENTS, (0, 1, 4, 5, 14, 2), strict=True))
_DOUBLE = ("float64", "complex128")
COMPLEX = ("complex64", "complex128")
_HALF = {"float16": "fp16", "bfloat16": "bf16"}

# cublasComputeType_t
COMPUTE_16F, COMPUTE_32F, COMPUTE_64F, COMPUTE_FAST_TF32 = 64, 68, 70, 77
COMPUTE_BF16X9 = 78  # since 12.9
# cublasMath_t
DEFAULT_MATH, TF32_MATH, BF16X9_MATH, DISALLOW_REDUCED = 0, 3, 4, 16
# cublasGemmAlgo_t
ALGORITHM_DEFAULT, ALGORITHM_TENSOR = -1, 99
# cublasLtReductionScheme_t
SCHEME_NONE, SCHEME_COMPUTE_TYPE, SCHEME_ANY = 0, 2, 7

# hipblasComputeType_t, hipblasMath_t and hipblasGemmAlgo_t
HIP_COMPUTE_32F, HIP_COMPUTE_32F_FAST_TF32, HIP_COMPUTE_64F = 2, 6, 7
HIP_DEFAULT_MATH, HIP_XF32_MATH = 0, 1
HIP_ALGORITHM_DEFAULT = 160
XF32_CAPABILITY = (9, 4)  # gfx940 to gfx942: no device before or after has it

MIB = 1 << 20
WORKSPACE, WORKSPACE_HOPPER = 4096 * 2 * 1024 + 16 * 8 * 1024, 32 * MIB
WORKSPACE_LT, WORKSPACE_HIP_LT = 1 * MIB, 76 * MIB
WORKSPACE_HIP, WORKSPACE_HIP_GFX94 = 32 * MIB, 128 * MIB


@record(frozen=True)
class Recipe:
    """How one library is called for one element type on one kind of device.

    Attributes:
        provider: "cublas", "cublaslt", "hipblas", "hipblaslt".
        element: of the operands and the result.
        data_type: the library's number of it.
        compute_type: the library's number of the type that products are summed in.
        scale_type: the library's number of the type of alpha and beta.
        math_mode: of the handle; 0 where the library has none.
        atomics: whether sums may be made by atomic additions, whose order is not fixed.
        algorithm: of the call; 0 where a heuristic chooses it.
        reduction: which partial sums the heuristic may use, as a mask; 0 where there is none.
        workspace: bytes that the library may use.
    """

    provider: str
    element: str
    data_type: int
    compute_type: int
    scale_type: int
    math_mode: int = 0
    atomics: int = 0
    algorithm: int = 0
    reduction: int = 0
    workspace: int = 0


def tf32(flags: Mapping[str, Any]) -> bool:
    """Whether float32 products may be computed in TF32: the nearest of three flags that says."""
    for flag in (FP32, FP32_OF_CUDA, FP32_OF_ALL):
        # "bf16" is nothing that CUDA's products know, and reads as "none".
        if flags[flag] in ("ieee", "tf32"):
            return bool(flags[flag] == "tf32")
    return False


def recipe(
    provider: str,
    flags: Mapping[str, Any],
    element: str,
    capability: tuple[int, int] = (0, 0),
) -> Recipe | str:
    """The recipe of a provider under flags, or why it cannot keep them.

    Args:
        provider: a key of `PROVIDERS`.
        flags: a value for each of `FLAGS`.
        element: one of `ELEMENTS`.
        capability: the device's compute capability; (0, 0) for none.
    """
    return PROVIDERS[provider](flags, element, capability)


def for_version(made: Recipe, version: tuple[int, int, int]) -> Recipe:
    """What a version of its library can follow: before emulation, products in plain float32."""
    if made.compute_type != COMPUTE_BF16X9 or version >= (12, 9, 0):
        return made
    return replace(made, compute_type=COMPUTE_32F, math_mode=DEFAULT_MATH)


def _cublas(flags: Mapping[str, Any], element: str, capability: tuple[int, int]) -> Recipe | str:
    compute, scale = _types(flags, element, capability)
    math = DEFAULT_MATH
    if element in ("float32", "complex64") and tf32(flags):
        compute, math = COMPUTE_FAST_TF32, TF32_MATH
    elif compute == COMPUTE_BF16X9:
        math = BF16X9_MATH
    if element in _HALF:
        reduction, split_k = _reductions(flags, element)
        if not split_k:
            return _no_split_k(element)
        math |= 0 if reduction else DISALLOW_REDUCED
    usual = WORKSPACE_HOPPER if capability == (9, 0) else WORKSPACE
    return Recipe(
        "cublas",
        element,
        TYPES[element],
        compute,
        scale,
        math_mode=math,
        atomics=0,  # as in every handle of cuBLAS that nobody told otherwise
        algorithm=ALGORITHM_TENSOR if element in _HALF else ALGORITHM_DEFAULT,
        workspace=flags[CUBLAS_WORKSPACE] or usual,
    )


def _cublaslt(flags: Mapping[str, Any], element: str, capability: tuple[int, int]) -> Recipe | str:
    compute, scale = _types(flags, element, capability)
    if element == "float32" and tf32(flags):  # complex64 stays in float32, as in PyTorch
        compute = COMPUTE_FAST_TF32
    mask = SCHEME_ANY
    if element in _HALF:
        reduction, split_k = _reductions(flags, element)
        mask = SCHEME_ANY if reduction else SCHEME_COMPUTE_TYPE if split_k else SCHEME_NONE
    return Recipe(
        "cublaslt",
        element,
        TYPES[element],
        compute,
        scale,
        reduction=mask,
        workspace=flags[CUBLASLT_WORKSPACE] or WORKSPACE_LT,
    )


def _hipblas(flags: Mapping[str, Any], element: str, capability: tuple[int, int]) -> Recipe | str:
    if element in _HALF and not _reductions(flags, element)[1]:
        return _no_split_k(element)
    is_double = element in _DOUBLE
    usual = WORKSPACE_HIP_GFX94 if capability == XF32_CAPABILITY else WORKSPACE_HIP
    return Recipe(
        "hipblas",
        element,
        TYPES[element],
        HIP_COMPUTE_64F if is_double else HIP_COMPUTE_32F,
        TYPES["float32" if element in _HALF else element],
        math_mode=HIP_XF32_MATH if _xf32(flags, element, capability) else HIP_DEFAULT_MATH,
        atomics=0 if _same_bits(flags) else 1,
        algorithm=HIP_ALGORITHM_DEFAULT,
        workspace=flags[CUBLAS_WORKSPACE] or usual,
    )


def _hipblaslt(flags: Mapping[str, Any], element: str, capability: tuple[int, int]) -> Recipe | str:
    if element not in ("float32", *_HALF):
        return f"it has no products of {element}"
    if element in _HALF and not _reductions(flags, element)[1]:
        return _no_split_k(element)
    if promise := _same_bits(flags):
        return f"it cannot be told not to add atomically, as `{promise}` asks"
    is_xf32 = _xf32(flags, element, capability)
    return Recipe(
        "hipblaslt",
        element,
        TYPES[element],
        HIP_COMPUTE_32F_FAST_TF32 if is_xf32 else HIP_COMPUTE_32F,
        TYPES["float32"],
        workspace=flags[CUBLASLT_WORKSPACE] or WORKSPACE_HIP_LT,
    )


def _xf32(flags: Mapping[str, Any], element: str, capability: tuple[int, int]) -> bool:
    return element == "float32" and tf32(flags) and capability == XF32_CAPABILITY


def _same_bits(flags: Mapping[str, Any]) -> str:
    """The flag that promises the same bits from run to run; "" for none."""
    if flags[ALGORITHMS] == "deterministic":
        return ALGORITHMS
    return TIER if flags[TIER] != "none" else ""


def _no_split_k(element: str) -> str:
    flag = f"cuda.matmul.allow_{_HALF[element]}_reduced_precision_reduction_split_k"
    return f"it cannot be told not to split K, as `{flag}` asks"


def _types(flags: Mapping[str, Any], element: str, capability: tuple[int, int]) -> tuple[int, int]:
    """The compute type and the scale type that hold but for TF32."""
    if element in _DOUBLE:
        return COMPUTE_64F, TYPES[element]
    if element == "float16" and flags[ACCUMULATION] and capability >= (7, 0):
        return COMPUTE_16F, TYPES["float16"]
    if flags[EMULATION] == "bf16x9" and element in ("float32", "complex64"):
        return COMPUTE_BF16X9, TYPES[element]
    return COMPUTE_32F, TYPES["float32" if element in _HALF else element]


def _reductions(flags: Mapping[str, Any], element: str) -> tuple[bool, bool]:
    """Whether it may reduce in 16 bits, and whether it may split K."""
    flag = f"cuda.matmul.allow_{_HALF[element]}_reduced_precision_reduction"
    return flags[flag], flags[f"{flag}_split_k"]


PROVIDERS: dict[str, Callable[[Mapping[str, Any], str, tuple[int, int]], Recipe | str]] = {
    "cublas": _cublas,
    "cublaslt": _cublaslt,
    "hipblas": _hipblas,
    "hipblaslt": _hipblaslt,
}
"""By provider: its rules."""

ORDERS: dict[int, tuple[str, ...]] = {CUDA: ("cublas", "cublaslt"), ROCM: ("hipblas", "hipblaslt")}
"""By kind of place: who may serve, in the order that holds when nobody chooses."""

BIAS = {"cublaslt": "CUBLASLT_EPILOGUE_BIAS", "hipblaslt": "HIPBLASLT_EPILOGUE_BIAS"}
BY_DESCRIPTORS = tuple(BIAS)
"""Those whose heuristic may find no algorithm for a call, and who can add a vector in it."""


def adder(kind: int, order: tuple[str, ...], element: str) -> str:
    """Who adds a vector to each row of a product in the same call, as in PyTorch; "" for nobody.

    Args:
        kind: of the place.
        order: of the providers.
        element: of the arrays.
    """
    if element in COMPLEX:
        return ""
    if kind == CUDA:
        return "cublaslt"  # whoever is preferred
    return order[0] if order[0] in BY_DESCRIPTORS else ""


def order(kind: int, preferred: Any) -> tuple[str, ...]:
    """The providers of a kind of place, the preferred one first, or the other vendor's like it."""
    return preferred_first(ORDERS[kind], preferred)


def words(made: Recipe) -> dict[str, str | int]:
    """A recipe as `explain` shows it: what each number is called in the library's header."""
    if made.provider == "hipblaslt":
        return {"compute": _HIP_COMPUTE[made.compute_type], "workspace": made.workspace}
    if made.provider == "hipblas":
        return {
            "compute": _HIP_COMPUTE[made.compute_type],
            "math": _HIP_MATH[made.math_mode],
            "atomics": "allowed" if made.atomics else "not allowed",
            "workspace": made.workspace,
        }
    said: dict[str, str | int] = {"compute": _COMPUTE[made.compute_type]}
    if made.provider == "cublas":
        parts = [_MATH[made.math_mode & ~DISALLOW_REDUCED]]
        if made.math_mode & DISALLOW_REDUCED:
            parts.append("CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION")
        said["math"] = " | ".join(parts)
    else:
        said["reduction"] = _SCHEME[made.reduction]
    said["workspace"] = made.workspace
    return said


_COMPUTE = {
    COMPUTE_16F: "CUBLAS_COMPUTE_16F",
    COMPUTE_32F: "CUBLAS_COMPUTE_32F",
    COMPUTE_64F: "CUBLAS_COMPUTE_64F",
    COMPUTE_FAST_TF32: "CUBLAS_COMPUTE_32F_FAST_TF32",
    COMPUTE_BF16X9: "CUBLAS_COMPUTE_32F_EMULATED_16BFX9",
}
_MATH = {
    DEFAULT_MATH: "CUBLAS_DEFAULT_MATH",
    TF32_MATH: "CUBLAS_TF32_TENSOR_OP_MATH",
    BF16X9_MATH: "CUBLAS_FP32_EMULATED_BF16X9_MATH",
}
_SCHEME = {
    SCHEME_NONE: "CUBLASLT_REDUCTION_SCHEME_NONE",
    SCHEME_COMPUTE_TYPE: "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE",
    SCHEME_ANY: "CUBLASLT_REDUCTION_SCHEME_MASK",
}
_HIP_COMPUTE = {
    HIP_COMPUTE_32F: "HIPBLAS_COMPUTE_32F",
    HIP_COMPUTE_32F_FAST_TF32: "HIPBLAS_COMPUTE_32F_FAST_TF32",
    HIP_COMPUTE_64F: "HIPBLAS_COMPUTE_64F",
}
_HIP_MATH = {HIP_DEFAULT_MATH: "HIPBLAS_DEFAULT_MATH", HIP_XF32_MATH: "HIPBLAS_XF32_XDL_MATH"}
