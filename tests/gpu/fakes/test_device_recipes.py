"""What each flag says to a library of device arrays: the numbers of its ABI, flag by flag."""

import pytest

from backendcfg.gpu.products import gemm
from backendcfg.gpu.products.gemm import DEFAULTS, ELEMENTS, Recipe, order, recipe, words
from backendcfg.schema.profile import defaults

AMPERE, HOPPER, MAXWELL = (8, 0), (9, 0), (5, 2)
FP16 = "cuda.matmul.allow_fp16_reduced_precision_reduction"
BF16 = "cuda.matmul.allow_bf16_reduced_precision_reduction"
FP32 = "cuda.matmul.fp32_precision"
EMULATION = "ops.float32_emulation"


def made(provider, element, flags=None, capability=AMPERE):
    return recipe(provider, {**DEFAULTS, **(flags or {})}, element, capability)


def test_the_defaults_are_those_of_the_schema():
    known = defaults()
    mine = {flag: known[flag] for flag in DEFAULTS}
    mine["cuda.preferred_blas_library"] = mine["cuda.preferred_blas_library"] or "default"
    assert mine == DEFAULTS


# data_type, compute_type, scale_type, math_mode, atomics, algorithm, reduction, workspace
CUBLAS = {
    "float32": (0, 68, 0, 0, 0, -1, 0, 8519680),
    "float64": (1, 70, 1, 0, 0, -1, 0, 8519680),
    "complex64": (4, 68, 4, 0, 0, -1, 0, 8519680),
    "complex128": (5, 70, 5, 0, 0, -1, 0, 8519680),
    "bfloat16": (14, 68, 0, 0, 0, 99, 0, 8519680),
    "float16": (2, 68, 0, 0, 0, 99, 0, 8519680),
}
CUBLASLT = {
    "float32": (0, 68, 0, 0, 0, 0, 7, 1 << 20),
    "float64": (1, 70, 1, 0, 0, 0, 7, 1 << 20),
    "complex64": (4, 68, 4, 0, 0, 0, 7, 1 << 20),
    "complex128": (5, 70, 5, 0, 0, 0, 7, 1 << 20),
    "bfloat16": (14, 68, 0, 0, 0, 0, 7, 1 << 20),
    "float16": (2, 68, 0, 0, 0, 0, 7, 1 << 20),
}


@pytest.mark.parametrize("element", ELEMENTS)
def test_without_flags_cublas_is_called_as_pytorch_calls_it(element):
    assert made("cublas", element) == Recipe("cublas", element, *CUBLAS[element])


@pytest.mark.parametrize("element", ELEMENTS)
def test_without_flags_cublaslt_is_called_as_pytorch_calls_it(element):
    assert made("cublaslt", element) == Recipe("cublaslt", element, *CUBLASLT[element])


