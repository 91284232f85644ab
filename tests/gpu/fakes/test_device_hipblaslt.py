"""Products of arrays on AMD's devices by hipBLASLt, which serves where a profile prefers it."""

import itertools

import numpy as np
import pytest
from device_arrays import OnDevice
from products import PREFER, on_device, under

from backendcfg import ops
from backendcfg.errors import DeviceFailedError
from backendcfg.gpu.products import gemm
from backendcfg.gpu.products.gemm import DEFAULTS, ELEMENTS, Recipe, order, recipe, words

MI300, MI200 = (9, 4), (9, 0)
FP32 = "cuda.matmul.fp32_precision"
FP16 = "cuda.matmul.allow_fp16_reduced_precision_reduction"
SERVED = ("float32", "bfloat16", "float16")
HIP_N, HIP_T = 111, 112


def made(element, flags=None, capability=MI300):
    return recipe("hipblaslt", {**DEFAULTS, **(flags or {})}, element, capability)


def on_amd(shape, element="float32", seed=0):
    return on_device(shape, element, seed, (10, 0))


def expected(a, b):
    return np.matmul(a.values().astype("float64"), b.values().astype("float64"))


# data_type, compute_type, scale_type, math_mode, atomics, algorithm, reduction, workspace
NUMBERS = {
    "float32": (0, 2, 0, 0, 0, 0, 0, 76 << 20),
    "bfloat16": (14, 2, 0, 0, 0, 0, 0, 76 << 20),
    "float16": (2, 2, 0, 0, 0, 0, 0, 76 << 20),
}


@pytest.mark.parametrize("element", SERVED)
def test_without_flags_it_is_called_as_pytorch_calls_it(element):
    assert made(element) == Recipe("hipblaslt", element, *NUMBERS[element])


@pytest.mark.parametrize("element", sorted(set(ELEMENTS) - set(SERVED)))
def test_other_types_are_left_to_hipblas(element):
    assert made(element) == f"it has no products of {element}"


def test_its_flags_say_what_hipblas_is_told_in_its_own_numbers():
    assert made("float32", {FP32: "tf32"}).compute_type == 6
    assert made("float32", {FP32: "tf32"}, MI200).compute_type == 2
    assert made("float16", {"cuda.matmul.allow_fp16_accumulation": True}).compute_type == 2
    assert made("float16", {"cuda.cublaslt_workspace_size": 512}).workspace == 512
    assert made("float16", {"cuda.cublas_workspace_size": 512}).workspace == 76 << 20
    assert words(made("float32", {FP32: "tf32"})) == {
        "compute": "HIPBLAS_COMPUTE_32F_FAST_TF32",
        "workspace": 76 << 20,
    }


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({FP16: False, f"{FP16}_split_k": False}, f"not to split K, as `{FP16}_split_k` asks"),
        (
            {"determinism.algorithms": "deterministic"},
            "not to add atomically, as `determinism.algorithms` asks",
        ),
        (
            {"determinism.tier": "run-to-run"},
            "not to add atomically, as `determinism.tier` asks",
        ),
    ],
)
def test_what_it_cannot_be_told_it_refuses(flags, why):
    assert made("float16", flags) == f"it cannot be told {why}"


@pytest.mark.parametrize(
    ("preferred", "first"),
    [
        ("default", "hipblas"),
        ("cublas", "hipblas"),
        ("hipblas", "hipblas"),
        ("cublaslt", "hipblaslt"),
        ("hipblaslt", "hipblaslt"),
        ("ck", "hipblas"),
    ],
)
def test_the_preferred_library_of_either_vendor_comes_first(preferred, first):
    found = order(gemm.ROCM, preferred)
    assert found[0] == first
    assert sorted(found) == ["hipblas", "hipblaslt"]


_sizes = itertools.count(1 << 20, 16)


@pytest.fixture(params=["hipblaslt", "cublaslt"])
def preferred(request, devices):
    """With a workspace of another size in each test, so that no plan is kept from another one."""
    with under(**{PREFER: request.param, "cuda.cublaslt_workspace_size": next(_sizes)}):
        yield devices


SHAPES = [
    ((3, 5), (5, 4)),
    ((5,), (5, 4)),
    ((3, 5), (5,)),
    ((6, 3, 5), (6, 5, 4)),
    ((6, 3, 5), (5, 4)),
    ((2, 1, 3, 5), (6, 5, 4)),
]


@pytest.mark.parametrize("element", SERVED)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_a_product_is_right(preferred, element, left, right):
    a, b = on_amd(left, element), on_amd(right, element, 1)
    result = ops.matmul(a, b)
    assert (result.element, result.place) == (element, (10, 0))
    assert np.array_equal(result.values().astype("float64"), expected(a, b))
    assert preferred.hipblaslt.calls("hipblasLtMatmul") != []
    assert preferred.hipblas.calls() == []