# A flag: by (provider, element), what it changes of the recipe; nothing else changes.
CHANGES = [
    (
        {FP32: "tf32"},
        {
            ("cublas", "float32"): {"compute_type": 77, "math_mode": 3},
            ("cublas", "complex64"): {"compute_type": 77, "math_mode": 3},
            ("cublaslt", "float32"): {"compute_type": 77},
        },
    ),
    ({FP32: "ieee"}, {}),
    (
        {"cudnn.fp32_precision": "tf32"},
        {
            ("cublas", "float32"): {"compute_type": 77, "math_mode": 3},
            ("cublas", "complex64"): {"compute_type": 77, "math_mode": 3},
            ("cublaslt", "float32"): {"compute_type": 77},
        },
    ),
    (
        {"fp32_precision": "tf32"},
        {
            ("cublas", "float32"): {"compute_type": 77, "math_mode": 3},
            ("cublas", "complex64"): {"compute_type": 77, "math_mode": 3},
            ("cublaslt", "float32"): {"compute_type": 77},
        },
    ),
    ({"fp32_precision": "bf16"}, {}),
    (
        {EMULATION: "bf16x9"},
        {
            ("cublas", "float32"): {"compute_type": 78, "math_mode": 4},
            ("cublas", "complex64"): {"compute_type": 78, "math_mode": 4},
            ("cublaslt", "float32"): {"compute_type": 78},
            ("cublaslt", "complex64"): {"compute_type": 78},
        },
    ),
    (
        {EMULATION: "bf16x9", FP32: "tf32"},  # what is asked for by name comes first
        {
            ("cublas", "float32"): {"compute_type": 77, "math_mode": 3},
            ("cublas", "complex64"): {"compute_type": 77, "math_mode": 3},
            ("cublaslt", "float32"): {"compute_type": 77},
            ("cublaslt", "complex64"): {"compute_type": 78},
        },
    ),
    (
        {FP16: False},
        {
            ("cublas", "float16"): {"math_mode": 16},
            ("cublaslt", "float16"): {"reduction": 2},
        },
    ),
    (
        {BF16: False},
        {
            ("cublas", "bfloat16"): {"math_mode": 16},
            ("cublaslt", "bfloat16"): {"reduction": 2},
        },
    ),
    (
        {"cuda.matmul.allow_fp16_accumulation": True},
        {
            ("cublas", "float16"): {"compute_type": 64, "scale_type": 2},
            ("cublaslt", "float16"): {"compute_type": 64, "scale_type": 2},
        },
    ),
    (
        {"cuda.cublas_workspace_size": 4096},
        {("cublas", element): {"workspace": 4096} for element in ELEMENTS},
    ),
    (
        {"cuda.cublaslt_workspace_size": 4096},
        {("cublaslt", element): {"workspace": 4096} for element in ELEMENTS},
    ),
    ({"determinism.algorithms": "deterministic"}, {}),
    ({"determinism.tier": "run-to-run"}, {}),
    ({"ops.check_finite": True}, {}),
]


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("provider", ["cublas", "cublaslt"])
@pytest.mark.parametrize(("flags", "changes"), CHANGES, ids=lambda value: "+".join(map(str, value)))
def test_a_flag_changes_what_it_says_and_nothing_else(flags, changes, provider, element):
    usual, changed = made(provider, element), made(provider, element, flags)
    fields = vars(usual).keys() if hasattr(usual, "__dict__") else Recipe.__annotations__
    differs = {
        name: getattr(changed, name)
        for name in fields
        if getattr(changed, name) != getattr(usual, name)
    }
    assert differs == changes.get((provider, element), {})


@pytest.mark.parametrize(
    ("leaf", "cuda", "everything", "is_tf32"),
    [
        ("ieee", "tf32", "tf32", False),
        ("tf32", "ieee", "ieee", True),
        ("none", "ieee", "tf32", False),
        ("none", "tf32", "ieee", True),
        ("none", "none", "tf32", True),
        ("none", "none", "ieee", False),
        ("none", "none", "none", False),
    ],
)
def test_the_nearest_precision_that_says_something_holds(leaf, cuda, everything, is_tf32):
    flags = {FP32: leaf, "cudnn.fp32_precision": cuda, "fp32_precision": everything}
    assert made("cublas", "float32", flags).math_mode == (3 if is_tf32 else 0)


@pytest.mark.parametrize(("element", "flag"), [("float16", FP16), ("bfloat16", BF16)])
def test_cublas_cannot_be_told_not_to_split_k_and_cublaslt_can(element, flag):
    flags = {flag: False, f"{flag}_split_k": False}
    assert made("cublas", element, flags) == (
        f"it cannot be told not to split K, as `{flag}_split_k` asks"
    )
    assert made("cublaslt", element, flags).reduction == 0
    assert made("cublas", "float32", flags) == made("cublas", "float32")


def test_accumulation_in_float16_needs_tensor_cores():
    flags = {"cuda.matmul.allow_fp16_accumulation": True}
    for provider in ("cublas", "cublaslt"):
        assert made(provider, "float16", flags, (7, 0)).compute_type == 64
        assert made(provider, "float16", flags, MAXWELL).compute_type == 68
        assert made(provider, "bfloat16", flags, (7, 0)).compute_type == 68


def test_a_hopper_has_the_larger_workspace_of_cublas():
    assert made("cublas", "float32", capability=HOPPER).workspace == 32 << 20
    assert made("cublas", "float32", capability=(10, 0)).workspace == 8519680
    sized = {"cuda.cublas_workspace_size": 1024}
    assert made("cublas", "float32", sized, HOPPER).workspace == 1024