@pytest.mark.parametrize("transposed", [False, True])
def test_operations_and_sizes_have_its_own_numbers(preferred, transposed):
    a, b = on_amd((3, 5)), on_amd((5, 4), seed=1)
    if transposed:
        a, b = (OnDevice(np.array(each.array, order="F"), None, (10, 0)) for each in (a, b))
    result = ops.matmul(a, b)
    assert np.array_equal(result.array, expected(a, b))
    told = [
        (call["attribute"], call["value"])
        for call in preferred.hipblaslt.calls("hipblasLtMatmulDescSetAttribute")
    ]
    operation = HIP_T if transposed else HIP_N
    assert told == [(0, operation), (1, operation)]
    (call,) = preferred.hipblaslt.calls("hipblasLtMatmul")
    size = call["workspace_bytes"]
    assert [call[f"d_{name}"] for name in ("rows", "columns", "leading")] == [4, 3, 4]
    asked = [
        (call["attribute"], call["value"])
        for call in preferred.hipblaslt.calls("hipblasLtMatmulPreferenceSetAttribute")
    ]
    assert asked == [(1, size)]


def test_a_batch_says_its_count_and_stride(preferred):
    ops.bmm(on_amd((6, 2, 5)), on_amd((6, 5, 4)))
    told = [
        (call["attribute"], call["value"])
        for call in preferred.hipblaslt.calls("hipblasLtMatrixLayoutSetAttribute")
    ]
    assert told == [(0, 6), (1, 20), (0, 6), (1, 10), (0, 6), (1, 8)]


def test_the_second_call_of_a_kind_asks_no_heuristic(preferred):
    a, b, out = on_amd((9, 5)), on_amd((5, 8)), on_amd((9, 8))
    ops.matmul(a, b, out=out)
    preferred.reset()
    ops.matmul(a, b, out=out)
    assert [call.function for call in preferred.hipblaslt.calls()] == ["hipblasLtMatmul"]


def test_a_vector_is_added_by_its_epilogue_only_where_it_serves(devices, monkeypatch):
    a, b, added = on_amd((3, 5)), on_amd((5, 4), seed=1), on_amd((4,), seed=2)
    wanted = expected(a, b) + added.array
    assert np.array_equal(ops.addmm(added, a, b).array, wanted)
    assert devices.hipblaslt.calls() == []
    monkeypatch.setattr(OnDevice, "copy_", None)
    with under(**{PREFER: "hipblaslt"}):
        assert np.array_equal(ops.addmm(added, a, b).array, wanted)
    (call,) = devices.hipblaslt.calls("hipblasLtMatmul")
    assert (call["epilogue"], call["bias"], call["bias_type"]) == (4, added.array.ctypes.data, 0)


def test_what_it_has_no_algorithm_for_hipblas_computes(preferred):
    preferred.hipblaslt.fail("hipblasLtMatmulAlgoGetHeuristic", 7)
    a, b = on_amd((3, 7)), on_amd((7, 4), seed=1)
    with ops.trace() as calls:
        assert np.array_equal(ops.matmul(a, b).array, expected(a, b))
    assert str(calls) == "matmul  3x4x7  float32  hipblas  those before it in the order cannot"


def test_a_failure_is_said_by_its_name_and_passes(preferred):
    a, b = on_amd((3, 5)), on_amd((5, 4), seed=1)
    for status, name in ((2, "ALLOC_FAILED"), (6, "INTERNAL_ERROR"), (8, "ARCH_MISMATCH")):
        preferred.hipblaslt.fail("hipblasLtMatmul", status)
        with pytest.raises(DeviceFailedError) as caught:
            ops.matmul(a, b)
        assert str(caught.value).startswith(
            f"matmul: hipblaslt failed: hipblasLtMatmul returned HIPBLAS_STATUS_{name} ({status})"
        )
        preferred.reset()
    assert np.array_equal(ops.matmul(a, b).array, expected(a, b))


def test_explain_and_stats_name_it(preferred):
    ops.matmul(on_amd((3, 5)), on_amd((5, 4)))
    ((served),) = [one for one in ops.stats().operations if one.provider == "hipblaslt"]
    assert (served.operation, served.calls) == ("sgemm", 1)
    said = ops.explain("matmul", ((3, 5), (5, 4)), "float32", device="rocm:0")
    assert (said.provider, said.path) == ("hipblaslt", preferred.hipblaslt.path)
    assert said.because.startswith(
        "the first of the order: compute HIPBLAS_COMPUTE_32F, workspace 1"
    )
    assert [(reason.provider, reason.why) for reason in said.reasons] == [
        ("hipblas", "behind `hipblaslt`, and takes over where that has no algorithm")
    ]