@pytest.mark.parametrize(
    ("preferred", "first"),
    [
        ("default", "cublas"),
        ("cublas", "cublas"),
        ("cublaslt", "cublaslt"),
        ("hipblas", "cublas"),
        ("hipblaslt", "cublaslt"),
        ("ck", "cublas"),
    ],
)
def test_the_preferred_library_of_either_vendor_comes_first(preferred, first):
    found = order(gemm.CUDA, preferred)
    assert found[0] == first
    assert sorted(found) == ["cublas", "cublaslt"]


HIPBLAS = {
    "float32": (0, 2, 0, 0, 1, 160, 0, 128 << 20),
    "float64": (1, 7, 1, 0, 1, 160, 0, 128 << 20),
    "complex64": (4, 2, 4, 0, 1, 160, 0, 128 << 20),
    "complex128": (5, 7, 5, 0, 1, 160, 0, 128 << 20),
    "bfloat16": (14, 2, 0, 0, 1, 160, 0, 128 << 20),
    "float16": (2, 2, 0, 0, 1, 160, 0, 128 << 20),
}
GFX942, GFX90A = (9, 4), (9, 0)


@pytest.mark.parametrize("element", ELEMENTS)
def test_without_flags_hipblas_is_called_as_pytorch_calls_it(element):
    assert made("hipblas", element, None, GFX942) == Recipe("hipblas", element, *HIPBLAS[element])
    assert made("hipblas", element, None, GFX90A).workspace == 32 << 20


@pytest.mark.parametrize(("provider", "plain"), [("cublas", (68, 0)), ("cublaslt", (68, 0))])
def test_a_library_from_before_emulation_computes_in_float32(provider, plain):
    asked = made(provider, "float32", {EMULATION: "bf16x9"})
    assert gemm.for_version(asked, (12, 9, 0)) is asked
    older = gemm.for_version(asked, (12, 8, 5))
    assert (older.compute_type, older.math_mode) == plain
    assert older == made(provider, "float32")
    tf32 = made(provider, "float32", {FP32: "tf32"})
    assert gemm.for_version(tf32, (12, 4, 0)) is tf32


def test_xf32_stands_for_tf32_on_the_devices_that_have_it():
    assert made("hipblas", "float32", {FP32: "tf32"}, GFX942).math_mode == 1
    assert made("hipblas", "float32", {FP32: "tf32"}, GFX90A).math_mode == 0
    assert made("hipblas", "float32", {FP32: "tf32"}, (9, 5)).math_mode == 0
    assert made("hipblas", "complex64", {FP32: "tf32"}, GFX942).math_mode == 0


@pytest.mark.parametrize(
    "flags",
    [{"determinism.algorithms": "deterministic"}, {"determinism.tier": "run-to-run"}],
)
def test_hipblas_adds_atomically_unless_somebody_wants_the_same_bits(flags):
    for element in ELEMENTS:
        assert made("hipblas", element, flags, GFX942).atomics == 0
        assert made("hipblas", element, {"determinism.algorithms": "warn"}).atomics == 1


def test_hipblas_cannot_be_told_not_to_split_k():
    flags = {FP16: False, f"{FP16}_split_k": False}
    assert made("hipblas", "float16", flags) == (
        f"it cannot be told not to split K, as `{FP16}_split_k` asks"
    )
    assert made("hipblas", "bfloat16", flags) == made("hipblas", "bfloat16")


def test_a_recipe_is_said_in_the_words_of_the_vendor():
    assert words(made("cublas", "float32", {FP32: "tf32"})) == {
        "compute": "CUBLAS_COMPUTE_32F_FAST_TF32",
        "math": "CUBLAS_TF32_TENSOR_OP_MATH",
        "workspace": 8519680,
    }
    assert words(made("cublas", "float16", {FP16: False}))["math"] == (
        "CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION"
    )
    assert words(made("cublaslt", "bfloat16", {BF16: False})) == {
        "compute": "CUBLAS_COMPUTE_32F",
        "reduction": "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE",
        "workspace": 1 << 20,
    }
